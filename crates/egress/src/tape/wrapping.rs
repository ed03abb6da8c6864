//! The agent's words around a result that is not its own: the text of a server or a hook, or the report of a sub-agent.
//!
//! Versions of the agent word them otherwise. What is taken off has one form, at one place, in which the agent puts it, so that
//! what remains is what the server, the hook or the sub-agent said. A text of another form is compared as it is.
//! Seen in 2.1.197, 2.1.325 and 2.1.327 on 2026-11-18.

use super::owned::{LOOKS_UP, SERVER_TOOL, name};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Tools that run a sub-agent and return its report.
const REPORTS: [&str; 2] = ["Agent", "Task"];
/// The line before a report whose lines are indented, and its end.
const FRAME: (&str, &str) = ("[Subagent hand-back] ", " The report follows:");
/// The line after a report.
const AFTER_REPORT: &str = "agentId: ";
/// Begins what is added to the first failure of a server's tool whose definition was left out of the request.
const NO_SCHEMA: &str = "\n\nThis tool's input schema was not in your prompt when you called it. ";
/// Where plugins are in a sandbox, the end of the variable that stands for it in hooks, and what replaces both.
const PLUGINS: &str = "/opt/belljar/plugins/";
const PLUGIN_VARIABLE: &str = "PLUGIN_ROOT}/";
const PLUGIN: &str = "<plugin>/";
/// Begins the line that is added to what the hook of a plugin said.
const OF_PLUGIN: &str = "\nThis hook comes from the ";

/// What has to be known of a request to tell the agent's words from those of others.
#[derive(Debug, Default)]
pub(super) struct Calls<'r> {
    /// The names of the tools that were called, by the ids of the calls.
    tools: BTreeMap<&'r str, &'r str>,
    /// The first result of each tool that ends as the agent ends one; later ones it leaves as they are.
    without_schema: BTreeSet<&'r str>,
}

