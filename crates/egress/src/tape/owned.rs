//! Which parts of a request belong to the user's side, and which to the agent.
//!
//! The prompt, the model's calls, the results of tools, the answers to questions and the tools of declared servers are the
//! user's side. The system prompt, reminders, the definitions of the agent's own tools and the parameters of the request
//! belong to the agent: another version of it may send others. Across versions a request matches if every part of the
//! user's side is the same; what differs on the agent's side is listed.

use super::agent_texts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Tools of MCP servers that the user declared.
const SERVER_TOOL: &str = "mcp__";
/// How many characters of a parameter are shown.
const PARAMETER_SHOWN: usize = 80;

/// The agent's own tools that answer with a sentence of the agent about what it did. What they did is in the workspace
/// and is judged there; whether they failed is compared.
const CONFIRMS: [&str; 9] = [
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "Skill",
    "TaskCreate",
    "TaskList",
    "TaskUpdate",
    "TodoWrite",
    "Write",
];

/// The agent's tool that asks the user. Its result is a sentence of the agent around quoted questions and answers.
const ASKS: &str = "AskUserQuestion";

/// The agent's tool that looks other tools up. An agent that offers it may leave tools out of its requests.
const LOOKS_UP: &str = "ToolSearch";

/// The parts of a request that belong to the user's side.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnedParts {
    /// Texts, calls and results, in their order.
    pub parts: Vec<OwnedPart>,
    /// Tools of declared servers, by name.
    tools: BTreeMap<String, OwnedPart>,
    lookup: Lookup,
}

/// Whether the agent may have left tools of servers out of a request, to look them up when they are needed.
#[derive(Debug, Clone, Default)]
enum Lookup {
    #[default]
    None,
    /// It names those that it left out in this text.
    Named(String),
    /// A tape has no text of the agent, so that it is not known which.
    Unknown,
}

#[derive(Debug, Clone)]
pub(super) struct OwnedPart {
    pub value: Value,
    /// Its place in the request.
    pub pointer: String,
}

/// The place is not compared: reminders move it.
impl PartialEq for OwnedPart {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl OwnedParts {
    /// Reads a present request; `readable` is the same with the agent's own texts.
    pub fn of_present(request: &Value, readable: &Value) -> Self {
        let mut own = Self::of(request);
        if matches!(own.lookup, Lookup::Unknown) {
            own.lookup = Lookup::Named(readable.to_string());
        }
        own
    }

    /// Reads a recorded request.
    pub fn of(request: &Value) -> Self {
        let offered = || request.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
        let own = offered().filter(|(_, tool)| name(tool).starts_with(SERVER_TOOL)).map(|(at, tool)| {
            let part = OwnedPart { value: json!({"tool": tool}), pointer: format!("/tools/{at}") };
            (name(tool).to_owned(), part)
        });
        let calls = calls(request);
        let mut parts = Vec::new();
        for (at, message) in messages(request).iter().enumerate() {
            read_message(message, &format!("/messages/{at}"), &calls, &mut parts);
        }
        let looks_up = offered().any(|(_, tool)| name(tool) == LOOKS_UP);
        let lookup = if looks_up { Lookup::Unknown } else { Lookup::None };
        Self { parts, tools: own.collect(), lookup }
    }

    /// Reads the first message that is not the agent's.
    pub fn first_message(request: &Value) -> Self {
        let mut parts = Vec::new();
        for (at, message) in messages(request).iter().enumerate() {
            read_message(message, &format!("/messages/{at}"), &BTreeMap::new(), &mut parts);
            if !parts.is_empty() {
                break;
            }
        }
        Self { parts, ..Self::default() }
    }

    /// Whether every part is the same. A tool that one side does not have may have been left out by the agent there.
    pub fn matches(&self, present: &Self) -> bool {
        self.differing(present).is_empty()
    }

    /// The parts that differ, as pairs of the recorded and the present one.
    pub fn differing<'a>(&'a self, present: &'a Self) -> Vec<(Option<&'a OwnedPart>, Option<&'a OwnedPart>)> {
        let names: BTreeSet<&String> = self.tools.keys().chain(present.tools.keys()).collect();
        let tools = names.into_iter().filter_map(|name| {
            let pair = (self.tools.get(name), present.tools.get(name));
            let differs = match pair {
                (Some(recorded), Some(now)) => recorded != now,
                (Some(_), None) => !present.may_lack(name),
                (None, Some(_)) => !self.may_lack(name),
                (None, None) => false,
            };
            differs.then_some(pair)
        });
        let both = (0..self.parts.len().max(present.parts.len()))
            .map(|at| (self.parts.get(at), present.parts.get(at)));
        tools.chain(both.filter(|(recorded, present)| recorded != present)).collect()
    }

