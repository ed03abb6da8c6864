//! Which parts of a request belong to the user's side, and which to the agent.
//!
//! The prompt, the model's calls, the results of tools, the answers to questions and the tools of declared servers are the
//! user's side, and so are the parameters that the session or the command line chose. The system prompt, reminders, the
//! definitions of the agent's own tools and the other parameters of the request belong to the agent: another version of it
//! may send others. Across versions a request matches if every part of the
//! user's side is the same; what differs on the agent's side is listed.

use super::agent_texts;
use super::wrapping::Calls;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Tools of MCP servers that the user declared.
pub(super) const SERVER_TOOL: &str = "mcp__";

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
pub(super) const LOOKS_UP: &str = "ToolSearch";

/// A parameter of a request that the user's side can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parameter {
    Model,
    Effort,
    /// Whether the model thinks, and for how many tokens.
    Thinking,
    /// How its thoughts appear.
    ThinkingDisplay,
}

impl Parameter {
    pub const ALL: [Self; 4] = [Self::Model, Self::Effort, Self::Thinking, Self::ThinkingDisplay];

    const fn pointers(self) -> &'static [&'static str] {
        match self {
            Self::Model => &["/model"],
            Self::Effort => &["/output_config/effort"],
            Self::Thinking => &["/thinking/type", "/thinking/budget_tokens"],
            Self::ThinkingDisplay => &["/thinking/display"],
        }
    }
}

/// The parameters that the user's side chose, now or when a tape was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChosenParameters {
    pub main: BTreeSet<Parameter>,
    /// Those of sub-agents.
    pub sub_agents: BTreeSet<Parameter>,
}

/// The parts of a request that belong to the user's side.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnedParts {
    /// Texts, calls and results, in their order.
    pub parts: Vec<OwnedPart>,
    /// Tools of declared servers, by name.
    tools: BTreeMap<String, OwnedPart>,
    /// Parameters, by their places.
    parameters: BTreeMap<&'static str, OwnedPart>,
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
    pub fn of_present((request, readable): (&Value, &Value), chosen: &BTreeSet<Parameter>) -> Self {
        let mut own = Self::of(request, chosen);
        if matches!(own.lookup, Lookup::Unknown) {
            own.lookup = Lookup::Named(said_by_the_agent(readable));
        }
        own
    }

    /// Reads a recorded request.
    pub fn of(request: &Value, chosen: &BTreeSet<Parameter>) -> Self {
        let parameter = |pointer: &&'static str| {
            let value = request.pointer(pointer)?.clone();
            Some((*pointer, OwnedPart { value, pointer: (*pointer).to_owned() }))
        };
        let places = chosen.iter().flat_map(|parameter| parameter.pointers());
        let parameters = places.filter_map(parameter).collect();
        let offered = || request.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
        let own = offered().filter(|(_, tool)| name(tool).starts_with(SERVER_TOOL)).map(|(at, tool)| {
            let part = OwnedPart { value: json!({"tool": tool}), pointer: format!("/tools/{at}") };
            (name(tool).to_owned(), part)
        });
        let calls = Calls::of(request);
        let mut parts = Vec::new();
        for (at, message) in messages(request).iter().enumerate() {
            read_message(message, &format!("/messages/{at}"), &calls, &mut parts);
        }
        let looks_up = offered().any(|(_, tool)| name(tool) == LOOKS_UP);
        let lookup = if looks_up { Lookup::Unknown } else { Lookup::None };
        Self { parts, tools: own.collect(), parameters, lookup }
    }

    /// Reads the first message that is not the agent's.
    pub fn first_message(request: &Value) -> Self {
        let mut parts = Vec::new();
        for (at, message) in messages(request).iter().enumerate() {
            read_message(message, &format!("/messages/{at}"), &Calls::default(), &mut parts);
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
        let parameters = Parameter::ALL
            .iter()
            .flat_map(|one| one.pointers())
            .map(|one| (self.parameters.get(one), present.parameters.get(one)));
        let both = (0..self.parts.len().max(present.parts.len()))
            .map(|at| (self.parts.get(at), present.parts.get(at)));
        tools.chain(parameters.chain(both).filter(|(recorded, present)| recorded != present)).collect()
    }

    /// Whether a tool that the request does not have can be there all the same.
    fn may_lack(&self, tool: &str) -> bool {
        match &self.lookup {
            Lookup::None => false,
            Lookup::Named(text) => has_name(text, tool),
            Lookup::Unknown => true,
        }
    }

    /// Who says something, which tool is called, and which call has its result, in their order.
    pub fn course(&self) -> Vec<Value> {
        let of = |OwnedPart { value, .. }: &OwnedPart| match value.get("call") {
            Some(call) => json!([call, value["name"]]),
            None => value.get("result").or(value.get("role")).cloned().unwrap_or_default(),
        };
        self.parts.iter().map(of).collect()
    }

    /// The parameters, texts, calls and results as one document.
    pub fn document(&self) -> Value {
        let values = self.parameters.values().chain(&self.parts).map(|part| part.value.clone());
        Value::Array(values.collect())
    }
}

