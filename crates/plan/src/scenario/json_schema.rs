//! The JSON Schemas of scenario, session and answer-policy files, for editors.

use super::scenario_spec::ScenarioSpec;
use super::session_spec::SessionSpec;
use crate::manifest::titled;
use belljar_contract::decode::Decode;
use serde_json::{Value, json};

/// The schema of a scenario; `check` is that of one item under `assert`.
#[must_use]
pub fn scenario_schema(check: &Value) -> Value {
    let mut schema = ScenarioSpec::schema();
    schema["properties"]["assert"]["items"] = check.clone();
    schema["properties"]["answers"]["items"] = rule();
    titled("belljar scenario", schema)
}

/// The schema of a session.
#[must_use]
pub fn session_schema() -> Value {
    titled("belljar session", SessionSpec::schema())
}

/// The schema of an answer policy: a list of rules, or a table that has one.
#[must_use]
pub fn answer_policy_schema() -> Value {
    let rules = json!({"type": "array", "items": rule()});
    let mut named = rules.clone();
    named["description"] = json!("Rules that answer the agent's questions; the first that fits decides.");
    let schema = json!({
        "description": "Rules that answer the agent's questions.",
        "oneOf": [
            rules,
            {
                "type": "object",
                "properties": {"answers": named},
                "required": ["answers"],
                "additionalProperties": false,
            },
        ],
    });
    titled("belljar answer policy", schema)
}

/// A rule. The reader of rules is elsewhere and stricter; an editor learns the keys here and what goes with what.
fn rule() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let allowance = |description: &str| json!({"enum": ["allow", "deny"], "description": description});
    let examples =
        |description: &str| json!({"type": "array", "items": {"type": "object"}, "description": description});
    let label = json!({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]});
    let why = text("Recorded as the reason.");
    let question = |key: &str, value: Value| {
        json!({
            "type": "object",
            "properties": {
                "when_question": text("A pattern, letter case ignored; the question's text, then its header."),
                key: value,
                "why": why,
            },
            "required": ["when_question", key],
            "additionalProperties": false,
        })
    };
    let tool = |key: &str, properties: Value| {
        let mut schema = json!({
            "type": "object",
            "properties": {"when_tool": text("The tool's exact name."), "why": why},
            "required": ["when_tool", key],
            "additionalProperties": false,
        });
        for (name, value) in properties.as_object().into_iter().flatten() {
            schema["properties"][name] = value.clone();
        }
        schema
    };
    let mut choose = json!({"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1},
        {"type": "array", "minItems": 1, "items": label}]});
    choose["description"] = json!("A label, or a list of them where several may be chosen.");
    json!({"oneOf": [
        question("choose", choose),
        question("answer", text("Words of one's own, delivered as they are.")),
        tool("decide", json!({
            "decide": allowance("What is done."),
            "grant": {"enum": ["once", "domain"], "description": "How far an allowed fetch goes, with `webfetch:<domain>`."},
        })),
        tool("allow_if", json!({
            "allow_if": text("An expression on the tool's input."),
            "else": allowance("What is done otherwise; `deny` when absent."),
            "allows": examples("Inputs that the rule must allow."),
            "denies": examples("Inputs that the rule must deny."),
        })),
    ]})
}
