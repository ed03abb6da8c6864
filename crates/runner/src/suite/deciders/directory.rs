//! A decider that writes questions to a directory and reads answers from it: `req-1.json`, `resp-1.json`.
//!
//! The directory names the process that asks, so that a reader notices its end, however it ends. A suite has a directory
//! for each run below its own.

use super::run_end::{RunEnd, Woken};
use crate::session::conversation::{ExternalDecider, Pending, Stopper};
use crate::store::runtime::make_private;
use belljar_contract::{AbsPath, with_causes};
use belljar_record::write_atomically;
use belljar_session::Answer;
use belljar_sys::birth::{Birth, Standing};
use belljar_sys::regular::open_regular;
use rustix::event::PollFlags;
use rustix::fs::inotify;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The file that marks the end of the questions.
pub const GATES_DONE: &str = "done.json";
/// The file that names the process that asks.
const ASKING: &str = "run.json";
/// The same while it is written.
pub(super) const BEGINNING: &str = "run.json.new";
/// The version of [`ASKING`].
const VERSION: u64 = 1;
/// The longest question or reply, in bytes.
const LONGEST: u64 = 1 << 20;
/// The longest part of a scenario's name in the name of a directory, in characters.
const LONGEST_NAME: usize = 60;

/// Why a directory cannot be used for questions.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory contains questions of another run.
    #[error("`{path}` contains `{found}` of another run; name an empty directory")]
    Used { path: AbsPath, found: String },
    /// The directory is not one of a decider.
    #[error("`{path}` has no questions of a decider")]
    NoQuestions { path: AbsPath },
    /// The directory cannot be created, read or watched.
    #[error("cannot use `{path}` for questions")]
    Use {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

/// Whether questions are still asked in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskingState {
    /// More may follow.
    Asking,
    /// The run has ended.
    Done,
    /// The process of the run has ended and did not mark the end.
    Lost,
}

impl AskingState {
    pub(super) fn of(directory: &AbsPath) -> Self {
        let is_done = || directory.child(GATES_DONE).as_path().exists();
        if is_done() {
            return Self::Done;
        }
        match asking(directory).map(|process| process.standing()) {
            // It marks the end before it ends, maybe since the mark was looked for.
            Some(Standing::Ended) if is_done() => Self::Done,
            Some(Standing::Ended) => Self::Lost,
            Some(Standing::Runs | Standing::Elsewhere) | None => Self::Asking,
        }
    }
}

/// The process that asks in a directory.
pub(super) fn asking(directory: &AbsPath) -> Option<Birth> {
    let value: Value = serde_json::from_str(&small_text(&directory.child(ASKING))?).ok()?;
    Birth::parse(value["process"].as_str().filter(|_| value["version"] == VERSION)?)
}

/// Whether the directory may be one of a decider, of another version too.
pub(super) fn is_of_a_decider(directory: &AbsPath) -> bool {
    exists(directory, ASKING) || has_asked(directory)
}

/// Whether a decider asks or has asked in the directory. A run and a tape have a file of the name of its mark.
pub(super) fn has_asked(directory: &AbsPath) -> bool {
    let has_question = || {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_gate_file(&name))
    };
    asking(directory).is_some() || exists(directory, GATES_DONE) || has_question()
}

fn exists(directory: &AbsPath, name: &str) -> bool {
    directory.child(name).as_path().symlink_metadata().is_ok()
}

fn is_gate_file(name: &str) -> bool {
    name.starts_with("req-") || name.starts_with("resp-")
}

/// The directories below another, without those that links lead to; in the order of their names.
pub(super) fn below(directory: &AbsPath) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

/// A directory that one process writes questions to. Its end is marked when this is dropped.
#[derive(Debug)]
struct QuestionsClaim(AbsPath);

impl QuestionsClaim {
    fn take(directory: AbsPath) -> Result<Self, DirectoryError> {
        let failed = |cause| DirectoryError::Use { path: directory.clone(), cause };
        let used = |found: &str| DirectoryError::Used { path: directory.clone(), found: found.to_owned() };
        make_private(&directory).map_err(failed)?;
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_used = match entry.file_type().map_err(failed)?.is_dir() {
                true => is_of_a_decider(&directory.child(&name)),
                false => is_gate_file(&name),
            };
            if is_used {
                return Err(used(&name));
            }
        }
        match asking(&directory).map(|process| process.standing()) {
            Some(Standing::Runs | Standing::Elsewhere) if !directory.child(GATES_DONE).as_path().exists() => {
                return Err(used(ASKING));
            }
            Some(Standing::Runs | Standing::Elsewhere | Standing::Ended) | None => {}
        }
        let own = Birth::own().map_err(failed)?;
        let line = json!({"version": VERSION, "process": own.to_string()});
        // Before the old mark goes: a reader sees either the end of the last run or the process of this one.
        write_atomically(&directory.child(ASKING), format!("{line}\n").as_bytes()).map_err(failed)?;
        match fs::remove_file(directory.child(GATES_DONE)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed(cause)),
        }
        Ok(Self(directory))
    }
}

