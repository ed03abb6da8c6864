//! The guard holds back files that the host would execute later, while the command runs.
//!
//! It combines two layers. A Landlock layer keeps the command, and everything that it starts, from creating, writing
//! or moving anything below the guarded roots, by whatever system call. A system-call filter hands the calls that do so to
//! the threads here, which Landlock does not restrict: they resolve the path once, decide by the real directory and the
//! name, and perform the call for the caller. A call that they let continue ([`Stop::Continue`]) cannot change the roots,
//! whatever becomes of its arguments, because Landlock refuses it. If the threads are gone, every such call fails.
//!
//! Landlock grants by directory, so it also denies in the directories above a root, which may be the home or `/tmp`. The
//! guard performs calls there too, without judging them.
//!
//! If the user can be asked, a held call waits for the answer ([`asking`]).
//!
//! A decision and its act must see the same tree. Acts share a lock that renames and links have alone, because the name of
//! their source could come to mean something else; so has every act whose decision depends on what else is in a directory.
//! Removing, and making sockets, is done by the command itself: no decision may rest on something being still there, nor on a
//! socket being there or absent.

mod acts;
mod asking;
mod caller;
mod content;
mod locks;
mod mounted;
mod moving;
mod pipes;
mod reports;
mod roots;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

use belljar_contract::{GuestAnswer, GuestGuard, GuestOnHeld};
use belljar_sys::Errno;
use belljar_sys::landlock::{self, LandlockError};
use belljar_sys::process::own_directory_and_umask;
use belljar_sys::seccomp::notify::{Call, NotifyListener, NotifyResponse};
use belljar_sys::seccomp::{Filter, SeccompError, calls};
use rustix::fs::{CWD, Mode, OFlags};

use acts::{Acted, Alone, Attempt, Done, Open};
use asking::{Asking, MOST_PARKED, Queue};
use caller::{Caller, HeldAct, Remedy, Stop};
use locks::Locks;
pub(crate) use reports::Reports;
use roots::Roots;

/// One thread receives the next call while the kernel hands a descriptor to the previous caller. More threads gain
/// nothing: most of a call is spent in the kernel.
const THREADS: usize = 2;
/// Far more than resolving and comparing need.
const STACK: usize = 256 << 10;

/// Why the user is not asked, and what to do instead; appended to the reason.
const MOUNTED: &str = "; it is mounted read-only in this run, so it can only be changed outside, or with `workspace = \"overlay\"`";

