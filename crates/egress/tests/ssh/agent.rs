//! What else an agent does, the broker does not.

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
        let before = broker.told().len();
        let refused = add(&broker.socket, attempt);
        assert!(!refused.status.success(), "{attempt:?}: {refused:?}");
        assert!(broker.told().len() > before, "{attempt:?} is told: {refused:?}");
    }
    for socket in [&broker.socket, &held.grants[0].agent] {
        let listed = add(socket, &["-l"]);
        assert_eq!(listed.stdout.lines().count(), 1, "{listed:?}");
    }
    let (told, summary) = broker.end();
    assert!(told.iter().all(|line| line.ends_with("is not for the inside")), "{told:#?}");
    assert_eq!((summary.refusals as usize, summary.signatures), (told.len(), 0));
}

#[test]
fn so_many_signatures_in_a_minute() {
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
fn what_cannot_be_noted_is_not_signed() {
    require!(Sshd);
    let stage = Stage::new();
    let host_key = stage.host("forge", ED25519);
    stage.key("id", ED25519);
    let (_, held) = stage.hold(&[stage.entry("forge", stage.me(), "id", Some(&host_key))], None);
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, &host_key);
    broker.deafen();
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    let (told, summary) = broker.end();
    assert_eq!((told.len(), summary.signatures, summary.failures), (0, 0, 1));
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
    // An answer to the last byte: the agent has taken the connection, so its end is seen as an end.
    open.write_all(&[0, 0, 0, 1, 11]).unwrap();
    let mut length = [0; 4];
    open.read_exact(&mut length).unwrap();
    open.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
    drop(held);
    assert_eq!(open.read(&mut [0]).unwrap(), 0, "the agent's end ends what is open to it");
    assert!(!stage.path("held").exists(), "the agent's folder goes with it");
    let broker = stage.broker(grants);
    stage.configure("forge", "id", &broker.socket, &host_key);
    assert!(!run(stage.ssh().args(["forge", "true"])).status.success());
    let told = broker.end().0;
    assert!(
        told[1].starts_with("forge login failed: the agent that holds the key cannot be reached"),
        "{told:?}"
    );
}
