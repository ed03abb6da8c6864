//! Callers that wait for a pipe to be read.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_sys::Errno;
use belljar_sys::seccomp::notify::NotifyResponse;
use rustix::fs::{Mode, OFlags};

use super::acts::on_exec;
use super::caller::{Caller, Stop};

/// Callers that wait at once.
const MOST: usize = 64;
/// How often a pipe is looked at.
const PAUSE: Duration = Duration::from_millis(2);

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Opens the pipe for the caller once it has a reader. A thread of its own answers the caller: those that answer other
/// calls must not block.
pub(super) fn wait_for_reader(caller: &Caller<'_>, pipe: OwnedFd, flags: OFlags) -> Result<(), Stop> {
    if WAITING.fetch_add(1, Ordering::Relaxed) >= MOST {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        return Err(Stop::Fail(Errno::AGAIN));
    }
    let (listener, call) = (Arc::clone(caller.listener), *caller.call);
    let wait = move || {
        let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
        while listener.is_waiting(&call) {
            match rustix::fs::open(&path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NXIO) => std::thread::sleep(PAUSE),
                Ok(opened) => {
                    let now = rustix::fs::fcntl_getfl(&opened).unwrap_or(OFlags::empty());
                    let waits = rustix::fs::fcntl_setfl(&opened, now - OFlags::NONBLOCK);
                    let given = waits.and_then(|()| {
                        listener.answer_with(&call, std::os::fd::AsFd::as_fd(&opened), on_exec(flags))
                    });
                    if let Err(cause) = given {
                        // A caller that is gone needs no answer.
                        listener.answer(&call, NotifyResponse::Error(cause)).ok();
                    }
                    break;
                }
                Err(cause) => {
                    listener.answer(&call, NotifyResponse::Error(cause)).ok();
                    break;
                }
            }
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
    };
    let begun = std::thread::Builder::new().name("belljar-pipe".to_owned()).stack_size(64 << 10).spawn(wait);
    begun.map(drop).map_err(|_no_thread| {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        Stop::Fail(Errno::AGAIN)
    })
}
