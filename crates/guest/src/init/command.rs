//! Finds the command, sets up its streams and starts it.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use belljar_contract::{
    ExitCode, GuestLimit, GuestReport, GuestResource, GuestSpec, GuestStep, GuestStream, GuestTerminal,
    OsText,
};
use belljar_sys::Errno;
use belljar_sys::pty::Pair;
use belljar_sys::spawn::{ControllingTerminal, Program, SpawnError, SpawnStep, Stream};
use rustix::process::{Pid, Resource, Rlimit};

use super::Refusal;
use super::control::Control;

/// The search path if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The three standard streams; `None` stands for the inherited one.
#[derive(Debug)]
pub(super) struct Streams([Option<OwnedFd>; 3]);

/// Opens the terminal of the session, if there is to be one, in this sandbox's own `/dev/pts`: programs find it there by
/// name, and no other is there.
pub(super) fn open_terminal(spec: &GuestSpec) -> Result<Option<Pair>, Refusal> {
    match spec.terminal {
        GuestTerminal::Absent => Ok(None),
        GuestTerminal::Own if spec.stdin != GuestStream::Terminal => {
            Err(Refusal::because(GuestStep::Spec, "there is a terminal, but it is not standard input"))
        }
        GuestTerminal::Own => {
            Pair::open().map(Some).map_err(|error| Refusal::new(GuestStep::Terminal, &error))
        }
    }
}

impl Streams {
    pub(super) fn open(
        spec: &GuestSpec,
        attached: Vec<OwnedFd>,
        terminal: Option<&OwnedFd>,
    ) -> Result<Self, Refusal> {
        let mut attached: Vec<_> = attached.into_iter().map(Some).collect();
        let mut open = |stream| Self::open_one(stream, &mut attached, terminal);
        let streams = [open(spec.stdin)?, open(spec.stdout)?, open(spec.stderr)?];
        if attached.iter().any(Option::is_some) {
            return Err(Refusal::because(GuestStep::Spec, "a descriptor was attached that no stream uses"));
        }
        Ok(Streams(streams))
    }

    fn open_one(
        stream: GuestStream,
        attached: &mut [Option<OwnedFd>],
        terminal: Option<&OwnedFd>,
    ) -> Result<Option<OwnedFd>, Refusal> {
        match stream {
            GuestStream::Inherit => Ok(None),
            GuestStream::Null => {
                let null = File::options().read(true).write(true).open("/dev/null");
                null.map(|file| Some(file.into())).map_err(|error| Refusal::new(GuestStep::Spec, &error))
            }
            GuestStream::Attached(index) => {
                let taken = attached.get_mut(usize::from(index)).and_then(Option::take);
                let missing = "a stream names a descriptor that was not attached, or names it twice";
                let taken = taken.ok_or_else(|| Refusal::because(GuestStep::Spec, missing))?;
                leads_nowhere(&taken)?;
                Ok(Some(taken))
            }
            GuestStream::Terminal => {
                let missing = "a stream is the terminal, and there is none";
                let terminal = terminal.ok_or_else(|| Refusal::because(GuestStep::Spec, missing))?;
                terminal.try_clone().map(Some).map_err(|error| Refusal::new(GuestStep::Terminal, &error))
            }
        }
    }

    fn borrowed(&self) -> [Stream<'_>; 3] {
        self.0
            .each_ref()
            .map(|stream| stream.as_ref().map_or(Stream::Inherited, |open| Stream::From(open.as_fd())))
    }
}

/// A directory of the host leads, by `..`, to every other one: mounts bind names, not descriptors. What is neither a
/// file, a pipe, a socket nor a device (a process, a namespace) has no place as a stream either.
fn leads_nowhere(stream: &OwnedFd) -> Result<(), Refusal> {
    use rustix::fs::FileType;
    let stat = rustix::fs::fstat(stream).map_err(|errno| Refusal::new(GuestStep::Spec, &errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice => Ok(()),
        FileType::Directory => Err(Refusal::because(
            GuestStep::Spec,
            "a standard stream is a directory, which would lead out of the sandbox",
        )),
        FileType::Symlink | FileType::Unknown => Err(Refusal::because(
            GuestStep::Spec,
            "a standard stream is neither a file, a pipe, a socket nor a device",
        )),
    }
}

/// Why the command was not started.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// The program could not be executed.
    Exec { what: OsText, errno: Errno },
    /// A step before that failed.
    Setup(Refusal),
}

