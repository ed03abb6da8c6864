//! Keys for the run's own agent: with a passphrase, in old formats, and keys that are rejected.

use crate::stage::{OwnAgent, PATIENCE, Stage, done, tools};
use belljar_contract::SshEntry;
use belljar_egress::ssh::{Asking, HoldError, HoldRequest, PrivateHalf, hold, look_up, public_half};
use belljar_testkit::require;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const ED25519: &[&str] = &["-t", "ed25519"];

fn entries(stage: &Stage, identity: &str) -> Vec<SshEntry> {
    let host_key = stage.host("forge", ED25519);
    vec![stage.entry("forge", stage.me(), identity, Some(&host_key))]
}

fn attempt(
    stage: &Stage,
    entries: &[SshEntry],
    askpass: Option<&Path>,
    own: Option<&Path>,
) -> Result<belljar_egress::ssh::HeldKeys, HoldError> {
    let found = look_up(entries, &[], &tools()).unwrap();
    let directory = stage.path("held");
    let request = HoldRequest {
        tools: &tools(),
        user_agent: own,
        directory: &directory,
        asking: Asking::NoTerminal,
        askpass: askpass.map(|path| path.as_os_str().to_owned()),
        patience: if askpass.is_some_and(|path| path.ends_with("wrong")) {
            Duration::from_secs(1)
        } else {
            PATIENCE
        },
    };
    hold(entries, &found, &request)
}

#[test]
fn a_passphrase_is_asked_for() {
    require!(Sshd);
    let stage = Stage::new();
    let id = stage.key("id", &["-t", "ed25519", "-N", "open sesame"]);
    assert_eq!(public_half(&id).unwrap().private, PrivateHalf::Passphrase);
    let entries = entries(&stage, "id");
    let refused = attempt(&stage, &entries, None, None).unwrap_err();
    assert!(matches!(refused, HoldError::NoTerminal(_)), "{refused}");
    let wrong = stage.script("wrong", "#!/bin/sh\necho sesame\n");
    let refused = attempt(&stage, &entries, Some(&wrong), None).unwrap_err();
    assert!(matches!(refused, HoldError::Add { .. }), "{refused}");
    assert!(!stage.path("held").exists(), "nothing is left behind");
    let right = stage.script("right", "#!/bin/sh\necho open sesame\n");
    let held = attempt(&stage, &entries, Some(&right), None).unwrap();
    let mode = std::fs::metadata(stage.path("held")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, held.grants[0].host_keys[0].public());
    done(stage.ssh().args(["forge", "true"]));
    assert_eq!(broker.end().0, ["forge login allowed"]);
    drop(held);
    assert!(!stage.path("held").exists());
}

#[test]
fn an_old_format_has_its_public_key_in_a_pub_file() {
    require!(Sshd);
    let stage = Stage::new();
    let id = stage.key("id", &["-t", "rsa", "-b", "2048", "-m", "PEM"]);
    assert_eq!(public_half(&id).unwrap().private, PrivateHalf::Unknown);
    let entries = entries(&stage, "id");
    let held = attempt(&stage, &entries, None, None).unwrap();
    let broker = stage.broker(held.grants.clone());
    stage.configure("forge", "id", &broker.socket, held.grants[0].host_keys[0].public());
    done(stage.ssh().args(["forge", "true"]));
    assert_eq!(broker.end().0, ["forge login allowed"]);
    drop(held);
    stage.key("other", ED25519);
    std::fs::copy(stage.path("other.pub"), stage.path("id.pub")).unwrap();
    let refused = attempt(&stage, &entries, None, None).unwrap_err();
    assert!(matches!(refused, HoldError::OtherKey { .. }), "{refused}");
    std::fs::remove_file(stage.path("id.pub")).unwrap();
    let refused = look_up(&entries, &[], &tools()).unwrap_err();
    assert_eq!(refused.to_string(), "the key of the ssh host `forge` cannot be used");
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("ssh-keygen -y -f"), "{why}");
}

