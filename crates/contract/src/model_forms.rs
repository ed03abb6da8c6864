//! Normal forms of texts and tool inputs, in which frames and the model log are compared.

use crate::{Digest, canonical_json};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// The digest of a text without leading and trailing white space.
#[must_use]
pub fn text_digest(text: &str) -> Digest {
    Digest::of(text.trim().as_bytes())
}

/// A text without the reminders that the agent adds to it; `None` if it has none.
#[must_use]
pub fn without_reminders(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once(REMINDER) {
        let Some((_, behind)) = after.split_once(REMINDER_END) else { break };
        found = true;
        out.push_str(before);
        rest = behind;
    }
    out.push_str(rest);
    found.then_some(out)
}

/// The digest of a member of an input, with numbers written as in JavaScript.
#[must_use]
pub fn input_digest(value: &Value) -> Digest {
    let settled = has_numbers(value).then(|| {
        let mut settled = value.clone();
        settle_numbers(&mut settled);
        settled
    });
    Digest::of(canonical_json(settled.as_ref().unwrap_or(value)).as_bytes())
}

fn has_numbers(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(items) => items.iter().any(has_numbers),
        Value::Object(members) => members.values().any(has_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Digests of the members of an input.
#[must_use]
pub fn input_digests(input: &Map<String, Value>) -> BTreeMap<String, Digest> {
    input.iter().map(|(name, value)| (name.clone(), input_digest(value))).collect()
}

/// The members of an input that the model served, each in every form that the agent may give it.
///
/// The agent rewrites inputs before it shows and runs them. Observed on 2026-11-17 with 2.1.197 and 2.1.325: `Bash`
/// loses `cd <work directory> && ` and doubled escapes of `;`, `Write` and `Edit` lose white space at the ends of
/// lines, strings that contain a number or a boolean become one, and `\\u00e9` written out in a string becomes the
/// character.
#[must_use]
pub fn input_forms(tool: &str, input: &Map<String, Value>) -> BTreeMap<String, Vec<Digest>> {
    let forms = |(name, value): (&String, &Value)| {
        let mut forms = vec![value.clone()];
        if let Value::String(text) = value {
            let texts = match (tool, name.as_str()) {
                ("Bash", "command") => command_forms(text),
                ("Write", "content") | ("Edit", "new_string" | "old_string") => vec![without_line_ends(text)],
                _ => Vec::new(),
            };
            forms.extend(texts.into_iter().map(Value::String));
            forms.extend(scalar(text));
        }
        let unescaped: Vec<Value> = forms.iter().filter_map(unescaped).collect();
        forms.extend(unescaped);
        forms.dedup();
        let mut digests: Vec<Digest> = forms.iter().map(input_digest).collect();
        digests.dedup();
        (name.clone(), digests)
    };
    let mut out: BTreeMap<String, Vec<Digest>> = input.iter().map(forms).collect();
    if tool == "Edit" {
        let default = || vec![input_digest(&Value::Bool(false))];
        out.entry("replace_all".to_owned()).or_insert_with(default);
    }
    out
}

/// The value with the escapes in its strings decoded; `None` if it has none.
fn unescaped(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => decoded(text).map(Value::String),
        Value::Array(items) => {
            let decoded: Vec<Option<Value>> = items.iter().map(unescaped).collect();
            let any = decoded.iter().any(Option::is_some);
            let items = decoded.into_iter().zip(items).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
            any.then(|| Value::Array(items.collect()))
        }
        Value::Object(members) => {
            let decoded: Vec<Option<Value>> = members.values().map(unescaped).collect();
            let any = decoded.iter().any(Option::is_some);
            let pairs = members.iter().zip(decoded);
            let pairs = pairs.map(|((name, old), new)| (name.clone(), new.unwrap_or_else(|| old.clone())));
            any.then(|| Value::Object(pairs.collect()))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Replaces every `\uXXXX` in a text by the character, including surrogate pairs.
fn decoded(text: &str) -> Option<String> {
    let unit = |rest: &str| {
        let digits = rest.strip_prefix("\\u")?.get(..4)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
    };
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find("\\u") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut units = Vec::new();
        while let Some(next) = unit(rest) {
            units.push(next);
            rest = &rest[6..];
        }
        if units.is_empty() {
            out.push_str(&rest[..2]);
            rest = &rest[2..];
        } else {
            found = true;
            out.push_str(&String::from_utf16_lossy(&units));
        }
    }
    out.push_str(rest);
    found.then_some(out)
}

/// A number or boolean that is written as a string.
fn scalar(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_))) => Some(value),
        Ok(_) | Err(_) => None,
    }
}

