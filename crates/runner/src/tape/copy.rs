//! Prepares the files of a run's directory for a tape: without paths of the machine, without the descriptions in the
//! agent's greeting, and without what the agent repeats of a tool's result.

use super::facts::TapeFacts;
use belljar_contract::{AbsPath, Event, Logged, Run};
use belljar_sys::regular::open_regular;
use serde_json::{Map, Value, json};
use std::io::{self, Read};

/// The record of a run, without facts about the machine, and with names instead of paths in the plan.
pub(super) fn record(run: &Run, facts: &TapeFacts) -> Run {
    let mut run = run.clone();
    run.head.host.clear();
    run.head.plan = facts.plan.clone();
    run.head.plan_digest = facts.plan_digest();
    for record in &mut run.events {
        if let Logged::Known(Event::RunStarted { plan, .. }) = &mut record.event {
            *plan = facts.plan_digest();
        }
    }
    run
}

/// The frames of a run.
pub(super) fn frames(path: &AbsPath) -> io::Result<String> {
    let mut text = String::new();
    match open_regular(path.as_path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => drop(file?.read_to_string(&mut text)?),
    }
    let line = |line: &str| match serde_json::from_str(line) {
        Ok(mut value) => {
            shorten_greeting(&mut value);
            drop_repetition(&mut value);
            format!("{value}\n")
        }
        Err(_) => format!("{line}\n"),
    };
    Ok(text.lines().map(line).collect())
}

/// Removes the long descriptions and the user's account from the agent's greeting; only names are kept.
fn shorten_greeting(line: &mut Value) {
    let Some(body) =
        line.pointer_mut("/frame/response/response").filter(|body| body.get("commands").is_some())
    else {
        return;
    };
    let names = |list: &Value| -> Vec<Value> {
        let one = |item: &Value| {
            let name = ["name", "value"].into_iter().find_map(|key| Some((key, item.get(key)?)));
            name.map(|(key, name)| json!({key: name}))
        };
        list.as_array().into_iter().flatten().filter_map(one).collect()
    };
    let kept = ["commands", "models", "agents"].into_iter();
    let kept: Map<String, Value> =
        kept.filter_map(|key| Some((key.to_owned(), Value::from(names(body.get(key)?))))).collect();
    *body = Value::Object(kept);
}

/// Removes the agent's own form of a tool's result, which nothing reads: the result is in the message of the same frame,
/// and would take the same space twice.
fn drop_repetition(line: &mut Value) {
    let results = line.pointer("/frame/message/content").and_then(Value::as_array).into_iter().flatten();
    let is_in_message = results.into_iter().any(|block| block["type"] == "tool_result");
    if let Some(frame) = line.get_mut("frame").and_then(Value::as_object_mut).filter(|_| is_in_message) {
        frame.shift_remove("tool_use_result");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_greeting_the_names_are_kept() {
        let mut line = json!({"frame": {"type": "control_response", "response": {"response": {
            "commands": [{"name": "init", "description": "at length"}],
            "models": [{"value": "default", "description": "at length"}],
            "account": {"email": "maria"}, "pid": 2,
        }}}});
        shorten_greeting(&mut line);
        let kept = json!({"commands": [{"name": "init"}], "models": [{"value": "default"}]});
        assert_eq!(line["frame"]["response"]["response"], kept);
        let mut other = json!({"frame": {"response": {"response": {"behavior": "allow"}}}});
        let same = other.clone();
        shorten_greeting(&mut other);
        assert_eq!(other, same);
    }

    #[test]
    fn a_result_is_kept_once() {
        let content = json!([{"type": "tool_result", "tool_use_id": "t", "content": "out"}]);
        let mut line = json!({"way": "in", "frame": {"type": "user", "message": {"content": content},
            "tool_use_result": {"stdout": "out"}, "uuid": "u"}});
        drop_repetition(&mut line);
        let kept = json!({"type": "user", "message": {"content": content}, "uuid": "u"});
        assert_eq!(line["frame"].to_string(), kept.to_string());
        let mut other = json!({"frame": {"type": "user", "tool_use_result": {"stdout": "out"}}});
        let same = other.clone();
        drop_repetition(&mut other);
        assert_eq!(other, same, "it is not there twice");
    }
}
