//! A sandbox with the guest in it: the guest receives its specification, seals the sandbox, starts the command and reports.

use super::guest_root::PreparedRoot;
use crate::backend::{Beginning, LaunchError, Launched, News, Running, StreamEnd, Streams};
use belljar_contract::{
    GUEST_LISTENERS_MAX, GUEST_REPORT_MAX, GuestBeginning, GuestLandlock, GuestOrder, GuestReport,
    GuestRestriction, GuestSpec, GuestStep, GuestStream, GuestTerminal, GuestUsage, GuestVariable, Launch,
    LimitKind,
};
use belljar_sys::message::{self, Bounds, MessageError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long building a sandbox may take before it is given up.
const SETUP_TIME: Duration = Duration::from_secs(20);

/// What keeps a sandbox alive. Dropping it ends everything inside and waits for the end.
pub(in crate::backend) trait Holder: Debug + 'static {
    /// Puts a sealed guest under the limits of the plan. The command has not been started.
    fn confine(&mut self, guest: SealedGuest<'_>) -> Result<(), LaunchError>;

    /// Returns the limits that the kernel says were reached.
    fn reached(&self) -> Vec<LimitKind>;

    /// Explains why the guest cannot be reached, with the message of bubblewrap or of the container engine.
    fn complaint(&mut self) -> LaunchError;

    /// Ends a sandbox that was never sealed.
    fn abandon(self, control: OwnedFd);

    /// Returns what the command used, as the guest reported it, unless the kernel counts it as a child of this process.
    fn used(&self, reported: Option<GuestUsage>) -> Option<GuestUsage>;

    /// Waits shortly until the kernel knows what everything used.
    fn settle(&self) {}

    /// Returns what the sandbox lacks and the command can do without, one sentence each.
    fn lacks(&self) -> &[String] {
        &[]
    }
}

/// A guest that has sealed its sandbox.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend) struct SealedGuest<'a> {
    /// The guest's process, as the kernel reports it.
    pub pid: Pid,
    /// The socket to the guest.
    pub control: BorrowedFd<'a>,
    /// The lowered plan.
    pub launch: &'a Launch,
    /// The name of the run.
    pub run: &'a str,
}

/// A sandbox whose guest waits for its specification.
#[derive(Debug)]
pub(in crate::backend) struct Unsealed<H> {
    /// What keeps the sandbox alive.
    pub holder: H,
    /// The socket to the guest.
    pub control: OwnedFd,
    /// The root, as the guest builds it.
    pub root: PreparedRoot,
}

/// What the guest's command is given.
#[derive(Debug)]
pub(in crate::backend) struct GuestCommand<'a> {
    /// The lowered plan.
    pub launch: &'a Launch,
    /// Variables whose values were found just now.
    pub variables: Vec<GuestVariable>,
    /// The standard streams of the command.
    pub streams: Streams,
    /// The name of the run.
    pub run: &'a str,
}

/// A sandbox that is sealed. Dropping it ends everything inside.
#[derive(Debug)]
struct GuestSession<H> {
    // Dropped first: whatever else is held here must outlast the processes inside.
    holder: H,
    control: OwnedFd,
    listeners: Vec<(String, OwnedFd)>,
    /// The controlling end of the command's terminal.
    controller: Option<OwnedFd>,
    /// The guest's process, as the kernel reports it.
    guest: Option<Pid>,
    beginning: GuestBeginning,
    /// What the command used, once it has ended.
    used: Option<GuestUsage>,
    /// Limits that were reached; known once the command has ended.
    reached: Vec<LimitKind>,
    landlock: GuestLandlock,
}

/// A report of the guest, the descriptors that came with it, and the process that the kernel says it came from.
struct GuestMessage {
    report: GuestReport,
    descriptors: Vec<OwnedFd>,
    sender: Option<Pid>,
}

impl<H: Holder> Unsealed<H> {
    /// Sends the guest its specification and waits until the sandbox is sealed and limited.
    pub(in crate::backend) fn seal(self, command: GuestCommand<'_>) -> Result<Running, LaunchError> {
        let Unsealed { holder, control, root } = self;
        let GuestCommand { launch, variables, streams, run } = command;
        let mut session = GuestSession {
            holder,
            control,
            listeners: Vec::new(),
            controller: None,
            guest: None,
            beginning: launch.guest.beginning,
            used: None,
            reached: Vec::new(),
            landlock: GuestLandlock {
                abi: 0,
                files: GuestRestriction::Missing,
                signals: GuestRestriction::Missing,
                abstract_sockets: GuestRestriction::Missing,
            },
        };
        if let Err(error) = session.seal(launch, root, variables, streams) {
            let GuestSession { holder, control, .. } = session;
            holder.abandon(control);
            return Err(error);
        }
        let Some(pid) = session.guest else {
            return Err(LaunchError::talk("the kernel does not say which process it is"));
        };
        session.holder.confine(SealedGuest { pid, control: session.control.as_fd(), launch, run })?;
        Ok(Box::new(session))
    }
}

