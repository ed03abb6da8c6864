//! Agent requests that the broker does not support.

use crate::stage::{PATIENCE, Stage, done, run};
use belljar_egress::ssh::SshLimits;
use belljar_testkit::require;
use std::io::{Read, Write};
use std::process::Command;

const ED25519: &[&str] = &["-t", "ed25519"];

#[test]
fn nothing_is_added_removed_or_locked() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    stage.key("id", ED25519);
    let other = stage.key("other", ED25519).display().to_string();
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let broker = stage.broker(held.grants.clone());
    let add = |socket: &std::path::Path, words: &[&str]| {
        let mut command = Command::new("ssh-add");
        let askpass = stage.script("askpass", "#!/bin/sh\necho word\n");
        command.args(words).env("SSH_AUTH_SOCK", socket).env("SSH_ASKPASS", askpass);
        run(command.env("SSH_ASKPASS_REQUIRE", "force"))
    };
    let id = stage.path("id.pub").display().to_string();
    let attempts: [&[&str]; 8] = [
        &[&other],
        &["-t", "60", &other],
        &["-c", &other],
        &["-d", &id],
        &["-D"],
        &["-x"],
        &["-X"],
        &["-e", "/usr/lib/none.so"],
    ];
    for attempt in attempts {
        let before = broker.reported().len();
        let refused = add(&broker.socket, attempt);
        assert!(!refused.status.success(), "{attempt:?}: {refused:?}");
        assert!(broker.reported().len() > before, "{attempt:?} is reported: {refused:?}");
    }
    for socket in [&broker.socket, &held.grants[0].agent] {
        let listed = add(socket, &["-l"]);
        assert_eq!(listed.stdout.lines().count(), 1, "{listed:?}");
    }
    let (reported, summary) = broker.end();
    assert!(reported.iter().all(|line| line.ends_with("is not allowed inside the sandbox")), "{reported:#?}");
    assert_eq!((summary.refusals as usize, summary.signatures), (reported.len(), 0));
}

#[test]
fn signatures_per_minute_are_limited() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    stage.key("id", ED25519);
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let limits = SshLimits { signatures_per_minute: 2, ..SshLimits::default() };
    let broker = stage.broker_with(held.grants.clone(), limits);
    stage.configure("forge", "id", &broker.socket, &host_key);
    for _ in 0..2 {
        done(stage.ssh().args(["forge", "true"]));
    }
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    assert_eq!(broker.end().0[2], "- login refused: more than 2 signatures in a minute");
}

#[test]
fn nothing_is_signed_if_the_decision_cannot_be_kept() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    stage.key("id", ED25519);
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, &host_key);
    broker.deafen();
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    let (reported, summary) = broker.end();
    assert_eq!((reported.len(), summary.signatures, summary.failures), (0, 0, 1));
}

#[test]
fn an_outer_agent_that_is_gone() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    stage.key("id", ED25519);
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let grants = held.grants.clone();
    let mut open = std::os::unix::net::UnixStream::connect(&grants[0].agent).unwrap();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    // The complete response shows that the agent has accepted the connection, so that its end can be noticed.
    open.write_all(&[0, 0, 0, 1, 11]).unwrap();
    let mut length = [0; 4];
    open.read_exact(&mut length).unwrap();
    open.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
    drop(held);
    assert_eq!(open.read(&mut [0]).unwrap(), 0, "the agent's end ends what is open to it");
    assert!(!stage.path("held").exists(), "the agent's directory goes with it");
    let broker = stage.broker(grants);
    stage.configure("forge", "id", &broker.socket, &host_key);
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    let reported = broker.end().0;
    assert!(
        reported[1].starts_with("forge login failed: the agent that holds the key cannot be reached"),
        "{reported:?}"
    );
}
