//! Cassettes: recordings that another tool made, one JSON file each.
//!
//! A cassette is believed as a whole or not at all, as a tape is. What it does not have stays absent, so that whoever
//! judges it can say that something is not known.

use crate::disk::read_bounded;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use belljar_contract::{AbsPath, Digest};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The formats that are read.
pub const CASSETTE_FORMATS: std::ops::RangeInclusive<u64> = 9..=12;

/// A longer file is none.
const LONGEST: u64 = 64 << 20;

/// What a cassette says its format with, and is known by.
const FORMAT: &str = "cassetteVersion";

/// Why a cassette is not believed.
#[derive(Debug, thiserror::Error)]
pub enum CassetteFault {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// It is too long.
    #[error("it is too large: more than {LONGEST} bytes")]
    TooLarge,
    /// It breaks off.
    #[error("it is truncated: the JSON breaks off in line {line}")]
    Truncated {
        /// Where.
        line: usize,
    },
    /// It is something else.
    #[error("it is no cassette: {why}")]
    Foreign {
        /// How that is seen.
        why: String,
    },
    /// It is of an earlier tool.
    #[error("it has format {found}; formats {first} to {last} are read, record it again", first = CASSETTE_FORMATS.start(), last = CASSETTE_FORMATS.end())]
    Older {
        /// Its format.
        found: u64,
    },
    /// It is of a later tool.
    #[error("it has format {found}; formats {first} to {last} are read, a newer belljar is needed", first = CASSETTE_FORMATS.start(), last = CASSETTE_FORMATS.end())]
    Newer {
        /// Its format.
        found: u64,
    },
    /// Something without which nothing can be judged is not there.
    #[error("it has no {what}: there is nothing to verify")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// A member is not what it should be.
    #[error("`{member}` {why}")]
    Member {
        /// Which.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// A line is no frame.
    #[error("line {line} of `{of}` is malformed: {why}")]
    Line {
        /// `events` or `controlOut`.
        of: &'static str,
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A question has no answer.
    #[error("the question `{request}` in line {line} of `events` has no answer in `controlOut`")]
    Unanswered {
        /// Its id.
        request: String,
        /// Where it was asked, from 1.
        line: usize,
    },
    /// A file is not what it says.
    #[error("the artifact `{path}` {why}")]
    Artifact {
        /// Which.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
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

/// A cassette that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Cassette {
    /// Its format.
    pub format: u64,
    /// The scenario as it was when it was recorded.
    pub scenario: Map<String, Value>,
    /// What the agent wrote, a frame each.
    pub events: Vec<Value>,
    /// What it was told; none where that was not kept.
    pub sent: Option<Vec<Value>>,
    /// The files after the run; none where they were not kept.
    pub files: Option<Vec<CassetteFile>>,
    /// Folders whose files the user sees.
    pub visible: Vec<String>,
    /// The files before the run; none where they were not kept.
    pub before: Option<BTreeMap<String, Option<Digest>>>,
}

/// A file of a cassette.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassetteFile {
    /// Its path below the workspace.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Of its content.
    pub digest: Option<Digest>,
    /// Its content, where all of that was kept.
    pub body: Option<Vec<u8>>,
    /// Whether it is a link.
    pub is_link: bool,
}

impl Cassette {
    /// Reads a cassette from a file.
    ///
    /// # Errors
    /// When it is not believed.
    pub fn open(path: &AbsPath) -> Result<Self, CassetteFault> {
        let bytes = read_bounded(path.as_path(), LONGEST).map_err(CassetteFault::Read)?;
        let bytes = bytes.ok_or_else(|| CassetteFault::Read(io::ErrorKind::NotFound.into()))?;
        Self::parse(&bytes)
    }

    /// Whether a file has the shape of a cassette, believed or not.
    #[must_use]
    pub fn is_one(path: &AbsPath) -> bool {
        let bytes = read_bounded(path.as_path(), LONGEST).ok().flatten().unwrap_or_default();
        let value = serde_json::from_slice::<Value>(&bytes);
        value.is_ok_and(|value| value.get(FORMAT).is_some())
    }

    /// Reads a cassette.
    ///
    /// # Errors
    /// When it is not believed.
    pub fn parse(bytes: &[u8]) -> Result<Self, CassetteFault> {
        if bytes.len() as u64 > LONGEST {
            return Err(CassetteFault::TooLarge);
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
            true => CassetteFault::Truncated { line: error.line() },
            false => CassetteFault::Foreign { why: error.to_string() },
        })?;
        let foreign = || CassetteFault::Foreign { why: format!("there is no number `{FORMAT}`") };
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
            events,
            sent,
            files: files(&value)?.filter(|files| !files.is_empty()),
            visible: texts(&value, "userVisibleRoots")?.unwrap_or_default(),
            before: before(&value)?,
        })
    }
}

fn wrong(member: impl Into<String>, why: impl Into<String>) -> CassetteFault {
    CassetteFault::Member { member: member.into(), why: why.into() }
}

/// A member that is there and not null.
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
    all.map(Some).ok_or_else(|| wrong(name, "has something in it that is no text"))
}

/// Frames, each a text with one JSON object in it.
fn lines(value: &Value, of: &'static str) -> Result<Option<Vec<Value>>, CassetteFault> {
    let Some(items) = list(value, of)? else { return Ok(None) };
    let frame = |(at, item): (usize, &Value)| {
        let malformed = |why: String| CassetteFault::Line { of, line: at + 1, why };
        let text = item.as_str().ok_or_else(|| malformed("it is no text".to_owned()))?;
        match serde_json::from_str(text) {
            Ok(frame @ Value::Object(_)) => Ok(frame),
            Ok(_) => Err(malformed("it is no object".to_owned())),
            Err(error) => Err(malformed(error.to_string())),
        }
    };
    items.iter().enumerate().map(frame).collect::<Result<_, _>>().map(Some)
}

/// Every question has its answer, unless the agent withdrew it.
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
            return Err(fault("does not lie below the workspace"));
        }
        if !known.insert(path) {
            return Err(fault("is there twice"));
        }
        out.push(file(path, item).map_err(fault)?);
    }
    Ok(Some(out))
}

fn file(path: &str, item: &Value) -> Result<CassetteFile, &'static str> {
    let bytes = item["bytes"].as_u64().ok_or("has no length")?;
    let said = match member(item, "sha256") {
        None => None,
        Some(text) => Some(text.as_str().and_then(digest).ok_or("has a sha256 that is none")?),
    };
    let is_cut = member(item, "truncated").is_some_and(|cut| cut != &Value::Bool(false));
    let body = match (member(item, "body"), item["encoding"].as_str()) {
        (None, _) => None,
        (Some(_), _) if is_cut => None,
        (Some(Value::String(text)), None | Some("utf8")) => Some(text.clone().into_bytes()),
        (Some(Value::String(text)), Some("base64")) => {
            Some(STANDARD.decode(text).map_err(|_error| "is not the base64 that it says")?)
        }
        (Some(_), _) => return Err("has a body in an unknown encoding"),
    };
    if let Some(body) = &body {
        if (body.len() as u64) < bytes {
            return Err("is truncated: its body is shorter than it says");
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
        let hash = hash.ok_or_else(|| wrong(format!("preRunHashes.{path}"), "is no sha256"))?;
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