/// Notes in the specification where the streams lead, and returns the descriptors that go with the message, in order.
fn attach(spec: &mut GuestSpec, streams: Streams) -> Vec<OwnedFd> {
    let Streams { stdin, stdout, stderr } = streams;
    let mut attached = Vec::new();
    for (place, end) in [(&mut spec.stdin, stdin), (&mut spec.stdout, stdout), (&mut spec.stderr, stderr)] {
        *place = match end {
            StreamEnd::Terminal => GuestStream::Terminal,
            StreamEnd::Open(descriptor) => {
                attached.push(descriptor);
                GuestStream::Attached((attached.len() - 1) as u8)
            }
        };
    }
    attached
}

/// The guest has the limits of this process.
fn sealing(step: GuestStep, errno: i32, detail: String) -> LaunchError {
    if errno == rustix::io::Errno::MFILE.raw_os_error() {
        return LaunchError::OpenFiles;
    }
    LaunchError::Sealing { step, detail }
}

impl<H: Holder> GuestSession<H> {
    fn seal(
        &mut self,
        launch: &Launch,
        root: PreparedRoot,
        variables: Vec<GuestVariable>,
        streams: Streams,
    ) -> Result<(), LaunchError> {
        let mut spec = launch.guest.clone();
        // The sources stay open until the guest has them: no other file can get the number of one that is removed.
        let PreparedRoot { root, contents, sources: _open } = root;
        spec.root = root;
        spec.environment.retain(|known| !variables.iter().any(|new| new.name == known.name));
        spec.environment.extend(variables);
        let mut attached = attach(&mut spec, streams);
        attached.push(contents);
        let body = spec.to_bytes().map_err(LaunchError::talk)?;
        let attached: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        let sent = message::send(self.control.as_fd(), &body, &attached);
        if sent.is_err() {
            return Err(self.holder.complaint());
        }
        let deadline = Instant::now() + SETUP_TIME;
        loop {
            let GuestMessage { report, descriptors, sender } = self.receive_until(deadline)?;
            match report {
                GuestReport::Terminal => self.controller = descriptors.into_iter().next(),
                GuestReport::Listening { names } => {
                    self.listeners = names.into_iter().zip(descriptors).collect();
                }
                GuestReport::Sealed { .. }
                    if spec.terminal == GuestTerminal::Own && self.controller.is_none() =>
                {
                    return Err(LaunchError::talk("it handed out no terminal"));
                }
                GuestReport::Sealed { landlock } => {
                    self.landlock = landlock;
                    self.guest = sender;
                    return Ok(());
                }
                GuestReport::SetupFailed { step, errno, detail } => return Err(sealing(step, errno, detail)),
                early @ (GuestReport::Started { .. }
                | GuestReport::ExecFailed { .. }
                | GuestReport::Held { .. }
                | GuestReport::HeldMore { .. }
                | GuestReport::Asked { .. }
                | GuestReport::Withdrawn { .. }
                | GuestReport::Stopped
                | GuestReport::Exited { .. }) => return Err(unexpected(&early)),
            }
        }
    }

    fn look_at_limits(&mut self) {
        self.reached.extend(self.holder.reached());
    }

    fn receive(&self) -> Result<GuestMessage, MessageError> {
        let bounds =
            Bounds { bytes: GUEST_REPORT_MAX, descriptors: GUEST_LISTENERS_MAX, within: Some(SETUP_TIME) };
        let received = message::receive(self.control.as_fd(), bounds)?;
        // A guest whose report cannot be read is as unreliable as one that is gone.
        let report = GuestReport::from_bytes(&received.body).map_err(|_broken| MessageError::Closed)?;
        Ok(GuestMessage { report, descriptors: received.descriptors, sender: received.sender })
    }

