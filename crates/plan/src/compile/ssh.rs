//! The ssh entries of a plan, the egress rules that they imply, and the files that ssh inside reads.
//!
//! A plan shows all of these files as they will be, except for what only the launch knows: the public half of a key,
//! and the keys of a host that the manifest does not name. [`fill_ssh`] puts those in.

use super::{Compiler, Reasons, Wanted, defaults};
use crate::explain::Origin;
use crate::manifest::SshSpec;
use belljar_contract::decode::At;
use belljar_contract::{
    AbsPath, Access, Destination, Egress, EgressPolicy, EgressRule, FileContent, GUEST_PROGRAM, Host,
    HostPattern, HostTarget, PatternPort, PlannedFile, RuleEffect, RunFiles, SSH_AGENT_SOCKET, SshEntry,
    SshFound, SshPublicKey,
};
use std::collections::BTreeSet;

impl Compiler<'_> {
    /// Keys, each for one host. A key that is not there is noticed now, not after a confirmation.
    pub(super) fn ssh(
        &mut self,
        written: &[At<SshSpec>],
        egress: &mut Egress,
        reasons: &mut Reasons,
    ) -> Vec<SshEntry> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for spec in written {
            let SshSpec { host, hostname, user, port, identity_file, known_host_key, sign_commits } =
                &spec.value;
            if !seen.insert(host.value.0.clone()) {
                let message = format!("the ssh host `{}` is declared twice", host.value.0);
                self.report("duplicate-ssh", message, &host.place, "the second");
                continue;
            }
            let what = format!("the key of the ssh host `{}`", host.value.0);
            let Some(path) = self.resolve(identity_file) else { continue };
            let Some(key) = self.existing(&path, &identity_file.place, &what, Wanted::File) else { continue };
            reasons.add(
                format!("ssh.{}", host.value.0),
                format!("{}@{}", user.value.0, hostname.value),
                Origin::Written(host.place.clone()),
            );
            let entry = SshEntry {
                host: host.value.0.clone(),
                hostname: hostname.value.clone(),
                user: user.value.0.clone(),
                port: port.as_ref().map_or(defaults::ssh_port(), |port| port.value),
                identity_file: key,
                known_host_key: known_host_key.as_ref().map(|key| key.value.clone()),
                sign_commits: sign_commits.as_ref().is_some_and(|sign| sign.value),
            };
            let rule = way(&entry, out.len() + 1);
            reasons.add(
                format!("egress.{}", rule.id),
                rule.host.to_string(),
                Origin::Written(hostname.place.clone()),
            );
            egress.rules.push(rule);
            if EgressPolicy::new(egress).admit(&destination(&entry)).is_err() {
                let message =
                    format!("`{}` can never be reached: a rule of egress denies it", entry.hostname);
                self.report("unreachable-ssh", message, &hostname.place, "denied").help =
                    Some("take it out of `egress.deny`, or leave this entry out".to_owned());
            }
            out.push(entry);
        }
        out
    }
}

fn destination(entry: &SshEntry) -> Destination {
    Destination { host: entry.hostname.clone(), port: entry.port }
}

/// A key for a host implies a rule that allows this host on its port.
fn way(entry: &SshEntry, number: usize) -> EgressRule {
    let target = match &entry.hostname {
        Host::Name(name) => HostTarget::Exact(name.clone()),
        Host::Address(address) => HostTarget::Address(*address),
    };
    EgressRule {
        id: format!("ssh-{number}"),
        effect: RuleEffect::Allow,
        host: HostPattern { target, port: PatternPort::Written(entry.port) },
        request: None,
    }
}

