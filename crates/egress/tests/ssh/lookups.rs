//! Host keys from the user's known hosts.

use crate::stage::{Stage, done, tools};
use belljar_contract::{Host, Port, SshEntry, SshPublicKey};
use belljar_egress::ssh::{KnownHostError, host_keys, known_hosts_files};
use belljar_testkit::require;
use std::path::Path;
use std::process::Command;

fn at(stage: &Stage, hostname: &str, port: u16, known: Option<&SshPublicKey>) -> SshEntry {
    let mut entry = stage.entry("forge", "git", "id", known);
    entry.hostname = Host::parse(hostname.as_bytes()).unwrap();
    entry.port = Port::new(port).unwrap();
    entry
}

#[test]
fn known_hosts_that_are_plain_hashed_or_have_a_port() {
    require!(Sshd);
    let stage = Stage::new();
    let key = |name: &str| stage.host(name, &["-t", "ed25519"]);
    let (a, b, c, d) = (key("a"), key("b"), key("c"), key("d"));
    let rsa = stage.host("rsa", &["-t", "rsa", "-b", "2048"]);
    let own = stage.write(
        "own",
        &format!(
            "# a comment\nforge.test,192.0.2.1 {a}\nforge.test {rsa} a comment\n[forge.test]:2222 {b}\n*.wide.test {c}\n2001:db8::1 {d}\n"
        ),
    );
    let hashed = stage.write("hashed", &format!("hidden.test {c}\n[hidden.test]:2200 {d}\n"));
    done(Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&hashed));
    assert!(!std::fs::read_to_string(&hashed).unwrap().contains("hidden"), "it is hashed");
    let files = [own, hashed, stage.path("missing")];
    let keys = |hostname: &str, port| host_keys(&at(&stage, hostname, port, None), &files, &tools());
    assert_eq!(keys("forge.test", 22).unwrap(), [a.clone(), rsa.clone()]);
    assert_eq!(keys("192.0.2.1", 22).unwrap(), std::slice::from_ref(&a));
    assert_eq!(keys("[2001:db8::1]", 22).unwrap(), std::slice::from_ref(&d));
    assert_eq!(keys("forge.test", 2222).unwrap(), [b]);
    assert_eq!(keys("forge.test", 2223).unwrap(), [a, rsa], "known on every port");
    assert_eq!(keys("x.wide.test", 22).unwrap(), std::slice::from_ref(&c));
    assert_eq!(keys("hidden.test", 22).unwrap(), std::slice::from_ref(&c));
    assert_eq!(keys("hidden.test", 2200).unwrap(), [d]);
    let unknown = keys("other.test", 2222).unwrap_err();
    assert!(matches!(unknown, KnownHostError::NotKnown { .. }), "{unknown}");
    let text = unknown.to_string();
    assert!(
        text.contains("`[other.test]:2222`") && text.contains("ssh-keyscan -p 2222 other.test |"),
        "{text}"
    );
    assert_eq!(
        host_keys(&at(&stage, "other.test", 22, Some(&c)), &files, &tools()).unwrap(),
        [c],
        "declared"
    );
}

#[test]
fn revoked_keys_and_authorities() {
    require!(Sshd);
    let stage = Stage::new();
    let key = |name: &str| stage.host(name, &["-t", "ed25519"]);
    let (a, b) = (key("a"), key("b"));
    let file = stage.write(
        "own",
        &format!(
            "one.test {a}\n@revoked * {a}\ntwo.test {a}\ntwo.test {b}\n@cert-authority *.signed.test {b}\n"
        ),
    );
    let files = [file];
    let keys = |hostname: &str, known| host_keys(&at(&stage, hostname, 22, known), &files, &tools());
    assert!(matches!(keys("one.test", None).unwrap_err(), KnownHostError::Revoked { .. }));
    assert!(matches!(keys("new.test", Some(&a)).unwrap_err(), KnownHostError::Revoked { .. }));
    assert_eq!(keys("two.test", None).unwrap(), std::slice::from_ref(&b));
    assert!(matches!(keys("x.signed.test", None).unwrap_err(), KnownHostError::Authority { .. }));
    assert_eq!(keys("x.signed.test", Some(&b)).unwrap(), [b]);
}

#[test]
fn keys_of_a_kind_that_cannot_be_checked() {
    require!(Sshd);
    let stage = Stage::new();
    let short = stage.host("a", &["-t", "rsa", "-b", "1024"]);
    let good = stage.host("b", &["-t", "ed25519"]);
    let file = stage.write("own", &format!("one.test {short}\ntwo.test {short}\ntwo.test {good}\n"));
    let keys =
        |hostname: &str| host_keys(&at(&stage, hostname, 22, None), std::slice::from_ref(&file), &tools());
    assert!(matches!(keys("one.test").unwrap_err(), KnownHostError::Unusable { .. }));
    assert_eq!(keys("two.test").unwrap(), [good]);
}

#[test]
fn the_files_that_ssh_reads() {
    let files = known_hosts_files(Path::new("/home/ann"));
    assert_eq!(files[0], Path::new("/home/ann/.ssh/known_hosts"));
    assert!(files.contains(&"/etc/ssh/ssh_known_hosts".into()));
}
