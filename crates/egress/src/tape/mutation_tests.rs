//! No change of the user's side matches on another version of the agent.
//!
//! The conversations are those that both versions of the real agent had (`fixtures/conversations`, written by the tests of the
//! binary) and those of the oldest stored tapes. One part after the other is changed, and the request must match none of the
//! recorded ones. What is not changed is listed here.

use super::agent_differences::AgentDifferences;
use super::owned::{OwnedParts, Parameter};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Digests of the agent's own texts.
const MARK: (&str, char) = ("<agent's words: ", '>');
/// How many places of a text are changed.
const PLACES: usize = 60;

/// Tools of the agent that only confirm what they did; what they did is judged in the workspace.
const CONFIRM: [&str; 5] = ["Edit", "Skill", "TaskCreate", "TodoWrite", "Write"];

/// What servers, hooks and sub-agents say, where the agent has other words around it.
const SAID: [&str; 6] = [
    "noted fail",
    "hook.sh]: not here",
    "not wise",
    "Told to count the files:",
    "Told to count the lines:",
    "  3",
];

type Conversations = BTreeMap<String, Vec<Value>>;

fn conversations(version: &str) -> Conversations {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/conversations/{version}.json"));
    let lines: Vec<(String, String, Value)> =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut out = Conversations::new();
    for (shape, _, request) in lines {
        out.entry(shape).or_default().push(request);
    }
    out
}

/// The requests of the oldest stored tapes.
fn museum() -> Conversations {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/museum");
    let tape = |name: &str| -> PathBuf { directory.join(name).join(format!("{name}.tape")) };
    let of = |name: &str| {
        let exchanges = fs::read_to_string(tape(name).join("exchanges.jsonl")).unwrap();
        let request = |line: &str| {
            let exchange: Value = serde_json::from_str(line).unwrap();
            let digest = exchange["request"]["body"]["digest"].as_str().unwrap();
            let body = tape(name).join("bodies").join(digest.strip_prefix("sha256:").unwrap());
            serde_json::from_str(&fs::read_to_string(body).unwrap()).unwrap()
        };
        (name.to_owned(), exchanges.lines().map(request).collect())
    };
    ["changelog", "forecast", "report"].into_iter().map(of).collect()
}

/// A request as a version that words everything of its own otherwise would make it.
fn reworded(mut request: Value) -> Value {
    let other = |text: &str| json!(format!("<agent's words: sha256:{} {}>", "0".repeat(64), text.len()));
    request["system"] = other("You are another agent");
    request["max_tokens"] = json!(1);
    for tool in request["tools"].as_array_mut().unwrap() {
        if let Some(definition) = tool.get_mut("definition") {
            *definition = other("a definition");
        }
    }
    let reminder = json!({"role": "system", "content": other("be brief")});
    request["messages"].as_array_mut().unwrap().push(reminder);
    request
}

/// One change of a request.
struct Change {
    what: String,
    request: Value,
}

/// Every place of a document below one place, with its own value.
fn places(value: &Value, at: &str, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            places(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), out);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(number, item)| places(item, &format!("{at}/{number}"), out));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    out.push((at.to_owned(), value.clone()));
}

/// The tool of a call.
fn tool_of<'r>(request: &'r Value, id: &str) -> &'r str {
    let messages = request["messages"].as_array().unwrap().iter();
    let mut blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    blocks.find(|block| block["id"] == id).and_then(|block| block["name"].as_str()).unwrap_or_default()
}

/// The block of a message that a place is in; null elsewhere.
fn block_at<'r>(request: &'r Value, pointer: &str) -> (&'r Value, &'r Value) {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<usize>().ok());
    let ["messages", ..] = parts[..] else { return (&Value::Null, &Value::Null) };
    let message = number(1).map_or(&Value::Null, |at| &request["messages"][at]);
    (message, number(3).map_or(&Value::Null, |at| &message["content"][at]))
}

/// Whether a place is in a result that the agent frames with words of its own.
fn is_framed(request: &Value, block: &Value) -> bool {
    let said = block["content"].to_string();
    let words = said.contains("PreToolUse:") || said.contains("input schema was not in your prompt");
    block["type"] == "tool_result"
        && (tool_of(request, block["tool_use_id"].as_str().unwrap()) == "Agent"
            || block["is_error"] == true && words)
}

