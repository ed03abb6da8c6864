//! Follows the questions in the directory of a run, or of all runs of a suite.

use super::directory::{
    AskingState, BEGINNING, DirectoryError, asking, below, forget, has_asked, small_text, watch,
};
use crate::session::supervise::take_signals;
use crate::store::runtime::make_private;
use belljar_contract::AbsPath;
use belljar_sys::birth::Standing;
use belljar_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The name of a question: its number, after the directory of its run if a suite asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateName {
    pub(super) run: Option<String>,
    pub number: u64,
}

impl GateName {
    /// Reads `3` or `report-2/3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, number) = match text.rsplit_once('/') {
            Some((run, number)) => (Some(run), number),
            None => (None, text),
        };
        // One name below the directory that the user named.
        let fits = |run: &str| !run.is_empty() && !run.starts_with('.') && !run.contains(['/', '\0']);
        let number = number.parse().ok().filter(|_| run.is_none_or(fits))?;
        Some(Self { run: run.map(str::to_owned), number })
    }

    /// The directory that has the question.
    pub(super) fn place(&self, directory: &AbsPath) -> AbsPath {
        self.run.as_ref().map_or_else(|| directory.clone(), |run| directory.child(run))
    }
}

impl fmt::Display for GateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(formatter, "{run}/{}", self.number),
            None => write!(formatter, "{}", self.number),
        }
    }
}

/// An open question in a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenGate {
    pub name: GateName,
    pub request: Map<String, Value>,
}

/// Follows the questions in a directory.
#[derive(Debug)]
pub struct Gates {
    directory: AbsPath,
    changes: OwnedFd,
    signals: Option<Signals>,
    /// The last question that was read, by the directory of its run.
    last_seen: BTreeMap<Option<String>, u64>,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatesWake {
    /// The directory has changed, or the process that asks has ended.
    Changed,
    /// A signal asked belljar to end.
    Interrupted,
}

impl Gates {
    /// Reads a directory in which a decider asks or has asked.
    ///
    /// # Errors
    /// If it is not such a directory, or cannot be watched.
    pub fn new(directory: AbsPath) -> Result<Self, DirectoryError> {
        let gates = Self::watching(directory)?;
        let any = gates.places().iter().any(|(_, place)| has_asked(place));
        if any { Ok(gates) } else { Err(DirectoryError::NoQuestions { path: gates.directory }) }
    }

    /// Follows such a directory until the end of the run. An empty directory may become one; one that does not exist is
    /// created, as the run would.
    ///
    /// # Errors
    /// If it is not such a directory, or cannot be watched.
    pub fn follow(directory: AbsPath) -> Result<Self, DirectoryError> {
        let failed = |cause| DirectoryError::Use { path: directory.clone(), cause };
        let signals = take_signals().map_err(|error| failed(io::Error::other(error)))?;
        make_private(&directory).map_err(failed)?;
        // A run that begins at this moment has written nothing but temporary files.
        let is_temporary = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.map(|entry| entry.file_name());
            name.is_ok_and(|name| name == BEGINNING || name.as_encoded_bytes().starts_with(b"."))
        };
        let is_unused = std::fs::read_dir(&directory).map_err(failed)?.all(is_temporary);
        let gates = if is_unused { Self::watching(directory) } else { Self::new(directory) }?;
        Ok(Self { signals: Some(signals), ..gates })
    }

    fn watching(directory: AbsPath) -> Result<Self, DirectoryError> {
        let made = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let watched = made.map_err(io::Error::from).and_then(|changes| {
            watch(&changes, &directory, inotify::WatchFlags::CREATE)?;
            Ok(changes)
        });
        match watched {
            Ok(changes) => Ok(Self { directory, changes, signals: None, last_seen: BTreeMap::new() }),
            Err(cause) => Err(DirectoryError::Use { path: directory, cause }),
        }
    }

    /// The directory and those of the runs below it. They are watched from here on.
    fn places(&self) -> Vec<(Option<String>, AbsPath)> {
        let mut out = vec![(None, self.directory.clone())];
        for name in below(&self.directory).unwrap_or_default() {
            let place = self.directory.child(&name);
            // One that is gone again has no questions.
            if watch(&self.changes, &place, inotify::WatchFlags::CREATE).is_ok() {
                out.push((Some(name), place));
            }
        }
        out
    }

    /// Open questions that were written since the last call. Those of a run that has ended wait for no answer.
    pub fn open(&mut self) -> Vec<OpenGate> {
        let mut out = Vec::new();
        for (run, place) in self.places() {
            if AskingState::of(&place) != AskingState::Asking {
                continue;
            }
            let seen = self.last_seen.entry(run.clone()).or_default();
            loop {
                let number = *seen + 1;
                let done = place.child(&format!("req-{number}.json.done")).as_path().exists();
                match read_gate(&place, number) {
                    Some(request) => {
                        out.push(OpenGate { name: GateName { run: run.clone(), number }, request });
                    }
                    None if done => {}
                    None => break,
                }
                *seen = number;
            }
        }
        out
    }

    /// Whether questions are still asked.
    #[must_use]
    pub fn state(&self) -> AskingState {
        AskingState::of(&self.directory)
    }

    /// Waits until the directory changes, the process that asks has ended, or a signal arrives.
    ///
    /// # Errors
    /// If it cannot be watched any more.
    pub fn wait(&self) -> io::Result<GatesWake> {
        let asking = asking(&self.directory);
        let process = asking.and_then(|process| process.open());
        if process.is_none() && asking.is_some_and(|process| process.standing() == Standing::Ended) {
            return Ok(GatesWake::Changed);
        }
        let changes = self.changes.as_fd();
        let mut polled = vec![PollFd::new(&changes, PollFlags::IN)];
        polled.extend(self.signals.iter().map(|signals| PollFd::new(signals, PollFlags::IN)));
        polled.extend(process.iter().map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        forget(&self.changes);
        let Some(signals) = &self.signals else { return Ok(GatesWake::Changed) };
        while let Some(signal) = signals.next().map_err(io::Error::other)? {
            if signal != Signal::WINCH.as_raw() {
                return Ok(GatesWake::Interrupted);
            }
        }
        Ok(GatesWake::Changed)
    }
}

pub(super) fn read_gate(directory: &AbsPath, number: u64) -> Option<Map<String, Value>> {
    let text = small_text(&directory.child(&format!("req-{number}.json")))?;
    let Value::Object(request) = serde_json::from_str(&text).ok()? else { return None };
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run writes first is followed, however far it is; what another program writes is not.
    #[test]
    fn a_directory_in_which_a_run_begins_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let directory = AbsPath::new(place.path()).unwrap();
        for (name, follows) in [(".x", true), (BEGINNING, true), ("notes.txt", false)] {
            std::fs::write(directory.child(name), "").unwrap();
            assert_eq!(Gates::follow(directory.clone()).is_ok(), follows, "{name}");
        }
    }

    #[test]
    fn a_gate_is_named_below_its_directory_only() {
        for name in ["1", "12", "report-2/3", "req-1/1"] {
            assert_eq!(GateName::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "x", "-1", "../1", "./1", "/1", "a/b/1", "a/../1", ".hidden/1", "a/", "a/x"] {
            assert_eq!(GateName::parse(name), None, "{name}");
        }
    }
}
