//! Identifies a process, so that a later one with the same number is not mistaken for it.
//!
//! What a process makes on the host carries its [`Birth`] in its name, so that another process can tell whether the maker
//! still runs. A name is complete from the moment it exists; a lock would have to be taken after that.

use rustix::process::Pid;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// The digits of a [`Birth`] in a name: short, because the path of a socket is.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A process by its namespace, its number there and the time at which the kernel started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    namespace: u64,
    pid: u64,
    started: u64,
}

/// Whether a process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It runs.
    Runs,
    /// It has ended, whether or not it was waited for.
    Ended,
    /// Its number counts in another namespace, which cannot be looked into from here.
    Elsewhere,
}

impl Birth {
    /// The calling process.
    ///
    /// # Errors
    /// Fails without `/proc`.
    pub fn own() -> io::Result<Self> {
        let pid = u64::from(std::process::id());
        let started = started(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { namespace: namespace()?, pid, started })
    }

    /// Reads what [`fmt::Display`] wrote, and nothing else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(number);
        let (namespace, pid, started) = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(Self { namespace, pid, started })
    }

    /// Whether the process still runs.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match namespace() {
            Ok(own) if own == self.namespace => {}
            Ok(_) | Err(_) => return Standing::Elsewhere,
        }
        match started(self.pid) {
            Ok(Some(started)) if started == self.started => Standing::Runs,
            // An unreadable process is not known to have ended.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Standing::Runs,
            Ok(_) | Err(_) => Standing::Ended,
        }
    }

    /// A descriptor of the process, which becomes readable when it ends; `None` if it has ended or is elsewhere.
    #[must_use]
    pub fn open(&self) -> Option<OwnedFd> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw)?;
        let process = crate::process::open(pid).ok()?;
        // Asked once it is open: from here on the descriptor means this process.
        (self.standing() == Standing::Runs).then_some(process)
    }
}

impl fmt::Display for Birth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pid, started } = self;
        write!(formatter, "{}.{}.{}", text(*namespace), text(*pid), text(*started))
    }
}

fn text(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// One spelling a number: without a sign, capitals or zeros in front.
fn number(digits: &str) -> Option<u64> {
    let parsed = u64::from_str_radix(digits, 36).ok()?;
    (text(parsed) == digits).then_some(parsed)
}

/// The number of the namespace that process numbers count in: `pid:[4026531836]`.
fn namespace() -> io::Result<u64> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    let text = link.to_string_lossy();
    let digits = text.trim_start_matches("pid:[").trim_end_matches(']');
    digits.parse().map_err(io::Error::other)
}

/// When a process started, in ticks since the machine did; nothing for one that has ended and is still to be waited for.
fn started(pid: u64) -> io::Result<Option<u64>> {
    let text = match fs::read(format!("/proc/{pid}/stat")) {
        // It ended between opening and reading.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        answer => String::from_utf8_lossy(&answer?).into_owned(),
    };
    // The name in parentheses may hold anything; the state and nineteen numbers follow it.
    let after = text.rsplit_once(')').map(|(_, after)| after).unwrap_or_default();
    let mut fields = after.split_whitespace();
    let state = fields.next().unwrap_or_default();
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    Ok(started.filter(|_| state != "Z" && state != "X"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let own = Birth::own().unwrap();
        assert_eq!(own.standing(), Standing::Runs);
        assert_eq!(Birth::parse(&own.to_string()), Some(own));
        assert!(own.open().is_some());
        assert!(Birth { started: own.started + 1, ..own }.open().is_none());
        assert_eq!(Birth { started: own.started + 1, ..own }.standing(), Standing::Ended);
        assert_eq!(Birth { pid: u64::from(u32::MAX), ..own }.standing(), Standing::Ended);
        assert_eq!(Birth { namespace: 1, ..own }.standing(), Standing::Elsewhere);
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = u64::from(child.id());
        let own = Birth::own().unwrap();
        while started(pid).unwrap().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(Birth { pid, started: own.started, ..own }.standing(), Standing::Ended);
        child.wait().unwrap();
    }

    #[test]
    fn rejects_every_other_spelling() {
        for text in
            ["", "1.2", "1.2.3.4", "01.2.3", "+1.2.3", "A.2.3", "1..3", "1.2.3 ", "1.2.zzzzzzzzzzzzzz"]
        {
            assert_eq!(Birth::parse(text), None, "{text}");
        }
        assert!(Birth::parse("1.2.3").is_some());
    }
}
