//! A tape: the exchanges between an agent and its model, with everything that is needed to judge the run again.
//!
//! This module has the data types; `docs/reference/tape-format.md` describes the files.

use crate::{Digest, TapeNormaliser};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Version of a tape. Readers refuse a larger one. From 2 on, requests are ranges of a text that they share.
pub const TAPE_FORMAT: u32 = 2;

/// The value of `kind` in `tape.json`.
pub const TAPE_KIND: &str = "belljar-tape";

/// The maximum number of exchanges on a tape: as many as fit in [`TAPE_BYTES`] at 10 kB each.
pub const TAPE_EXCHANGES: u64 = 20_000;

/// The maximum size of a tape in bytes, all files together. It is kept with the code that it tests.
pub const TAPE_BYTES: u64 = 200_000_000;

/// The maximum length of a line of `exchanges.jsonl` in bytes: room for 250,000 pieces of an answer.
pub const EXCHANGE_LINE: usize = 4 << 20;

/// The maximum length of a request in bytes, twice that of the provider's.
pub const TAPE_REQUEST: u64 = 64 << 20;

/// The maximum length of all requests together in bytes, each as it was sent. A conversation of 2,500 turns with results
/// of 4 kB that is never shortened has half of it.
pub const TAPE_UNFOLDED: u64 = 32_000_000_000;

/// The content of `tape.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeHead {
    /// [`TAPE_KIND`].
    pub kind: String,
    /// [`TAPE_FORMAT`].
    pub format: u32,
    /// The version of belljar that wrote it.
    pub belljar: String,
    /// Milliseconds since 1970.
    pub recorded_at_ms: u64,
    pub scenario: TapeScenario,
    pub agent: TapeAgent,
    /// The digest of the plan, without values of one machine, user or run.
    pub plan: Digest,
    /// Facts about the machine that may matter.
    pub environment: BTreeMap<String, String>,
    /// The normalisers applied to requests before they are compared, in this order.
    pub normalisers: Vec<String>,
    /// The number of lines of `exchanges.jsonl`.
    pub exchanges: u64,
    /// Every file except this one and the bodies.
    pub parts: BTreeMap<String, TapePart>,
    /// The result of searching requests for names of the user and the machine; `None` if there was no search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaks: Option<TapeLeaks>,
    /// Keyed digests of the redacted values; `None` on tapes of versions without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<TapeValues>,
    /// The digest of all members above.
    pub integrity: Digest,
}

/// The size in bytes of the window that a search rolls over a tape.
pub const TAPE_WINDOW: usize = 16;

/// The values that a recording redacted. They cannot be derived from this without the key of the recording machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeValues {
    /// The id of the key that the digests were made with.
    pub key: String,
    /// A salt, so that digests of different tapes are not comparable.
    pub salt: String,
    pub values: Vec<TapeValue>,
    /// Names of values that could not be redacted: too short, too long or too common.
    pub not_redacted: Vec<String>,
}

/// A redacted value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeValue {
    /// Its name in the redaction marks.
    pub name: String,
    /// The value as it is and in common encodings.
    pub forms: Vec<TapeForm>,
}

/// One form of a value, written `BYTES:TAG:DIGEST`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TapeForm {
    /// Its length in bytes.
    pub bytes: u64,
    /// Sixteen bits of the keyed rolling hash of its first [`TAPE_WINDOW`] bytes.
    pub tag: u16,
    /// The first 16 bytes of its HMAC, in hexadecimal.
    pub digest: String,
}

impl From<TapeForm> for String {
    fn from(TapeForm { bytes, tag, digest }: TapeForm) -> Self {
        format!("{bytes}:{tag:04x}:{digest}")
    }
}

impl TryFrom<String> for TapeForm {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fault = || "expected `BYTES:TAG:DIGEST`".to_owned();
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or_else(fault);
        let (bytes, tag, digest) = (next()?, next()?, next()?);
        if digest.len() != 32 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(fault());
        }
        let bytes = bytes.parse().map_err(|_not_a_number| fault())?;
        let tag = u16::from_str_radix(tag, 16).map_err(|_not_a_number| fault())?;
        Ok(Self { bytes, tag, digest: digest.to_owned() })
    }
}

/// The result of searching unredacted requests for names of the user and the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeLeaks {
    /// The kinds that were searched for: `user-name`, `home-path`, `host-name`.
    pub sought: BTreeSet<String>,
    /// The kinds that were found, with their exchanges.
    pub found: BTreeSet<TapeLeak>,
}

/// A name of the user or the machine in a request. The value is not stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeLeak {
    /// The number of the exchange.
    pub exchange: u64,
    pub kind: String,
}

