//! Cassettes: recordings in the format of cowork-harness, one JSON file each.
//!
//! Like a tape, a cassette is accepted as a whole or rejected. Data that it does not have stays absent, so that a
//! check can report that something is not known.

use crate::disk::read_bounded;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use belljar_contract::{AbsPath, Digest};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The accepted formats.
pub const CASSETTE_FORMATS: std::ops::RangeInclusive<u64> = 9..=12;

/// The maximum size of a file in bytes.
const LONGEST: u64 = 64 << 20;

/// The member with the format, by which a cassette is recognised.
const FORMAT: &str = "cassetteVersion";

/// Why a cassette is rejected.
#[derive(Debug, thiserror::Error)]
pub enum CassetteFault {
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It is too long.
    #[error("it is too large: more than {LONGEST} bytes")]
    TooLarge,
    #[error("it is truncated: the JSON breaks off in line {line}")]
    Truncated { line: usize },
    /// The file is not a cassette.
    #[error("it is not a cassette: {why}")]
    Foreign { why: String },
    /// It was written by an earlier version of the other tool.
    #[error("it has format {found}; formats {first} to {last} are read, record it again", first = CASSETTE_FORMATS.start(), last = CASSETTE_FORMATS.end())]
    Older { found: u64 },
    /// It was written by a later version of the other tool.
    #[error("it has format {found}; formats {first} to {last} are read, a newer belljar is needed", first = CASSETTE_FORMATS.start(), last = CASSETTE_FORMATS.end())]
    Newer { found: u64 },
    /// A part without which nothing can be judged is missing.
    #[error("it has no {what}: there is nothing to verify")]
    Missing { what: &'static str },
    /// A member has the wrong type or value.
    #[error("`{member}` {why}")]
    Member { member: String, why: String },
    /// A line is not a frame.
    #[error("line {line} of `{of}` is malformed: {why}")]
    Line {
        /// `events` or `controlOut`.
        of: &'static str,
        /// The line number, counted from 1.
        line: usize,
        why: String,
    },
    /// A question has no answer.
    #[error("the question `{request}` in line {line} of `events` has no answer in `controlOut`")]
    Unanswered {
        request: String,
        /// The line of the question, counted from 1.
        line: usize,
    },
    /// A file's description is wrong.
    #[error("the artifact `{path}` {why}")]
    Artifact { path: String, why: &'static str },
}

impl CassetteFault {
    /// Whether something is missing rather than wrong.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Unanswered { .. } => true,
            Self::Read(_)
            | Self::TooLarge
            | Self::Truncated { .. }
            | Self::Foreign { .. }
            | Self::Older { .. }
            | Self::Newer { .. }
            | Self::Member { .. }
            | Self::Line { .. }
            | Self::Artifact { .. } => false,
        }
    }
}

/// A valid cassette.
#[derive(Debug, Clone, PartialEq)]
pub struct Cassette {
    pub format: u64,
    /// The scenario at the time of the recording.
    pub scenario: Map<String, Value>,
    /// The file that the scenario was read from, as the recorder names it.
    pub source: Option<String>,
    /// The tier that the run had; `None` if it does not say.
    pub tier: Option<Value>,
    /// The frames that the agent sent.
    pub events: Vec<Value>,
    /// The frames that were sent to the agent; `None` if they were not kept.
    pub sent: Option<Vec<Value>>,
    /// The files after the run; `None` if they were not kept.
    pub files: Option<Vec<CassetteFile>>,
    /// Directories whose files the user sees.
    pub visible: Vec<String>,
    /// The files before the run; `None` if they were not kept.
    pub before: Option<BTreeMap<String, Option<Digest>>>,
}

/// A file of a cassette.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassetteFile {
    /// Its path relative to the workspace.
    pub path: String,
    pub bytes: u64,
    /// The digest of its content.
    pub digest: Option<Digest>,
    /// Its content, if it was kept completely.
    pub body: Option<Vec<u8>>,
    pub is_link: bool,
}

impl Cassette {
    /// Reads a cassette from a file.
    ///
    /// # Errors
    /// When it is rejected.
    pub fn open(path: &AbsPath) -> Result<Self, CassetteFault> {
        let bytes = read_bounded(path.as_path(), LONGEST).map_err(CassetteFault::Read)?;
        let bytes = bytes.ok_or_else(|| CassetteFault::Read(io::ErrorKind::NotFound.into()))?;
        Self::parse(&bytes)
    }