/// How many `cd … &&` of a command are tried.
const CD_MAX: usize = 4;

fn command_forms(command: &str) -> Vec<String> {
    let mut out = vec![command.to_owned()];
    for (at, _) in command.match_indices("cd /").take(CD_MAX) {
        let (before, rest) = command.split_at(at);
        let Some((cd, after)) = rest.split_once(" && ") else { continue };
        if !cd["cd ".len()..].contains(char::is_whitespace) {
            out.push(format!("{before}{after}"));
        }
    }
    let unescaped: Vec<String> = out.iter().map(|form| form.replace("\\\\;", "\\;")).collect();
    out.extend(unescaped);
    out.remove(0);
    out
}

fn without_line_ends(text: &str) -> String {
    let line = |line: &str| {
        let body = line.trim_end_matches(['\r', '\n']);
        format!("{}{}", body.trim_end(), &line[body.len()..])
    };
    text.split_inclusive('\n').map(line).collect()
}

fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let Some(float) = number.as_f64() else { return };
            // Every integer up to this one is exact as a float.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
            let settled = if float.fract() == 0.0 && float.abs() <= EXACT {
                Some(Number::from(float as i64))
            } else {
                Number::from_f64(float)
            };
            *number = settled.unwrap_or_else(|| number.clone());
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(members) => members.values_mut().for_each(settle_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn accepts(tool: &str, served: Value, shown: Value) -> bool {
        let (Value::Object(served), Value::Object(shown)) = (served, shown) else { panic!("not an object") };
        let (forms, shown) = (input_forms(tool, &served), input_digests(&shown));
        forms.len() == shown.len() && shown.iter().all(|(name, digest)| forms[name].contains(digest))
    }

    #[test]
    fn the_agents_own_rewrites_are_known_and_no_others() {
        let bash = |served: &str, shown: &str| {
            accepts(
                "Bash",
                json!({"command": served, "timeout": 1e3}),
                json!({"command": shown, "timeout": 1000}),
            )
        };
        assert!(bash("cd /workspace && echo hi", "echo hi"));
        assert!(bash("find . -exec ls {} \\\\;", "find . -exec ls {} \\;"));
        assert!(bash("cd /w && find . \\\\;", "find . \\;"));
        assert!(!bash("cd /workspace && echo hi", "cd /other && echo hi"));
        assert!(!bash("echo hi", "echo hi "));
        assert!(!bash("cd /w && echo hi", "hi"));
        assert!(bash("printf '\\u00e9\\ud83d\\ude00 \\u12'", "printf 'é😀 \\u12'"));
        assert!(!bash("printf '\\u00e9'", "printf 'e'"));
        assert!(accepts("Write", json!({"content": "x  \n\ty \r\nz"}), json!({"content": "x\n\ty\r\nz"})));
        assert!(!accepts("Write", json!({"content": "x\n"}), json!({"content": "y\n"})));
        let edit = json!({"old_string": "a", "new_string": "b  "});
        assert!(accepts(
            "Edit",
            edit.clone(),
            json!({"old_string": "a", "new_string": "b", "replace_all": false})
        ));
        assert!(!accepts("Edit", edit, json!({"old_string": "a", "new_string": "b", "replace_all": true})));
        assert!(accepts("Any", json!({"n": "5", "b": "true"}), json!({"n": 5, "b": true})));
        assert!(!accepts("Any", json!({"n": "5"}), json!({"n": 6})));
        assert!(!accepts("Any", json!({"n": 1}), json!({})));
    }

    #[test]
    fn reminders_are_taken_out_of_results() {
        assert_eq!(without_reminders("a"), None);
        assert_eq!(without_reminders("a<system-reminder>x</system-reminder>b").as_deref(), Some("ab"));
        assert_eq!(without_reminders("a<system-reminder>x"), None);
        assert_eq!(text_digest(" a\n"), text_digest("a"));
        assert_ne!(text_digest("a"), text_digest("b"));
    }
}