/// The files that ssh inside reads, as far as they are known.
pub(super) fn files(home: &AbsPath, entries: &[SshEntry]) -> Vec<PlannedFile> {
    if entries.is_empty() {
        return Vec::new();
    }
    let directory = home.child(".ssh");
    let file = |name: &str, content: FileContent, why: &str| PlannedFile {
        target: directory.child(name),
        content,
        access: Access::ReadOnly,
        why: why.to_owned(),
    };
    let looked_up: Vec<String> = entries
        .iter()
        .filter(|entry| entry.known_host_key.is_none())
        .map(|entry| entry.host.clone())
        .collect();
    let known_hosts = if looked_up.is_empty() {
        let pinned = |entry: &'_ SshEntry| entry.known_host_key.iter().cloned().collect::<Vec<_>>();
        FileContent::Text(entries.iter().map(|entry| known_lines(entry, &pinned(entry))).collect())
    } else {
        FileContent::SshKnownHosts { looked_up }
    };
    let mut out = vec![
        file("config", FileContent::Text(config(entries)), "ssh finds its hosts, and the way to them"),
        file("known_hosts", known_hosts, "ssh talks to no other host under their names"),
    ];
    for (index, entry) in entries.iter().enumerate() {
        let content = FileContent::SshPublicKey {
            host: entry.host.clone(),
            identity_file: entry.identity_file.clone(),
        };
        out.push(file(&public_key_file(index), content, "which key to ask for; the key itself is outside"));
    }
    out
}

/// The keys of a host are missing from the lookup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the keys of the ssh host `{host}` were not looked up")]
pub struct SshNotFound {
    pub host: String,
}

/// Adds the contents of the files of ssh, which are made from what was found on this machine.
///
/// # Errors
/// When a host's key was not found.
pub fn ssh_files(
    files: &[PlannedFile],
    entries: &[SshEntry],
    found: &[SshFound],
    out: &mut RunFiles,
) -> Result<(), SshNotFound> {
    let of = |host: &str| {
        let missing = || SshNotFound { host: host.to_owned() };
        found.iter().find(|found| found.host == host && !found.host_keys.is_empty()).ok_or_else(missing)
    };
    let mut known_hosts = String::new();
    for entry in entries {
        known_hosts.push_str(&known_lines(entry, &of(&entry.host)?.host_keys));
    }
    for file in files {
        let text = match &file.content {
            FileContent::Text(_)
            | FileContent::JsonFrom { .. }
            | FileContent::Trust(_)
            | FileContent::Git(_) => continue,
            FileContent::SshKnownHosts { looked_up: _ } => known_hosts.clone(),
            FileContent::SshPublicKey { host, identity_file: _ } => {
                format!("{} {host}\n", of(host)?.public_key)
            }
        };
        out.add(&file.content, text.into_bytes());
    }
    Ok(())
}

fn public_key_file(index: usize) -> String {
    format!("belljar-{}.pub", index + 1)
}

/// The spelling of a host in ssh's own files: an address without brackets.
fn bare(host: &Host) -> String {
    match host {
        Host::Name(name) => name.to_string(),
        Host::Address(address) => address.to_string(),
    }
}

/// Needs no quoting: the types of aliases, users, hosts and ports allow harmless characters only.
fn config(entries: &[SshEntry]) -> String {
    let mut out =
        String::from("# Made by belljar for this run. The keys are outside; the agent signs with them.\n");
    for (index, entry) in entries.iter().enumerate() {
        let hostname = bare(&entry.hostname);
        // The first block that matches counts, so a name stands in one block only; an alias goes before a hostname.
        let taken = entries.iter().any(|other| other.host == hostname)
            || entries.iter().take(index).any(|other| other.hostname == entry.hostname);
        let names = if taken { entry.host.clone() } else { format!("{} {hostname}", entry.host) };
        out.push_str(&format!(
            "\nHost {names}\n\
             \x20   HostName {hostname}\n\
             \x20   User {}\n\
             \x20   Port {}\n\
             \x20   IdentityFile ~/.ssh/{}\n\
             \x20   ProxyCommand {GUEST_PROGRAM} connect %h %p\n",
            entry.user,
            entry.port,
            public_key_file(index),
        ));
    }
    out.push_str(&format!(
        "\nHost *\n\
         \x20   IdentityAgent {SSH_AGENT_SOCKET}\n\
         \x20   IdentitiesOnly yes\n\
         \x20   ForwardAgent no\n\
         \x20   PreferredAuthentications publickey\n\
         \x20   UserKnownHostsFile ~/.ssh/known_hosts\n\
         \x20   GlobalKnownHostsFile /dev/null\n\
         \x20   StrictHostKeyChecking yes\n\
         \x20   UpdateHostKeys no\n\
         \x20   HostKeyAlgorithms -*-cert-*,sk-*\n"
    ));
    out
}