    /// Whether a file looks like a cassette, valid or not.
    #[must_use]
    pub fn is_one(path: &AbsPath) -> bool {
        let bytes = read_bounded(path.as_path(), LONGEST).ok().flatten().unwrap_or_default();
        let value = serde_json::from_slice::<Value>(&bytes);
        value.is_ok_and(|value| value.get(FORMAT).is_some())
    }

    /// Parses a cassette.
    ///
    /// # Errors
    /// When it is rejected.
    pub fn parse(bytes: &[u8]) -> Result<Self, CassetteFault> {
        if bytes.len() as u64 > LONGEST {
            return Err(CassetteFault::TooLarge);
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
            true => CassetteFault::Truncated { line: error.line() },
            false => CassetteFault::Foreign { why: error.to_string() },
        })?;
        let foreign = || CassetteFault::Foreign { why: format!("the number `{FORMAT}` is missing") };
        let found = value.get(FORMAT).and_then(Value::as_u64).ok_or_else(foreign)?;
        if found < *CASSETTE_FORMATS.start() {
            return Err(CassetteFault::Older { found });
        }
        if found > *CASSETTE_FORMATS.end() {
            return Err(CassetteFault::Newer { found });
        }
        let scenario = match value.get("scenario") {
            Some(Value::Object(scenario)) => scenario.clone(),
            Some(_) => return Err(wrong("scenario", "is not an object")),
            None => return Err(CassetteFault::Missing { what: "`scenario`" }),
        };
        let events = lines(&value, "events")?.filter(|events| !events.is_empty());
        let events = events.ok_or(CassetteFault::Missing { what: "`events`" })?;
        let sent = lines(&value, "controlOut")?.filter(|sent| !sent.is_empty());
        if let Some(sent) = &sent {
            if !sent.iter().any(|frame| frame["type"] == "user") {
                return Err(CassetteFault::Missing { what: "message of the user in `controlOut`" });
            }
            answered(&events, sent)?;
        }
        Ok(Self {
            format: found,
            scenario,
            source: source(&value),
            tier: member(&value, "effectiveFidelity").cloned(),
            events,
            sent,
            files: files(&value)?.filter(|files| !files.is_empty()),
            visible: texts(&value, "userVisibleRoots")?.unwrap_or_default(),
            before: before(&value)?,
        })
    }
}

/// The name of the scenario's file: a text, or the member `path` of an object.
fn source(value: &Value) -> Option<String> {
    let found = member(value, "scenarioSource")?;
    found.as_str().or_else(|| found.get("path")?.as_str()).map(str::to_owned)
}

fn wrong(member: impl Into<String>, why: impl Into<String>) -> CassetteFault {
    CassetteFault::Member { member: member.into(), why: why.into() }
}

/// A member that exists and is not null.
fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !value.is_null())
}

fn list<'a>(value: &'a Value, name: &str) -> Result<Option<&'a Vec<Value>>, CassetteFault> {
    let Some(found) = member(value, name) else { return Ok(None) };
    found.as_array().map(Some).ok_or_else(|| wrong(name, "is not a list"))
}

fn texts(value: &Value, name: &str) -> Result<Option<Vec<String>>, CassetteFault> {
    let Some(items) = list(value, name)? else { return Ok(None) };
    let text = |item: &Value| item.as_str().map(str::to_owned);
    let all: Option<Vec<String>> = items.iter().map(text).collect();
    all.map(Some).ok_or_else(|| wrong(name, "has an entry that is not a string"))
}

/// Frames, each a string with one JSON object.
fn lines(value: &Value, of: &'static str) -> Result<Option<Vec<Value>>, CassetteFault> {
    let Some(items) = list(value, of)? else { return Ok(None) };
    let frame = |(at, item): (usize, &Value)| {
        let malformed = |why: String| CassetteFault::Line { of, line: at + 1, why };
        let text = item.as_str().ok_or_else(|| malformed("it is not a string".to_owned()))?;
        match serde_json::from_str(text) {
            Ok(frame @ Value::Object(_)) => Ok(frame),
            Ok(_) => Err(malformed("it is not an object".to_owned())),
            Err(error) => Err(malformed(error.to_string())),
        }
    };
    items.iter().enumerate().map(frame).collect::<Result<_, _>>().map(Some)
}