    /// Whether a tool that the request does not have can be there all the same.
    fn may_lack(&self, tool: &str) -> bool {
        match &self.lookup {
            Lookup::None => false,
            Lookup::Named(text) => text.contains(tool),
            Lookup::Unknown => true,
        }
    }

    /// The texts, calls and results as one document.
    pub fn document(&self) -> Value {
        document(&self.parts)
    }
}

fn document(parts: &[OwnedPart]) -> Value {
    Value::Array(parts.iter().map(|part| part.value.clone()).collect())
}

fn messages(request: &Value) -> &[Value] {
    request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn name(of: &Value) -> &str {
    of.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The names of the tools that were called, by the ids of the calls.
fn calls(request: &Value) -> BTreeMap<&str, &str> {
    let blocks = messages(request).iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    blocks
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_use"))
        .filter_map(|block| Some((block.get("id")?.as_str()?, name(block))))
        .collect()
}

fn read_message(message: &Value, at: &str, calls: &BTreeMap<&str, &str>, own: &mut Vec<OwnedPart>) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    // Messages in the role of the system are the agent's reminders.
    if role == "system" {
        return;
    }
    match message.get("content") {
        Some(Value::Array(blocks)) => {
            for (block_at, block) in blocks.iter().enumerate() {
                read_block(role, block, format!("{at}/content/{block_at}"), calls, own);
            }
        }
        Some(Value::String(text)) => push_text(role, text, format!("{at}/content"), own),
        Some(other) => own.push(OwnedPart {
            value: json!({"role": role, "content": other}),
            pointer: format!("{at}/content"),
        }),
        None => {}
    }
}

fn read_block(
    role: &str,
    block: &Value,
    pointer: String,
    calls: &BTreeMap<&str, &str>,
    own: &mut Vec<OwnedPart>,
) {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    let value = match kind {
        "text" => {
            let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
            return push_text(role, text, format!("{pointer}/text"), own);
        }
        // Whether thoughts are sent back is the agent's choice.
        "thinking" | "redacted_thinking" => return,
        "tool_use" => json!({"call": block["id"], "name": block["name"], "input": block["input"]}),
        "tool_result" => result(block, calls),
        _ => json!({"role": role, "block": block}),
    };
    own.push(OwnedPart { value, pointer });
}

/// The role of what tools return.
const TOOL: &str = "tool";

/// Texts of one role that follow each other are one: versions of the agent divide them differently. A reminder in the
/// result of a tool is compared, because the tool may have written it; so is white space there.
fn push_text(role: &str, text: &str, pointer: String, own: &mut Vec<OwnedPart>) {
    let without = agent_texts::without_marks(text);
    let text = match role {
        TOOL => text,
        _ => without.as_deref().unwrap_or(text).trim(),
    };
    if text.is_empty() {
        return;
    }
    let before = own.last_mut().filter(|part| part.value["role"] == role);
    if let Some(Value::String(before)) = before.and_then(|part| part.value.get_mut("text")) {
        before.push('\n');
        before.push_str(text);
        return;
    }
    own.push(OwnedPart { value: json!({"role": role, "text": text}), pointer });
}

fn result(block: &Value, calls: &BTreeMap<&str, &str>) -> Value {
    let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
    let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
    let tool = calls.get(id).copied().unwrap_or_default();
    if CONFIRMS.contains(&tool) && !failed {
        return json!({"result": id, "error": failed});
    }
    let quoted = block.get("content").and_then(Value::as_str).and_then(quoted);
    if let Some(quoted) = quoted.filter(|_| tool == ASKS && !failed) {
        return json!({"result": id, "error": failed, "answers": quoted});
    }
    let mut content = Vec::new();
    match block.get("content") {
        Some(Value::Array(blocks)) => {
            for (at, inner) in blocks.iter().enumerate() {
                read_block(TOOL, inner, at.to_string(), &BTreeMap::new(), &mut content);
            }
        }
        Some(Value::String(text)) => push_text(TOOL, text, String::new(), &mut content),
        Some(other) => content.push(OwnedPart { value: other.clone(), pointer: String::new() }),
        None => {}
    }
    json!({"result": id, "error": failed, "content": document(&content)})
}

/// A text from its first to its last quotation mark.
fn quoted(text: &str) -> Option<&str> {
    let (first, last) = (text.find('"')?, text.rfind('"')?);
    (first < last).then(|| &text[first..=last])
}

/// What another version of the agent sent otherwise, in all requests that matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDifferences {
    pub tools_added: BTreeSet<String>,
    pub tools_removed: BTreeSet<String>,
    /// Tools whose definition is another one.
    pub tools_changed: BTreeSet<String>,
    /// Members of the request, each with the recorded and the present value.
    pub parameters: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Characters of the system prompt, recorded and present; the largest of all requests.
    pub system_prompt: Option<(usize, usize)>,
    /// Characters of the reminders, recorded and present; the largest of all requests.
    pub reminders: Option<(usize, usize)>,
}