#[test]
fn a_public_key_is_enough_if_the_users_agent_has_the_private_key() {
    require!(Sshd);
    let stage = Stage::new();
    let id = stage.key("id", ED25519);
    let entries = entries(&stage, "id.pub");
    let refused = attempt(&stage, &entries, None, None).unwrap_err();
    assert!(matches!(refused, HoldError::NotOffered(_)), "{refused}");
    let gone = attempt(&stage, &entries, None, Some(&stage.path("no.sock"))).unwrap_err();
    assert!(matches!(gone, HoldError::NotOffered(_)), "{gone}");
    let own = OwnAgent::start(&stage, &[&id]);
    let held = attempt(&stage, &entries, None, Some(&own.socket)).unwrap();
    assert_eq!(held.grants[0].agent, own.socket);
}

#[test]
fn a_key_that_others_can_read_is_rejected() {
    require!(Sshd);
    let stage = Stage::new();
    let id = stage.key("id", ED25519);
    let entries = entries(&stage, "id");
    std::fs::set_permissions(&id, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = attempt(&stage, &entries, None, None).unwrap_err().to_string();
    assert!(refused.contains("are too open") && !refused.contains('\n'), "{refused}");
}

#[test]
fn files_without_a_key() {
    require!(Sshd);
    let stage = Stage::new();
    done(Command::new("mkfifo").arg(stage.path("pipe")));
    let cut = std::fs::read_to_string(stage.key("id", ED25519)).unwrap();
    stage.write("cut", &cut[..80]);
    stage.write("text", "hello\n");
    stage.write("empty", "");
    stage.write("binary", "-----BEGIN OPENSSH PRIVATE KEY-----\n\u{0}\u{1}\u{2}\u{3}");
    for name in ["pipe", "cut", "text", "empty", "binary", "missing"] {
        let refused = public_half(&stage.path(name)).unwrap_err();
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

/// Waits for the question at a terminal of its own, types the answer, and returns the command's result.
const TYPIST: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen, typed = b"", False
while True:
    try:
        piece = os.read(terminal, 1024)
    except OSError:
        break
    if not piece:
        break
    seen += piece
    if not typed and b"passphrase for" in seen:
        os.write(terminal, b"open sesame\n")
        typed = True
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(status) if typed else 99)
"#;
/// Where the part of the test that runs at the terminal finds its directory.
const SEATED: &str = "BELLJAR_TEST_SEATED";

#[test]
fn a_passphrase_is_asked_for_at_the_terminal() {
    require!(Sshd, Python);
    if let Some(directory) = std::env::var_os(SEATED) {
        return seated(Path::new(&directory));
    }
    let stage = Stage::new();
    stage.key("id", &["-t", "ed25519", "-N", "open sesame"]);
    stage.host("forge", ED25519);
    let typist = stage.write("typist.py", TYPIST);
    let mut command = Command::new("python3");
    command
        .arg(typist)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "adding::a_passphrase_is_asked_for_at_the_terminal", "--nocapture"])
        .env(SEATED, stage.path(""))
        .env_remove("DISPLAY");
    let seen = done(&mut command);
    assert!(seen.contains("Enter passphrase for") && !seen.contains("sesame"), "{seen}");
}

fn seated(directory: &Path) {
    let found = public_half(&directory.join("id")).unwrap();
    let host = std::fs::read_to_string(directory.join("forge.key.pub")).unwrap();
    let entry = SshEntry {
        host: "forge".to_owned(),
        hostname: belljar_contract::Host::parse(b"forge.test").unwrap(),
        user: "git".to_owned(),
        port: belljar_contract::Port::new(22).unwrap(),
        identity_file: belljar_contract::AbsPath::new(directory.join("id")).unwrap(),
        known_host_key: belljar_contract::SshPublicKey::parse(&host).ok(),
        sign_commits: false,
    };
    let entries = [entry];
    let directory = directory.join("held");
    let request = HoldRequest {
        tools: &tools(),
        user_agent: None,
        directory: &directory,
        asking: Asking::Terminal,
        askpass: None,
        patience: PATIENCE,
    };
    let held = hold(&entries, &look_up(&entries, &[], &tools()).unwrap(), &request).unwrap();
    assert_eq!(held.grants[0].key, found.key);
}
