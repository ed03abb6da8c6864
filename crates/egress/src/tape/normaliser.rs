//! Normalisers remove differences between runs that have no meaning. Each has a name, a version and a fixed effect.
//!
//! A tape lists the normalisers that it was recorded with, and is compared with those. The effect of a normaliser never
//! changes; a new version is added next to the old one.

use super::agent_texts;
use super::private::Private;
use super::suite::{self, ChangedValues, Normalisers};
use crate::gateway::BILLING_PREFIX;
use belljar_contract::{Digest, ExchangeDelivery, TapeId, canonical_json};
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Removes one kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Normaliser {
    /// The identity of the user, for the provider's accounting.
    Metadata,
    /// Cache markers, which move with every turn.
    CacheControl,
    /// The block with the agent's build, for billing.
    Billing,
    /// Whether the response is streamed, and the token limit that depends on it.
    Delivery,
    /// Sorts the results of tools that ran in parallel by the ids of their calls.
    ResultOrder,
    SessionId,
    AgentId,
    /// Ids of background tasks and of outputs that were stored in files.
    TaskId,
    /// The current date.
    Date,
    /// The kernel's release in the description of the environment.
    Kernel,
    /// Names that `mktemp` and similar tools generate.
    TmpPath,
    /// How long a sub-agent took.
    AgentUsage,
    /// Any UUID. Not used by default.
    Uuid,
    /// Times of day, and dates with one. Not used by default.
    Timestamp,
    /// Durations such as `1.2s` or `35 ms`. Not used by default.
    Duration,
    /// Home directories of people. Not used by default.
    HomePath,
    /// Email addresses of people. Not used by default.
    Email,
    /// Texts that look like a key. Not used by default.
    Token,
}

/// Which texts a normaliser changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changes {
    None,
    /// Those that contain this, and not all of them.
    With(&'static str),
    Any,
}

/// The placeholder for the session id.
pub(super) const SESSION: &str = "<session>";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown normaliser `{0}`")]
pub struct UnknownNormaliser(pub String);

impl Normaliser {
    /// All normalisers, in the order in which they are applied.
    pub const ALL: [Self; 18] = [
        Self::Metadata,
        Self::CacheControl,
        Self::Billing,
        Self::Delivery,
        Self::ResultOrder,
        Self::SessionId,
        Self::AgentId,
        Self::TaskId,
        Self::Date,
        Self::Kernel,
        Self::TmpPath,
        Self::AgentUsage,
        Self::Uuid,
        Self::Timestamp,
        Self::Duration,
        Self::HomePath,
        Self::Email,
        Self::Token,
    ];