/// The lines of `known_hosts` for one entry, under its alias and its hostname.
fn known_lines(entry: &SshEntry, keys: &[SshPublicKey]) -> String {
    let name = |name: &str| match entry.port {
        port if port == defaults::ssh_port() => name.to_owned(),
        port => format!("[{name}]:{port}"),
    };
    let (alias, hostname) = (name(&entry.host), name(&bare(&entry.hostname)));
    let names = if alias == hostname { alias } else { format!("{alias},{hostname}") };
    keys.iter().map(|key| format!("{names} {key}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::Port;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    fn entry(host: &str, hostname: &str, port: u16) -> SshEntry {
        SshEntry {
            host: host.to_owned(),
            hostname: Host::parse(hostname.as_bytes()).unwrap(),
            user: "git".to_owned(),
            port: Port::new(port).unwrap(),
            identity_file: AbsPath::new("/home/ann/.ssh/forge").unwrap(),
            known_host_key: None,
            sign_commits: false,
        }
    }

    fn hosts(entries: &[SshEntry]) -> Vec<String> {
        config(entries).lines().filter_map(|line| line.strip_prefix("Host ").map(str::to_owned)).collect()
    }

    #[test]
    fn a_name_stands_in_one_block_and_an_alias_before_a_hostname() {
        let twice = [entry("a", "git.example.org", 22), entry("b", "git.example.org", 2222)];
        assert_eq!(hosts(&twice), ["a git.example.org", "b", "*"]);
        let crossed = [entry("a", "b", 22), entry("b", "git.example.org", 22)];
        assert_eq!(hosts(&crossed), ["a", "b git.example.org", "*"]);
        assert_eq!(hosts(&[entry("forge", "forge", 22)]), ["forge", "*"]);
    }

    #[test]
    fn known_under_the_names_that_ssh_looks_up() {
        let key = SshPublicKey::parse(KEY).unwrap();
        let lines = |host: &str, hostname: &str, port| {
            known_lines(&entry(host, hostname, port), std::slice::from_ref(&key))
        };
        assert_eq!(lines("forge", "git.example.org", 22), format!("forge,git.example.org {KEY}\n"));
        assert_eq!(lines("forge", "192.0.2.1", 2222), format!("[forge]:2222,[192.0.2.1]:2222 {KEY}\n"));
        assert_eq!(lines("forge", "[2001:db8::1]", 22), format!("forge,2001:db8::1 {KEY}\n"));
        assert_eq!(lines("forge", "[2001:db8::1]", 23), format!("[forge]:23,[2001:db8::1]:23 {KEY}\n"));
        assert_eq!(lines("forge", "forge", 22), format!("forge {KEY}\n"));
        assert!(config(&[entry("forge", "[2001:db8::1]", 22)]).contains("    HostName 2001:db8::1\n"));
    }

    #[test]
    fn what_is_looked_up_is_filled_in_or_missed_by_name() {
        let home = AbsPath::new("/home/agent").unwrap();
        let entries = [entry("a", "a.example.org", 22), entry("b", "b.example.org", 22)];
        let made = files(&home, &entries);
        assert_eq!(made[1].content, FileContent::SshKnownHosts { looked_up: vec!["a".into(), "b".into()] });
        let key = SshPublicKey::parse(KEY).unwrap();
        let found = |host: &str, host_keys: &[SshPublicKey]| SshFound {
            host: host.to_owned(),
            public_key: key.clone(),
            host_keys: host_keys.to_vec(),
        };
        let both = std::slice::from_ref(&key);
        for incomplete in [vec![found("a", both)], vec![found("a", both), found("b", &[])]] {
            let mut run_files = RunFiles::default();
            let missing = ssh_files(&made, &entries, &incomplete, &mut run_files);
            assert_eq!(missing, Err(SshNotFound { host: "b".to_owned() }));
            assert_eq!(run_files, RunFiles::default());
        }
        let mut run_files = RunFiles::default();
        ssh_files(&made, &entries, &[found("b", both), found("a", both)], &mut run_files).unwrap();
        let known = format!("a,a.example.org {KEY}\nb,b.example.org {KEY}\n");
        assert_eq!(run_files.get(&made[1].content), Some(known.as_bytes()));
        assert_eq!(run_files.get(&made[3].content), Some(format!("{KEY} b\n").as_bytes()));
        assert_eq!(run_files.get(&made[0].content), None);
        assert!(files(&home, &[]).is_empty());
    }
}
