//! A tape: the exchanges between an agent and its model, with everything that is needed to judge the run again.
//!
//! These are the nouns; `docs/reference/tape-format.md` describes the files they stand in.

use crate::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Version of a tape. Readers refuse a larger one.
pub const TAPE_FORMAT: u32 = 1;

/// What `tape.json` says it is.
pub const TAPE_KIND: &str = "belljar-tape";

/// More exchanges than this do not fit on a tape.
pub const TAPE_EXCHANGES: u64 = 5_000;

/// A tape has at most this many bytes, all of its files together.
pub const TAPE_BYTES: u64 = 200_000_000;

/// The longest line of `exchanges.jsonl`.
pub const EXCHANGE_LINE: usize = 4 << 20;

/// What `tape.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeHead {
    /// [`TAPE_KIND`].
    pub kind: String,
    /// [`TAPE_FORMAT`].
    pub format: u32,
    /// The belljar that wrote it.
    pub belljar: String,
    /// Milliseconds since 1970.
    pub recorded_at_ms: u64,
    /// What was done.
    pub scenario: TapeScenario,
    /// Who did it.
    pub agent: TapeAgent,
    /// The plan, without what belongs to one machine, one user or one run.
    pub plan: Digest,
    /// Where it was done, as far as that can matter.
    pub environment: BTreeMap<String, String>,
    /// What is made alike before requests are compared, in this order.
    pub normalisers: Vec<String>,
    /// How many lines `exchanges.jsonl` has.
    pub exchanges: u64,
    /// Every file but this one and the bodies.
    pub parts: BTreeMap<String, TapePart>,
    /// A search for the user and the machine in what was asked; none where there was no search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaks: Option<TapeLeaks>,
    /// Keyed digests of the values that were redacted; none on tapes of versions that kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<TapeValues>,
    /// The digest of all the above.
    pub integrity: Digest,
}

/// Bytes of the window that a search rolls over a tape.
pub const TAPE_WINDOW: usize = 16;

/// The values that a recording redacted. Nobody can tell them from this without the key of the machine that recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeValues {
    /// Which key the digests were made with.
    pub key: String,
    /// Makes the digests of this tape unlike those of others.
    pub salt: String,
    /// The values.
    pub values: Vec<TapeValue>,
    /// Names of values that could not be redacted: too short, too long or too common.
    pub not_redacted: Vec<String>,
}

/// A value that was redacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeValue {
    /// Its name, as the marks have it.
    pub name: String,
    /// The value as it is and as encoders write it.
    pub forms: Vec<TapeForm>,
}

/// One form of a value, written `BYTES:TAG:DIGEST`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TapeForm {
    /// Its length.
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
        let fault = || "a form of a value is written `BYTES:TAG:DIGEST`".to_owned();
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

/// A search for the user and the machine in requests as they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeLeaks {
    /// What was looked for, by its kind: `user-name`, `home-path`, `host-name`.
    pub sought: BTreeSet<String>,
    /// What was found.
    pub found: BTreeSet<TapeLeak>,
}

/// Something of the user or the machine in a request. The value is not told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeLeak {
    /// The exchange.
    pub exchange: u64,
    /// The kind.
    pub kind: String,
}

/// The scenario of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeScenario {
    /// Its name.
    pub name: String,
    /// Its file, as seen from the folder that the tape lies in.
    pub file: String,
    /// Of its text.
    pub digest: Digest,
    /// Of the text of its session, where it has one.
    pub session: Option<Digest>,
    /// Of the trees of its skills.
    pub skills: BTreeMap<String, Digest>,
    /// Of the trees of its plugins.
    pub plugins: BTreeMap<String, Digest>,
    /// Where the skills lay for the agent, so that their use is seen again.
    pub places: Vec<TapeSkillPlace>,
}

/// Where a skill lay for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeSkillPlace {
    /// The skill.
    pub name: String,
    /// Its folders.
    pub directories: Vec<String>,
}

/// The agent of a tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeAgent {
    /// Its kind.
    pub harness: String,
    /// What it said of itself.
    pub version: Option<String>,
    /// Of its program.
    pub program: Option<Digest>,
}

/// A file of a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapePart {
    /// Its length.
    pub bytes: u64,
    /// Its content.
    pub digest: Digest,
}

impl TapeHead {
    /// The digest of everything but the digest itself.
    #[must_use]
    pub fn reckoned(&self) -> Digest {
        let mut text = serde_json::to_value(self).unwrap_or_default();
        if let Some(members) = text.as_object_mut() {
            members.remove("integrity");
        }
        Digest::of(canonical_json(&text).as_bytes())
    }
}

/// A value as text that depends on nothing but the value: members sorted by their names, no blanks.
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

/// A request and its answer: a line of `exchanges.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Its number in the order of arrival, from 0.
    pub seq: u64,
    /// When it was asked, in milliseconds since the first.
    pub at_ms: u64,
    /// Who asked.
    pub conversation: ConversationKey,
    /// What was asked.
    pub request: ExchangeRequest,
    /// What was answered; nothing where the connection was closed instead.
    pub answer: Option<ExchangeAnswer>,
}

/// One line of thought of an agent. Each has a cursor of its own when a tape is replayed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "who", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConversationKey {
    /// The agent itself.
    Main,
    /// A sub-agent.
    SubAgent {
        /// Its number in the order of first words, from 1.
        number: u32,
        /// Of the first message that it was given, made canonical.
        first: Digest,
    },
}

/// A request of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers that say what is wanted.
    pub headers: Vec<(String, String)>,
    /// How the answer was wanted.
    pub delivery: ExchangeDelivery,
    /// Ids of the recorded run that were made alike.
    pub ids: Vec<TapeId>,
    /// The body, made canonical; its digest is what a request is found by.
    pub body: BodyRef,
}

/// An id of the recorded run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeId {
    /// What made it alike.
    pub normaliser: String,
    /// Its number among those.
    pub number: u64,
    /// The id.
    pub id: String,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeDelivery {
    /// Piece by piece.
    Stream,
    /// At once.
    Whole,
}

/// An answer of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeAnswer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The pieces of the body: milliseconds since the request, and length. They add up to the body.
    pub chunks: Vec<(u64, u64)>,
    /// How the body ended.
    pub end: ExchangeEnd,
    /// When it did, in milliseconds since the request.
    pub ended_ms: u64,
    /// The body.
    pub body: BodyRef,
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeEnd {
    /// As it should.
    Complete,
    /// The connection was cut before the end.
    Broken,
    /// The agent did not wait for the end.
    Left,
}

/// A body, which lies in a file of its own under its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyRef {
    /// What it is called.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

impl BodyRef {
    /// The reference to these bytes.
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

    /// Whether its pieces add up.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.answer.iter().all(|answer| {
            let sum = answer.chunks.iter().try_fold(0_u64, |sum, (_, length)| sum.checked_add(*length));
            sum == Some(answer.body.bytes)
        })
    }
}
