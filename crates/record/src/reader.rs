//! Reads a run, complete or not.

use crate::disk::{open_regular, read_bounded};
use crate::error::ReadError;
use crate::line::{self, LINE_MAX, LOG_MAX};
use belljar_contract::{
    AbsPath, Completeness, Digest, EVENT_FORMAT, Event, EventRecord, Missing, RUN_FORMAT, Run, RunHead,
    RunResult,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

/// The maximum size of `run.json` in bytes; a plan has few texts of at most 1 MiB.
pub(crate) const HEAD_MAX: u64 = 64 << 20;
const RESULT_MAX: u64 = 1 << 20;
const EVENTS: &str = "events.jsonl";

/// Reads the directory of one run.
#[derive(Debug)]
pub struct RunReader<'a> {
    directory: AbsPath,
    /// Files of the directory that were read and checked before.
    kept: Option<&'a BTreeMap<String, KeptFile>>,
}

/// A file in memory.
#[derive(Debug)]
pub(crate) struct KeptFile {
    pub bytes: Vec<u8>,
    pub digest: Digest,
}

/// The valid lines of a log.
pub(crate) struct Log {
    pub events: Vec<EventRecord>,
    pub chain: Digest,
    pub end: LogEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// With a complete line, or before the first.
    Whole,
    /// In the middle of a line.
    Cut,
    /// With a line that does not match the chain; it and all later lines are ignored.
    Wrong,
}

impl RunReader<'static> {
    /// A reader of this run directory.
    #[must_use]
    pub fn new(directory: AbsPath) -> Self {
        Self { directory, kept: None }
    }
}

impl<'a> RunReader<'a> {
    /// A reader of a directory of which these files were read before.
    pub(crate) fn with_kept(directory: AbsPath, kept: &'a BTreeMap<String, KeptFile>) -> Self {
        Self { directory, kept: Some(kept) }
    }

    fn kept(&self, name: &str) -> Option<&'a KeptFile> {
        self.kept?.get(name)
    }

    /// A file of the directory; `None` if it does not exist or is longer than `limit`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&self, name: &str, limit: u64) -> io::Result<Option<Cow<'a, [u8]>>> {
        Ok(self.bytes(name, limit)?.filter(|bytes| bytes.len() as u64 <= limit))
    }

    /// The bytes of a file; it is longer than `limit` when they are.
    fn bytes(&self, name: &str, limit: u64) -> io::Result<Option<Cow<'a, [u8]>>> {
        match self.kept(name) {
            Some(kept) => Ok(Some(Cow::Borrowed(&kept.bytes))),
            None => Ok(read_bounded(self.directory.child(name).as_path(), limit)?.map(Cow::Owned)),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// When a file cannot be read, was not written by belljar or has a later format. An incomplete or changed log is
    /// not an error: the run says so.
    pub fn read(&self) -> Result<Run, ReadError> {
        let (head, seed) = self.head_and_digest()?;
        let result = self.result()?;
        let Some(log) = self.log(seed)? else {
            return Ok(Run {
                head,
                events: Vec::new(),
                completeness: match result {
                    Some(_) => Completeness::Tampered { line: 1 },
                    None => Completeness::Incomplete { why: Missing::Log },
                },
                result,
            });
        };
        let completeness = judge(&log, result.as_ref());
        Ok(Run { head, events: log.events, result, completeness })
    }

    fn log(&self, seed: Digest) -> Result<Option<Log>, ReadError> {
        let path = self.directory.child(EVENTS);
        let failed = |cause| ReadError::Read { path: path.clone(), cause };
        if let Some(kept) = self.kept(EVENTS) {
            return read_log(&mut kept.bytes.as_slice(), seed).map(Some).map_err(failed);
        }
        let Some((file, length)) = open_regular(path.as_path()).map_err(failed)? else { return Ok(None) };
        if length > LOG_MAX {
            return Err(ReadError::TooLarge { path, limit: LOG_MAX });
        }
        read_log(&mut BufReader::new(file.take(LOG_MAX)), seed).map(Some).map_err(failed)
    }

    /// Reads `run.json` only.
    ///
    /// # Errors
    /// As [`RunReader::read`].
    pub fn head(&self) -> Result<RunHead, ReadError> {
        self.head_and_digest().map(|(head, _)| head)
    }

    /// When the run started, without a look at the rest of `run.json`.
    pub(crate) fn started_at_ms(&self) -> Option<u64> {
        let bytes = self.bounded("run.json", HEAD_MAX).ok()??;
        let Started { started_at_ms } = serde_json::from_slice(&bytes).ok()?;
        Some(started_at_ms)
    }

    fn head_and_digest(&self) -> Result<(RunHead, Digest), ReadError> {
        let path = self.directory.child("run.json");
        let Some(bytes) = self.bounded("run.json", HEAD_MAX)? else {
            let cause = io::Error::from(io::ErrorKind::NotFound);
            return Err(ReadError::Read { path, cause });
        };
        let formats = [("format", RUN_FORMAT), ("event_format", EVENT_FORMAT)];
        let head = versioned(&path, &bytes, &formats)?;
        let digest = self.kept("run.json").map_or_else(|| Digest::of(&bytes), |kept| kept.digest);
        Ok((head, digest))
    }

    /// Reads `result.json` only; `None` if it does not exist, or not yet.
    ///
    /// # Errors
    /// As [`RunReader::read`].
    pub fn result(&self) -> Result<Option<RunResult>, ReadError> {
        self.versioned_file("result.json", RESULT_MAX, RUN_FORMAT)
    }

    /// Reads a file that has a format of its own.
    pub(crate) fn versioned_file<T: DeserializeOwned>(
        &self,
        name: &str,
        limit: u64,
        format: u32,
    ) -> Result<Option<T>, ReadError> {
        match self.bounded(name, limit)? {
            Some(bytes) => versioned(&self.directory.child(name), &bytes, &[("format", format)]).map(Some),
            None => Ok(None),
        }
    }

    fn bounded(&self, name: &str, limit: u64) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        let path = || self.directory.child(name);
        match self.bytes(name, limit) {
            Ok(Some(bytes)) if bytes.len() as u64 > limit => Err(ReadError::TooLarge { path: path(), limit }),
            Ok(bytes) => Ok(bytes),
            Err(cause) => Err(ReadError::Read { path: path(), cause }),
        }
    }
}

