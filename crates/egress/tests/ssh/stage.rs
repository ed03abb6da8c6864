//! A user with keys, hosts that accept them, and a broker between them.
//!
//! A host is `sshd -i` behind ssh's ProxyCommand: it has no port, and ends with its connection.

use belljar_contract::{AbsPath, Host, Port, SshEntry, SshFound, SshPublicKey};
use belljar_egress::ssh::{
    Asking, HeldKeys, HoldRequest, SshConfig, SshGrant, SshLimits, SshSink, SshSummary, SshTools, SshUse,
    SshVerdict, hold, look_up, serve,
};
use belljar_testkit::process::{Finished, run_within};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// OpenSSH's programs on this machine.
pub fn tools() -> SshTools {
    SshTools::on(std::env::var_os("PATH").unwrap())
}

pub const SSHD: &str = "/usr/sbin/sshd";
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Finished {
    run_within(command, PATIENCE).unwrap()
}

/// Runs a command that must succeed.
pub fn done(command: &mut Command) -> String {
    let finished = run(command);
    assert!(finished.status.success(), "{command:?}\n{}{}", finished.stdout, finished.stderr);
    finished.stdout
}

pub struct Stage {
    directory: TempDir,
    me: String,
}

impl Stage {
    pub fn new() -> Self {
        // sshd's directory for privilege separation. Its service creates it, and only root needs it.
        if done(Command::new("id").arg("-u")).trim() == "0" {
            fs::DirBuilder::new().recursive(true).mode(0o755).create("/run/sshd").unwrap();
        }
        let me = done(Command::new("id").arg("-un")).trim().to_owned();
        Self { directory: TempDir::new().unwrap(), me }
    }

    pub fn me(&self) -> &str {
        &self.me
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Creates a key of the user that every host accepts.
    pub fn key(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        if !options.contains(&"-N") {
            done(Command::new("ssh-keygen").args(["-q", "-N", ""]).args(options).arg("-f").arg(&path));
        } else {
            done(Command::new("ssh-keygen").arg("-q").args(options).arg("-f").arg(&path));
        }
        let line = fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        let known = fs::read_to_string(self.path("authorized_keys")).unwrap_or_default();
        self.write("authorized_keys", &(known + &line));
        path
    }

    /// Creates a host with its own key, and returns that key.
    pub fn host(&self, name: &str, options: &[&str]) -> SshPublicKey {
        let key = self.path(&format!("{name}.key"));
        done(Command::new("ssh-keygen").args(["-q", "-N", ""]).args(options).arg("-f").arg(&key));
        let directory = self.directory.path().display();
        let path = std::env::var("PATH").unwrap();
        self.write(
            &format!("{name}.sshd"),
            &format!(
                "HostKey {directory}/{name}.key\nAuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\nUsePAM no\n\
                 PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n\
                 SetEnv PATH={path}\nLogLevel VERBOSE\n"
            ),
        );
        let line = fs::read_to_string(self.path(&format!("{name}.key.pub"))).unwrap();
        SshPublicKey::parse(&line).unwrap()
    }

    /// The ssh configuration to reach a host by its name, with a public key.
    pub fn configure(&self, host: &str, identity: &str, agent: &Path, known: &SshPublicKey) -> PathBuf {
        let directory = self.directory.path().display();
        self.write("known_hosts", &format!("{host}.test {known}\n"));
        self.write(
            "config",
            &format!(
                "Host *\nHostName %h.test\nUser {}\nIdentityAgent {}\nIdentityFile {directory}/{identity}.pub\nIdentitiesOnly yes\n\
                 UserKnownHostsFile {directory}/known_hosts\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n\
                 HostKeyAlgorithms -*-cert-*,sk-*\nPreferredAuthentications publickey\nLogLevel VERBOSE\n\
                 ProxyCommand {SSHD} -i -e -f {directory}/%n.sshd 2>>{directory}/%n.log\n",
                self.me,
                agent.display(),
            ),
        )
    }

    pub fn ssh(&self) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(self.path("config"));
        command
    }