/// The parts of a text that are the user's, as ranges of bytes.
fn owned_ranges(request: &Value, pointer: &str, text: &str) -> Vec<(usize, usize)> {
    let (message, block) = block_at(request, pointer);
    let whole = || vec![(0, text.len())];
    if block["type"] != "tool_result" {
        // Who sends calls, results and words of the agent is fixed.
        let fixed = |block: &Value| {
            ["tool_use", "tool_result", "thinking"].iter().any(|kind| block["type"] == *kind)
                || only_marks(block)
        };
        let only_fixed = |blocks: &Vec<Value>| blocks.iter().all(fixed);
        let is_fixed = || only_marks(message) || message["content"].as_array().is_some_and(only_fixed);
        if pointer.ends_with("/role") && is_fixed() {
            return Vec::new();
        }
        // Digests stand for the agent's texts.
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(from) = text[at..].find(MARK.0).map(|found| at + found) {
            out.push((at, from));
            at = from + text[from..].find(MARK.1).unwrap() + 1;
        }
        out.push((at, text.len()));
        return out;
    }
    if pointer.split('/').nth(5) != Some("content") {
        return whole();
    }
    let failed = block["is_error"] == true;
    match tool_of(request, block["tool_use_id"].as_str().unwrap()) {
        _ if is_framed(request, block) => {
            SAID.iter().filter_map(|said| text.find(said).map(|at| (at, at + said.len()))).collect()
        }
        "AskUserQuestion" if !failed => match (text.find('"'), text.rfind('"')) {
            (Some(first), Some(last)) => vec![(first + 1, last + 1)],
            _ => whole(),
        },
        tool if CONFIRM.contains(&tool) && !failed => Vec::new(),
        _ => whole(),
    }
}

/// A text with one character replaced, inserted or removed, at many places of a range.
fn changed_texts(text: &str, (from, to): (usize, usize)) -> Vec<String> {
    let starts: Vec<usize> = (from..to).filter(|at| text.is_char_boundary(*at)).collect();
    let step = starts.len().div_ceil(PLACES).max(1);
    let mut out = Vec::new();
    for at in starts.iter().step_by(step).chain(starts.last()) {
        let next = at + text[*at..].chars().next().unwrap().len_utf8();
        let fresh = if &text[*at..next] == "x" { "y" } else { "x" };
        out.push(format!("{}{fresh}{}", &text[..*at], &text[next..]));
        out.push(format!("{}{fresh}{}", &text[..*at], &text[*at..]));
        if !text[*at..next].trim().is_empty() {
            out.push(format!("{}{}", &text[..*at], &text[next..]));
        }
    }
    out
}

/// Whether a place is compared. Messages of the agent and thoughts are not.
fn is_compared(request: &Value, pointer: &str) -> bool {
    let (message, block) = block_at(request, pointer);
    message["role"] != "system" && block["type"] != "thinking"
}

/// Every change of the user's side of a request.
fn changes(request: &Value, recorded: &[Value]) -> Vec<Change> {
    let mut out = Vec::new();
    let mut add = |what: String, pointer: &str, value: Value| {
        let mut other = request.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        out.push(Change { what, request: other });
    };
    let mut found = Vec::new();
    places(&request["messages"], "/messages", &mut found);
    for (at, tool) in request["tools"].as_array().unwrap().iter().enumerate() {
        // Where the other version looks tools up, only their names are known.
        let offers =
            |other: &Value| other["tools"].as_array().unwrap().iter().any(|one| one["name"] == tool["name"]);
        if tool["name"].as_str().unwrap().starts_with("mcp__") && recorded.iter().all(offers) {
            places(tool, &format!("/tools/{at}"), &mut found);
        }
    }
    for (pointer, value) in &found {
        if pointer.starts_with("/messages") && !is_compared(request, pointer) {
            continue;
        }
        match value {
            Value::String(text) => {
                for range in owned_ranges(request, pointer, text) {
                    for fresh in changed_texts(text, range) {
                        add(format!("{pointer}: {fresh:.200}"), pointer, json!(fresh));
                    }
                }
            }
            Value::Bool(value) => add(format!("{pointer}: {}", !value), pointer, json!(!value)),
            Value::Number(_) | Value::Null => add(format!("{pointer}: a text"), pointer, json!("x")),
            Value::Object(_) => {}
            Value::Array(items) => {
                for at in 0..items.len() {
                    let is_owned = |item: &Value| {
                        item["role"] != "system" && item["type"] != "thinking" && !only_marks(item)
                    };
                    // Blocks of the agent's own words around a result are not the user's.
                    if is_framed(request, block_at(request, pointer).1) || !is_owned(&items[at]) {
                        continue;
                    }
                    let mut without = items.clone();
                    without.remove(at);
                    add(format!("{pointer}: without {at}"), pointer, json!(without));
                    let mut twice = items.clone();
                    twice.insert(at, items[at].clone());
                    add(format!("{pointer}: {at} twice"), pointer, json!(twice));
                    if at > 0 && is_owned(&items[at - 1]) && items[at] != items[at - 1] {
                        let mut swapped = items.clone();
                        swapped.swap(at - 1, at);
                        add(format!("{pointer}: {at} earlier"), pointer, json!(swapped));
                    }
                }
            }
        }
        if pointer.ends_with("/input") {
            let mut more = value.clone();
            more["further"] = json!(1);
            add(format!("{pointer}: one more"), pointer, more);
        }
    }
    out
}

