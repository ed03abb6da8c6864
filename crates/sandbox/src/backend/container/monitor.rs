//! Processes of a container that outlive its removal.
//!
//! If podman is killed while it starts a container, it does not know later that the container's monitor (conmon) runs. It then
//! removes the container and leaves the monitor and the process in the container running.

use belljar_sys::process;
use rustix::event::Timespec;
use rustix::process::{Pid, Signal};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The length of a container's number.
const NUMBER: usize = 64;

/// Ends the monitors of the container with this number, and what they started.
pub(super) fn end_monitors(id: &str) {
    if id.len() != NUMBER || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let mut found = false;
        for monitor in processes().filter(|pid| monitors(*pid, id)) {
            found = true;
            let below = descendants(monitor);
            below.into_iter().rev().for_each(|(parent, pid)| end(pid, || children(parent).contains(&pid)));
            end(monitor, || monitors(monitor, id));
        }
        if !found || Instant::now() > until {
            return;
        }
        rustix::event::poll(&mut [], Some(&PAUSE)).ok();
    }
}

/// Kills a process if it is still the one that was found.
fn end(pid: Pid, is_it: impl Fn() -> bool) {
    let Ok(opened) = process::open(pid) else { return };
    if is_it() {
        // One that has ended already takes no signal; another user's is not this user's to end.
        process::signal_open(opened.as_fd(), Signal::KILL).ok();
    }
}

/// Whether a process is a monitor of the container with this number.
fn monitors(pid: Pid, id: &str) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let program = arguments.first().and_then(|argument| std::str::from_utf8(argument).ok()).map(Path::new);
    program.is_some_and(|program| program.ends_with("conmon"))
        && arguments.windows(2).any(|pair| pair == [b"-c".as_slice(), id.as_bytes()])
}

/// The processes below one, each with its parent, parents first.
fn descendants(top: Pid) -> Vec<(Pid, Pid)> {
    let mut out: Vec<(Pid, Pid)> = children(top).into_iter().map(|pid| (top, pid)).collect();
    let mut next = 0;
    while let Some((_, pid)) = out.get(next).copied() {
        out.extend(children(pid).into_iter().map(|child| (pid, child)));
        next += 1;
    }
    out
}

fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_pid();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A shell that is called like a monitor, with a process below it.
    fn played(name: &str, id: &str) -> (Child, Pid) {
        let mut command = Command::new("/bin/sh");
        command.arg0(name).args(["-s", "--", "-c", id]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Its descendants are ended first, and it may end by itself before it is killed.
        child.stdin.as_mut().unwrap().write_all(b"sleep 300 & echo $!; wait; exit 3\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, Pid::from_raw(line.trim().parse().unwrap()).unwrap())
    }

    #[test]
    fn only_the_monitors_of_one_container_are_ended_with_what_they_started() {
        let id = format!("{:064x}", std::process::id());
        let (mut monitor, below) = played("/usr/bin/conmon", &id);
        let others = [played("/usr/bin/conmon", &id.replace('0', "1")), played("/usr/bin/other", &id)];
        let waiting = std::thread::spawn(move || monitor.wait().unwrap());
        end_monitors(&id);
        assert!(!waiting.join().unwrap().success());
        let ended = |pid: Pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z")
        };
        let until = Instant::now() + PATIENCE;
        while !ended(below) {
            assert!(Instant::now() < until, "{below:?} still runs");
        }
        end_monitors("");
        for (mut child, below) in others {
            assert!(child.try_wait().unwrap().is_none() && !ended(below));
            end(below, || true);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
