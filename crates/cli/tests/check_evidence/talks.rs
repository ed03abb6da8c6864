//! The conversations, as the model plays them.

use crate::cmd::record::{bash, main_turn, script};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// Everything is done once and works.
    Orderly,
    /// The same without a compaction; then something of everything goes wrong, and the agent ends all the same.
    Disorderly,
    /// The time limit ends it while its first command sleeps.
    Cut,
}

const HEAD: &str = "session: session.yaml
prompt: go
answers:
  - {when_question: which format, choose: HTML}
  - {when_tool: Bash, decide: allow}
  - {when_tool: Write, decide: allow}
  - {when_tool: mcp__desk__ring, decide: allow}
  - {when_tool: mcp__desk__jam, decide: allow}
assert:
";

// The agent has begun long before, also on a busy machine.
const CUT: &str = "session: session.yaml
prompt: go
timeout_ms: 30000
answers: [{when_tool: Bash, decide: allow}]
assert:
";

impl Talk {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Orderly => "orderly",
            Self::Disorderly => "disorderly",
            Self::Cut => "cut",
        }
    }

    /// The scenario up to its checks.
    pub const fn head(self) -> &'static str {
        match self {
            Self::Orderly | Self::Disorderly => HEAD,
            Self::Cut => CUT,
        }
    }

    pub fn script(self, port: u16) -> Value {
        match self {
            Self::Orderly => {
                let done = call("TaskUpdate", json!({"taskId": "1", "status": "completed"}));
                let end = [turn(done), long(reach(port)), turn(json!({"text": LAST}))];
                script(&[&[summary()][..], &work(), &end, &[judge(true, LAST)]].concat())
            }
            Self::Disorderly => {
                let mess = [
                    bash(
                        "cat data/in.txt; rm data/in.txt; echo x > notes.txt; echo x > outputs/gone; rm outputs/gone",
                    ),
                    bash("echo twice"),
                    bash("echo twice"),
                    bash("echo forbidden"),
                    call("mcp__desk__jam", json!({})),
                    reach(port),
                    json!({"text": "It is in /home/ann/report.md."}),
                ];
                script(&[&work()[..], &mess.map(turn), &[judge(false, "")]].concat())
            }
            Self::Cut => script(&[turn(bash("tail -f /dev/null"))]),
        }
    }
}

const LAST: &str = "All done: the figures are in outputs/a.json.";

fn turn(block: Value) -> Value {
    main_turn(&json!([block]))
}

/// A turn after which the agent compacts the conversation.
fn long(block: Value) -> Value {
    let mut turn = turn(block);
    turn["answer"]["reply"]["usage"] = json!({"input_tokens": 90_000});
    turn
}

fn call(tool: &str, input: Value) -> Value {
    json!({"tool_use": {"name": tool, "input": input}})
}

fn of_sub_agent(contains: &str, block: Value) -> Value {
    json!({"when": {"sender": "sub_agent", "last_message_contains": contains},
        "answer": {"reply": {"content": [block]}}})
}

fn summary() -> Value {
    json!({"when": {"last_message_contains": "followed by a <summary> block"},
        "answer": {"reply": {"content": [{"text": "<analysis>a</analysis><summary>it was done</summary>"}]}}})
}

/// The judge of `semantic_matches`, whose requests have no tools.
fn judge(holds: bool, quote: &str) -> Value {
    let claim = json!({"claim": 1, "holds": holds, "reason": "so it reads", "quote": quote});
    let answer = json!({"claims": [claim]}).to_string();
    json!({"when": {"tools": "absent"}, "answer": {"reply": {"content": [{"text": answer}]}}})
}

/// One host that is refused and one that is reached. What they answer is not in the conversation: a replay dials neither.
fn reach(port: u16) -> Value {
    bash(&format!(
        "curl -s -m 20 https://denied.test/; \
         curl -s -m 20 --noproxy '' -x \"$HTTP_PROXY\" http://127.0.0.1:{port}/ > /dev/null; true"
    ))
}

/// A skill, files, an MCP server, a question, a task and a sub-agent.
fn work() -> Vec<Value> {
    let option = |label: &str| json!({"label": label, "description": "as said"});
    let question = json!({"question": "Which format?", "header": "Format", "multiSelect": false,
        "options": [option("Markdown"), option("HTML")]});
    let agent = json!({"description": "look it up", "prompt": "do the part", "subagent_type": "general-purpose",
        "run_in_background": false});
    let part = json!({"file_path": "/workspace/outputs/part.md", "content": "part"});
    vec![
        turn(call("Skill", json!({"skill": "notes"}))),
        turn(bash("echo '{\"rows\": 2}' > outputs/a.json; echo figures are ready")),
        turn(call("mcp__desk__ring", json!({}))),
        turn(call("AskUserQuestion", json!({"questions": [question]}))),
        turn(call("TaskCreate", json!({"subject": "Write the report", "description": "all of it"}))),
        turn(call("Agent", agent)),
        of_sub_agent("do the part", call("Write", part)),
        of_sub_agent("", json!({"text": "found 42"})),
    ]
}