/// Checks the formats before anything else, because other members may have a different meaning in a later version.
fn versioned<T: DeserializeOwned>(
    path: &AbsPath,
    bytes: &[u8],
    formats: &[(&str, u32)],
) -> Result<T, ReadError> {
    let foreign = |cause| ReadError::Foreign { path: path.clone(), cause };
    let written: Formats = serde_json::from_slice(bytes).map_err(foreign)?;
    for (name, known) in formats {
        let found = if *name == "format" { &written.format } else { &written.event_format };
        let Some(found) = found.as_ref().and_then(Value::as_u64) else {
            return Err(foreign(serde_json::Error::custom(format!("`{name}` is missing"))));
        };
        if found > u64::from(*known) {
            return Err(ReadError::Newer { path: path.clone(), found, known: *known });
        }
    }
    serde_json::from_slice(bytes).map_err(foreign)
}

/// Ignores all other members.
#[derive(Deserialize)]
struct Started {
    started_at_ms: u64,
}

/// Ignores all other members.
#[derive(Deserialize)]
struct Formats {
    format: Option<Value>,
    event_format: Option<Value>,
}

/// Reads lines until one does not match the chain.
pub(crate) fn read_log(input: &mut impl BufRead, seed: Digest) -> io::Result<Log> {
    let mut log = Log { events: Vec::new(), chain: seed, end: LogEnd::Whole };
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(log);
        }
        let Some(content) = line.strip_suffix(b"\n") else {
            log.end = if line.len() < LINE_MAX { LogEnd::Cut } else { LogEnd::Wrong };
            return Ok(log);
        };
        let Some((record, chain)) = line::decode(&log.chain, log.events.len() as u64, content) else {
            log.end = LogEnd::Wrong;
            return Ok(log);
        };
        log.events.push(record);
        log.chain = chain;
    }
}

fn judge(log: &Log, result: Option<&RunResult>) -> Completeness {
    let tampered = Completeness::Tampered { line: log.events.len() as u64 + 1 };
    let end = log.events.last().and_then(|last| {
        let Event::RunEnded { status, duration_ms } = last.event.known()? else { return None };
        Some((status, *duration_ms))
    });
    match (log.end, result) {
        (LogEnd::Wrong, _) => tampered,
        // The result is written last, so with it nothing may be missing.
        (LogEnd::Whole, Some(result))
            if end == Some((&result.status, result.duration_ms))
                && result.events == log.events.len() as u64
                && result.chain == log.chain =>
        {
            Completeness::Complete
        }
        (LogEnd::Whole | LogEnd::Cut, Some(_)) => tampered,
        (LogEnd::Cut, None) => Completeness::Incomplete { why: Missing::EndOfLine },
        (LogEnd::Whole, None) if end.is_some() => Completeness::Incomplete { why: Missing::Result },
        (LogEnd::Whole, None) => Completeness::Incomplete { why: Missing::EndOfRun },
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
