//! A real bubblewrap around the real guest, driven as the supervisor drives it.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belljar_contract::{
    GUEST_PROTOCOL, GUEST_REPORT_MAX, GuestBeginning, GuestEnd, GuestFiles, GuestFilter, GuestOrder,
    GuestReport, GuestRoot, GuestSpec, GuestStream, GuestTerminal, GuestVariable, OsText,
};
use belljar_sys::message::{self, Bounds, MessageError};
use belljar_sys::process::Prepare;
use belljar_testkit::wait;

pub use belljar_testkit::require;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user who runs the tests.
    Own,
    /// A user without any privilege; only root can become one.
    Ordinary,
}

/// The users that these tests can run as.
pub fn users() -> &'static [User] {
    if rustix::process::geteuid().is_root() { &[User::Own, User::Ordinary] } else { &[User::Own] }
}

pub fn text(text: &str) -> OsText {
    OsText::new(text).unwrap()
}

pub fn spec(argv: &[&str]) -> GuestSpec {
    let variable = |name: &str, value: &str| GuestVariable { name: text(name), value: text(value) };
    GuestSpec {
        protocol: GUEST_PROTOCOL,
        program: text(argv[0]),
        argv: argv.iter().map(|argument| text(argument)).collect(),
        environment: vec![variable("PATH", "/usr/local/bin:/usr/bin:/bin"), variable("HOME", "/tmp")],
        directory: text("/tmp"),
        stdin: GuestStream::Inherit,
        stdout: GuestStream::Inherit,
        stderr: GuestStream::Inherit,
        terminal: GuestTerminal::Absent,
        range: None,
        beginning: GuestBeginning::OnOrder,
        listeners: Vec::new(),
        root: GuestRoot::AsFound,
        files: GuestFiles::AsMounted,
        filter: GuestFilter::Standard,
        guard: None,
        umask: 0o022,
        limits: Vec::new(),
        grace_ms: 300,
    }
}

pub fn shell(script: &str) -> GuestSpec {
    spec(&["sh", "-c", script])
}

/// A sandbox on its way.
pub struct Jail {
    pub bwrap: Child,
    pub control: Option<OwnedFd>,
    _program: tempfile::TempDir,
}

pub struct Outcome {
    pub status: Option<i32>,
    pub end: Option<GuestEnd>,
    pub output: String,
    pub crowded: bool,
}

impl Jail {
    pub fn launch(user: User) -> Self {
        Self::launch_with(user, &[])
    }

    /// Starts bubblewrap with the guest as its first process; nothing has been said to it yet.
    pub fn launch_with(user: User, more: &[&str]) -> Self {
        let program = guest_for_everyone();
        let path = program.path().to_str().unwrap().to_owned();
        let mut arguments =
            vec!["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
        arguments.extend(["--tmpfs", "/tmp", "--ro-bind", &path, "/tmp/.belljar"]);
        arguments.extend(more);
        Self::start_bwrap(user, &arguments, "/tmp/.belljar/belljar-guest", program)
    }

    /// The same before there is a root: the guest sees the machine and may mount.
    pub fn launch_rootless(user: User) -> Self {
        let program = guest_for_everyone();
        let path = program.path().join("belljar-guest").to_str().unwrap().to_owned();
        let arguments =
            ["--unshare-user", "--uid", "0", "--gid", "0", "--dev-bind", "/", "/", "--chdir", "/"];
        let more = ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETFCAP"];
        Self::start_bwrap(user, &[&arguments[..], &more].concat(), &path, program)
    }

    fn start_bwrap(user: User, arguments: &[&str], guest: &str, program: tempfile::TempDir) -> Self {
        let (ours, theirs) = belljar_sys::fds::stream_pair().unwrap();
        let number = theirs.as_raw_fd().to_string();
        let mut command = match user {
            User::Own => Command::new("bwrap"),
            User::Ordinary => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=4242", "--regid=4242", "--clear-groups", "bwrap"]);
                command
            }
        };
        command.args(["--unshare-all", "--as-pid-1"]).args(arguments);
        command.args(["--", guest, "init", "--control", &number]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let bwrap = command.keeps(vec![theirs]).spawn().unwrap();
        // The closure of the command holds the guest's end until here; then only the guest has it.
        drop(command);
        Jail { bwrap, control: Some(ours), _program: program }
    }

    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_ref().unwrap().as_fd()
    }

