//! Logins: the declared one works, and the broker refuses every other one.

use crate::stage::{Broker, OwnAgent, Stage, done, run};
use belljar_egress::ssh::HeldKeys;
use belljar_testkit::require;
use std::process::Command;

const ED25519: &[&str] = &["-t", "ed25519"];
const KINDS: [&[&str]; 5] = [
    ED25519,
    &["-t", "ecdsa", "-b", "256"],
    &["-t", "ecdsa", "-b", "384"],
    &["-t", "ecdsa", "-b", "521"],
    &["-t", "rsa", "-b", "2048"],
];

/// One host, one key, one entry; ssh is configured for it.
fn declared(stage: &Stage, user: &str, key: &[&str], host: &[&str]) -> (HeldKeys, Broker) {
    let host_key = stage.host("forge", host);
    stage.key("id", key);
    let (_, held) = stage.hold(&[stage.entry("forge", user, "id", Some(&host_key))], None);
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, &host_key);
    (held, broker)
}

#[test]
fn every_kind_of_key_at_every_kind_of_host() {
    require!(Sshd);
    for kind in KINDS {
        let stage = Stage::new();
        let (_held, broker) = declared(&stage, stage.me(), kind, kind);
        let said = done(stage.ssh().args(["forge", "echo $0 in"]));
        assert!(said.ends_with("in\n"), "{said}");
        let (reported, summary) = broker.end();
        assert_eq!(reported, ["forge login allowed"], "{kind:?}");
        assert_eq!((summary.signatures, summary.refusals, summary.failures), (1, 0, 0));
    }
}

#[test]
fn both_hashes_of_an_rsa_host() {
    require!(Sshd);
    for algorithm in ["rsa-sha2-256", "rsa-sha2-512"] {
        let stage = Stage::new();
        let (_held, broker) = declared(&stage, stage.me(), ED25519, &["-t", "rsa", "-b", "2048"]);
        done(stage.ssh().arg(format!("-oHostKeyAlgorithms={algorithm}")).args(["forge", "true"]));
        assert_eq!(broker.end().0, ["forge login allowed"], "{algorithm}");
    }
}

#[test]
fn another_host_with_the_same_authorized_key() {
    require!(Sshd);
    let stage = Stage::new();
    let (held, broker) = declared(&stage, stage.me(), ED25519, ED25519);
    let backup = stage.host("backup", ED25519);
    let careless = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"];
    // The host would accept the key: only the broker refuses.
    let agent = format!("-oIdentityAgent={}", held.grants[0].agent.display());
    done(stage.ssh().args(careless).arg(&agent).args(["backup", "true"]));
    let refused = run(stage.ssh().args(careless).args(["backup", "true"]));
    assert!(
        !refused.status.success() && refused.stderr.contains("agent refused operation"),
        "{}",
        refused.stderr
    );
    let reported = broker.end().0;
    assert_eq!(reported[0], format!("- bind refused: no declared host has the key {}", backup.fingerprint()));
    assert_eq!(reported[1], "- sign refused: the connection's binding to a host was refused");
}

#[test]
fn a_host_with_another_key_than_the_pinned_one() {
    require!(Sshd);
    let stage = Stage::new();
    let (_held, broker) = declared(&stage, stage.me(), ED25519, ED25519);
    std::fs::remove_file(stage.path("forge.key")).unwrap();
    stage.host("forge", ED25519);
    let refused = run(stage.ssh().args(["forge", "true"]));
    assert!(refused.stderr.contains("Host key verification failed"), "{}", refused.stderr);
    assert_eq!(broker.reported(), [""; 0], "ssh did not get as far as to ask");
    let careless = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"];
    let refused = run(stage.ssh().args(careless).args(["forge", "true"]));
    assert!(!refused.status.success(), "{}", refused.stderr);
    assert!(broker.reported()[0].starts_with("- bind refused: no declared host has the key SHA256:"));
    assert_eq!(broker.end().1.signatures, 0);
}

#[test]
fn another_user() {
    require!(Sshd);
    let stage = Stage::new();
    let (held, broker) = declared(&stage, "another-user", ED25519, ED25519);
    let agent = format!("-oIdentityAgent={}", held.grants[0].agent.display());
    done(stage.ssh().arg(&agent).args(["forge", "true"]));
    let refused = run(stage.ssh().args(["forge", "true"]));
    assert!(!refused.status.success());
    let wanted = format!("- sign refused: this key is not declared for `{}` at this host", stage.me());
    assert_eq!(broker.end().0, [wanted]);
}

