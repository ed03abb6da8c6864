//! Signatures of messages: commits where the entry allows them, and nothing else.

use crate::stage::{Broker, Stage, done, run};
use belljar_egress::ssh::HeldKeys;
use belljar_testkit::require;
use std::process::Command;

fn signer(stage: &Stage, kind: &[&str], sign_commits: bool) -> (HeldKeys, Broker) {
    let host_key = stage.host("forge", &["-t", "ed25519"]);
    stage.key("id", kind);
    let mut entry = stage.entry("forge", stage.me(), "id", Some(&host_key));
    entry.sign_commits = sign_commits;
    let (_, held) = stage.hold(&[entry], None);
    let broker = stage.broker(held.grants.clone());
    (held, broker)
}

fn sign(stage: &Stage, broker: &Broker, namespace: &str) -> bool {
    let message = stage.write("message", "hello");
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "sign", "-n", namespace, "-f"]).arg(stage.path("id.pub")).arg(&message);
    let signed = run(command.env("SSH_AUTH_SOCK", &broker.socket)).status.success();
    assert_eq!(std::fs::remove_file(stage.path("message.sig")).is_ok(), signed);
    signed
}

#[test]
fn messages_are_refused() {
    require!(Sshd);
    let stage = Stage::new();
    let (_held, broker) = signer(&stage, &["-t", "ed25519"], false);
    // If the private key's file were there, ssh-keygen would not ask the agent.
    std::fs::rename(stage.path("id"), stage.path("id.away")).unwrap();
    assert!(!sign(&stage, &broker, "file"));
    assert!(!sign(&stage, &broker, "git"));
    assert_eq!(
        broker.end().0,
        [
            "- sign refused: messages in the namespace `file` are not signed",
            "- sign refused: this key does not sign commits; set `sign_commits = true` in the entry to allow it"
        ]
    );
}

#[test]
fn commits_are_signed_only_if_the_entry_allows_it() {
    require!(Sshd, Git);
    for kind in [&["-t", "ed25519"][..], &["-t", "rsa", "-b", "2048"]] {
        let stage = Stage::new();
        let (_held, broker) = signer(&stage, kind, true);
        std::fs::rename(stage.path("id"), stage.path("id.away")).unwrap();
        assert!(!sign(&stage, &broker, "file"));
        assert!(sign(&stage, &broker, "git"));
        let public = std::fs::read_to_string(stage.path("id.pub")).unwrap();
        let allowed = stage.write("allowed", &format!("a@a.test {public}"));
        let project = stage.path("project");
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command
                .env("SSH_AUTH_SOCK", &broker.socket)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .args(["-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "gpg.format=ssh"])
                .arg("-c")
                .arg(format!("user.signingkey={}", stage.path("id.pub").display()))
                .arg("-c")
                .arg(format!("gpg.ssh.allowedSignersFile={}", allowed.display()))
                .arg("-C")
                .arg(&project)
                .args(words);
            done(&mut command)
        };
        std::fs::create_dir(&project).unwrap();
        git(&["init", "-q"]);
        git(&["commit", "-q", "-S", "--allow-empty", "-m", "signed"]);
        let shown = git(&["log", "--show-signature"]);
        assert!(shown.contains("Good \"git\" signature for a@a.test"), "{shown}");
        let reported = broker.end().0;
        assert_eq!(reported[1..], ["forge commit allowed", "forge commit allowed"], "{reported:?}");
    }
}
