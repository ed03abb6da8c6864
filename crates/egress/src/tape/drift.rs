//! The differences between a request and the nearest recorded one, for people.

use super::agent_texts;
use super::normaliser::{Normaliser, further};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// How many differences of one request are shown; the rest is counted.
pub(super) const DIFFERENCES_SHOWN: usize = 12;
/// How many characters of a value are shown.
const SHOWN: usize = 240;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftKind {
    /// A normaliser that the tape does not use would cover it.
    Cosmetic,
    /// A tool returned another result.
    ToolResult,
    /// The request itself differs.
    Prompt,
    /// No similar request was recorded.
    Unmatched,
    /// The recorded answer calls a tool that this agent does not offer.
    ToolGone,
    /// Another version of the agent has other messages, calls or results, or has them in another order.
    Course,
}

impl DriftKind {
    /// The name for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Cosmetic => "cosmetic drift",
            Self::ToolResult => "tool-result drift",
            Self::Prompt => "prompt drift",
            Self::Unmatched => "unmatched request",
            Self::ToolGone => "drift after a call of a tool that this agent does not offer",
            Self::Course => "drift into another course of the conversation",
        }
    }
}

/// A request that is not on the tape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Its number among the requests of this run, from 0.
    pub request: u64,
    /// `main`, or `sub-agent 1`.
    pub conversation: String,
    /// The nearest recorded exchange.
    pub nearest: Option<u64>,
    pub kind: DriftKind,
    pub covered_by: Vec<String>,
    pub differences: Vec<Difference>,
    /// How many further differences there are.
    pub more: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The place, as a JSON pointer into the request.
    pub pointer: String,
    /// The recorded value; `None` if there was none.
    pub recorded: Option<String>,
    /// The present value.
    pub present: Option<String>,
    /// Whether it is in the agent's own texts, of which a tape only has digests.
    pub agent_texts: bool,
    /// The tool call that produced it, for a tool result.
    pub call: Option<ToolCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// The arguments on one line.
    pub input: String,
}

/// The places where two documents differ, in order.
pub(super) fn pointers(recorded: &Value, present: &Value) -> Vec<String> {
    let mut out = Vec::new();
    walk("", Some(recorded), Some(present), &mut out);
    out
}

fn walk(at: &str, recorded: Option<&Value>, present: Option<&Value>, out: &mut Vec<String>) {
    match (recorded, present) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                walk(&format!("{at}/{escaped}"), left.get(name), right.get(name), out);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                walk(&format!("{at}/{index}"), left.get(index), right.get(index), out);
            }
        }
        (left, right) if left == right => {}
        _ => out.push(at.to_owned()),
    }
}

/// Describes the drift from a recorded request. The present request is given normalised, and with the agent's own texts.
pub(super) fn describe(
    recorded: &Value,
    (present, readable): (&Value, &Value),
    used: &[Normaliser],
) -> (DriftKind, Vec<&'static str>, Vec<Difference>, usize) {
    let places = pointers(recorded, present);
    let covered = covered(recorded, present, used);
    let in_result = |pointer: &String| result_at(present, pointer).or(result_at(recorded, pointer)).is_some();
    let kind = match (covered.is_empty(), places.iter().all(in_result)) {
        (false, _) => DriftKind::Cosmetic,
        (true, true) => DriftKind::ToolResult,
        (true, false) => DriftKind::Prompt,
    };
    let more = places.len().saturating_sub(DIFFERENCES_SHOWN);
    let differences = places
        .into_iter()
        .take(DIFFERENCES_SHOWN)
        .map(|pointer| difference(recorded, (present, readable), pointer))
        .collect();
    (kind, covered, differences, more)
}

/// The smallest set of further normalisers that makes the documents equal.
pub(super) fn covered(recorded: &Value, present: &Value, used: &[Normaliser]) -> Vec<&'static str> {
    let extra: Vec<Normaliser> =
        Normaliser::ALL.into_iter().filter(|one| one.is_extra() && !used.contains(one)).collect();
    let same = |with: &[Normaliser]| {
        let apply = |value: &Value| with.iter().fold(value.clone(), |value, one| further(&value, *one));
        apply(recorded) == apply(present)
    };
    if let Some(one) = extra.iter().find(|one| same(&[**one])) {
        return vec![one.name()];
    }
    match same(&extra) {
        true => extra.iter().map(|one| one.name()).collect(),
        false => Vec::new(),
    }
}

/// The result block that a pointer leads into.
fn result_at<'v>(document: &'v Value, pointer: &str) -> Option<&'v Value> {
    let mut parts = pointer.split('/').skip(1);
    let (messages, message, content, block) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if messages != "messages" || content != "content" {
        return None;
    }
    let found = document.pointer(&format!("/messages/{message}/content/{block}"))?;
    (found.get("type").and_then(Value::as_str) == Some("tool_result")).then_some(found)
}