/// The scenario of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeScenario {
    pub name: String,
    /// Its file, relative to the directory that contains the tape.
    pub file: String,
    /// The digest of its text.
    pub digest: Digest,
    /// Digests of the values of its keys; empty on tapes of versions without them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Digest>,
    /// The digest of its session's text; `None` without a session.
    pub session: Option<Digest>,
    /// The digest of the file that declares its MCP servers; `None` without one, or on tapes of versions without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Digest>,
    /// The normalisers that its session declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub normalise: Vec<TapeNormaliser>,
    /// Digests of the trees of its skills.
    pub skills: BTreeMap<String, Digest>,
    /// Digests of the trees of its plugins.
    pub plugins: BTreeMap<String, Digest>,
    /// Whether files of skills and plugins that git does not track were staged.
    #[serde(default, skip_serializing_if = "TapeUntracked::is_left_out")]
    pub untracked: TapeUntracked,
    /// Digests of its uploads, directories and projects, by their places in the workspace; `None` on tapes of versions
    /// without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, Digest>>,
    /// What the digests of its skills, plugins and inputs cover.
    #[serde(default, skip_serializing_if = "TapeTrees::is_files")]
    pub trees: TapeTrees,
    /// The paths of the skills inside, so that a replay recognises their use.
    pub places: Vec<TapeSkillPlace>,
}

/// What the digest of a tree covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapeTrees {
    /// Its files and links. On tapes of versions that did not record it.
    #[default]
    Files,
    /// Directories without a file as well, and names without ambiguity.
    Directories,
}

impl TapeTrees {
    const fn is_files(&self) -> bool {
        matches!(self, Self::Files)
    }
}

/// Whether files of skills and plugins that git does not track were staged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapeUntracked {
    /// Also on tapes of versions that did not record it.
    #[default]
    LeftOut,
    Included,
}

impl TapeUntracked {
    const fn is_left_out(&self) -> bool {
        matches!(self, Self::LeftOut)
    }
}

/// The paths of a skill inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeSkillPlace {
    pub name: String,
    pub directories: Vec<String>,
}

/// The agent of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeAgent {
    pub harness: String,
    /// The version that the agent reported.
    pub version: Option<String>,
    /// The digest of its program.
    pub program: Option<Digest>,
}

/// A file of a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapePart {
    pub bytes: u64,
    /// The digest of its content.
    pub digest: Digest,
}

impl TapeHead {
    /// The digest of all members except the digest itself.
    #[must_use]
    pub fn reckoned(&self) -> Digest {
        let mut text = serde_json::to_value(self).unwrap_or_default();
        if let Some(members) = text.as_object_mut() {
            members.remove("integrity");
        }
        Digest::of(canonical_json(&text).as_bytes())
    }
}

/// A value as text that depends on the value only: members sorted by name, no white space.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut text = Vec::new();
    write_canonical(value, &mut text);
    String::from_utf8(text).expect("JSON is UTF-8")
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            out.push(b'{');
            for (at, (name, item)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_plain(name, out);
                out.push(b':');
                write_canonical(item, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => write_plain(value, out),
    }
}

/// Straight to the buffer: formatting a value takes twice as long.
fn write_plain(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("memory takes every value");
}

/// A request and its answer: one line of `exchanges.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Its number in the order of arrival, counted from 0.
    pub seq: u64,
    /// Milliseconds since the first request.
    pub at_ms: u64,
    /// The agent or sub-agent that sent the request.
    pub conversation: ConversationKey,
    pub request: ExchangeRequest,
    /// The answer; `None` if the connection was closed instead.
    pub answer: Option<ExchangeAnswer>,
}

/// One conversation of an agent. Each has its own position when a tape is replayed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "who", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConversationKey {
    /// The main agent.
    Main,
    SubAgent {
        /// Its number in the order of first requests, counted from 1.
        number: u32,
        /// The digest of its first message in canonical form.
        first: Digest,
    },
}

/// The request of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRequest {
    pub method: String,
    pub path: String,
    /// The headers that affect the answer.
    pub headers: Vec<(String, String)>,
    pub delivery: ExchangeDelivery,
    /// Ids of the recorded run that were normalised.
    pub ids: Vec<TapeId>,
    /// The body in canonical form; a replay finds a request by its digest.
    pub body: BodyRef,
}

/// An id of the recorded run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeId {
    /// The normaliser that replaced it.
    pub normaliser: String,
    /// Its number among the ids of this normaliser.
    pub number: u64,
    pub id: String,
}

/// How the agent wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeDelivery {
    /// As a stream.
    Stream,
    /// In one piece.
    Whole,
}

/// The answer of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeAnswer {
    /// The HTTP status.
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// The pieces of the body: milliseconds since the request, and length. The lengths add up to that of the body.
    pub chunks: Vec<(u64, u64)>,
    /// How the body ended.
    pub end: ExchangeEnd,
    /// Milliseconds from the request to the end.
    pub ended_ms: u64,
    pub body: BodyRef,
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeEnd {
    Complete,
    /// The connection was cut before the end.
    Broken,
    /// The agent closed the connection before the end.
    Left,
}

/// A body, which is stored in a file named by its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyRef {
    /// The digest of the body, which is the name of its file.
    pub digest: Digest,
    pub bytes: u64,
}

impl BodyRef {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { digest: Digest::of(bytes), bytes: bytes.len() as u64 }
    }
}

impl Exchange {
    /// The bodies that it refers to.
    pub fn bodies(&self) -> impl Iterator<Item = BodyRef> {
        std::iter::once(self.request.body).chain(self.answer.iter().map(|answer| answer.body))
    }

    /// Whether the lengths of its pieces add up to that of the body.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.answer.iter().all(|answer| {
            let sum = answer.chunks.iter().try_fold(0_u64, |sum, (_, length)| sum.checked_add(*length));
            sum == Some(answer.body.bytes)
        })
    }
}