    pub fn send(&self, spec: &GuestSpec) {
        message::send(self.control(), &spec.to_bytes().unwrap(), &[]).unwrap();
    }

    /// The same with the content of the files in the root.
    pub fn send_with(&self, spec: &GuestSpec, contents: &[u8]) {
        let contents = belljar_sys::fds::sealed_memfd("contents", contents).unwrap();
        message::send(self.control(), &spec.to_bytes().unwrap(), &[contents.as_fd()]).unwrap();
    }

    pub fn order(&self, order: GuestOrder) {
        message::send(self.control(), &order.to_bytes().unwrap(), &[]).unwrap();
    }

    pub fn receive(&self) -> Result<(GuestReport, Vec<OwnedFd>), MessageError> {
        let within = Some(Duration::from_secs(20));
        let bounds = Bounds { bytes: GUEST_REPORT_MAX, descriptors: 16, within };
        let received = message::receive(self.control(), bounds)?;
        Ok((GuestReport::from_bytes(&received.body).unwrap(), received.descriptors))
    }

    /// Up to and with `Started`; gives the listeners.
    pub fn start(&self, spec: &GuestSpec) -> Vec<OwnedFd> {
        self.send(spec);
        self.started(spec)
    }

    /// The same after the spec was sent.
    pub fn started(&self, spec: &GuestSpec) -> Vec<OwnedFd> {
        let mut listeners = Vec::new();
        if !spec.listeners.is_empty() {
            let (report, descriptors) = self.receive().unwrap();
            assert!(matches!(report, GuestReport::Listening { .. }), "{report:?}");
            listeners = descriptors;
        }
        let (report, _) = self.receive().unwrap();
        assert!(matches!(report, GuestReport::Sealed { .. }), "{report:?}");
        if spec.beginning == GuestBeginning::OnOrder {
            self.order(GuestOrder::Start);
        }
        let (report, _) = self.receive().unwrap();
        assert!(matches!(report, GuestReport::Started { .. }), "{report:?}");
        listeners
    }

    /// Reads one line of the command's output.
    pub fn line(&mut self) -> String {
        let pipe = self.bwrap.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") && pipe.read(&mut byte).unwrap() == 1 {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Waits for the end of the command and of the sandbox.
    pub fn finish(mut self) -> Outcome {
        let mut output = String::new();
        let mut pipe = self.bwrap.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            pipe.read_to_string(&mut output).unwrap();
            output
        });
        let mut crowded = false;
        let end = match self.receive() {
            Ok((GuestReport::Exited { end, used: _, full: _, crowded: found }, _)) => {
                crowded = found;
                Some(end)
            }
            Ok((report, _)) => panic!("{report:?}"),
            Err(MessageError::Closed) => None,
            Err(error) => panic!("{error:?}"),
        };
        let status = self.bwrap.wait().unwrap();
        Outcome { status: status.code(), end, output: reader.join().unwrap(), crowded }
    }

    pub fn run(user: User, spec: &GuestSpec) -> Outcome {
        let jail = Jail::launch(user);
        jail.start(spec);
        jail.finish()
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.control = None;
        // The end of the sandbox is what tests look at; one that does not end must not hold up the others.
        let until = Instant::now() + Duration::from_secs(5);
        while matches!(self.bwrap.try_wait(), Ok(None)) {
            if Instant::now() > until {
                self.bwrap.kill().unwrap();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A copy that an ordinary user can read, wherever the build directory is.
fn guest_for_everyone() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("belljar-guest");
    belljar_testkit::process::copy_program(env!("CARGO_BIN_EXE_belljar-guest").as_ref(), &copy).unwrap();
    directory
}

/// The processes of this machine whose command line contains the mark.
fn processes_with(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |process: &u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has).collect()
}

/// Waits until at least one process has the mark.
#[track_caller]
pub fn await_begin(mark: &str) {
    let until = Instant::now() + wait::DEADLINE;
    while processes_with(mark).is_empty() {
        assert!(Instant::now() < until, "nothing began");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process has the mark. They would sleep for years.
#[track_caller]
pub fn await_end(mark: &str) {
    let ended = wait::for_end(|| processes_with(mark));
    assert!(ended.is_ok(), "left behind: {:?}", processes_with(mark));
}

/// A number of seconds that no other test sleeps, to find the sleeper by.
pub fn mark(test: u32) -> String {
    format!("{}{test}", 700_000_000 + std::process::id())
}
