//! The JSON Schema for editors says what the decoder says.

use crate::scenarios::scenario;
use crate::world::{FULL, layer};
use belljar_plan::{
    DocumentText, ManifestLayer, json_schema, parse, parse_document, parse_session, scenario_schema,
    session_schema,
};
use belljar_testkit::schema::conforms;
use serde_json::{Value, json};

fn value(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap();
    serde_json::to_value(table).unwrap()
}

#[test]
fn the_full_manifest_conforms() {
    assert!(conforms(&json_schema(), &value(FULL)));
}

/// What the schema refuses the decoder refuses too, so that an editor never complains about a good file.
#[test]
fn bad_manifests_do_not() {
    for text in [
        "nothing = 1",
        "agents = []",
        "[agents]\na = 1",
        "[agents.a]\nmodle = \"x\"",
        "[agents.a]\nhome = \"claen\"",
        "[agents.a]\nskills = \"a\"",
        "[agents.a.limits]\npids = 0",
        "[agents.a.limits]\ncpu = 0",
        "[agents.a.limits]\nmemory = 4",
        "[agents.a.env]\nX = 1",
        "[agents.a.env]\nX = {}",
        "[agents.a.env]\nX = { value = \"a\", env = \"B\" }",
        "[agents.a.env]\nX = { command = [] }",
        "[[agents.a.credentials]]\nhost = \"a.org\"",
        "[[agents.a.ssh]]\nhost = \"a\"",
        "[agents.a]\nmounts = [{ target = \"/x\" }]",
        "[library.mcp.a]\nargs = []",
        "[library.plugins.a]",
    ] {
        assert!(!conforms(&json_schema(), &value(text)), "the schema takes {text}");
        assert!(
            parse(vec![layer(ManifestLayer::Project, text.as_bytes())]).is_err(),
            "the decoder takes {text}"
        );
    }
}

/// Calls `visit` with the path and the schema of every key of every table.
fn each_key(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    for (key, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.{key}");
        visit(&path, schema);
        each_key(schema, &path, visit);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = schema.get(keyword).filter(|below| below.is_object()) {
            each_key(below, &format!("{path}.*"), visit);
        }
    }
    for below in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        each_key(below, path, visit);
    }
}

#[test]
fn every_key_has_a_description() {
    let mut count = 0;
    each_key(&json_schema(), "", &mut |path, schema| {
        count += 1;
        let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        assert!(text.len() > 3, "{path} has no description");
    });
    assert!(count > 50, "only {count} keys");
}

fn follow<'a>(value: &'a Value, path: &[&str], out: &mut Vec<&'a Value>) {
    match path {
        [] => out.push(value),
        ["*", rest @ ..] => {
            let list = value.as_array().into_iter().flatten();
            let table = value.as_object().into_iter().flat_map(|table| table.values());
            list.chain(table).for_each(|value| follow(value, rest, out));
        }
        [key, rest @ ..] => value.get(key).into_iter().for_each(|value| follow(value, rest, out)),
    }
}

/// The manifest that stands for all of them uses every key.
#[test]
fn the_full_manifest_is_full() {
    let full = value(FULL);
    each_key(&json_schema(), "", &mut |path, _| {
        // A value inside a credential has the forms of one in the environment.
        if path.starts_with(".agents.*.credentials.*.value.") || path.starts_with(".library.mcp.*.env.*.") {
            return;
        }
        let mut found = Vec::new();
        follow(&full, &path.split('.').skip(1).collect::<Vec<_>>(), &mut found);
        assert!(!found.is_empty(), "{path} is not in tests/plan/full/belljar.toml");
    });
    assert_ne!(full, json!({}));
}

fn document(text: &str) -> DocumentText {
    DocumentText { name: "file.yaml".to_owned(), bytes: text.as_bytes().to_vec() }
}

fn yaml(text: &str) -> Value {
    parse_document(document(text)).unwrap().root().to_value()
}

const SCENARIO: &str = include_str!("scenarios/full/scenario.yaml");
const SESSION: &str = include_str!("scenarios/session-full/session.yaml");

fn scenarios() -> Value {
    scenario_schema(&json!({"type": "object"}), &json!({"type": "object"}))
}

#[test]
fn full_scenarios_and_sessions_conform_and_are_full() {
    for (schema, text) in [(scenarios(), SCENARIO), (session_schema(), SESSION)] {
        let full = yaml(text);
        assert!(conforms(&schema, &full));
        each_key(&schema, "", &mut |path, schema| {
            let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            assert!(description.len() > 3, "{path} has no description");
            // Rules are looked at below.
            if path.starts_with(".answers.*") {
                return;
            }
            let mut found = Vec::new();
            follow(&full, &path.split('.').skip(1).collect::<Vec<_>>(), &mut found);
            assert!(!found.is_empty(), "{path} is not in the full file");
        });
    }
}

/// What the schema refuses the decoder refuses too, so that an editor never complains about a good file.
#[test]
fn bad_scenarios_and_sessions_do_not() {
    for text in [
        "name: x",
        "prompt: 1",
        "prompt: x\nanswer: []",
        "prompt: x\nfidelity: bwrap",
        "prompt: x\nexecution: cloud-describe",
        "prompt: x\ntimeout_ms: 0",
        "prompt: x\nanswers: {}",
        "prompt: x\nassert: {}",
        "prompt: x\nrequires_capabilities: [x]",
        "prompt: x\nskills: x",
    ] {
        assert!(!conforms(&scenarios(), &yaml(text)), "the schema takes {text}");
        assert!(scenario(document(text)).is_err(), "the decoder takes {text}");
    }
    for text in [
        "modle: x",
        "effort: none",
        "agent_max_turns: 0",
        "permission_mode: dontAsk",
        "folders: [{mode: r}]",
        "projects: [{uuid: x}]",
        "plugins: {config_dir: 1}",
        "mcp: {config: []}",
        "egress: {allow: []}",
        "debug: {thinking_display: x}",
    ] {
        assert!(!conforms(&session_schema(), &yaml(text)), "the schema takes {text}");
        assert!(parse_session(document(text)).is_err(), "the decoder takes {text}");
    }
}

#[test]
fn rules_and_checks_are_given_by_the_caller() {
    let schema = scenario_schema(&json!({"type": "string"}), &json!({"type": "integer"}));
    assert!(conforms(&schema, &yaml("{prompt: x, assert: [y], answers: [1]}")));
    assert!(!conforms(&schema, &yaml("{prompt: x, assert: [1]}")));
    assert!(!conforms(&schema, &yaml("{prompt: x, answers: [y]}")));
}
