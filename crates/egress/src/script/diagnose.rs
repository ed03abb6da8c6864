//! Everything that is wrong with a script file, each fault with its place.

use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, Value, titled};

use super::format::{SCRIPT_VERSION, Script};
use super::parse::ParseScriptError;
use super::spec::ScriptSpec;

impl Script {
    /// Reads a script from its text and the tree of that text. `None` after a fault.
    pub fn decode(json: &str, root: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        if let Some(found) = newer(root) {
            let fault = Fault::new(format!(
                "script version {found} is not supported; this build reads version {SCRIPT_VERSION}"
            ));
            return faults.invalid(root.nearest_to("version"), fault);
        }
        faults.whole(|faults| ScriptSpec::decode(root, faults))?;
        let error = match Self::parse(json.as_bytes()) {
            Ok(script) => return Some(script),
            Err(error) => error,
        };
        match error {
            ParseScriptError::Faults(found) => {
                for fault in found.0 {
                    let node = root.nearest_to(&fault.at);
                    faults.push("invalid-value", &node.span, Fault::new(fault.problem));
                }
                None
            }
            // The definition of the keys accepts what the reader does not; what the reader says is reported.
            other @ (ParseScriptError::Version { .. } | ParseScriptError::Shape { .. }) => {
                let mut message = other.to_string();
                if let ParseScriptError::Shape { cause, .. } = &other {
                    message.push_str(&format!(": {cause}"));
                }
                faults.invalid(root, Fault::new(message))
            }
        }
    }
}

/// The JSON Schema of a script.
#[must_use]
pub fn script_schema() -> Value {
    titled("belljar script", ScriptSpec::schema())
}

