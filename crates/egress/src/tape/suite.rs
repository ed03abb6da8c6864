//! Normalises the texts of requests by the patterns that a suite declares.
//!
//! Only what is said is changed: texts, and the results of tools. What the user's side of a request would lose is bounded;
//! a request beyond the bound stays as it is.

use super::agent_texts;
use super::normaliser::Normaliser;
use belljar_contract::{Digest, Excess, SuiteNormaliser, normalised, places};
use serde_json::Value;
use std::collections::BTreeSet;

/// The normalisers of a tape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Normalisers {
    /// Those of belljar.
    pub built_in: Vec<Normaliser>,
    /// Those that the suite declares; they are applied first.
    pub suite: Vec<SuiteNormaliser>,
}

impl From<Vec<Normaliser>> for Normalisers {
    fn from(built_in: Vec<Normaliser>) -> Self {
        Self { built_in, suite: Vec::new() }
    }
}

/// What one normaliser of a suite changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteChanges {
    /// Digests of the different values.
    pub values: BTreeSet<Digest>,
    /// The number of requests.
    pub requests: u64,
}

/// The maximum number of different values that are counted.
const MOST_VALUES: usize = 10_000;

impl SuiteChanges {
    /// Adds what was changed in one more request.
    pub(super) fn add(&mut self, values: BTreeSet<Digest>) {
        self.requests += u64::from(!values.is_empty());
        let room = MOST_VALUES.saturating_sub(self.values.len());
        self.values.extend(values.into_iter().take(room));
    }
}

/// What was changed in one request, by normaliser; or why nothing was.
pub(super) type ChangedValues = Result<Vec<BTreeSet<Digest>>, String>;

/// Normalises what the user's side says in a request.
pub(super) fn request(of: &[SuiteNormaliser], body: &mut Value) -> ChangedValues {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let changed = measured(of, body)?;
    for message in body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        if message["role"] == "user" {
            said(message, false, &mut |text| normalised(of, text));
        }
    }
    Ok(changed)
}

/// Normalises what the user's side says in a frame; `None` if nothing changes.
pub(crate) fn frame(of: &[SuiteNormaliser], frame: &Value) -> Option<Value> {
    if of.is_empty() || frame["type"] != "user" {
        return None;
    }
    let mut out = frame.clone();
    let mut changed = false;
    said(out.get_mut("message")?, false, &mut |text| {
        let fresh = normalised(of, text);
        changed |= fresh.is_some();
        fresh
    });
    changed.then_some(out)
}

/// What would be changed on the user's side.
fn measured(of: &[SuiteNormaliser], body: &Value) -> ChangedValues {
    let mut changed = vec![BTreeSet::new(); of.len()];
    let (mut all, mut lost) = (0, 0);
    let mut fault = None;
    let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten();
    for message in messages.filter(|message| message["role"] == "user") {
        said(&mut message.clone(), false, &mut |text| {
            let marked = agent_texts::outside_of_reminders(text);
            let bare = marked.and_then(|text| agent_texts::without_marks(&text));
            let text = bare.as_deref().unwrap_or(text);
            all += text.len();
            match places(of, text) {
                Ok(places) => {
                    for (index, place) in places {
                        lost += place.len();
                        changed[index].insert(Digest::of(text[place].as_bytes()));
                    }
                }
                Err(Excess::Whole) => drop(fault.get_or_insert("nothing would be left of a text")),
                Err(Excess::Places) => drop(fault.get_or_insert("a text has too many matches")),
            }
            None
        });
    }
    if lost * 2 > all {
        fault.get_or_insert("more than half of what the user's side says would be lost");
    }
    let Some(fault) = fault else { return Ok(changed) };
    let names: Vec<String> = of.iter().map(|one| format!("`{}`", one.kept().name)).collect();
    Err(format!("{} of the suite match too much: {fault}", names.join(", ")))
}

/// Visits every text that a message says: its own, and those of results. Ids and other words of the protocol are not among
/// them, nor are the arguments of calls, which a tape repeats.
fn said(value: &mut Value, is_said: bool, change: &mut dyn FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) if is_said => {
            if let Some(fresh) = change(text) {
                *text = fresh;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| said(item, is_said, change)),
        Value::Object(members) => {
            let texts = members.iter_mut().filter(|(name, _)| ["content", "text"].contains(&name.as_str()));
            texts.for_each(|(_, item)| said(item, true, change));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of() -> Vec<SuiteNormaliser> {
        vec![
            SuiteNormaliser::new("build", "build ([0-9]+)", "a counter").unwrap(),
            SuiteNormaliser::new("user", "([u]ser|[t]ext)[0-9]", "a word of the protocol").unwrap(),
        ]
    }

    fn body(result: &str) -> Value {
        json!({
            "model": "build 1", "system": "build 1",
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "<system-reminder>build 1</system-reminder>make build 2 of it"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "build 1", "input": {"text": "build 1"}},
                    {"type": "text", "text": "build 1"}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "build 1", "content": [{"type": "text", "text": result}]}]},
            ],
        })
    }

    #[test]
    fn only_what_the_users_side_says_is_changed() {
        let mut found = body("done: build 3, build 2");
        let changed = request(&of(), &mut found).unwrap();
        assert_eq!(changed.iter().map(BTreeSet::len).collect::<Vec<_>>(), [2, 0]);
        let text = found.to_string();
        assert_eq!(text.matches("<suite:build>").count(), 4, "{found:#}");
        assert_eq!(text.matches("build 1").count(), 6, "{found:#}");
        let frame_of =
            |role| json!({"type": role, "message": {"content": "done: build 3"}, "uuid": "build 3"});
        let fresh = frame(&of(), &frame_of("user")).unwrap();
        assert_eq!(
            (&fresh["message"]["content"], &fresh["uuid"]),
            (&json!("done: build <suite:build>"), &json!("build 3"))
        );
        assert_eq!(frame(&of(), &frame_of("assistant")), None);
    }

    #[test]
    fn a_request_that_would_lose_too_much_stays_as_it_is() {
        let many = "build 1 ".repeat(5_001);
        let long = format!("x build {} ", "1".repeat(200));
        let one = [SuiteNormaliser::new("hash", "[0-9]{6}z", "random").unwrap()];
        for (of, result, why) in [
            (of(), many.as_str(), "too many"),
            (of(), &long, "more than half"),
            (one.to_vec(), "123456z", "nothing would be left"),
        ] {
            let mut found = body(result);
            let error = request(&of, &mut found).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert_eq!(found, body(result));
        }
    }

    /// Whatever is changed outside of the matches is another request.
    #[test]
    fn fuzz_a_change_outside_of_the_matches_is_another_request() {
        const WORDS: [&str; 8] = ["build 1", "build 22", "build", " ", "x", "<suite:build>", ":", "9"];
        let read = |bytes: &[u8]| -> String {
            bytes.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect()
        };
        let bare = |text: &str| -> Vec<String> {
            let pattern = regex::Regex::new("build [0-9]+").unwrap();
            pattern.split(text).map(str::to_owned).collect()
        };
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(left, right)| {
            let (left, right) = (read(left), read(right));
            let alike = |text: &str| {
                let mut body = body(text);
                request(&of(), &mut body).ok();
                body
            };
            assert!(alike(&left) != alike(&right) || bare(&left) == bare(&right), "{left:?} {right:?}");
        });
    }
}