    fn receive_until(&mut self, deadline: Instant) -> Result<GuestMessage, LaunchError> {
        if !wait_readable(self.control.as_fd(), deadline) {
            return Err(LaunchError::Talk(std::io::ErrorKind::TimedOut.into()));
        }
        self.receive().map_err(|error| match error {
            MessageError::OpenFiles => LaunchError::OpenFiles,
            MessageError::Closed | MessageError::CutOff | MessageError::Receive(_) => self.holder.complaint(),
            MessageError::TooLong { .. }
            | MessageError::TooManyDescriptors { .. }
            | MessageError::TimedOut
            | MessageError::Send(_) => LaunchError::talk(error),
        })
    }
}

impl<H: Holder> Launched for GuestSession<H> {
    fn take_listener(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(known, _)| known == name)?;
        Some(self.listeners.swap_remove(at).1)
    }

    fn take_controller(&mut self) -> Option<OwnedFd> {
        self.controller.take()
    }

    fn start(&mut self) -> Result<Beginning, LaunchError> {
        match self.beginning {
            GuestBeginning::AtOnce => {}
            GuestBeginning::OnOrder => self.order(GuestOrder::Start)?,
        }
        match self.receive_until(Instant::now() + SETUP_TIME)?.report {
            GuestReport::Started { .. } => Ok(Beginning::Started),
            GuestReport::ExecFailed { what, errno } => {
                Ok(Beginning::Failed { what: what.to_string(), errno })
            }
            GuestReport::SetupFailed { step, errno, detail } => Err(sealing(step, errno, detail)),
            other @ (GuestReport::Terminal
            | GuestReport::Listening { .. }
            | GuestReport::Sealed { .. }
            | GuestReport::Held { .. }
            | GuestReport::HeldMore { .. }
            | GuestReport::Asked { .. }
            | GuestReport::Withdrawn { .. }
            | GuestReport::Stopped
            | GuestReport::Exited { .. }) => Err(unexpected(&other)),
        }
    }

    fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn report(&mut self) -> Result<News, LaunchError> {
        match self.receive().map(|message| message.report) {
            Ok(GuestReport::Exited { end, used, full, crowded }) => {
                self.used = Some(used);
                let reported = [full.then_some(LimitKind::Tmpfs), crowded.then_some(LimitKind::Pids)];
                self.reached.extend(reported.into_iter().flatten());
                self.look_at_limits();
                Ok(News::Ended(end))
            }
            Ok(GuestReport::Stopped) => Ok(News::Stopped),
            Ok(GuestReport::Held { path, act, why }) => Ok(News::Held { path, act, why }),
            Ok(GuestReport::HeldMore { count }) => Ok(News::HeldMore(count)),
            Ok(GuestReport::Asked { number, path, act, why, yes }) => {
                Ok(News::Asked { number, path, act, why, yes })
            }
            Ok(GuestReport::Withdrawn { number }) => Ok(News::Withdrawn(number)),
            Ok(
                late @ (GuestReport::Terminal
                | GuestReport::Listening { .. }
                | GuestReport::Sealed { .. }
                | GuestReport::Started { .. }
                | GuestReport::ExecFailed { .. }
                | GuestReport::SetupFailed { .. }),
            ) => Err(unexpected(&late)),
            Err(MessageError::Closed) => {
                self.look_at_limits();
                Ok(News::Gone)
            }
            Err(error) => Err(LaunchError::talk(error)),
        }
    }

    fn order(&self, order: GuestOrder) -> Result<(), LaunchError> {
        let body = order.to_bytes().map_err(LaunchError::talk)?;
        message::send(self.control.as_fd(), &body, &[]).map_err(LaunchError::talk)
    }

    fn finish(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        // The socket closes when the guest is gone.
        while wait_readable(self.control.as_fd(), deadline) {
            if self.receive().is_err() {
                break;
            }
        }
    }

    fn settle(&self) {
        self.holder.settle();
    }

    fn landlock(&self) -> Option<GuestLandlock> {
        Some(self.landlock)
    }

    fn used(&self) -> Option<GuestUsage> {
        self.holder.used(self.used)
    }

    fn reached(&self) -> &[LimitKind] {
        &self.reached
    }

    fn lacks(&self) -> &[String] {
        self.holder.lacks()
    }
}

fn unexpected(report: &GuestReport) -> LaunchError {
    LaunchError::talk(format!("it said {report:?} out of turn"))
}

/// Whether the descriptor became readable before the deadline.
fn wait_readable(descriptor: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