/// Why the guard could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardError {
    #[error("cannot open the guarded directories")]
    Open(#[source] Errno),
    #[error("cannot start the threads of the guard")]
    Threads(#[source] std::io::Error),
    #[error("cannot apply the guard's Landlock layer")]
    Landlock(#[source] LandlockError),
    #[error("cannot install the guard's system-call filter")]
    Filter(#[source] SeccompError),
}

/// The state that all threads of the guard share.
struct Broker {
    roots: Roots,
    /// `/`.
    root: OwnedFd,
    /// `/proc/self/fd`, whose links give the paths of this process's descriptors.
    descriptors: OwnedFd,
    order: RwLock<()>,
    locks: Locks,
    reports: Reports,
    asking: Asking,
    /// Calls that wait for the user's answer; `None` if the user cannot be asked.
    queue: Option<Queue>,
}

/// The guard in force. It ends with the process.
pub(crate) struct Guard {
    broker: Arc<Broker>,
}

impl Guard {
    /// Puts the calling thread, and all that it starts, under the guard. All other restrictions must be in place already.
    pub(crate) fn stand(spec: &GuestGuard) -> Result<Self, GuardError> {
        let path = |place: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(place, flags, Mode::empty()).map_err(GuardError::Open)
        };
        let (queue, parked) = sync_channel(MOST_PARKED);
        let asks = spec.on_held == GuestOnHeld::Ask;
        let broker = Arc::new(Broker {
            roots: Roots::open(spec)?,
            root: path("/")?,
            descriptors: path("/proc/self/fd")?,
            order: RwLock::new(()),
            locks: Locks::default(),
            reports: Reports::new().map_err(GuardError::Open)?,
            asking: Asking::new(spec),
            queue: asks.then_some(queue),
        });
        // Before the layer and the filter, which concern this thread and what it starts from then on.
        let threads: Vec<Begun> = (0..THREADS).map(|_| begin_serving(&broker)).collect::<Result<_, _>>()?;
        let settles = asks.then(|| begin(&broker, move |broker| broker.settle_all(&parked))).transpose()?;
        landlock::restrict_making_to(broker.roots.granted()).map_err(GuardError::Landlock)?;
        let filter = Filter::guard().map_err(GuardError::Filter)?;
        let listener = Arc::new(filter.install_listener().map_err(GuardError::Filter)?);
        // The threads had time to get ready during the steps above.
        for Begun { listens, is_ready } in threads {
            wait_for(&is_ready)?;
            let gone = |_| GuardError::Threads(std::io::ErrorKind::BrokenPipe.into());
            listens.send(Arc::clone(&listener)).map_err(gone)?;
        }
        settles.iter().try_for_each(wait_for)?;
        Ok(Guard { broker })
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.broker.reports
    }

    /// Takes the user's answer to a question.
    pub(crate) fn answer(&self, number: u64, answer: GuestAnswer) {
        self.broker.asking.answer(number, answer);
    }

    /// Refuses calls that wait for an answer and stops asking.
    pub(crate) fn end_asking(&self) {
        self.broker.asking.end();
    }
}

/// A thread that was begun.
struct Begun {
    listens: Sender<Arc<NotifyListener>>,
    is_ready: IsReady,
}

/// Begins a thread that answers calls once it has the listener.
fn begin_serving(broker: &Arc<Broker>) -> Result<Begun, GuardError> {
    let (listens, take): (_, Receiver<Arc<NotifyListener>>) = channel();
    let is_ready = begin(broker, move |broker| {
        // No listener comes if the setup fails; then no command runs.
        if let Ok(listener) = take.recv() {
            broker.serve(&listener);
        }
    })?;
    Ok(Begun { listens, is_ready })
}

/// Says whether a thread has a directory and a mask of its own.
type IsReady = Receiver<Result<(), Errno>>;

fn wait_for(is_ready: &IsReady) -> Result<(), GuardError> {
    let own = is_ready.recv().unwrap_or(Err(Errno::SRCH));
    own.map_err(|errno| GuardError::Threads(errno.into()))
}

/// Begins a thread that can act for callers.
fn begin(broker: &Arc<Broker>, work: impl FnOnce(&Broker) + Send + 'static) -> Result<IsReady, GuardError> {
    let (ready, is_ready) = channel();
    let broker = Arc::clone(broker);
    let begin = move || {
        // Files are made under the caller's mask.
        let own = own_directory_and_umask();
        let failed = own.is_err();
        ready.send(own).ok();
        if !failed {
            work(&broker);
        }
    };
    let begun = std::thread::Builder::new().name("belljar-guard".to_owned()).stack_size(STACK).spawn(begin);
    begun.map_err(GuardError::Threads)?;
    Ok(is_ready)
}

impl Broker {
    fn serve(&self, listener: &Arc<NotifyListener>) {
        loop {
            match listener.receive() {
                Ok(call) => self.answer(listener, &call),
                // The caller ended before its call was received.
                Err(Errno::NOENT) => {}
                // No process is left under the filter.
                Err(_) => return,
            }
        }
    }

    /// Whether the user can be asked.
    fn asks(&self) -> bool {
        self.queue.is_some()
    }

    fn answer(&self, listener: &Arc<NotifyListener>, call: &Call) {
        let acted = self.act(&Caller { broker: self, listener, call, once: &[] });
        if let Err(Stop::Held { what, errno: _, remedy }) = &acted
            && self.park(listener, call, what, *remedy)
        {
            return;
        }
        self.finish(listener, call, acted);
    }

    /// Answers a caller with the result of its call.
    fn finish(&self, listener: &Arc<NotifyListener>, call: &Call, acted: Acted) {
        let answer = match acted {
            Ok(Done::Nothing) => NotifyResponse::Value(0),
            Ok(Done::Descriptor { descriptor, on_exec, made }) => {
                match listener.answer_with(call, descriptor.as_fd(), on_exec) {
                    Ok(()) => return,
                    Err(cause) => {
                        // The caller could not take the descriptor of the new file.
                        if let Some(made) = made {
                            let _alone = self.order.write().unwrap_or_else(PoisonError::into_inner);
                            made.remove();
                        }
                        NotifyResponse::Error(cause)
                    }
                }
            }
            Err(Stop::Continue) => NotifyResponse::Continue,
            Err(Stop::Fail(errno)) => NotifyResponse::Error(errno),
            Err(Stop::Gone) => return,
            Err(Stop::Held { what: HeldAct { path, act, why, judged: _ }, errno, remedy }) => {
                let why = if remedy == Remedy::Mount { why + MOUNTED } else { why };
                self.reports.held(&path, act, &why);
                NotifyResponse::Error(errno)
            }
        };
        // A caller that was ended needs no answer.
        listener.answer(call, answer).ok();
    }

    fn act(&self, caller: &Caller<'_>) -> Acted {
        if !moves_or_links(caller.call.number) {
            let shared = self.order.read().unwrap_or_else(PoisonError::into_inner);
            let tried = dispatch(caller, Alone::No);
            drop(shared);
            if let Ok(acted) = tried {
                return acted;
            }
        }
        let _alone = self.order.write().unwrap_or_else(PoisonError::into_inner);
        // With exclusive access no act asks for it again.
        dispatch(caller, Alone::Yes).unwrap_or(Err(Stop::Fail(Errno::IO)))
    }
}

/// Calls that always need exclusive access: their source must not change between the decision and the act.
fn moves_or_links(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, calls::LINK | calls::RENAME) {
        return true;
    }
    matches!(number, calls::LINKAT | calls::RENAMEAT | calls::RENAMEAT2)
}

/// Which call it is. One that the filter hands over and that is not listed here goes on, behind Landlock.
fn dispatch(caller: &Caller<'_>, alone: Alone) -> Attempt {
    let [a, b, c, d, e, _] = caller.call.arguments;
    let here = CWD.as_raw_fd();
    let number = |value: u64| value as i32;
    let mode = |value: u64| Mode::from_raw_mode((value & 0o7777) as u32);
    let flags = |value: u64| OFlags::from_bits_retain(value as u32);
    match caller.call.number {
        calls::OPENAT => {
            let open = Open { directory: number(a), path: b, flags: flags(c), mode: mode(d) };
            caller.open(&open, alone)
        }
        calls::MKDIRAT => caller.make_directory(number(a), b, mode(c), alone),
        calls::MKNODAT => caller.make_node(number(a), b, c as u32, alone),
        calls::SYMLINKAT => caller.make_symlink(a, number(b), c, alone),
        calls::LINKAT => caller.link((number(a), b), (number(c), d), e as u32),
        calls::RENAMEAT => caller.rename((number(a), b), (number(c), d), 0),
        calls::RENAMEAT2 => caller.rename((number(a), b), (number(c), d), e as u32),
        calls::TRUNCATE => Ok(caller.truncate(a, b as i64)),
        #[cfg(target_arch = "x86_64")]
        calls::OPEN => {
            let open = Open { directory: here, path: a, flags: flags(b), mode: mode(c) };
            caller.open(&open, alone)
        }
        #[cfg(target_arch = "x86_64")]
        calls::CREAT => {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
            caller.open(&Open { directory: here, path: a, flags, mode: mode(b) }, alone)
        }
        #[cfg(target_arch = "x86_64")]
        calls::MKDIR => caller.make_directory(here, a, mode(b), alone),
        #[cfg(target_arch = "x86_64")]
        calls::MKNOD => caller.make_node(here, a, b as u32, alone),
        #[cfg(target_arch = "x86_64")]
        calls::SYMLINK => caller.make_symlink(a, here, b, alone),
        #[cfg(target_arch = "x86_64")]
        calls::LINK => caller.link((here, a), (here, b), 0),
        #[cfg(target_arch = "x86_64")]
        calls::RENAME => caller.rename((here, a), (here, b), 0),
        _ => Ok(Err(Stop::Continue)),
    }
}