/// Whether a block or message has nothing but digests of the agent's texts.
fn only_marks(item: &Value) -> bool {
    let empty = |text: &str| {
        let (before, marks) = text.split_once(MARK.0).unwrap_or((text, ""));
        let blank = |mark: &str| mark.split_once(MARK.1).is_some_and(|(_, after)| after.trim().is_empty());
        before.trim().is_empty() && marks.split(MARK.0).all(blank)
    };
    match (&item["text"], &item["content"]) {
        (Value::String(text), _) | (_, Value::String(text)) => empty(text),
        (_, Value::Array(blocks)) => blocks.iter().all(|block| block["text"].as_str().is_some_and(empty)),
        _ => false,
    }
}

/// The parts of the user's side, with the parameter that belljar always chooses.
fn of(request: &Value) -> OwnedParts {
    OwnedParts::of(request, &[Parameter::Effort].into())
}

/// Changes each part of the present requests; what matches a recorded one all the same.
fn unnoticed(name: &str, recorded: &[Value], present: &[Value]) -> (usize, Vec<String>) {
    let own: Vec<OwnedParts> = recorded.iter().map(of).collect();
    let (mut tried, mut out) = (0, Vec::new());
    for request in present {
        let now = of(request);
        assert!(own.iter().any(|one| one.matches(&now)), "{name}: {}", differing(&own, &now));
        for Change { what, request } in changes(request, recorded) {
            tried += 1;
            let changed = of(&request);
            if own.iter().any(|one| one.matches(&changed)) {
                out.push(format!("{name}: {what}"));
            }
        }
    }
    (tried, out)
}

fn differing(own: &[OwnedParts], now: &OwnedParts) -> String {
    let texts = own.iter().map(|one| format!("{:?}", one.differing(now)));
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn no_change_of_a_stored_tape_matches() {
    let (mut tried, mut unseen) = (0, Vec::new());
    for (name, requests) in museum() {
        let present: Vec<Value> = requests.iter().cloned().map(reworded).collect();
        let (count, found) = unnoticed(&name, &requests, &present);
        tried += count;
        unseen.extend(found);
    }
    assert!(unseen.is_empty(), "{} of {tried}:\n{}", unseen.len(), unseen.join("\n"));
    assert!(tried > 3_000, "{tried}");
}

/// Both versions, each as the recorded one.
fn directions() -> [(Conversations, Conversations); 2] {
    let both = || VERSIONS.map(conversations);
    let ([first, second], [third, fourth]) = (both(), both());
    [(first, second), (fourth, third)]
}

const VERSIONS: [&str; 2] = [belljar_testkit::agent::OLDER_VERSION, belljar_testkit::agent::VERSION];

#[test]
fn no_change_of_a_conversation_matches_on_the_other_version() {
    let (mut tried, mut unseen) = (0, Vec::new());
    for (recorded, present) in directions() {
        for (name, requests) in &present {
            let (count, found) = unnoticed(name, &recorded[name], requests);
            tried += count;
            unseen.extend(found);
        }
    }
    assert!(unseen.is_empty(), "{} of {tried}:\n{}", unseen.len(), unseen.join("\n"));
    assert!(tried > 20_000, "{tried}");
}

#[test]
fn other_words_around_a_result_are_listed() {
    let [(recorded, present), _] = directions();
    for (name, tools) in [
        ("a server's tool that fails", "mcp__notes__add"),
        ("a hook that blocks", "Bash"),
        ("a hook that refuses with a reason", "Bash"),
        ("a sub-agent in the foreground", "Agent"),
    ] {
        let mut found = AgentDifferences::default();
        found.add(&recorded[name][0], &present[name][0]);
        assert_eq!(found.results_worded.iter().collect::<Vec<_>>(), [tools], "{name}: {found:?}");
        assert!(found.lines().contains(&format!("results worded otherwise: {tools}")), "{name}");
    }
}