pub(super) fn difference(
    recorded: &Value,
    (present, readable): (&Value, &Value),
    pointer: String,
) -> Difference {
    let (old, new) = (recorded.pointer(&pointer), present.pointer(&pointer));
    let marked = |value: Option<&Value>| value.is_some_and(|value| agent_texts::has_mark(&value.to_string()));
    let agent_texts = marked(old) || marked(new);
    let call = result_at(present, &pointer).or(result_at(recorded, &pointer)).and_then(|block| {
        let id = block.get("tool_use_id")?.as_str()?;
        call(present, id).or_else(|| call(recorded, id))
    });
    let (recorded, present) = match (old, new) {
        (Some(Value::String(old)), Some(Value::String(new))) => {
            let (old, new) = windows(old, new);
            (Some(old), Some(new))
        }
        (old, new) => {
            (old.map(|value| shortened(&text(value), 0)), new.map(|value| shortened(&text(value), 0)))
        }
    };
    let said = if agent_texts { present_text(readable, &pointer) } else { None };
    let present = match (present, said) {
        (Some(digest), Some(said)) => Some(format!("{digest} {said}")),
        (present, _) => present,
    };
    Difference { pointer, recorded, present, agent_texts, call }
}

/// The beginning of the agent's present text, where only digests are compared.
fn present_text(readable: &Value, pointer: &str) -> Option<String> {
    let place = pointer.strip_suffix("/definition").unwrap_or(pointer);
    Some(shortened(&text(readable.pointer(place)?), 0))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn call(document: &Value, id: &str) -> Option<ToolCall> {
    let messages = document.get("messages")?.as_array()?;
    let blocks = messages.iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    let mut calls = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_use"));
    let found = calls.find(|block| block.get("id").and_then(Value::as_str) == Some(id))?;
    let name = found.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let input = found.get("input").map(|input| shortened(&input.to_string(), 0)).unwrap_or_default();
    Some(ToolCall { id: id.to_owned(), name, input })
}

/// Two texts around the place where they first differ.
pub(super) fn windows(old: &str, new: &str) -> (String, String) {
    let same = old.chars().zip(new.chars()).take_while(|(left, right)| left == right).count();
    let from =
        if old.chars().count().max(new.chars().count()) <= SHOWN { 0 } else { same.saturating_sub(40) };
    (shortened(old, from), shortened(new, from))
}

pub(super) fn shortened(text: &str, from: usize) -> String {
    let mut out: String = text.chars().skip(from).take(SHOWN).collect();
    if from > 0 {
        out.insert(0, '…');
    }
    if text.chars().count() > from + SHOWN {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(result: &str) -> Value {
        json!({"messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": result}]},
        ], "a/b": 1})
    }

    fn describe_both(
        recorded: &Value,
        present: &Value,
        used: &[Normaliser],
    ) -> (DriftKind, Vec<&'static str>, Vec<Difference>, usize) {
        describe(recorded, (present, present), used)
    }

    #[test]
    fn drift_in_the_agents_own_texts_is_shown_with_digests() {
        let body =
            |prompt: &str| json!({"system": [{"text": prompt}], "tools": [{"name": "Bash", "x": prompt}]});
        let (old, new) =
            (agent_texts::without(body("You are old")), agent_texts::without(body("You are new")));
        let (kind, _, reported, _) = describe(&old, (&new, &body("You are new")), &[]);
        assert_eq!(kind, DriftKind::Prompt);
        let pointers: Vec<&str> = reported.iter().map(|one| one.pointer.as_str()).collect();
        assert_eq!(pointers, ["/system/0/text", "/tools/0/definition"]);
        for one in &reported {
            let (recorded, present) = (one.recorded.as_ref().unwrap(), one.present.as_ref().unwrap());
            assert!(
                one.agent_texts && recorded.contains("sha256:") && present.contains("sha256:"),
                "{one:?}"
            );
            assert!(!recorded.contains("You are") && present.contains("You are new"), "{one:?}");
        }
    }

    #[test]
    fn a_tool_result_is_shown_with_its_call() {
        let (kind, covered, reported, more) = describe_both(&document("one"), &document("two"), &[]);
        assert_eq!((kind, covered.len(), more), (DriftKind::ToolResult, 0, 0));
        assert_eq!(reported[0].pointer, "/messages/2/content/0/content");
        assert_eq!(
            (reported[0].recorded.as_deref(), reported[0].present.as_deref()),
            (Some("one"), Some("two"))
        );
        let call = reported[0].call.as_ref().unwrap();
        assert_eq!((call.name.as_str(), call.input.as_str()), ("Bash", r#"{"command":"x"}"#));
    }

    #[test]
    fn drift_that_a_normaliser_covers_is_cosmetic() {
        let (kind, covered, ..) =
            describe_both(&document("at 10:00:01"), &document("at 11:30:59"), &Normaliser::defaults());
        assert_eq!((kind, covered), (DriftKind::Cosmetic, vec!["timestamp/1"]));
        let used = Normaliser::ALL;
        let (kind, ..) = describe_both(&document("at 10:00:01"), &document("at 11:30:59"), &used);
        assert_eq!(kind, DriftKind::ToolResult);
    }

    #[test]
    fn other_differences_are_prompt_drift() {
        let mut other = document("one");
        other["a/b"] = json!(2);
        let (kind, _, reported, _) = describe_both(&document("two"), &other, &[]);
        assert_eq!((kind, reported[0].pointer.as_str()), (DriftKind::Prompt, "/a~1b"));
        let long = format!("{}x{}", "a".repeat(5000), "b".repeat(5000));
        let (_, _, reported, _) = describe_both(&document(&long), &document(&long.replace('x', "y")), &[]);
        assert!(reported[0].recorded.as_ref().unwrap().contains("ax"), "{reported:?}");
        assert!(reported[0].recorded.as_ref().unwrap().chars().count() < 300);
    }
}
