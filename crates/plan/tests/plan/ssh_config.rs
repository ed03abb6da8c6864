//! The configuration of ssh, as ssh itself understands it.

use crate::world::{FULL, World};
use belljar_contract::FileContent;
use belljar_testkit::require;
use std::process::Command;

fn text<'a>(plan: &'a belljar_contract::Plan, name: &str) -> &'a str {
    let file = plan.files.iter().find(|file| file.target.as_path().ends_with(name)).unwrap();
    match &file.content {
        FileContent::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ssh_reads_what_is_meant() {
    require!(Sshd);
    let plan = World::full().plan(FULL, "reviewer").plan;
    let directory = std::env::temp_dir().join(format!("belljar-ssh-config-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (config, known) = (directory.join("config"), directory.join("known_hosts"));
    std::fs::write(&config, text(&plan, ".ssh/config")).unwrap();
    std::fs::write(&known, text(&plan, ".ssh/known_hosts")).unwrap();
    let output = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let read = ["forge", "git.example.org"]
        .map(|name| output(Command::new("ssh").args(["-T", "-G", "-F"]).arg(&config).arg(name)));
    let found = ["[forge]:2222", "[git.example.org]:2222"]
        .map(|name| output(Command::new("ssh-keygen").arg("-F").arg(name).arg("-f").arg(&known)));
    std::fs::remove_dir_all(&directory).unwrap();
    for read in read {
        for line in [
            "user git",
            "hostname git.example.org",
            "port 2222",
            "identityfile ~/.ssh/belljar-1.pub",
            "identitiesonly yes",
            "identityagent /run/belljar/ssh-agent.sock",
            "forwardagent no",
            "globalknownhostsfile /dev/null",
            "stricthostkeychecking true",
            "preferredauthentications publickey",
            "proxycommand /opt/belljar/bin/belljar-guest connect %h %p",
        ] {
            assert!(read.lines().any(|found| found == line), "{line}\n{read}");
        }
        let known = read.lines().find(|line| line.starts_with("userknownhostsfile ")).unwrap();
        assert!(known.ends_with("/.ssh/known_hosts"), "{known}");
        assert_eq!(read.matches("identityfile").count(), 1);
        let algorithms = read.lines().find(|line| line.starts_with("hostkeyalgorithms ")).unwrap();
        assert!(algorithms.contains("ssh-ed25519") && algorithms.contains("rsa-sha2-512"), "{algorithms}");
        assert!(!algorithms.contains("cert") && !algorithms.contains("sk-"), "{algorithms}");
    }
    assert!(found.iter().all(|found| found.contains("ssh-ed25519 AAAA")), "{found:?}");
}
