//! A command without a sandbox: files are laid out in the instance, and the command becomes a process of this user.

use crate::backend::shared::files;
use crate::backend::{Beginning, LaunchError, LaunchRequest, Launched, News, StreamEnd, Streams};
use belljar_contract::{
    AbsPath, GuestAddress, GuestEnd, GuestOrder, GuestSpec, GuestTerminal, GuestVariable, Made, OsText,
    RunFiles,
};
use belljar_sys::fds;
use belljar_sys::process::{self, Ended, Target};
use belljar_sys::pty::Pair;
use belljar_sys::spawn::{self, ControllingTerminal, Program, SpawnError, SpawnStep, Stream};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// Where the command is looked up when the environment has no PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// A command without a sandbox. Dropping it ends its process group; what has left the group goes on.
#[derive(Debug)]
pub(super) struct HostProcess {
    spec: GuestSpec,
    streams: Option<[OwnedFd; 3]>,
    /// The controlling end of the terminal.
    controller: Option<OwnedFd>,
    listeners: Vec<(String, OwnedFd)>,
    /// The process, once it runs; before that the read end of a pipe that is never written.
    control: OwnedFd,
    _write_end: OwnedFd,
    running: Option<Pid>,
    /// Held for as long as the instance's files are in use.
    _lock: Option<File>,
    /// The directory of the sockets, removed at the end.
    _sockets: Option<tempfile::TempDir>,
}

pub(super) fn launch(request: LaunchRequest<'_>) -> Result<HostProcess, LaunchError> {
    let LaunchRequest {
        launch,
        waiting,
        variables,
        streams,
        name: _,
        overlays: _,
        engine: _,
        identities: _,
        run_files,
    } = request;
    // No sandbox is used; the one that was started early ends.
    drop(waiting);
    let mut lock = None;
    for made in &launch.made {
        match made {
            Made::Fresh(path) => lock = Some(freshen(path)?),
            Made::Directory(_)
            | Made::File(_)
            | Made::Written { .. }
            | Made::Link { .. }
            | Made::Copy { .. } => files::make(made, run_files)?,
        }
    }
    let mut spec = launch.guest.clone();
    spec.environment.retain(|known| !variables.iter().any(|new| new.name == known.name));
    spec.environment.extend(variables);
    let (listeners, sockets) = listen(&mut spec).map_err(LaunchError::Talk)?;
    let (streams, controller) = open(streams).map_err(LaunchError::Talk)?;
    let (control, write_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| LaunchError::Talk(errno.into()))?;
    Ok(HostProcess {
        spec,
        streams: Some(streams),
        controller,
        listeners,
        control,
        _write_end: write_end,
        running: None,
        _lock: lock,
        _sockets: sockets,
    })
}

/// Opens the streams, and returns them with the controlling end of the terminal that some of them lead to.
fn open(streams: Streams) -> io::Result<([OwnedFd; 3], Option<OwnedFd>)> {
    let Streams { stdin, stdout, stderr } = streams;
    let mut pair: Option<Pair> = None;
    let mut end = |end: StreamEnd| match (end, &pair) {
        (StreamEnd::Open(descriptor), _) => Ok(descriptor),
        (StreamEnd::Terminal, Some(pair)) => pair.terminal.try_clone(),
        (StreamEnd::Terminal, None) => {
            pair.insert(Pair::open().map_err(io::Error::other)?).terminal.try_clone()
        }
    };
    let open = [end(stdin)?, end(stdout)?, end(stderr)?];
    Ok((open, pair.map(|pair| pair.controller)))
}

/// Empties a directory of the instance, unless another run that shares it is still going on.
fn freshen(path: &AbsPath) -> Result<File, LaunchError> {
    files::make(&Made::Directory(path.clone()), &RunFiles::default())?;
    let failed = |cause| LaunchError::Make { path: path.clone(), cause };
    let lock = path.child("lock");
    let file = File::options().create(true).append(true).open(&lock).map_err(failed)?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.path() == lock.as_path() {
                continue;
            }
            // Links are removed, not followed.
            let removed = if entry.file_type().map_err(failed)?.is_dir() {
                std::fs::remove_dir_all(entry.path())
            } else {
                std::fs::remove_file(entry.path())
            };
            removed.map_err(failed)?;
        }
    }
    rustix::fs::flock(&file, FlockOperation::LockShared).map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// Replaces the planned address of a socket in variables by the real one.