    /// The normalisers of every tape.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        Self::ALL.into_iter().filter(|one| !one.is_extra()).collect()
    }

    /// Name and version.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata/1",
            Self::CacheControl => "cache-control/1",
            Self::Billing => "billing/1",
            Self::Delivery => "delivery/1",
            Self::ResultOrder => "result-order/1",
            Self::SessionId => "session-id/1",
            Self::AgentId => "agent-id/1",
            Self::TaskId => "task-id/1",
            Self::Date => "date/1",
            Self::Kernel => "kernel/1",
            Self::TmpPath => "tmp-path/1",
            Self::AgentUsage => "agent-usage/1",
            Self::Uuid => "uuid/1",
            Self::Timestamp => "timestamp/1",
            Self::Duration => "duration/1",
            Self::HomePath => "home-path/1",
            Self::Email => "email/1",
            Self::Token => "token/1",
        }
    }

    /// Whether it is used only on request, because it may hide relevant differences.
    #[must_use]
    pub fn is_extra(self) -> bool {
        matches!(self, Self::Uuid | Self::Timestamp | Self::Duration) || self.private().is_some()
    }

    /// The placeholder for an id that it replaces; `None` for normalisers that do not replace ids.
    pub(super) fn stands_for(self, number: u64) -> Option<String> {
        match self {
            Self::SessionId => Some(SESSION.to_owned()),
            Self::AgentId => Some(format!("<agent:{number}>")),
            Self::TmpPath => Some(format!("<tmp:{number}>")),
            Self::TaskId => Some(format!("<task:{number}>")),
            Self::Metadata
            | Self::CacheControl
            | Self::Billing
            | Self::Delivery
            | Self::ResultOrder
            | Self::Date
            | Self::Kernel
            | Self::AgentUsage
            | Self::Uuid
            | Self::Timestamp
            | Self::Duration
            | Self::HomePath
            | Self::Email
            | Self::Token => None,
        }
    }

    /// The kind of private data that it redacts. These normalisers are applied after the agent's own texts were replaced.
    pub(super) fn private(self) -> Option<Private> {
        Private::ALL.into_iter().find(|kind| kind.normaliser() == self)
    }

    /// The changed text, for normalisers that change each text on its own; `None` if nothing changes.
    pub(super) fn text(self, text: &str) -> Option<String> {
        match self {
            Self::Date => replace(text, &DATE, "${1}<date>"),
            Self::Kernel => replace(text, &KERNEL, "${1}<kernel>"),
            Self::AgentUsage => replace(text, &AGENT_USAGE, "${1}<duration>"),
            Self::Uuid => replace(text, &UUID, "<uuid>"),
            Self::Timestamp => replace(text, &TIMESTAMP, "<time>"),
            Self::Duration => replace(text, &DURATION, "<duration>"),
            Self::HomePath => Private::HomePath.without(text),
            Self::Email => Private::Email.without(text),
            Self::Token => Private::Token.without(text),
            Self::Metadata
            | Self::CacheControl
            | Self::Billing
            | Self::Delivery
            | Self::ResultOrder
            | Self::SessionId
            | Self::AgentId
            | Self::TaskId
            | Self::TmpPath => None,
        }
    }

    /// Which texts [`Normaliser::text`] changes.
    pub(super) const fn changes(self) -> Changes {
        match self {
            Self::Date => Changes::With("Today's date is "),
            Self::Kernel => Changes::With("OS Version: "),
            Self::AgentUsage => Changes::With("<usage>"),
            Self::Uuid | Self::Timestamp | Self::Duration | Self::HomePath | Self::Email | Self::Token => {
                Changes::Any
            }
            Self::Metadata
            | Self::CacheControl
            | Self::Billing
            | Self::Delivery
            | Self::ResultOrder
            | Self::SessionId
            | Self::AgentId
            | Self::TaskId
            | Self::TmpPath => Changes::None,
        }
    }

    /// Parses a name; without a version, the latest one.
    ///
    /// # Errors
    /// When the name is unknown.
    pub fn parse(text: &str) -> Result<Self, UnknownNormaliser> {
        let fits = |one: &Self| one.name() == text || one.name().split('/').next() == Some(text);
        Self::ALL.into_iter().find(fits).ok_or_else(|| UnknownNormaliser(text.to_owned()))
    }
}

/// A request's body after normalisation.
#[derive(Debug, Clone)]
pub(super) struct Canonical {
    /// The form that is compared and kept: with digests in place of the agent's own texts.
    pub value: Value,
    /// The same with the agent's own texts, to show the present request.
    pub readable: Value,
    /// The bytes that are kept.
    pub kept: Vec<u8>,
    /// The digest of the kept bytes, by which a request is found.
    pub digest: Digest,
    /// The digest of the first message, which identifies a sub-agent.
    pub first_message: Digest,
    pub delivery: ExchangeDelivery,
    /// Ids that were replaced, by normaliser and number. Another run has other ids.
    pub ids: BTreeMap<(Normaliser, usize), String>,
    /// What the normalisers of the suite changed.
    pub suite: ChangedValues,
}

impl Canonical {
    /// Normalises a body. A body that is not a JSON object is compared unchanged.
    pub fn of(bytes: &[u8], Normalisers { built_in: normalisers, suite }: &Normalisers) -> Self {
        let Ok(Value::Object(body)) = serde_json::from_slice(bytes) else {
            let value = Value::from(String::from_utf8_lossy(bytes));
            return Self {
                readable: value.clone(),
                value,
                kept: bytes.to_vec(),
                digest: Digest::of(bytes),
                first_message: Digest::of(canonical_json(&Value::Null).as_bytes()),
                delivery: ExchangeDelivery::Whole,
                ids: BTreeMap::new(),
                suite: Ok(Vec::new()),
            };
        };
        let streams = body.get("stream").and_then(Value::as_bool) == Some(true);
        let delivery = if streams { ExchangeDelivery::Stream } else { ExchangeDelivery::Whole };
        let mut texts = Texts { session: session(&body), ..Texts::default() };
        let mut value = Value::Object(body);
        let suite = suite::request(suite, &mut value);
        for normaliser in normalisers {
            shape(*normaliser, &mut value);
        }
        for normaliser in normalisers.iter().filter(|one| one.private().is_none()) {
            texts.apply(*normaliser, &mut value);
        }
        let readable = value.clone();
        let mut value = agent_texts::without(value);
        for normaliser in normalisers.iter().filter(|one| one.private().is_some()) {
            texts.apply(*normaliser, &mut value);
        }
        let first = value.pointer("/messages/0").unwrap_or(&Value::Null);
        let first_message = Digest::of(canonical_json(first).as_bytes());
        let kept = canonical_json(&value).into_bytes();
        let digest = Digest::of(&kept);
        Self { value, readable, kept, digest, first_message, delivery, ids: texts.ids, suite }
    }