impl Drop for QuestionsClaim {
    fn drop(&mut self) {
        // Readers of the directory see that no more questions follow; a failure cannot be reported to them.
        write_atomically(&self.0.child(GATES_DONE), b"{\"done\":true}\n").ok();
    }
}

/// The directory of a suite, with one for each run below it. Its end is marked when this is dropped.
#[derive(Debug)]
pub struct SuiteQuestions(QuestionsClaim);

impl SuiteQuestions {
    /// Opens a directory, which is created if it is missing.
    ///
    /// # Errors
    /// If it contains questions of another run, or cannot be used.
    pub fn new(directory: AbsPath) -> Result<Self, DirectoryError> {
        QuestionsClaim::take(directory).map(Self)
    }

    /// The directory of one run; `number` is that of the run in the suite, from 1.
    #[must_use]
    pub fn of_run(&self, scenario: &AbsPath, number: usize) -> AbsPath {
        let stem = scenario.as_path().file_stem().unwrap_or_default().to_string_lossy();
        let plain = |letter: char| match letter.is_ascii_alphanumeric() || "._-".contains(letter) {
            true => letter,
            false => '_',
        };
        let name: String = stem.chars().take(LONGEST_NAME).map(plain).collect();
        let Self(QuestionsClaim(directory)) = self;
        directory.child(&format!("{}-{number}", name.trim_start_matches('.')))
    }
}

/// Writes questions to a directory and waits for answers in it.
#[derive(Debug)]
pub struct DirectoryDecider {
    directory: QuestionsClaim,
    changes: OwnedFd,
    patience: Duration,
    asked: u64,
    run_end: RunEnd,
}

impl DirectoryDecider {
    /// Opens a directory, which is created if it is missing. Each answer may take this long.
    ///
    /// # Errors
    /// If it contains questions or answers already, or cannot be used.
    pub fn new(directory: AbsPath, patience: Duration) -> Result<Self, DirectoryError> {
        let path = directory.clone();
        let failed = |cause| DirectoryError::Use { path: path.clone(), cause };
        let directory = QuestionsClaim::take(directory)?;
        let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let changes = changes.map_err(|cause| failed(cause.into()))?;
        watch(&changes, &path, inotify::WatchFlags::empty()).map_err(failed)?;
        let run_end = RunEnd::new().map_err(failed)?;
        Ok(Self { directory, changes, patience, asked: 0, run_end })
    }

    fn await_answer(&self, name: &str) -> Result<String, String> {
        let path = self.directory.0.child(name);
        let deadline = Instant::now() + self.patience;
        loop {
            // A file that is being written in place is empty at first.
            if let Some(text) = small_text(&path).filter(|text| !text.trim().is_empty()) {
                return Ok(text);
            }
            match self.run_end.wait(self.changes.as_fd(), PollFlags::IN, Some(deadline)) {
                Ok(Woken::Ready) => forget(&self.changes),
                Ok(Woken::Late) => {
                    let seconds = self.patience.as_secs();
                    return Err(format!("no answer appeared in `{path}` within {seconds} s"));
                }
                Ok(Woken::RunEnded) => {
                    return Err(format!("the run ended before an answer appeared in `{path}`"));
                }
                Err(error) => return Err(format!("cannot watch `{}`: {error}", self.directory.0)),
            }
        }
    }
}

impl ExternalDecider for DirectoryDecider {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        self.asked += 1;
        let id = format!("{}-{}", pending.run, self.asked);
        let request = pending.external(&id);
        let Some(line) = request.to_line() else {
            return Err(format!("a directory cannot answer {}", pending.question.about()));
        };
        let directory = &self.directory.0;
        let laid = directory.child(&format!("req-{}.json", self.asked));
        let failed = |error: io::Error| format!("cannot write `{laid}`: {error}");
        write_atomically(&laid, format!("{line}\n").as_bytes()).map_err(failed)?;
        let reply = self.await_answer(&format!("resp-{}.json", self.asked))?;
        let answer = request.read_reply(reply.trim()).map_err(|error| with_causes(&error))?;
        fs::rename(&laid, directory.child(&format!("req-{}.json.done", self.asked))).map_err(failed)?;
        Ok(Answer { reason: "answered in the decider's directory".to_owned(), ..answer.0 })
    }

    fn stopper(&self) -> Option<Stopper> {
        Some(self.run_end.stopper())
    }
}

/// The text of a file that is not too long.
pub(super) fn small_text(path: &AbsPath) -> Option<String> {
    let mut text = String::new();
    open_regular(path.as_path()).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Watches for finished files in a directory, and for more if it is asked for.
pub(super) fn watch(changes: &OwnedFd, directory: &AbsPath, more: inotify::WatchFlags) -> io::Result<()> {
    let wanted =
        inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::ONLYDIR;
    inotify::add_watch(changes, directory.as_path(), wanted | more)?;
    Ok(())
}

/// Takes events off a watch. Their content does not matter: the directory is read again.
pub(super) fn forget(changes: &OwnedFd) {
    let mut buffer = [0; 4096];
    rustix::io::read(changes, &mut buffer).ok();
}
