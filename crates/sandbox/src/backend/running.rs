//! The act: the guest that waits in its namespaces is told what to do, and watched.

use super::container::{EngineError, EnginePlaces, Vessel};
use super::telling::{self, Told};
use super::waiting::{Begun, LEAVING, Leaving, Waiting};
use super::{limits, making};
use crate::workspace::{LayersError, Overlay};
use belljar_contract::{
    AbsPath, GUEST_REPORT_MAX, GuestAct, GuestBeginning, GuestEnd, GuestGround, GuestLandlock, GuestOrder,
    GuestReport, GuestSpec, GuestStream, GuestTerminal, GuestUsage, GuestVariable, GuestYes, Launch,
    LimitKind, OsText,
};
use belljar_sys::cgroup::{CgroupError, Groups, Leaf};
use belljar_sys::message::{self, Bounds, MessageError};
use belljar_sys::mounts;
use belljar_sys::overlay::OverlayError;
use belljar_sys::process::{self, OwnedChild};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long building a sandbox may take before it is given up.
const SETUP_TIME: Duration = Duration::from_secs(20);
/// How long bubblewrap may take to follow the guest.
const EXIT_TIME: Duration = Duration::from_millis(200);
/// More of bubblewrap's own words than anyone reads.
const COMPLAINT_LIMIT: u64 = 16 << 10;

