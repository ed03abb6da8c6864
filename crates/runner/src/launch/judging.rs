//! Asks the judge of a scenario once the agent has ended, while the egress services still run.

use crate::session::conversation::ModelLine;
use crate::suite::{FilesWatch, Judge, Judged};
use belljar_contract::{FilesSeen, Observation};
use belljar_record::Redact;
use belljar_sys::signal::Signals;
use belljar_verdict::Material;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use std::io::{self, PipeReader};
use std::thread::JoinHandle;

/// A judge, and the workspace that it is shown.
pub(super) struct Judging {
    pub judge: Judge,
    pub files: Option<FilesWatch>,
}

/// A judge that is being asked.
pub(super) struct AskedJudge {
    /// Its other end is closed when there is an answer.
    done: PipeReader,
    thread: JoinHandle<Judged>,
}

impl Judging {
    /// Shows the judge what the record shows: without secrets.
    pub fn begin(self, line: ModelLine, said: Vec<Observation>, redact: &Redact) -> io::Result<AskedJudge> {
        let Self { judge, files } = self;
        let files = files.map(|files| redacted(files.end(), redact));
        let (done, held) = io::pipe()?;
        let thread = std::thread::Builder::new().name("judge".to_owned()).spawn(move || {
            let _held = held;
            judge.ask(&line, |scope| Material::of(&said, files.as_ref(), scope))
        })?;
        Ok(AskedJudge { done, thread })
    }
}

fn redacted(mut files: FilesSeen, redact: &Redact) -> FilesSeen {
    for body in files.after.values_mut().filter_map(|file| file.body.as_mut()) {
        if let Some(scrubbed) = redact.scrub_bytes(body) {
            *body = scrubbed;
        }
    }
    files
}

impl AskedJudge {
    /// Waits for the answer, or for a signal that ends the run, which is returned. The services are ended next, which
    /// ends the asking too.
    pub fn wait(&self, signals: &Signals) -> Option<i32> {
        const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        loop {
            let mut polled = [PollFd::new(&self.done, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            let waited = poll(&mut polled, None);
            let answered = !polled[0].revents().is_empty();
            if answered || waited.is_err_and(|errno| errno != rustix::io::Errno::INTR) {
                return None;
            }
            while let Ok(Some(signal)) = signals.next() {
                if ENDING.iter().any(|ending| ending.as_raw() == signal) {
                    return Some(signal);
                }
            }
        }
    }

    /// What came of it; nothing if the judge panicked.
    pub fn end(self) -> Judged {
        self.thread.join().unwrap_or_default()
    }
}