/// What the agent itself says in a request. A prompt, a result of a tool or a call of the model names no tool that it left out.
fn said_by_the_agent(request: &Value) -> String {
    let mut text = String::new();
    add_texts(request.get("system").unwrap_or(&Value::Null), &mut text);
    for message in messages(request) {
        let content = message.get("content").unwrap_or(&Value::Null);
        match message.get("role").and_then(Value::as_str) {
            Some("system") => add_texts(content, &mut text),
            Some("user") => {
                let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
                let texts = blocks.iter().filter_map(|block| block.get("text")).chain([content]);
                texts.filter_map(Value::as_str).for_each(|said| add_reminders(said, &mut text));
            }
            Some(_) | None => {}
        }
    }
    text
}

/// Adds the agent's reminders in a text, a line each.
fn add_reminders(said: &str, out: &mut String) {
    for reminder in said.split("<system-reminder>").skip(1) {
        out.push_str(reminder.split("</system-reminder>").next().unwrap_or_default());
        out.push('\n');
    }
}

/// Adds every text of a document, a line each.
fn add_texts(of: &Value, out: &mut String) {
    match of {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, out)),
        Value::Object(members) => members.values().for_each(|member| add_texts(member, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text names a tool, and not only one whose name is longer.
fn has_name(text: &str, tool: &str) -> bool {
    let is_of_a_name = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || [b'_', b'-'].contains(byte))
    };
    let bytes = text.as_bytes();
    text.match_indices(tool).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_of_a_name(before) && !is_of_a_name(bytes.get(at + tool.len()))
    })
}

fn document(parts: &[OwnedPart]) -> Value {
    Value::Array(parts.iter().map(|part| part.value.clone()).collect())
}

