//! The processes of a session, which a process joins by being forked in it and leaves only with `setsid`.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::fds::wait;
use crate::process::open;
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};

/// The running processes of the session that this process leads. The leader must not have been waited for: until then
/// no other session has its number.
#[must_use]
pub fn members(leader: Pid) -> Vec<OwnedFd> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |number: i32| {
        let pid = Pid::from_raw(number).filter(|pid| runs_in(*pid, leader))?;
        // Read again once it is open: the number may have been given to another process in between.
        let process = open(pid).ok()?;
        runs_in(pid, leader).then_some(process)
    };
    numbers.filter_map(member).collect()
}

/// Sends a signal to all processes of a session, as often as new ones appear, until none runs or the time is over.
/// Returns whether none runs.
pub fn end_all(leader: Pid, signal: Signal, until: Instant) -> bool {
    loop {
        let running = members(leader);
        let Some(first) = running.first() else { return true };
        for process in &running {
            // One that has just ended needs no signal.
            rustix::process::pidfd_send_signal(process, signal).ok();
        }
        if wait(first.as_fd(), PollFlags::IN, Some(until)).is_err() {
            return members(leader).is_empty();
        }
    }
}

fn runs_in(pid: Pid, session: Pid) -> bool {
    let Ok(text) = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())) else { return false };
    let text = String::from_utf8_lossy(&text);
    // The name in parentheses may hold anything; state, parent, group and session follow it.
    let mut fields = text.rsplit_once(')').map(|(_, after)| after).unwrap_or_default().split_whitespace();
    let runs = fields.next().is_some_and(|state| state != "Z" && state != "X");
    runs && fields.nth(2).and_then(|field| field.parse().ok()) == Some(session.as_raw_pid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Prepare;
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn children_that_ignore_a_signal_are_killed() {
        let script = "trap '' TERM; sleep 1000 & sleep 1000 & echo; wait";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).own_session();
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let leader = Pid::from_child(&child);
        assert_eq!(members(leader).len(), 3);
        assert!(!end_all(leader, Signal::TERM, Instant::now() + Duration::from_millis(50)));
        assert_eq!(members(leader).len(), 3);
        assert!(end_all(leader, Signal::KILL, Instant::now() + Duration::from_secs(10)));
        assert!(members(leader).is_empty());
        child.wait().unwrap();
    }
}