/// The first process leads the session of the terminal, so that the command can be stopped and continued.
fn lead_session(spec: &GuestSpec, streams: &Streams) -> Result<(), Errno> {
    if spec.terminal == GuestTerminal::Absent {
        return Ok(());
    }
    match rustix::process::setsid() {
        // In a container the engine has made the first process a session leader already. If it had not, taking the terminal
        // below would fail.
        Ok(_) | Err(Errno::PERM) => {}
        Err(cause) => return Err(cause),
    }
    match &streams.0[0] {
        Some(stdin) => rustix::process::ioctl_tiocsctty(stdin),
        None => rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()),
    }
}

/// Starts the command: in a session of its own, or in the foreground of the terminal.
pub(super) fn start(spec: &GuestSpec, streams: &Streams) -> Result<Pid, StartFailure> {
    let setup = |error: &(dyn std::error::Error + 'static)| {
        StartFailure::Setup(Refusal::new(GuestStep::Command, error))
    };
    let file = find(spec).map_err(|errno| StartFailure::Exec { what: spec.program.clone(), errno })?;
    let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|error| setup(&error));
    let arguments = spec.argv.iter().map(|text| c_string(text.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let environment = spec
        .environment
        .iter()
        .map(|variable| c_string(&[variable.name.as_bytes(), b"=", variable.value.as_bytes()].concat()))
        .collect::<Result<Vec<_>, _>>()?;
    let limits: Vec<_> = spec.limits.iter().map(limit).collect();
    lead_session(spec, streams).map_err(|errno| setup(&errno))?;
    // inside: the first process of the sandbox starts the command
    let program = Program {
        file: &c_string(file.as_bytes())?,
        arguments: &arguments,
        environment: &environment,
        directory: &c_string(spec.directory.as_bytes())?,
        stdio: streams.borrowed(),
        keeps: &[],
        terminal: match spec.terminal {
            GuestTerminal::Absent => ControllingTerminal::Absent,
            GuestTerminal::Own => ControllingTerminal::Shared,
        },
        limits: &limits,
        umask: spec.umask,
    };
    program.spawn().map_err(|error| match error {
        SpawnError::Child { step: SpawnStep::Execute, cause } => {
            StartFailure::Exec { what: file, errno: cause }
        }
        SpawnError::Child { .. } | SpawnError::Fork(_) => setup(&error),
    })
}

/// Reports the failure and gives the status: 127 for a file that is not there, 126 for one that cannot be run.
pub(super) fn refuse(control: &Control, failure: StartFailure) -> u8 {
    match failure {
        StartFailure::Setup(refusal) => super::refuse(control, refusal),
        StartFailure::Exec { what, errno } => {
            let report = GuestReport::ExecFailed { what: what.clone(), errno: errno.raw_os_error() };
            if control.report(&report, &[]).is_err() {
                crate::complain(&format!("cannot execute {what}: {errno}"));
            }
            let code = if errno == Errno::NOENT { ExitCode::NotFound } else { ExitCode::NotExecutable };
            code.code()
        }
    }
}

/// The file to execute.
fn find(spec: &GuestSpec) -> Result<OsText, Errno> {
    let path = spec.environment.iter().rfind(|variable| variable.name.as_bytes() == b"PATH");
    let path = path.map_or(DEFAULT_PATH, |variable| variable.value.as_bytes());
    let file = belljar_sys::spawn::find(spec.program.as_bytes(), path)?;
    OsText::new(file).map_err(|_nul| Errno::INVAL)
}

fn limit(limit: &GuestLimit) -> (Resource, Rlimit) {
    let resource = match limit.resource {
        GuestResource::Core => Resource::Core,
        GuestResource::Cpu => Resource::Cpu,
        GuestResource::FileSize => Resource::Fsize,
        GuestResource::OpenFiles => Resource::Nofile,
        GuestResource::Processes => Resource::Nproc,
        GuestResource::AddressSpace => Resource::As,
    };
    (resource, Rlimit { current: Some(limit.soft), maximum: Some(limit.hard) })
}