#[test]
fn another_key_of_the_same_agent() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    let (id, other) = (stage.key("id", ED25519), stage.key("other", ED25519));
    let own = OwnAgent::start(&stage, &[&other, &id]);
    let entries = [stage.entry("forge", stage.me(), "id", Some(&host_key))];
    let (_, held) = stage.hold(&entries, Some(&own.socket));
    assert_eq!(held.grants[0].agent, own.socket, "the user's own agent has the key");
    assert!(!stage.path("held").exists(), "so none of ours is started");
    let broker = stage.broker(held.grants.clone());
    let listed = done(Command::new("ssh-add").arg("-l").env("SSH_AUTH_SOCK", &broker.socket));
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(listed.contains(&held.grants[0].key.fingerprint()) && listed.contains(" forge "), "{listed}");
    stage.configure("forge", "other", &own.socket, &host_key);
    done(stage.ssh().args(["forge", "true"]));
    stage.configure("forge", "other", &broker.socket, &host_key);
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    stage.configure("forge", "id", &broker.socket, &host_key);
    done(stage.ssh().args(["forge", "true"]));
    assert_eq!(broker.end().0, ["forge login allowed"]);
}

#[test]
fn an_agent_that_was_forwarded() {
    require!(Sshd);
    let stage = Stage::new();
    let (held, broker) = declared(&stage, stage.me(), ED25519, ED25519);
    // On that host, the forwarded agent is used to log in at the declared host.
    let onward =
        format!("ssh -F {} -oIdentityAgent=$SSH_AUTH_SOCK forge echo onward", stage.path("config").display());
    let agent = format!("-oIdentityAgent={}", held.grants[0].agent.display());
    assert_eq!(done(stage.ssh().args(["-A", &agent, "forge", &onward])), "onward\n");
    let refused = run(stage.ssh().args(["-A", "forge", &onward]));
    assert!(!refused.status.success() && !refused.stdout.contains("onward"), "{refused:?}");
    let reported = broker.end().0;
    assert_eq!(reported[0], "forge login allowed");
    assert_eq!(reported[1], "- bind refused: forwarding the agent to a host is not allowed");
    assert_eq!(reported[2], "- bind refused: the connection is already bound, or a binding was refused");
    assert_eq!(reported[3], "- sign refused: the connection's binding to a host was refused");
    assert_eq!(reported.len(), 4, "{reported:?}");
}

#[test]
fn git_clones_and_pushes() {
    require!(Sshd, Git);
    let stage = Stage::new();
    let (_held, broker) = declared(&stage, stage.me(), ED25519, ED25519);
    let bare = stage.path("project.git");
    let git = || {
        let mut command = Command::new("git");
        command
            .env("GIT_SSH_COMMAND", format!("ssh -F {}", stage.path("config").display()))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .args(["-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "init.defaultBranch=main"]);
        command
    };
    done(git().args(["init", "-q", "--bare"]).arg(&bare));
    let copy = stage.path("copy");
    done(git().args(["clone", "-q"]).arg(format!("forge:{}", bare.display())).arg(&copy));
    done(git().arg("-C").arg(&copy).args(["commit", "-q", "--allow-empty", "-m", "through the broker"]));
    done(git().arg("-C").arg(&copy).args(["push", "-q", "origin", "HEAD:main"]));
    let log = done(git().arg("-C").arg(&bare).args(["log", "--format=%s", "main"]));
    assert_eq!(log, "through the broker\n");
    assert_eq!(broker.end().0, ["forge login allowed", "forge login allowed"]);
}

/// A key that the user's agent restricts to a host: the agent gets the binding too.
#[test]
fn a_key_that_the_outer_agent_limits_to_hosts() {
    require!(Sshd);
    let stage = Stage::new();
    let (host_key, backup) = (stage.host("forge", ED25519), stage.host("backup", ED25519));
    let id = stage.key("id", ED25519);
    let own = OwnAgent::start(&stage, &[]);
    stage.write("known", &format!("forge.test {host_key}\n"));
    let known = stage.path("known");
    done(
        Command::new("ssh-add")
            .arg("-q")
            .args(["-h", "forge.test", "-H"])
            .arg(&known)
            .arg(&id)
            .env("SSH_AUTH_SOCK", &own.socket),
    );
    let entries = [
        stage.entry("forge", stage.me(), "id", Some(&host_key)),
        stage.entry("backup", stage.me(), "id", Some(&backup)),
    ];
    let (_, held) = stage.hold(&entries, Some(&own.socket));
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, &host_key);
    done(stage.ssh().args(["forge", "true"]));
    stage.configure("backup", "id", &broker.socket, &backup);
    assert!(!run(stage.ssh().args(["backup", "true"])).status.success());
    let (reported, summary) = broker.end();
    assert_eq!(reported[0], "forge login allowed");
    assert_eq!(reported[2], "backup login failed: the agent that holds the key refused to sign");
    assert_eq!((summary.signatures, summary.failures), (1, 1));
}