/// Why a sandbox could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Something that is to be kept could not be made.
    #[error("cannot make `{path}`")]
    Make {
        /// What.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A source of a mount is gone, or is not what was planned with.
    #[error("cannot open `{path}` for the sandbox")]
    Source {
        /// Which.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A source is another file or directory than the plan saw.
    #[error("`{path}` is not what it was when the plan was made")]
    Changed {
        /// Which.
        path: AbsPath,
    },
    /// A file's content could not be put together.
    #[error("cannot prepare the content of {name}")]
    Content {
        /// Which.
        name: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The program could not be started.
    #[error("cannot start `{program}`")]
    Spawn {
        /// Which.
        program: OsText,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The layers of the overlay cannot be used.
    #[error("the changes that are kept aside cannot be used")]
    Layers(#[from] LayersError),
    /// The overlay could not be prepared.
    #[error("the overlay cannot be prepared")]
    Overlay(#[from] OverlayError),
    /// The kernel refused the overlay.
    #[error("the overlay cannot be mounted: the step {step:?} failed")]
    OverlayStep {
        /// Which.
        step: belljar_sys::overlay::Step,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// bubblewrap gave up, in its own words.
    #[error("bubblewrap could not build the sandbox: {words}")]
    Bubblewrap {
        /// What it said.
        words: String,
    },
    /// There is no container.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The container ended, in the words of the guest or of the engine.
    #[error("the container did not become a sandbox: {words}")]
    Container {
        /// What was said.
        words: String,
    },
    /// A wall could not be raised from inside.
    #[error("the sandbox could not be sealed at the step {step:?}: {detail}")]
    Sealing {
        /// Which step.
        step: belljar_contract::GuestStep,
        /// In words.
        detail: String,
    },
    /// A limit does not hold.
    #[error("a limit does not hold")]
    Limit(#[from] CgroupError),
    /// The guest said something that has no place here, or nothing.
    #[error("the guest does not answer as it should")]
    Talk(#[source] std::io::Error),
}

/// Where a standard stream of the command leads.
#[derive(Debug)]
pub enum StreamEnd {
    /// To the terminal that the backend opens for it.
    Terminal,
    /// To this descriptor.
    Open(OwnedFd),
}

/// The standard streams of the command.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub stdin: StreamEnd,
    /// Standard output.
    pub stdout: StreamEnd,
    /// Standard error.
    pub stderr: StreamEnd,
}

/// What a launch needs beside the lowered plan.
#[derive(Debug)]
pub struct LaunchRequest<'a> {
    /// The lowered plan.
    pub launch: &'a Launch,
    /// A sandbox that was started while the plan was being made; used where it is the one that the plan wants.
    pub waiting: Option<Waiting>,
    /// Variables whose values were found just now.
    pub variables: Vec<GuestVariable>,
    /// The standard streams.
    pub streams: Streams,
    /// The name of the run; names what belongs to it on the host.
    pub name: &'a str,
    /// Layers to mount where only the sandbox sees them, when the plan keeps changes aside.
    pub overlays: &'a [Overlay],
    /// Where an engine is looked for, when the plan wants a container.
    pub engine: Option<&'a EnginePlaces>,
    /// What the sources were when the plan was made.
    pub identities: &'a BTreeMap<AbsPath, mounts::Identity>,
}

/// How a command began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It runs.
    Started,
    /// It could not be executed: the word, and the kernel's answer.
    Failed {
        /// The file or name.
        what: String,
        /// The kernel's answer.
        errno: i32,
    },
}

/// What happened to a started command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The guard held something back.
    Held {
        /// Where, inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run it.
        why: String,
    },
    /// The guard held back more than it tells of.
    HeldMore(u64),
    /// The guard held something back, and the call waits for an answer.
    Asked {
        /// Which question it is.
        number: u64,
        /// Where, inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run it.
        why: String,
        /// What a yes is for.
        yes: GuestYes,
    },
    /// Nobody waits for the answer to this question any more.
    Withdrawn(u64),
    /// It stopped itself and waits for SIGCONT.
    Stopped,
    /// It ended.
    Ended(GuestEnd),
    /// Nothing inside is left.
    Gone,
}

/// What holds a sandbox. Its end is the end of everything inside.
#[derive(Debug)]
enum Holder {
    /// Its death is the death of the namespace's first process, once that is sealed.
    Bwrap(Held),
    /// It goes when it is removed.
    Container(Vessel),
}

/// bubblewrap and the first process of its namespaces. Dropping this ends both and waits for both: the kernel lets go of
/// the sandbox's mounts before the first process counts as ended, bubblewrap reaps that one, and is reaped here.
#[derive(Debug)]
struct Held {
    /// Known once it is sealed, as long as it lives.
    first: Option<First>,
    /// Taken only by [`Running::let_go`].
    child: Option<OwnedChild>,
    /// What bubblewrap says.
    words: Option<File>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        let patience = if self.first.take().is_some() { LEAVING } else { EXIT_TIME };
        // If it were killed before it has reaped the first process, nobody would.
        child.ends_within(patience);
    }
}

/// The first process of a namespace, which takes all others with it. Dropping this ends it, whatever it minds.
#[derive(Debug)]
struct First(OwnedFd);

impl Drop for First {
    fn drop(&mut self) {
        // One that has ended already takes no signal.
        process::signal_open(self.0.as_fd(), Signal::KILL).ok();
    }
}

/// Limits that were reached, and where that is seen.
#[derive(Debug, Default)]
struct Reached {
    /// Known once the command has ended.
    kinds: Vec<LimitKind>,
    /// The control groups of a container, which its engine removes.
    groups: Option<Groups>,
}

/// A sandbox that stands. Dropping it ends everything inside.
#[derive(Debug)]
pub struct Running {
    holder: Holder,
    control: OwnedFd,
    listeners: Vec<(String, OwnedFd)>,
    /// The controlling end of the command's terminal.
    controller: Option<OwnedFd>,
    /// The guest's process, by the kernel's word.
    guest: Option<Pid>,
    beginning: GuestBeginning,
    /// What the command used up, once it has ended.
    used: Option<GuestUsage>,
    /// Limits that were reached.
    reached: Box<Reached>,
    /// Removed after everything in it has ended.
    leaf: Option<Leaf>,
    /// What Landlock adds.
    pub landlock: GuestLandlock,
    /// One that was started before for nothing.
    _earlier: Option<Leaving>,
}

/// A report of the guest, what came with it, and who the kernel says that it came from.
struct Heard {
    report: GuestReport,
    descriptors: Vec<OwnedFd>,
    sender: Option<Pid>,
}

pub(super) fn launch(request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
    let LaunchRequest { launch, waiting, variables, streams, name, overlays, engine, identities } = request;
    for made in &launch.made {
        making::make(made)?;
    }
    let (holder, root, control, earlier) = match (&launch.container, engine) {
        (Some(container), Some(places)) => {
            // Nothing is started with bubblewrap.
            let leaving = waiting.and_then(Waiting::let_go);
            let image = &container.image;
            let overlays = overlays.iter().map(|overlay| telling::layers(overlay, image));
            let ground = GuestGround::Container { overlays: overlays.collect::<Result<_, _>>()? };
            let root = telling::tell(ground, Some(image), &launch.root, launch.bounds, identities)?;
            let (vessel, control) = Vessel::launch(places, launch, container, name)?;
            message::ask_for_senders(control.as_fd())
                .map_err(|error| LaunchError::Talk(std::io::Error::other(error)))?;
            (Holder::Container(vessel), root, control, leaving)
        }
        (Some(_), None) => return Err(EngineError::Absent { tried: Vec::new() }.into()),
        (None, _) => {
            let (begun, leaving) = Waiting::for_launch(waiting, launch, overlays, identities)?;
            // While bubblewrap makes the namespaces.
            match telling::tell(GuestGround::Namespaces, None, &launch.root, launch.bounds, identities) {
                Ok(root) => {
                    let Begun { bwrap, words, control } = begun;
                    let held = Held { first: None, child: Some(bwrap), words: Some(words) };
                    (Holder::Bwrap(held), root, control, leaving)
                }
                Err(error) => {
                    drop(begun.let_go());
                    return Err(error);
                }
            }
        }
    };
    let nothing = GuestLandlock {
        abi: 0,
        files: belljar_contract::GuestWall::Missing,
        signals: belljar_contract::GuestWall::Missing,
        abstract_sockets: belljar_contract::GuestWall::Missing,
    };
    let mut running = Running {
        holder,
        control,
        listeners: Vec::new(),
        controller: None,
        guest: None,
        beginning: launch.guest.beginning,
        used: None,
        reached: Box::default(),
        leaf: None,
        landlock: nothing,
        _earlier: earlier,
    };
    if let Err(error) = running.seal(launch, root, variables, streams) {
        running.let_go();
        return Err(error);
    }
    let Some(guest) = running.guest else {
        return Err(LaunchError::Talk(std::io::Error::other("the kernel does not say which process it is")));
    };
    match &mut running.holder {
        Holder::Bwrap(Held { first, child: Some(child), .. }) => {
            // One that had nothing to do for long may be gone already, and its number another's: it is the guest's while the
            // line to it is open.
            *first = process::open(guest).ok().filter(|_| is_open(running.control.as_fd())).map(First);
            running.leaf = limits::confine(name, &launch.limits, child.pid(), guest)?;
        }
        Holder::Bwrap(Held { child: None, .. }) => {}
        Holder::Container(_) => {
            limits::confirm(&launch.limits, guest)?;
            running.reached.groups = Groups::of(guest).ok();
        }
    }
    Ok(running)
}

/// Tells the guest where the streams lead, and gives the descriptors that go with the message, in order.
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

impl Running {
    /// Ends what does not stand yet.
    fn let_go(self) {
        let Self { mut holder, control, .. } = self;
        if let Holder::Bwrap(held) = &mut holder
            && let (Some(bwrap), Some(words)) = (held.child.take(), held.words.take())
        {
            drop(Begun { bwrap, words, control }.let_go());
        }
    }

    fn seal(
        &mut self,
        launch: &Launch,
        root: Told,
        variables: Vec<GuestVariable>,
        streams: Streams,
    ) -> Result<(), LaunchError> {
        let mut spec = launch.guest.clone();
        // The sources stay open until the guest has them: no other file can get the number of one that is removed.
        let Told { root, contents, sources: _held } = root;
        spec.root = root;
        spec.environment.retain(|known| !variables.iter().any(|new| new.name == known.name));
        spec.environment.extend(variables);
        let mut attached = attach(&mut spec, streams);
        attached.push(contents);
        let body = spec.to_bytes().map_err(|error| LaunchError::Talk(std::io::Error::other(error)))?;
        let attached: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        let sent = message::send(self.control.as_fd(), &body, &attached);
        if sent.is_err() {
            return Err(self.complaint());
        }
        let deadline = Instant::now() + SETUP_TIME;
        loop {
            let Heard { report, descriptors, sender } = self.receive_until(deadline)?;
            match report {
                GuestReport::Terminal => self.controller = descriptors.into_iter().next(),
                GuestReport::Listening { names } => {
                    self.listeners = names.into_iter().zip(descriptors).collect();
                }
                GuestReport::Sealed { .. }
                    if spec.terminal == GuestTerminal::Own && self.controller.is_none() =>
                {
                    return Err(LaunchError::Talk(std::io::Error::other("it handed out no terminal")));
                }
                GuestReport::Sealed { landlock } => {
                    self.landlock = landlock;
                    self.guest = sender;
                    return Ok(());
                }
                GuestReport::SetupFailed { step, errno: _, detail } => {
                    return Err(LaunchError::Sealing { step, detail });
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// What the command used up, where nobody is waited for here who would tell.
    #[must_use]
    pub fn used(&self) -> Option<GuestUsage> {
        match &self.holder {
            Holder::Bwrap(_) => None,
            Holder::Container(_) => self.used,
        }
    }

    /// What the container's image lacks and the command can do without, in words.
    #[must_use]
    pub fn lacks(&self) -> &[String] {
        match &self.holder {
            Holder::Bwrap(_) => &[],
            Holder::Container(vessel) => &vessel.lacks,
        }
    }

    /// The listeners that were opened inside, by name; each can be taken once.
    pub fn take_listener(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(known, _)| known == name)?;
        Some(self.listeners.swap_remove(at).1)
    }

    /// The controlling end of the command's terminal, if it has one; can be taken once.
    pub fn take_controller(&mut self) -> Option<OwnedFd> {
        self.controller.take()
    }

    /// Starts the command.
    ///
    /// # Errors
    /// When the guest is gone or does not answer; a command that cannot be executed is no such error.
    pub fn start(&mut self) -> Result<Beginning, LaunchError> {
        match self.beginning {
            GuestBeginning::AtOnce => {}
            GuestBeginning::OnOrder => self.order(GuestOrder::Start)?,
        }
        match self.receive_until(Instant::now() + SETUP_TIME)?.report {
            GuestReport::Started { .. } => Ok(Beginning::Started),
            GuestReport::ExecFailed { what, errno } => {
                Ok(Beginning::Failed { what: what.to_string(), errno })
            }
            GuestReport::SetupFailed { step, errno: _, detail } => Err(LaunchError::Sealing { step, detail }),
            other => Err(unexpected(&other)),
        }
    }

    /// The descriptor that becomes readable when the guest has something to say.
    #[must_use]
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// What the guest says, once the descriptor is readable.
    ///
    /// # Errors
    /// When it is not a message.
    pub fn report(&mut self) -> Result<News, LaunchError> {
        match self.receive().map(|heard| heard.report) {
            Ok(GuestReport::Exited { end, used, full, crowded }) => {
                self.used = Some(used);
                let told = [full.then_some(LimitKind::Tmpfs), crowded.then_some(LimitKind::Pids)];
                self.reached.kinds.extend(told.into_iter().flatten());
                self.look_at_groups();
                Ok(News::Ended(end))
            }
            Ok(GuestReport::Stopped) => Ok(News::Stopped),
            Ok(GuestReport::Held { path, act, why }) => Ok(News::Held { path, act, why }),
            Ok(GuestReport::HeldMore { count }) => Ok(News::HeldMore(count)),
            Ok(GuestReport::Asked { number, path, act, why, yes }) => {
                Ok(News::Asked { number, path, act, why, yes })
            }
            Ok(GuestReport::Withdrawn { number }) => Ok(News::Withdrawn(number)),
            Ok(other) => Err(unexpected(&other)),
            Err(MessageError::Closed) => {
                self.look_at_groups();
                Ok(News::Gone)
            }
            Err(error) => Err(LaunchError::Talk(std::io::Error::other(error))),
        }
    }

    fn look_at_groups(&mut self) {
        let groups = self.reached.groups.as_ref().map(Groups::reached);
        let reached = self.leaf.as_ref().map(Leaf::reached).or(groups).unwrap_or_default();
        self.reached.kinds.extend(limits::kinds(&reached));
    }

    /// Limits that were reached, as far as the kernel and the guest say; known once the command has ended.
    #[must_use]
    pub fn reached(&self) -> &[LimitKind] {
        &self.reached.kinds
    }

    /// Gives an order.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn order(&self, order: GuestOrder) -> Result<(), LaunchError> {
        let body = order.to_bytes().map_err(|error| LaunchError::Talk(std::io::Error::other(error)))?;
        message::send(self.control.as_fd(), &body, &[])
            .map_err(|error| LaunchError::Talk(std::io::Error::other(error)))
    }

    /// Waits until nothing is left, at most for `patience`, then uses force.
    pub fn finish(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        // The socket closes when the guest is gone.
        while wait_readable(self.control.as_fd(), deadline) {
            if self.receive().is_err() {
                break;
            }
        }
    }

    /// Waits until bubblewrap has followed the guest, so that what everything used is known; not for long.
    pub fn settle(&self) {
        if let Holder::Bwrap(Held { child: Some(child), .. }) = &self.holder {
            child.ends_within(EXIT_TIME);
        }
    }

    fn receive(&self) -> Result<Heard, MessageError> {
        let bounds = Bounds {
            bytes: GUEST_REPORT_MAX,
            descriptors: belljar_contract::GUEST_LISTENERS_MAX,
            within: Some(SETUP_TIME),
        };
        let received = message::receive(self.control.as_fd(), bounds)?;
        // A report that cannot be read is no different from a guest that is gone: neither can be relied on.
        let report = GuestReport::from_bytes(&received.body).map_err(|_broken| MessageError::Closed)?;
        Ok(Heard { report, descriptors: received.descriptors, sender: received.sender })
    }

    fn receive_until(&mut self, deadline: Instant) -> Result<Heard, LaunchError> {
        if !wait_readable(self.control.as_fd(), deadline) {
            return Err(LaunchError::Talk(std::io::ErrorKind::TimedOut.into()));
        }
        match self.receive() {
            Ok(heard) => Ok(heard),
            Err(_gone) => Err(self.complaint()),
        }
    }

    /// What whoever holds the sandbox said before it gave up.
    fn complaint(&mut self) -> LaunchError {
        let words = match &mut self.holder {
            Holder::Container(vessel) => return LaunchError::Container { words: vessel.complaint() },
            Holder::Bwrap(held) => held.words.take(),
        };
        let mut text = String::new();
        if let Some(said) = words {
            // It has ended, or is about to: the guest's end of the socket is closed.
            said.take(COMPLAINT_LIMIT).read_to_string(&mut text).ok();
        }
        let words = text.trim().trim_start_matches("bwrap: ").to_owned();
        LaunchError::Bubblewrap {
            words: if words.is_empty() { "it ended without a word".to_owned() } else { words },
        }
    }
}

fn unexpected(report: &GuestReport) -> LaunchError {
    LaunchError::Talk(std::io::Error::other(format!("it said {report:?} out of turn")))
}

/// Whether somebody is at the other end of a line.
fn is_open(line: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&line, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|left| left == 0)
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