/// Checks that every question has an answer, unless the agent withdrew it.
fn answered(events: &[Value], sent: &[Value]) -> Result<(), CassetteFault> {
    let of = |frames: &[Value], kind: &str, pointer: &str| -> BTreeSet<String> {
        let frames = frames.iter().filter(|frame| frame["type"] == kind);
        frames.filter_map(|frame| frame.pointer(pointer)?.as_str().map(str::to_owned)).collect()
    };
    let mut settled = of(sent, "control_response", "/response/request_id");
    settled.extend(of(events, "control_cancel_request", "/request_id"));
    for (at, event) in events.iter().enumerate().filter(|(_, event)| event["type"] == "control_request") {
        let request = event["request_id"].as_str().unwrap_or_default();
        if !settled.contains(request) {
            return Err(CassetteFault::Unanswered { request: request.to_owned(), line: at + 1 });
        }
    }
    Ok(())
}

fn digest(text: &str) -> Option<Digest> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    Digest::parse(&format!("sha256:{hex}"))
}

fn is_below(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn files(value: &Value) -> Result<Option<Vec<CassetteFile>>, CassetteFault> {
    let Some(items) = list(value, "artifacts")? else { return Ok(None) };
    let mut known = BTreeSet::new();
    let mut out = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = item["path"].as_str().ok_or_else(|| wrong(format!("artifacts[{at}]"), "has no path"))?;
        let fault = |why| CassetteFault::Artifact { path: path.to_owned(), why };
        if !is_below(path) {
            return Err(fault("is not below the workspace"));
        }
        if !known.insert(path) {
            return Err(fault("is listed twice"));
        }
        out.push(file(path, item).map_err(fault)?);
    }
    Ok(Some(out))
}

fn file(path: &str, item: &Value) -> Result<CassetteFile, &'static str> {
    let bytes = item["bytes"].as_u64().ok_or("has no length")?;
    let said = match member(item, "sha256") {
        None => None,
        Some(text) => Some(text.as_str().and_then(digest).ok_or("has an invalid sha256")?),
    };
    let is_cut = member(item, "truncated").is_some_and(|cut| cut != &Value::Bool(false));
    let body = match (member(item, "body"), item["encoding"].as_str()) {
        (None, _) => None,
        (Some(_), _) if is_cut => None,
        (Some(Value::String(text)), None | Some("utf8")) => Some(text.clone().into_bytes()),
        (Some(Value::String(text)), Some("base64")) => {
            Some(STANDARD.decode(text).map_err(|_error| "is not valid base64")?)
        }
        (Some(_), _) => return Err("has a body in an unknown encoding"),
    };
    if let Some(body) = &body {
        if (body.len() as u64) < bytes {
            return Err("is truncated: its body is shorter than its length");
        }
        if said.ok_or("has a body and no sha256")? != Digest::of(body) || body.len() as u64 != bytes {
            return Err("was edited: its sha256 is not that of its body");
        }
    }
    let is_link = member(item, "linkKind").is_some();
    Ok(CassetteFile { path: path.to_owned(), bytes, digest: said, body, is_link })
}

fn before(value: &Value) -> Result<Option<BTreeMap<String, Option<Digest>>>, CassetteFault> {
    let paths = texts(value, "preRunPaths")?;
    let hashes = match member(value, "preRunHashes") {
        None => None,
        Some(Value::Object(hashes)) => Some(hashes),
        Some(_) => return Err(wrong("preRunHashes", "is not an object")),
    };
    if paths.is_none() && hashes.is_none() {
        return Ok(None);
    }
    let mut out: BTreeMap<String, Option<Digest>> =
        paths.unwrap_or_default().into_iter().map(|path| (path, None)).collect();
    for (path, hash) in hashes.into_iter().flatten() {
        let hash = hash.as_str().and_then(digest);
        let hash = hash.ok_or_else(|| wrong(format!("preRunHashes.{path}"), "is not a sha256"))?;
        out.insert(path.clone(), Some(hash));
    }
    match out.keys().find(|path| !is_below(path)) {
        Some(path) => Err(wrong("preRunPaths", format!("has `{path}`, which is not below the workspace"))),
        None => Ok(Some(out)),
    }
}

#[cfg(test)]
#[path = "cassette_tests.rs"]
mod tests;