fn messages(request: &Value) -> &[Value] {
    request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn name(of: &Value) -> &str {
    of.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The results of a request as they are, each with its tool, by the ids of the calls.
pub(super) fn results(request: &Value) -> BTreeMap<&str, (&str, &Value)> {
    let calls = Calls::of(request);
    let blocks = messages(request).iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    let results =
        blocks.filter_map(|block| Some((block.get("tool_use_id")?.as_str()?, block.get("content")?)));
    results.map(|(id, content)| (id, (calls.tool(id), content))).collect()
}

fn read_message(message: &Value, at: &str, calls: &Calls<'_>, own: &mut Vec<OwnedPart>) {
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

fn read_block(role: &str, block: &Value, pointer: String, calls: &Calls<'_>, own: &mut Vec<OwnedPart>) {
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

fn result(block: &Value, calls: &Calls<'_>) -> Value {
    let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
    let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
    let tool = calls.tool(id);
    if CONFIRMS.contains(&tool) && !failed {
        return json!({"result": id, "error": failed});
    }
    let quoted = block.get("content").and_then(Value::as_str).and_then(quoted);
    if let Some(quoted) = quoted.filter(|_| tool == ASKS && !failed) {
        return json!({"result": id, "error": failed, "answers": quoted});
    }
    if let Some(report) = block.get("content").filter(|_| !failed).and_then(|said| calls.report(id, said)) {
        return json!({"result": id, "error": failed, "report": report});
    }
    let mut content = Vec::new();
    match block.get("content") {
        Some(Value::Array(blocks)) => {
            for (at, inner) in blocks.iter().enumerate() {
                read_block(TOOL, inner, at.to_string(), &Calls::default(), &mut content);
            }
        }
        Some(Value::String(text)) => {
            let said = if failed { calls.failure(id, text) } else { text.into() };
            push_text(TOOL, &said, String::new(), &mut content);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: Value) -> Value {
        agent_texts::without(json!({"model": "m", "system": "You are", "messages": messages,
            "tools": [{"name": "Bash", "description": "runs"}, {"name": "mcp__notes__add", "description": "adds"}]}))
    }

    fn of(request: &Value) -> OwnedParts {
        OwnedParts::of(request, &BTreeSet::new())
    }

    fn of_present(request: &Value, readable: &Value) -> OwnedParts {
        OwnedParts::of_present((request, readable), &BTreeSet::new())
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
            assert!(of(&request(other.clone())).matches(&of(&plain)), "{other}");
        }
        let text = json!([{"role": "user", "content": "go\nthere"}]);
        let blocks = json!([{"role": "user", "content": [
            {"type": "text", "text": "go"}, {"type": "text", "text": "there"}]}]);
        assert!(of(&request(text)).matches(&of(&request(blocks))));
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
        let own = of(&base());
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
            assert!(!own.matches(&of(&other)), "{pointer}");
        }
        let mut failed = base();
        failed["messages"][2]["content"][0]["is_error"] = json!(true);
        assert!(!own.matches(&of(&failed)));
        let mut shorter = base();
        shorter["messages"].as_array_mut().unwrap().pop();
        assert!(!own.matches(&of(&shorter)));
        let mut without = base();
        without["tools"].as_array_mut().unwrap().pop();
        assert!(!own.matches(&of(&without)), "a server's tool is gone");
        without["tools"].as_array_mut().unwrap().push(json!({"name": LOOKS_UP}));
        let named = json!({"system": "these are deferred:\nmcp__notes__add\nmcp__notes__list"});
        assert!(own.matches(&of_present(&without, &named)), "it is looked up when it is needed");
        for silent in ["none are deferred", "deferred: mcp__notes__add_all", "deferred: my-mcp__notes__add"] {
            let silent = json!({"system": silent});
            assert!(!own.matches(&of_present(&without, &silent)), "its server is gone: {silent}");
        }
        let reminded = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>deferred:\nmcp__notes__add</system-reminder>go"}]}]});
        assert!(own.matches(&of_present(&without, &reminded)));
        for other in [
            json!({"role": "user", "content": "use mcp__notes__add"}),
            json!({"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>mcp__notes__add"}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "content": "mcp__notes__add"}]}),
            json!({"role": "assistant", "content": [{"type": "tool_use", "name": "mcp__notes__add"}]}),
        ] {
            let other = json!({"messages": [other]});
            assert!(!own.matches(&of_present(&without, &other)), "the agent does not name it: {other}");
        }
    }

    #[test]
    fn a_parameter_counts_if_the_users_side_chose_it() {
        let with = |model: &str, effort: &str, thinking: Value| json!({"model": model, "output_config": {"effort": effort}, "thinking": thinking, "messages": []});
        let before = with("a", "low", json!({"type": "adaptive"}));
        for (parameter, now) in [
            (Parameter::Model, with("b", "low", json!({"type": "adaptive"}))),
            (Parameter::Effort, with("a", "high", json!({"type": "adaptive"}))),
            (Parameter::Thinking, with("a", "low", json!({"type": "disabled"}))),
            (Parameter::Thinking, json!({"model": "a", "output_config": {"effort": "low"}, "messages": []})),
            (Parameter::ThinkingDisplay, with("a", "low", json!({"type": "adaptive", "display": "updates"}))),
        ] {
            let matches = |chosen: &BTreeSet<Parameter>| {
                OwnedParts::of(&before, chosen).matches(&OwnedParts::of(&now, chosen))
            };
            assert!(!matches(&BTreeSet::from([parameter])), "{parameter:?}");
            assert!(!matches(&Parameter::ALL.into()), "{parameter:?}");
            let others = Parameter::ALL.into_iter().filter(|one| *one != parameter).collect();
            assert!(matches(&others), "{parameter:?}");
        }
    }

    #[test]
    fn what_a_tool_of_the_agent_confirms_is_the_agents_and_its_failure_is_not() {
        let own = |tool: &str, result: &str| of(&called(tool, json!(result))).parts;
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
        assert_ne!(of(&failed).parts, own("Write", "File created"));
    }
}
