//! Using up what others need, in small amounts: the caller has set low limits. Nothing outlives the prober.

use std::fs::File;
use std::io::Write;
use std::sync::RwLock;
use std::thread;

use belljar_sys::Errno;
use rustix::fs::{Mode, OFlags};

use super::{Outcome, Seen, unsupported};

/// Written at once.
const BLOCK: usize = 64 << 10;
/// As little as a thread can do with; the standard library rounds up.
const STACK: usize = 16 << 10;

/// Files without names take room and are gone when they are closed.
pub(super) fn fill(places: &[String], bytes: u64) -> Seen {
    let block = vec![1; BLOCK];
    let (mut files, mut left, mut last) = (Vec::new(), bytes, None);
    for place in places {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = match rustix::fs::open(place.as_str(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(
                Errno::NOENT | Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP | Errno::ISDIR,
            ) => {
                continue;
            }
            Err(errno) => return unsupported(&format!("{place}: {errno}")),
        };
        while left > 0 {
            let count = BLOCK.min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.write(&block[..count]) {
                Ok(count) => left = left.saturating_sub(count as u64),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        files.push(file);
    }
    match last {
        _ if left == 0 => (Outcome::Open, format!("{bytes} bytes fit")),
        Some(error) => {
            let fit = bytes - left;
            (Outcome::Closed { errno: error.raw_os_error() }, format!("{fit} of {bytes} bytes fit: {error}"))
        }
        None => unsupported("none of the directories takes files without names"),
    }
}

pub(super) fn threads(count: u32) -> Seen {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let closed = gate.write();
        // Each waits until all have been started.
        let start = || {
            let waits = || drop(gate.read());
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, waits)
        };
        let seen = (0..count).find_map(|number| {
            let error = start().err()?;
            let detail = format!("refused after {number} of {count} threads: {error}");
            Some((Outcome::Closed { errno: error.raw_os_error() }, detail))
        });
        drop(closed);
        seen.unwrap_or_else(|| (Outcome::Open, format!("{count} threads started")))
    })
}