    /// The replaced ids, in the format of a tape.
    pub fn ids(&self) -> Vec<TapeId> {
        let id = |((kind, number), id): (&(Normaliser, usize), &String)| TapeId {
            normaliser: kind.name().to_owned(),
            number: *number as u64,
            id: id.clone(),
        };
        self.ids.iter().map(id).collect()
    }
}

/// Parses a kept body.
pub(super) fn read_kept(bytes: &[u8]) -> Value {
    match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::from(String::from_utf8_lossy(bytes)),
    }
}

/// A kept body with a further normaliser applied.
pub(super) fn kept_with(bytes: &[u8], normaliser: Normaliser) -> Vec<u8> {
    let mut value = read_kept(bytes);
    if value.is_string() {
        Texts::default().apply(normaliser, &mut value);
        return value.as_str().unwrap_or_default().as_bytes().to_vec();
    }
    canonical_json(&further(&value, normaliser)).into_bytes()
}

/// The session id, which the agent writes as JSON inside JSON.
fn session(body: &Map<String, Value>) -> Option<String> {
    let user = body.get("metadata")?.get("user_id")?.as_str()?;
    let user: Value = serde_json::from_str(user).ok()?;
    user.get("session_id")?.as_str().filter(|id| id.len() >= 8).map(str::to_owned)
}

/// Applies the normalisers that change the structure of the document.
fn shape(normaliser: Normaliser, value: &mut Value) {
    match normaliser {
        Normaliser::Metadata => drop_members(value, &["metadata"]),
        Normaliser::Delivery => drop_members(value, &["stream", "max_tokens"]),
        Normaliser::CacheControl => drop_everywhere(value, "cache_control"),
        Normaliser::Billing => {
            if let Some(blocks) = value.get_mut("system").and_then(Value::as_array_mut) {
                let billed = |block: &Value| {
                    let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
                    text.starts_with(BILLING_PREFIX)
                };
                blocks.retain(|block| !billed(block));
            }
        }
        Normaliser::ResultOrder => {
            let messages = value.get_mut("messages").and_then(Value::as_array_mut);
            messages.into_iter().flatten().for_each(order_results);
        }
        Normaliser::SessionId
        | Normaliser::AgentId
        | Normaliser::TaskId
        | Normaliser::Date
        | Normaliser::Kernel
        | Normaliser::TmpPath
        | Normaliser::AgentUsage
        | Normaliser::Uuid
        | Normaliser::Timestamp
        | Normaliser::Duration
        | Normaliser::HomePath
        | Normaliser::Email
        | Normaliser::Token => {}
    }
}

fn drop_members(value: &mut Value, names: &[&str]) {
    if let Value::Object(members) = value {
        members.retain(|name, _| !names.contains(&name.as_str()));
    }
}

fn drop_everywhere(value: &mut Value, name: &str) {
    match value {
        Value::Object(members) => {
            members.retain(|member, _| member != name);
            members.values_mut().for_each(|item| drop_everywhere(item, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_everywhere(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sorts tool results among themselves; other blocks keep their places.
fn order_results(message: &mut Value) {
    let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) else { return };
    let is_result = |block: &Value| block.get("type").and_then(Value::as_str) == Some("tool_result");
    let id = |block: &Value| block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut results: Vec<Value> = blocks.iter().filter(|block| is_result(block)).cloned().collect();
    results.sort_by_key(id);
    let mut results = results.into_iter();
    for block in blocks.iter_mut().filter(|block| is_result(block)) {
        if let Some(result) = results.next() {
            *block = result;
        }
    }
}

static AGENT_ID: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?-u:\b)a[0-9a-f]{16}(?-u:\b)"));
static TASK_ID: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:background with ID: |<task-id>|/tasks/|/tool-results/)([a-z0-9]{9})(?-u:\b)")
});
static DATE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(Today's date is (?:now )?)[0-9]{4}-[0-9]{2}-[0-9]{2}"));
static KERNEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(OS Version: )[^\n]*"));
static TMP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"/tmp/(?:tmp\.[A-Za-z0-9]{6,12}|tmp[a-z0-9_]{8})(?-u:\b)"));
static AGENT_USAGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(<usage>[^<]*duration_ms: )[0-9]+"));
static UUID: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?-u:\b)[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?-u:\b)")
});
static TIMESTAMP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?",
        r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:[A-Z][a-z]{2} +[0-9]{1,2}|[0-9]{1,2} [A-Z][a-z]{2}) ",
        r"(?:[0-9]{4} )?[0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?: (?:[A-Z]{2,5}|[+-][0-9]{4}))?(?: [0-9]{4})?",
        r"|(?-u:\b)[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?-u:\b)",
    ))
});
static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?-u:\b)[0-9]+(?:\.[0-9]+)? ?(?:ns|µs|us|ms|s|sec|secs|seconds|minutes)(?-u:\b)")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a test compiles every pattern")
}