impl<'r> Calls<'r> {
    pub fn of(request: &'r Value) -> Self {
        let messages = request.get("messages").and_then(Value::as_array).into_iter().flatten();
        let blocks = messages.filter_map(|message| message.get("content")?.as_array()).flatten();
        let offered: BTreeSet<&str> =
            request.get("tools").and_then(Value::as_array).into_iter().flatten().map(name).collect();
        let mut found = Self::default();
        let mut hinted = BTreeSet::new();
        for block in blocks {
            let text = |member: &str| block.get(member).and_then(Value::as_str);
            match text("type") {
                Some("tool_use") => {
                    found.tools.extend(text("id").map(|id| (id, name(block))));
                }
                Some("tool_result") => {
                    let (Some(id), Some(said)) = (text("tool_use_id"), text("content")) else { continue };
                    let tool = found.tool(id);
                    let left_out = offered.contains(LOOKS_UP) && !offered.contains(tool);
                    let of_server = tool.starts_with(SERVER_TOOL) && left_out;
                    if of_server && said.ends_with(&schema_hint(tool)) && hinted.insert(tool) {
                        found.without_schema.insert(id);
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// The tool of a call; empty if it is not known.
    pub fn tool(&self, id: &str) -> &'r str {
        self.tools.get(id).copied().unwrap_or_default()
    }

    /// The text of a failed call without the agent's words around it.
    pub fn failure<'t>(&self, id: &str, text: &'t str) -> Cow<'t, str> {
        let tool = self.tool(id);
        if self.without_schema.contains(id) {
            return text.rfind(NO_SCHEMA).map_or(text, |at| &text[..at]).into();
        }
        let blocked = format!("PreToolUse:{tool} hook error: ");
        // What a server says is not the agent's, however it begins.
        match text.strip_prefix(&blocked) {
            Some(said) if !tool.starts_with(SERVER_TOOL) => of_hook(said),
            Some(_) | None => text.into(),
        }
    }

    /// The report in the result of a sub-agent.
    pub fn report(&self, id: &str, content: &Value) -> Option<String> {
        if !REPORTS.contains(&self.tool(id)) {
            return None;
        }
        let blocks = content.as_array()?;
        if blocks.iter().any(|block| block.get("type").and_then(Value::as_str) != Some("text")) {
            return None;
        }
        let texts: Option<Vec<&str>> = blocks.iter().map(|block| block.get("text")?.as_str()).collect();
        match texts?.as_slice() {
            [framed] => unframed(framed),
            [report @ .., after] if after.starts_with(AFTER_REPORT) => Some(report.join("\n")),
            _ => None,
        }
    }
}

fn schema_hint(tool: &str) -> String {
    format!("call {LOOKS_UP} with query \"select:{tool}\" to load the tool, then call it again.")
}

/// A hook's text without the line that names its plugin, and with one name for the directory of the plugin in the command before
/// it: the version that names the plugin has put the directory itself there.
fn of_hook(said: &str) -> Cow<'_, str> {
    let named =
        said.rsplit_once(OF_PLUGIN).and_then(|(text, rest)| Some((text, rest.strip_suffix(" plugin.")?)));
    let (text, plugin) = match named {
        Some((text, plugin)) if !plugin.contains(char::is_whitespace) => (text, Some(plugin)),
        Some(_) | None => (said, None),
    };
    let Some((command, output)) = text.split_once("]: ").filter(|_| text.starts_with('[')) else {
        return text.into();
    };
    let command = match plugin.and_then(|plugin| plugin.split('@').next()) {
        Some(name) => command.replace(&format!("{PLUGINS}{name}/"), PLUGIN),
        None => without_variable(command),
    };
    format!("{command}]: {output}").into()
}

/// A command with the variable that stands for the directory of its plugin replaced.
fn without_variable(command: &str) -> String {
    let mut out = String::new();
    let mut pieces = command.split(PLUGIN_VARIABLE).peekable();
    while let Some(piece) = pieces.next() {
        let variable = piece.rfind("${").filter(|_| pieces.peek().is_some());
        match variable.filter(|at| piece[at + 2..].chars().all(|one| one.is_ascii_uppercase() || one == '_'))
        {
            Some(at) => out.push_str(&format!("{}{PLUGIN}", &piece[..at])),
            None if pieces.peek().is_some() => out.push_str(&format!("{piece}{PLUGIN_VARIABLE}")),
            None => out.push_str(piece),
        }
    }
    out
}

/// A report out of its frame. Every line of it is indented, so that none can end the frame.
fn unframed(text: &str) -> Option<String> {
    let (frame, rest) = text.split_once('\n')?;
    if !(frame.starts_with(FRAME.0) && frame.ends_with(FRAME.1)) {
        return None;
    }
    let mut lines = rest.split('\n');
    let mut report = Vec::new();
    loop {
        let line = lines.next()?;
        match line.strip_prefix("  ") {
            Some(said) => report.push(said),
            None if line.starts_with(AFTER_REPORT) => return Some(report.join("\n")),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HINT: &str =
        "call ToolSearch with query \"select:mcp__notes__add\" to load the tool, then call it again.";

    fn request(tool: &str, tools: Value, results: &[&str]) -> Value {
        let message = |(at, text): (usize, &&str)| {
            [
                json!({"role": "assistant", "content": [
                    {"type": "tool_use", "id": format!("t{at}"), "name": tool, "input": {}}]}),
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": format!("t{at}"), "is_error": true, "content": text}]}),
            ]
        };
        json!({"tools": tools, "messages": results.iter().enumerate().flat_map(message).collect::<Vec<_>>()})
    }

    fn failures(tool: &str, tools: Value, results: &[&str]) -> Vec<String> {
        let request = request(tool, tools, results);
        let calls = Calls::of(&request);
        let of = |(at, text): (usize, &&str)| calls.failure(&format!("t{at}"), text).into_owned();
        results.iter().enumerate().map(of).collect()
    }

    #[test]
    fn the_first_failure_of_a_tool_that_was_left_out_loses_what_the_agent_added() {
        let added = format!("no{NO_SCHEMA}The input schema is: {{}}\nIf it matches, {HINT}");
        let (looked_up, all) =
            (json!([{"name": LOOKS_UP}]), json!([{"name": LOOKS_UP}, {"name": "mcp__notes__add"}]));
        let tool = "mcp__notes__add";
        let twice = format!("{added}{NO_SCHEMA}{HINT}");
        assert_eq!(failures(tool, looked_up.clone(), &["no", &added, &added]), ["no", "no", &added]);
        assert_eq!(
            failures(tool, looked_up.clone(), &[&twice]),
            [added.as_str()],
            "the server's own is kept"
        );
        assert_eq!(failures(tool, all, &[&added]), [added.as_str()], "its definition was sent");
        assert_eq!(failures(tool, json!([]), &[&added]), [added.as_str()], "the agent looks nothing up");
        assert_eq!(failures("mcp__notes__remove", looked_up.clone(), &[&added]), [added.as_str()]);
        assert_eq!(failures("Bash", looked_up, &[&added]), [added.as_str()]);
    }

    #[test]
    fn what_a_hook_said_is_found_in_the_agents_words() {
        let of = |tool: &str, text: &str| failures(tool, json!([]), &[text]).remove(0);
        assert_eq!(of("Bash", "PreToolUse:Bash hook error: [x]: not here\n"), "[x]: not here\n");
        let plugin =
            "PreToolUse:Bash hook error: [x]: not here\n\nThis hook comes from the guarding@inline plugin.";
        assert_eq!(of("Bash", plugin), "[x]: not here\n");
        let command = "PreToolUse:Bash hook error: [sh /opt/belljar/plugins/guarding/x.sh]: not /opt/belljar/plugins/guarding/x\n\nThis hook comes from the guarding@inline plugin.";
        let plain = "PreToolUse:Bash hook error: [sh ${AN_AGENTS_PLUGIN_ROOT}/x.sh]: not /opt/belljar/plugins/guarding/x\n";
        assert_eq!(of("Bash", command), of("Bash", plain));
        assert!(of("Bash", plain).starts_with("[sh <plugin>/x.sh]: not /opt"), "{}", of("Bash", plain));
        for other in [
            command.replace("x.sh", "y.sh"),
            command.replace("not ", "no "),
            command.replace("sh /opt/belljar", "sh /opt"),
        ] {
            assert_ne!(of("Bash", &other), of("Bash", plain));
        }
        assert_eq!(of("Bash", "PreToolUse:Bash hook error: because"), "because");
        for kept in [
            "PreToolUse:Write hook error: because",
            "Exit code 1\nPreToolUse:Bash hook error: because",
            "because\nThis hook comes from the guarding@inline plugin.",
        ] {
            assert_eq!(of("Bash", kept), kept);
        }
        let server = "PreToolUse:mcp__notes__add hook error: because";
        assert_eq!(of("mcp__notes__add", server), server);
    }

    #[test]
    fn the_report_of_a_sub_agent_is_found_in_both_frames() {
        let request = request("Agent", json!([]), &["x"]);
        let report = |content: Value| Calls::of(&request).report("t0", &content);
        let texts = |texts: &[&str]| {
            report(texts.iter().map(|text| json!({"type": "text", "text": text})).collect::<Value>())
        };
        let framed = |lines: &str| texts(&[&format!("[Subagent hand-back] x. The report follows:\n{lines}")]);
        let said = Some("There are 3.\n\n  agentId: x".to_owned());
        assert_eq!(texts(&["There are 3.\n\n  agentId: x", "agentId: a1 (…)"]), said);
        assert_eq!(framed("  There are 3.\n  \n    agentId: x\nagentId: a1 (…)"), said);
        for other in [
            framed("  There are 3.\nand more\nagentId: a1"),
            framed("  There are 3."),
            texts(&["There are 3."]),
            texts(&["There are 3.", "more"]),
            report(json!([{"type": "image"}, {"type": "text", "text": "agentId: a1"}])),
            report(json!("agentId: a1")),
        ] {
            assert_eq!(other, None);
        }
    }

    /// What texts of these kinds are made of.
    const PIECES: [&str; 10] = [
        "no",
        "\n",
        "  ",
        "[",
        "]: ",
        OF_PLUGIN,
        "p@q plugin.",
        NO_SCHEMA,
        AFTER_REPORT,
        "${A_PLUGIN_ROOT}/",
    ];

    #[test]
    fn fuzz_what_others_said_comes_out_of_the_agents_words_as_it_was() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let piece = |byte: &u8| PIECES[usize::from(*byte) % PIECES.len()];
            let made: String = bytes.iter().map(piece).collect();
            for said in [made.as_str(), &String::from_utf8_lossy(bytes)] {
                let framed = format!(
                    "[Subagent hand-back] x. The report follows:\n  {}\nagentId: a1 (x)",
                    said.replace('\n', "\n  ")
                );
                assert_eq!(unframed(&framed).as_deref(), Some(said));
                let (server, looked_up) = ("mcp__notes__add", json!([{"name": LOOKS_UP}]));
                let added = format!("{said}{NO_SCHEMA}The input schema is: {{}}. {HINT}");
                assert_eq!(failures(server, looked_up, &[&added]), [said]);
                failures("Bash", json!([]), &[said, &format!("PreToolUse:Bash hook error: {said}")]);
                if !said.contains("]: ") {
                    let named = format!("PreToolUse:Bash hook error: {said}{OF_PLUGIN}p@q plugin.");
                    assert_eq!(failures("Bash", json!([]), &[&named]), [said]);
                }
            }
        });
    }
}
