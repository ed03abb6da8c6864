//! git over ssh to a real sshd on the loopback, with a key that stays outside.

use super::{log, named};
use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{require, wait};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn done(command: &mut Command) -> String {
    let found = run_within(command, Duration::from_secs(60)).unwrap();
    assert!(found.status.success(), "{command:?}\n{}{}", found.stdout, found.stderr);
    found.stdout
}

/// A server of ssh, ended with this value.
struct Sshd {
    child: Child,
    port: u16,
    key: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Sshd {
    fn start(stage: &Stage, name: &str) -> Self {
        // Where sshd goes without privileges; the service makes it at its start.
        fs::DirBuilder::new().recursive(true).mode(0o755).create("/run/sshd").unwrap();
        let key = stage.path(&format!("{name}.key"));
        done(Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-f"]).arg(&key));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        stage.write(
            &format!("{name}.sshd"),
            format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
                 PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n",
                key.display(),
                stage.path("authorized_keys").display()
            ),
        );
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f"]).arg(stage.path(&format!("{name}.sshd")));
        let said = fs::File::create(stage.path(&format!("{name}.log"))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let said = || fs::read_to_string(stage.path(&format!("{name}.log"))).unwrap();
        let listens = wait::for_files(&stage.path(""), || said().contains("Server listening").then_some(()));
        assert!(listens.is_ok(), "{}", said());
        let public = fs::read_to_string(key.with_extension("key.pub")).unwrap();
        let key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Self { child, port, key: key.trim().to_owned() }
    }
}

/// The agents that hold keys for a run of this stage.
fn agents(stage: &Stage) -> Vec<u32> {
    let home = format!("HOME={}\0", stage.path("home").display());
    let own = |number: &u32| {
        let read = |file: &str| fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        text(read("cmdline")).starts_with("ssh-agent\0") && text(read("environ")).contains(&home)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(own).collect()
}

#[test]
fn the_agent_with_the_key_does_not_outlive_belljar() {
    require!(Bwrap, Sshd, Root);
    let stage = Stage::new();
    done(
        Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-f"]).arg(stage.path("home/key")),
    );
    let public = fs::read_to_string(stage.path("home/key.pub")).unwrap();
    stage.write(
        "project/belljar.toml",
        format!(
            "[[agents.a.ssh]]\nhost = \"forge\"\nhostname = \"forge.test\"\nuser = \"git\"\nidentity_file = \"~/key\"\n\
             known_host_key = \"{}\"\n",
            public.split(' ').take(2).collect::<Vec<_>>().join(" ")
        ),
    );
    let script = "ssh-add -l && touch ready; read line";
    for end in ["killed", "by itself"] {
        let mut command = stage.command(&["exec", "--yes", "--", "sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let ready = stage.path("project/ready");
        wait::for_files(&stage.path("project"), || ready.exists().then_some(())).unwrap();
        assert_eq!(agents(&stage).len(), 1, "the key is held");
        if end == "killed" {
            child.kill().unwrap();
        } else {
            drop(child.stdin.take());
        }
        child.wait().unwrap();
        let ended = wait::for_end(|| agents(&stage));
        assert!(ended.is_ok(), "belljar ended ({end}), and its agent lives on");
        fs::remove_file(stage.path("project/ready")).unwrap();
    }
}

#[test]
fn git_clones_and_pushes_with_a_key_that_stays_outside() {
    require!(Bwrap, Git, Sshd, Root);
    let stage = Stage::new();
    done(
        Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-f"]).arg(stage.path("home/key")),
    );
    fs::copy(stage.path("home/key.pub"), stage.path("authorized_keys")).unwrap();
    let (forge, other) = (Sshd::start(&stage, "forge"), Sshd::start(&stage, "other"));
    let remote = stage.path("remote.git");
    done(Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&remote));
    let user = done(Command::new("id").arg("-un"));
    let (port, second, user) = (forge.port, other.port, user.trim());
    stage.write(
        "project/belljar.toml",
        format!(
            "[agents.a.egress]\nallow = [\"127.0.0.1:{port}\", \"127.0.0.1:{second}\", \"other.test:{second}\"]\n\
             [[agents.a.ssh]]\nhost = \"forge\"\nhostname = \"forge.test\"\nport = {port}\nuser = \"{user}\"\n\
             identity_file = \"~/key\"\nknown_host_key = \"{}\"\n",
            forge.key
        ),
    );
    let run = |script: &str| -> Finished {
        let arguments = ["exec", "--yes", "--", "sh", "-ec", script];
        stage.finish(&mut named(&stage, "forge.test other.test", "true", &arguments))
    };
    let remote = remote.display();
    let found = run(&format!(
        "git clone -q forge:{remote} copy; cd copy; git checkout -q -b main; echo hello > file; git add file\n\
         git -c user.name=a -c user.email=a@example.org commit -qm first; git push -q origin main; ls -A ~/.ssh"
    ));
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    assert_eq!(found.stdout, "belljar-1.pub\nconfig\nknown_hosts\n");
    let pushed =
        done(Command::new("git").arg("-C").arg(stage.path("remote.git")).args(["show", "main:file"]));
    assert_eq!(pushed, "hello\n");
    let signed = |rows: &[serde_json::Value], verdict: &str| {
        let mut ssh = rows.iter().filter(|row| row["decision"]["way"] == "ssh");
        ssh.any(|row| row["decision"]["verdict"]["is"] == verdict)
    };
    assert!(signed(&log(&stage), "allowed"), "the signature is in the log");

    // Another server that would let the key in, on a way that the rules open: the broker does not sign for it.
    let login = |options: &str| {
        format!(
            "ssh -v -F none -o ProxyCommand=\"$(sed -n 's/^ *ProxyCommand //p' ~/.ssh/config | head -n 1)\" \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes {options} \
             -p {second} {user}@other.test true"
        )
    };
    let found = run(&login("-i ~/.ssh/belljar-1.pub"));
    assert_eq!(found.status.code(), Some(255), "{}", found.stderr);
    assert!(found.stderr.contains("agent refused operation"), "{}", found.stderr);
    let rows = log(&stage);
    assert!(signed(&rows, "denied") && !signed(&rows, "allowed"), "{rows:?}");
    // The way itself is open: with the key in hand the same login goes through.
    fs::copy(stage.path("home/key"), stage.path("project/key")).unwrap();
    let found =
        run(&format!("cp key /tmp/key; chmod 600 /tmp/key; {}", login("-i /tmp/key -o IdentityAgent=none")));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    fs::remove_file(stage.path("project/key")).unwrap();

    // The key itself is nowhere inside.
    let found = run(
        "{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; find / -xdev -type f -size -200k -not -path '/usr/*' \
         -not -path '/proc/*' -exec cat {} +; } > seen.txt 2>/dev/null || true; grep -q belljar-1.pub seen.txt",
    );
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let seen = fs::read(stage.path("project/seen.txt")).unwrap();
    let private = fs::read_to_string(stage.path("home/key")).unwrap();
    let line = private.lines().nth(3).unwrap();
    assert!(line.len() > 40, "a line of the key, and not of its front, which holds the public half");
    assert!(!String::from_utf8_lossy(&seen).contains(line));
}