/// Rewrites texts and remembers the replaced ids.
#[derive(Default)]
struct Texts {
    session: Option<String>,
    ids: BTreeMap<(Normaliser, usize), String>,
}

impl Texts {
    fn apply(&mut self, normaliser: Normaliser, value: &mut Value) {
        match normaliser {
            Normaliser::SessionId => {
                let Some(session) = self.session.clone() else { return };
                each_text(value, &mut |text| {
                    text.contains(&session).then(|| text.replace(&session, SESSION))
                });
                self.ids.insert((Normaliser::SessionId, 1), session);
            }
            Normaliser::AgentId => self.number(normaliser, &AGENT_ID, "agent", value),
            Normaliser::TmpPath => self.number(normaliser, &TMP, "tmp", value),
            Normaliser::TaskId => self.tasks(value),
            Normaliser::Date
            | Normaliser::Kernel
            | Normaliser::AgentUsage
            | Normaliser::Uuid
            | Normaliser::Timestamp
            | Normaliser::Duration
            | Normaliser::HomePath
            | Normaliser::Email
            | Normaliser::Token => each_text(value, &mut |text| normaliser.text(text)),
            Normaliser::Metadata
            | Normaliser::CacheControl
            | Normaliser::Billing
            | Normaliser::Delivery
            | Normaliser::ResultOrder => {}
        }
    }

    /// Replaces the matches of a pattern by numbered placeholders, so that different ids stay different.
    fn number(&mut self, kind: Normaliser, pattern: &Regex, word: &str, value: &mut Value) {
        each_text(value, &mut |text| {
            pattern.is_match(text).then(|| {
                let name = |found: &Captures<'_>| format!("<{word}:{}>", self.known(kind, &found[0]));
                pattern.replace_all(text, name).into_owned()
            })
        });
    }

    fn known(&mut self, kind: Normaliser, id: &str) -> usize {
        let mut own = self.ids.iter().filter(|((of, _), _)| *of == kind);
        if let Some(((_, number), _)) = own.find(|(_, known)| known.as_str() == id) {
            return *number;
        }
        let number = self.ids.keys().filter(|(of, _)| *of == kind).count() + 1;
        self.ids.insert((kind, number), id.to_owned());
        number
    }

    /// Task ids look like words. They are collected where the text says that they are task ids, and then replaced everywhere.
    fn tasks(&mut self, value: &mut Value) {
        each_text(value, &mut |text| {
            for found in TASK_ID.captures_iter(text) {
                self.known(Normaliser::TaskId, &found[1]);
            }
            None
        });
        let tasks = self.ids.iter().filter(|((kind, _), _)| *kind == Normaliser::TaskId);
        let tasks: Vec<(String, String)> =
            tasks.map(|((_, number), id)| (id.clone(), format!("<task:{number}>"))).collect();
        if tasks.is_empty() {
            return;
        }
        each_text(value, &mut |text| {
            let mut fresh = None;
            for (id, name) in tasks.iter().filter(|(id, _)| text.contains(id.as_str())) {
                fresh = Some(fresh.unwrap_or_else(|| text.to_owned()).replace(id.as_str(), name));
            }
            fresh
        });
    }
}

fn replace(text: &str, pattern: &Regex, with: &str) -> Option<String> {
    pattern.is_match(text).then(|| pattern.replace_all(text, with).into_owned())
}

/// Visits every text of a document; names of members are not texts.
pub(super) fn each_text(value: &mut Value, change: &mut dyn FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(fresh) = change(text) {
                *text = fresh;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => members.values_mut().for_each(|item| each_text(item, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A document with a further normaliser applied to its texts.
pub(super) fn further(value: &Value, normaliser: Normaliser) -> Value {
    let mut value = value.clone();
    Texts::default().apply(normaliser, &mut value);
    value
}

#[cfg(test)]
#[path = "normaliser_tests.rs"]
mod tests;
