//! Waits for events of the kernel instead of asking again and again. Tests share the machine, so the deadline is one that
//! only a hang reaches.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an event may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// What can make a file appear, or change what it holds.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY);

/// Why a wait was given up.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The event did not come.
    #[error("nothing of the kind happened within {DEADLINE:?}")]
    Late,
    /// The kernel refused to watch.
    #[error("cannot watch")]
    Watch(#[source] io::Error),
}

/// Returns what `look` finds, which is asked at first and whenever anything below a directory changes.
///
/// # Errors
/// When it finds nothing until the deadline, or the directory cannot be watched.
pub fn for_files<T>(top: &Path, look: impl FnMut() -> Option<T>) -> Result<T, WaitError> {
    for_files_within(DEADLINE, top, look)
}

fn for_files_within<T>(
    within: Duration,
    top: &Path,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, WaitError> {
    let until = Instant::now() + within;
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(watch)?;
    loop {
        // A directory that was made a moment ago is watched before anything in it is looked for.
        watch_below(changes.as_fd(), top)?;
        if let Some(found) = look() {
            return Ok(found);
        }
        wait_for(changes.as_fd(), until)?;
        while rustix::io::read(&changes, &mut [0; 4096]).is_ok() {}
    }
}

/// Watches a directory and those below it; one that has gone meanwhile is none.
fn watch_below(changes: BorrowedFd<'_>, top: &Path) -> Result<(), WaitError> {
    match inotify::add_watch(changes, top, CHANGES | WatchFlags::ONLYDIR) {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(watch(errno)),
    }
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            watch_below(changes, &entry.path())?;
        }
    }
    Ok(())
}

/// Waits until no process is listed. Each that is listed is waited for, then the list is made anew.
///
/// # Errors
/// When one of them still runs at the deadline.
pub fn for_end(mut running: impl FnMut() -> Vec<u32>) -> Result<(), WaitError> {
    let until = Instant::now() + DEADLINE;
    loop {
        let processes = running();
        if processes.is_empty() {
            return Ok(());
        }
        for process in processes {
            let process = i32::try_from(process).ok().and_then(Pid::from_raw).map(pidfd);
            match process {
                Some(Ok(process)) => wait_for(process.as_fd(), until)?,
                // It has ended and was reaped.
                Some(Err(Errno::SRCH)) | None => {}
                Some(Err(errno)) => return Err(watch(errno)),
            }
        }
        if Instant::now() >= until {
            return Err(WaitError::Late);
        }
    }
}

fn pidfd(process: Pid) -> rustix::io::Result<std::os::fd::OwnedFd> {
    pidfd_open(process, PidfdFlags::empty())
}

fn wait_for(event: BorrowedFd<'_>, until: Instant) -> Result<(), WaitError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(WaitError::Late),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(watch(errno)),
        }
    }
}

fn watch(errno: Errno) -> WaitError {
    WaitError::Watch(errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_file_deep_in_directories_that_are_made_meanwhile_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let mut wanted = directory.path().to_owned();
        wanted.extend(["a", "b", "c", "file"]);
        let writes = format!(
            "read go; mkdir -p {0}/a/b/c; echo x > {1}",
            directory.path().display(),
            wanted.display()
        );
        let mut writer = Command::new("sh").args(["-c", &writes]).stdin(Stdio::piped()).spawn().unwrap();
        let mut looks = 0;
        let found = for_files(directory.path(), || {
            looks += 1;
            // It begins when it was not found once.
            drop(writer.stdin.take());
            fs::read_to_string(&wanted).ok().filter(|text| !text.is_empty())
        });
        assert_eq!((found.unwrap().as_str(), looks > 1), ("x\n", true));
        assert!(writer.wait().unwrap().success());
    }

    #[test]
    fn what_never_comes_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let found = for_files_within(Duration::from_millis(50), directory.path(), || None::<()>);
        assert!(matches!(found, Err(WaitError::Late)), "{found:?}");
    }

    #[test]
    fn a_process_that_is_not_reaped_has_ended() {
        let mut child =
            Command::new("sh").args(["-c", "read end; exit 0"]).stdin(Stdio::piped()).spawn().unwrap();
        let line = format!("/proc/{}/cmdline", child.id());
        for_end(|| {
            drop(child.stdin.take());
            let runs = fs::read(&line).is_ok_and(|line| !line.is_empty());
            if runs { vec![child.id()] } else { Vec::new() }
        })
        .unwrap();
        assert!(fs::exists(&line).unwrap(), "it waits for its parent");
        assert!(child.wait().unwrap().success());
    }
}