fn rename(environment: &mut [GuestVariable], planned: &str, real: &str) -> io::Result<()> {
    for variable in environment {
        let value = variable.value.to_string();
        if value.contains(planned) {
            variable.value = OsText::new(value.replace(planned, real)).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Sockets that were opened, by name.
type Listeners = Vec<(String, OwnedFd)>;

/// Opens the sockets in a private directory; a variable that names the planned path gets the real one.
fn listen(spec: &mut GuestSpec) -> io::Result<(Listeners, Option<tempfile::TempDir>)> {
    if spec.listeners.is_empty() {
        return Ok((Vec::new(), None));
    }
    let directory = tempfile::Builder::new().prefix("belljar-").tempdir()?;
    let mut open = Vec::new();
    for listener in std::mem::take(&mut spec.listeners) {
        match listener.at {
            GuestAddress::Unix { path, mode: _ } => {
                let at = directory.path().join(&listener.name);
                open.push((listener.name, UnixListener::bind(&at)?.into()));
                let at = OsText::new(at.into_os_string().into_encoded_bytes()).map_err(io::Error::other)?;
                let named = spec.environment.iter_mut().filter(|variable| variable.value == path);
                named.for_each(|variable: &mut GuestVariable| variable.value = at.clone());
            }
            // The planned port may be taken on this machine: any other one serves, and the variables name that.
            GuestAddress::Tcp { address } => {
                let socket = std::net::TcpListener::bind((address.ip(), 0))?;
                rename(&mut spec.environment, &address.to_string(), &socket.local_addr()?.to_string())?;
                open.push((listener.name, socket.into()));
            }
            GuestAddress::Udp { address } => {
                open.push((listener.name, std::net::UdpSocket::bind(address)?.into()));
            }
        }
    }
    Ok((open, Some(directory)))
}

impl Launched for HostProcess {
    fn take_listener(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(known, _)| known == name)?;
        Some(self.listeners.swap_remove(at).1)
    }

    fn take_controller(&mut self) -> Option<OwnedFd> {
        self.controller.take()
    }

    fn start(&mut self) -> Result<Beginning, LaunchError> {
        let lost = |error: &dyn std::error::Error| LaunchError::Talk(io::Error::other(error.to_string()));
        let Some(streams) = self.streams.take() else { return Err(lost(&io::Error::other("started twice"))) };
        // The command must not inherit what this process has open.
        fds::cloexec_from_3().map_err(|error| lost(&error))?;
        match spawn(&self.spec, &streams) {
            Ok(pid) => {
                self.running = Some(pid);
                self.control = process::open(pid).map_err(|error| lost(&error))?;
                Ok(Beginning::Started)
            }
            Err(NotStarted::Execute { what, errno }) => Ok(Beginning::Failed { what, errno }),
            Err(NotStarted::Before(cause)) => {
                Err(LaunchError::Spawn { program: self.spec.program.clone(), cause })
            }
        }
    }

    fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn report(&mut self) -> Result<News, LaunchError> {
        let Some(pid) = self.running.take() else { return Ok(News::Gone) };
        let ended = process::wait_for(pid).map_err(|error| LaunchError::Talk(io::Error::other(error)))?;
        // Its group may have members left; they are ended as they would be in a sandbox.
        self.end_group(pid);
        Ok(News::Ended(match ended {
            Ended::Exited(code) => GuestEnd::Code(code),
            Ended::Killed(signal) => GuestEnd::Signal(signal),
        }))
    }

    fn order(&self, order: GuestOrder) -> Result<(), LaunchError> {
        let Some(pid) = self.running else { return Ok(()) };
        match order {
            // Without a guard nothing is refused, so there is nothing to answer.
            GuestOrder::Start | GuestOrder::Answer { .. } => {}
            // A group that has ended takes no signal.
            GuestOrder::Signal { signal } => drop(process::signal(Target::Group(pid), signal)),
            GuestOrder::Stop => {
                for signal in [Signal::TERM, Signal::CONT] {
                    process::signal(Target::Group(pid), signal.as_raw()).ok();
                }
            }
        }
        Ok(())
    }

    /// Ends the group at once: its processes get the grace time of the plan.
    fn finish(&mut self, _patience: Duration) {
        self.end();
    }
}

impl HostProcess {
    fn end(&mut self) {
        if let Some(pid) = self.running.take() {
            self.end_group(pid);
            process::wait_for(pid).ok();
        }
    }

    /// SIGTERM, the grace time, SIGKILL, as far as the group goes.
    fn end_group(&self, pid: Pid) {
        let until = Instant::now() + Duration::from_millis(self.spec.grace_ms.into());
        for signal in [Signal::TERM, Signal::CONT] {
            process::signal(Target::Group(pid), signal.as_raw()).ok();
        }
        while Instant::now() < until && process::signal(Target::Group(pid), 0).is_ok() {
            // No descriptor becomes readable when a group ends.
            std::thread::sleep(Duration::from_millis(5));
        }
        process::signal(Target::Group(pid), Signal::KILL.as_raw()).ok();
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why the command does not run.
enum NotStarted {
    Execute { what: String, errno: i32 },
    Before(io::Error),
}

fn spawn(spec: &GuestSpec, streams: &[OwnedFd; 3]) -> Result<Pid, NotStarted> {
    let path = spec.environment.iter().rfind(|variable| variable.name.as_bytes() == b"PATH");
    let path = path.map_or(DEFAULT_PATH, |variable| variable.value.as_bytes());
    let what = spec.program.to_string();
    let file = spawn::find(spec.program.as_bytes(), path)
        .map_err(|errno| NotStarted::Execute { what: what.clone(), errno: errno.raw_os_error() })?;
    let c_string = |bytes: &[u8]| CString::new(bytes).map_err(|error| NotStarted::Before(error.into()));
    let arguments = spec.argv.iter().map(|text| c_string(text.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let environment = spec
        .environment
        .iter()
        .map(|variable| c_string(&[variable.name.as_bytes(), b"=", variable.value.as_bytes()].concat()))
        .collect::<Result<Vec<_>, _>>()?;
    // outside: host-command
    let program = Program {
        file: &c_string(&file)?,
        arguments: &arguments,
        environment: &environment,
        directory: &c_string(spec.directory.as_bytes())?,
        stdio: streams.each_ref().map(|stream| Stream::From(stream.as_fd())),
        keeps: &[],
        terminal: match spec.terminal {
            GuestTerminal::Absent => ControllingTerminal::Absent,
            GuestTerminal::Own => ControllingTerminal::Stdin,
        },
        limits: &[],
        umask: spec.umask,
    };
    program.spawn().map_err(|error| match error {
        SpawnError::Child { step: SpawnStep::Execute, cause } => {
            NotStarted::Execute { what, errno: cause.raw_os_error() }
        }
        SpawnError::Child { .. } | SpawnError::Fork(_) => NotStarted::Before(io::Error::other(error)),
    })
}