    pub fn entry(&self, host: &str, user: &str, identity: &str, known: Option<&SshPublicKey>) -> SshEntry {
        SshEntry {
            host: host.to_owned(),
            hostname: Host::parse(format!("{host}.test").as_bytes()).unwrap(),
            user: user.to_owned(),
            port: Port::new(22).unwrap(),
            identity_file: AbsPath::new(self.path(identity)).unwrap(),
            known_host_key: known.cloned(),
            sign_commits: false,
        }
    }

    /// Holds the keys of entries, with the run's own agent if `user_agent` does not have them.
    pub fn hold(&self, entries: &[SshEntry], user_agent: Option<&Path>) -> (Vec<SshFound>, HeldKeys) {
        let found = look_up(entries, &[], &tools()).unwrap();
        let directory = self.path("held");
        let request = HoldRequest {
            tools: &tools(),
            user_agent,
            directory: &directory,
            asking: Asking::NoTerminal,
            askpass: None,
            patience: PATIENCE,
        };
        let held = hold(entries, &found, &request).unwrap();
        (found, held)
    }

    pub fn broker(&self, grants: Vec<SshGrant>) -> Broker {
        self.broker_with(grants, SshLimits::default())
    }

    pub fn broker_with(&self, grants: Vec<SshGrant>, limits: SshLimits) -> Broker {
        Broker::start(self.path("broker.sock"), grants, limits)
    }
}

/// Records the decisions.
#[derive(Default)]
pub struct Memory {
    uses: Mutex<Vec<SshUse>>,
    deaf: Mutex<bool>,
}

impl SshSink for Memory {
    fn decided(&self, used: &SshUse) -> io::Result<()> {
        if *self.deaf.lock().unwrap() {
            return Err(io::Error::other("deaf"));
        }
        self.uses.lock().unwrap().push(used.clone());
        Ok(())
    }
}

pub struct Broker {
    pub socket: PathBuf,
    memory: Arc<Memory>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<SshSummary>,
}

impl Broker {
    fn start(socket: PathBuf, grants: Vec<SshGrant>, limits: SshLimits) -> Self {
        let memory = Arc::new(Memory::default());
        let config = SshConfig { grants, sink: Arc::clone(&memory) as Arc<dyn SshSink>, limits };
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                serve(config, listener, async { stopped.await.unwrap_or_default() }).await
            })
        });
        Self { socket, memory, stop, thread }
    }

    pub fn deafen(&self) {
        *self.memory.deaf.lock().unwrap() = true;
    }

    /// The decisions so far, one per line.
    pub fn reported(&self) -> Vec<String> {
        let uses = self.memory.uses.lock().unwrap();
        uses.iter().map(line).collect()
    }

    pub fn end(self) -> (Vec<String>, SshSummary) {
        self.stop.send(()).unwrap();
        let summary = self.thread.join().unwrap();
        let uses = self.memory.uses.lock().unwrap();
        (uses.iter().map(line).collect(), summary)
    }
}

fn line(used: &SshUse) -> String {
    let who = used.entry.as_deref().unwrap_or("-");
    match &used.verdict {
        SshVerdict::Allowed => format!("{who} {} allowed", used.act.word()),
        SshVerdict::Refused(why) => format!("{who} {} refused: {why}", used.act.word()),
        SshVerdict::Failed(why) => format!("{who} {} failed: {why}", used.act.word()),
    }
}

pub struct OwnAgent {
    child: Child,
    pub socket: PathBuf,
}

impl OwnAgent {
    pub fn start(stage: &Stage, keys: &[&Path]) -> Self {
        let socket = stage.path("own.sock");
        let mut child = Command::new("ssh-agent")
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let agent = Self { child, socket };
        for key in keys {
            done(Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &agent.socket));
        }
        agent
    }
}

impl Drop for OwnAgent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