/// The version of a script that a newer belljar wrote: its other keys may be unknown here.
fn newer(root: &Node) -> Option<i64> {
    match root.nearest_to("version").kind {
        Kind::Integer(found) if u64::try_from(found) != Ok(SCRIPT_VERSION) => Some(found),
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Table(_)
        | Kind::Foreign(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A script with every key of the format.
    fn full() -> Value {
        json!({
            "$schema": "script.schema.json",
            "version": 1,
            "note": "all of it",
            "side_requests": "take_turns",
            "when_exhausted": {"reply": "done"},
            "turns": [
                {
                    "note": "the first",
                    "when": {
                        "last_message_contains": "README",
                        "model_contains": "opus",
                        "tools": "present",
                        "sender": "sub_agent",
                    },
                    "delay_ms": 5,
                    "answer": {"reply": {
                        "content": [
                            {"thinking": {"text": "hm", "signature": "c2ln"}},
                            {"text": "one"},
                            {"tool_use": {"name": "Bash", "input": {"command": "ls"}, "id": "toolu_1"}},
                        ],
                        "stop_reason": "max_tokens",
                        "usage": {
                            "input_tokens": 1,
                            "output_tokens": 2,
                            "cache_creation_input_tokens": 3,
                            "cache_read_input_tokens": 4,
                        },
                        "model": "mine",
                        "pause_ms": 1,
                        "delta_chars": 3,
                        "cut": {"after_events": 4, "end": "end_of_body"},
                    }},
                },
                {"answer": {"error": {
                    "status": 529, "type": "overloaded_error", "message": "m", "headers": {"retry-after": "1"},
                }}},
                {"answer": "hang_up"},
            ],
        })
    }

    fn decoded(value: &Value) -> (Option<Script>, Vec<(String, String)>) {
        let text = value.to_string();
        let root = Node::of_value(value);
        let mut faults = Faults::new(0, "");
        let script = Script::decode(&text, &root, &mut faults);
        let place = |fault: &belljar_contract::Diagnostic| {
            let span = fault.label.as_ref().map(|label| label.span.clone()).unwrap_or_default();
            (root.pointer(&span).unwrap_or_default(), fault.message.clone())
        };
        (script, faults.list.iter().map(place).collect())
    }

    fn keys(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    out.push(key.clone());
                    keys(value, out);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, out)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The names of properties anywhere in a schema.
    fn properties(schema: &Value, out: &mut Vec<String>) {
        if let Some(members) = schema["properties"].as_object() {
            out.extend(members.keys().cloned());
        }
        match schema {
            Value::Object(members) => members.values().for_each(|value| properties(value, out)),
            Value::Array(items) => items.iter().for_each(|item| properties(item, out)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_key_of_the_types_is_in_the_schema_and_the_other_way_round() {
        let script = decoded(&full()).0.unwrap();
        let (mut written, mut known) = (Vec::new(), Vec::new());
        keys(&serde_json::to_value(&script).unwrap(), &mut written);
        properties(&script_schema(), &mut known);
        // Names that a script chooses itself.
        written.retain(|key| !["command", "retry-after"].contains(&key.as_str()));
        for list in [&mut written, &mut known] {
            list.sort();
            list.dedup();
        }
        assert_eq!(written, known);
    }

    #[test]
    fn a_script_that_was_written_by_a_program_is_accepted() {
        let script = decoded(&full()).0.unwrap();
        let written = serde_json::to_value(&script).unwrap();
        assert_eq!(decoded(&written), (Some(script), Vec::new()));
        let plain = serde_json::to_value(Script::new()).unwrap();
        assert_eq!(decoded(&plain).1, []);
    }

    #[test]
    fn all_faults_are_reported_together_with_their_places() {
        let mut value = full();
        value["turns"][0]["wen"] = json!({});
        value["turns"][0]["when"]["tools"] = json!("presnt");
        value["turns"][0]["answer"]["reply"]["content"][1] = json!({"txt": "one"});
        value["turns"][0]["answer"]["reply"]["content"][2]["tool_use"]["input"] = json!("ls");
        value["turns"][1]["answer"]["error"]["status"] = json!(200);
        value["turns"][2]["answer"] = json!("hangup");
        value["when_exhausted"] = json!({"reply": "x", "error": 1});
        let places: Vec<String> = decoded(&value).1.into_iter().map(|(place, _)| place).collect();
        assert_eq!(
            places,
            [
                "/turns/0/wen",
                "/turns/0/when/tools",
                "/turns/0/answer/reply/content/1/txt",
                "/turns/0/answer/reply/content/2/tool_use/input",
                "/turns/1/answer/error/status",
                "/turns/2/answer",
                "/when_exhausted/error",
            ]
        );
    }

    #[test]
    fn what_only_the_player_refuses_has_a_place() {
        let mut value = full();
        value["turns"][1]["answer"]["error"]["headers"] = json!({"content-length": "1", "x.y": "a\nb"});
        value["turns"][2]["answer"] =
            json!({"reply": {"content": [{"tool_use": {"name": "Bash", "input": {}, "id": "toolu_1"}}]}});
        let places: Vec<String> = decoded(&value).1.into_iter().map(|(place, _)| place).collect();
        assert_eq!(
            places,
            [
                "/turns/1/answer/error/headers/content-length",
                "/turns/1/answer/error/headers/x.y",
                "/turns/2/answer/reply/content/0/tool_use/id",
            ]
        );
        let (_, newer) = decoded(&json!({"version": 2, "rounds": []}));
        assert_eq!(newer.len(), 1);
        assert_eq!(newer[0].0, "/version");
    }

    /// All values of a document, to be replaced one at a time.
    fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
        out.push(at.to_owned());
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), out));
            }
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at_item, item)| pointers(item, &format!("{at}/{at_item}"), out));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn replacement() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..700_000).prop_map(Value::from),
            Just(json!(1.5)),
            "[a-z_]{0,8}".prop_map(Value::from),
            Just(json!([])),
            Just(json!({})),
            Just(json!({"reply": "x"})),
            Just(json!({"text": "x"})),
            Just(json!("hang_up")),
        ]
    }

    proptest! {
        /// A script that cannot be read has a fault with a place, and a script without one can be read.
        #[test]
        fn a_broken_script_always_has_a_fault(
            changes in prop::collection::vec((any::<prop::sample::Index>(), replacement()), 1..4),
        ) {
            let mut value = full();
            for (which, replacement) in changes {
                let mut all = Vec::new();
                pointers(&value, "", &mut all);
                let at = which.get(&all).clone();
                if let Some(place) = value.pointer_mut(&at) {
                    *place = replacement;
                }
            }
            let read = Script::parse(value.to_string().as_bytes());
            let (script, faults) = decoded(&value);
            prop_assert_eq!(script.is_some(), faults.is_empty());
            match (read, script) {
                (Ok(read), Some(script)) => prop_assert_eq!(read, script),
                (Err(_), found) => prop_assert!(found.is_none()),
                // `serde` takes a list for a table without required keys.
                (Ok(_), None) => {}
            }
        }
    }
}