impl AgentDifferences {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The differences, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let Self { tools_added, tools_removed, tools_changed, parameters, system_prompt, reminders } = self;
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut out = Vec::new();
        for (what, names) in
            [("added", tools_added), ("removed", tools_removed), ("defined otherwise", tools_changed)]
        {
            if !names.is_empty() {
                out.push(format!("tools {what}: {}", list(names)));
            }
        }
        for (name, (recorded, present)) in parameters {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
            out.push(format!("{name}: {} when recorded, now {}", text(recorded), text(present)));
        }
        for (what, sizes) in [("system prompt", system_prompt), ("reminders", reminders)] {
            if let Some((recorded, present)) = sizes {
                out.push(format!("{what}: {recorded} characters when recorded, now {present}"));
            }
        }
        out
    }

    /// Adds what differs between two requests that matched.
    pub(super) fn add(&mut self, recorded: &Value, present: &Value) {
        self.tools(recorded, present);
        self.parameters(recorded, present);
        let larger = |known: &mut Option<(usize, usize)>, found: (usize, usize)| {
            *known = Some(known.map_or(found, |(left, right)| (left.max(found.0), right.max(found.1))));
        };
        let prompt = |of: &Value| of.get("system").map(agent_texts::marked_length).unwrap_or_default();
        if recorded.get("system") != present.get("system") {
            larger(&mut self.system_prompt, (prompt(recorded), prompt(present)));
        }
        let reminders = |of: &Value| of.get("messages").map(agent_texts::marks).unwrap_or_default();
        let (before, now) = (reminders(recorded), reminders(present));
        if before != now {
            let total = |marks: &[(String, usize)]| marks.iter().map(|(_, length)| length).sum();
            larger(&mut self.reminders, (total(&before), total(&now)));
        }
    }

    fn tools(&mut self, recorded: &Value, present: &Value) {
        let tools = |of: &Value| -> BTreeMap<String, Value> {
            let all = of.get("tools").and_then(Value::as_array).into_iter().flatten();
            all.map(|tool| (name(tool).to_owned(), tool.clone())).collect()
        };
        let (before, now) = (tools(recorded), tools(present));
        self.tools_added.extend(now.keys().filter(|name| !before.contains_key(*name)).cloned());
        self.tools_removed.extend(before.keys().filter(|name| !now.contains_key(*name)).cloned());
        let changed = before.iter().filter(|(name, tool)| now.get(*name).is_some_and(|now| now != *tool));
        self.tools_changed.extend(changed.map(|(name, _)| name.clone()));
    }

    fn parameters(&mut self, recorded: &Value, present: &Value) {
        let members = |of: &Value| of.as_object().cloned().unwrap_or_default();
        let (before, now) = (members(recorded), members(present));
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        for name in names.into_iter().filter(|name| !["messages", "system", "tools"].contains(&name.as_str()))
        {
            if before.get(name) != now.get(name) {
                let text = |value: Option<&Value>| {
                    value.map(|value| value.to_string().chars().take(PARAMETER_SHOWN).collect::<String>())
                };
                self.parameters.insert(name.clone(), (text(before.get(name)), text(now.get(name))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: Value) -> Value {
        agent_texts::without(json!({"model": "m", "system": "You are", "messages": messages,
            "tools": [{"name": "Bash", "description": "runs"}, {"name": "mcp__notes__add", "description": "adds"}]}))
    }

    fn called(tool: &str, result: Value) -> Value {
        request(json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": tool, "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": result}]},
        ]))
    }

    #[test]
    fn reminders_move_nothing() {
        let plain = request(json!([{"role": "user", "content": "go"}]));
        for other in [
            json!([{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>\ngo"}]}]),
            json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]),
            json!([{"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "go"}]}]),
        ] {
            assert!(OwnedParts::of(&request(other.clone())).matches(&OwnedParts::of(&plain)), "{other}");
        }
        let text = json!([{"role": "user", "content": "go\nthere"}]);
        let blocks = json!([{"role": "user", "content": [
            {"type": "text", "text": "go"}, {"type": "text", "text": "there"}]}]);
        assert!(OwnedParts::of(&request(text)).matches(&OwnedParts::of(&request(blocks))));
    }

    #[test]
    fn every_part_of_the_users_side_counts() {
        let base = || {
            request(json!([
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "yes"},
                    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]},
                {"role": "user", "content": [{"type": "image", "source": {"data": "AAAA"}}]},
            ]))
        };
        let own = OwnedParts::of(&base());
        for (pointer, value) in [
            ("/messages/0/content", json!("stop")),
            ("/messages/0/role", json!("assistant")),
            ("/messages/1/content/0/text", json!("no")),
            ("/messages/1/content/1/id", json!("t2")),
            ("/messages/1/content/1/name", json!("Read")),
            ("/messages/1/content/1/input/command", json!("y")),
            ("/messages/2/content/0/content", json!("other")),
            ("/messages/2/content/0/tool_use_id", json!("t2")),
            ("/messages/3/content/0/source/data", json!("BBBB")),
            ("/tools/1/description", json!("subtracts")),
            ("/tools/1/name", json!("mcp__notes__remove")),
        ] {
            let mut other = base();
            *other.pointer_mut(pointer).unwrap() = value;
            assert!(!own.matches(&OwnedParts::of(&other)), "{pointer}");
        }
        let mut failed = base();
        failed["messages"][2]["content"][0]["is_error"] = json!(true);
        assert!(!own.matches(&OwnedParts::of(&failed)));
        let mut shorter = base();
        shorter["messages"].as_array_mut().unwrap().pop();
        assert!(!own.matches(&OwnedParts::of(&shorter)));
        let mut without = base();
        without["tools"].as_array_mut().unwrap().pop();
        assert!(!own.matches(&OwnedParts::of(&without)), "a server's tool is gone");
        without["tools"].as_array_mut().unwrap().push(json!({"name": LOOKS_UP}));
        let named = json!({"system": "these are deferred: mcp__notes__add"});
        assert!(own.matches(&OwnedParts::of_present(&without, &named)), "it is looked up when it is needed");
        let silent = json!({"system": "none are deferred"});
        assert!(!own.matches(&OwnedParts::of_present(&without, &silent)), "its server is gone");
    }

    #[test]
    fn what_a_tool_of_the_agent_confirms_is_the_agents_and_its_failure_is_not() {
        let own = |tool: &str, result: &str| OwnedParts::of(&called(tool, json!(result))).parts;
        assert_eq!(own("Write", "File created"), own("Write", "The file was created"));
        assert_ne!(own("Bash", "one"), own("Bash", "two"));
        let reminding = |text: &str| own("Bash", &format!("<system-reminder>{text}</system-reminder>"));
        assert_ne!(own("Bash", "one"), own("Bash", "  one"));
        assert_ne!(reminding("one"), reminding("two"), "a script may write what looks like a reminder");
        assert_ne!(own("mcp__notes__add", "one"), own("mcp__notes__add", "two"));
        let asked =
            |answer: &str, rest: &str| own(ASKS, &format!("Answered: \"Which?\"=\"{answer}\". {rest}"));
        assert_eq!(asked("Red", "Go on."), asked("Red", "Read it."));
        assert_ne!(asked("Red", "Go on."), asked("Blue", "Go on."));
        assert_ne!(own(ASKS, "no answer"), own(ASKS, "none"));
        let mut failed = called("Write", json!("no space"));
        failed["messages"][2]["content"][0]["is_error"] = json!(true);
        assert_ne!(OwnedParts::of(&failed).parts, own("Write", "File created"));
    }

    #[test]
    fn the_agents_side_is_listed() {
        let mut recorded = request(json!([{"role": "user", "content": "go"}]));
        let mut present =
            request(json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]));
        present["model"] = json!("n");
        present["tools"] = json!([{"name": "Grep", "definition": "x"}]);
        recorded["tools"] = json!([{"name": "Bash", "definition": "x"}, {"name": "Grep", "definition": "y"}]);
        let mut found = AgentDifferences::default();
        assert!(found.is_empty());
        found.add(&recorded, &present);
        assert_eq!(
            found.lines(),
            [
                "tools removed: Bash",
                "tools defined otherwise: Grep",
                "model: \"m\" when recorded, now \"n\"",
                "reminders: 0 characters when recorded, now 8",
            ]
        );
    }
}
