//! Every key of a scenario and a session, and whether it can ask for something of the user's. A key that is added fails
//! here until somebody has decided.

use super::{PLAIN, SCENARIO, refused, suite};
use crate::stage::Stage;
use serde_json::Value;
use std::collections::BTreeSet;

/// What a key can ask for.
enum Asks {
    /// This text makes it ask for something, which is listed so.
    For(&'static str, &'static str),
    /// Nothing, because of this.
    Nothing(&'static str),
}

use Asks::{For, Nothing};

const SCENARIO_KEYS: [(&str, Asks); 15] = [
    ("name", Nothing("a text")),
    ("baseline", Nothing("a text")),
    ("session", For("session: ~/session.yaml", "session file: ")),
    ("fidelity", For("fidelity: protocol", "backend `host`")),
    ("execution", Nothing("`local` and nothing else")),
    ("lane", Nothing("what is judged")),
    ("prompt", Nothing("a text")),
    ("timeout_ms", Nothing("a limit")),
    ("answers", Nothing("answers to questions, inside the sandbox")),
    ("on_unanswered", Nothing("who answers; a model does so within the budget of the run")),
    ("expect_denied", Nothing("what is judged")),
    ("assert", Nothing("what is judged, on evidence alone")),
    ("skills", Nothing("names among those of the session")),
    ("requires_capabilities", Nothing("what is refused where it is missing")),
    ("allow_host_writes", Nothing("directories are always copied")),
];

const SESSION_KEYS: [(&str, Asks); 50] = [
    ("agent", Nothing("one of the versions that the user installed; none is installed because of it")),
    ("model", Nothing("a name")),
    ("effort", Nothing("a word")),
    ("extended_thinking", Nothing("a switch of the model")),
    ("agent_max_turns", Nothing("a limit")),
    ("account_name", Nothing("has no effect")),
    ("permission_mode", Nothing("what the agent asks about, inside the sandbox")),
    ("permission_parity", Nothing("who answers, inside the sandbox")),
    ("folders", Nothing("its members")),
    ("folders[].from", For("folders: [{from: ~/work}]", "directory to work on: ")),
    ("folders[].mode", Nothing("what may be done with a copy")),
    ("projects", Nothing("its members")),
    ("projects[].uuid", Nothing("a name")),
    ("projects[].from", For("projects: [{uuid: p, from: ~/work}]", "project directory: ")),
    ("uploads", For("uploads: [~/work]", "upload: ")),
    ("trusted_folders", Nothing("has no effect")),
    ("auto_mount_folders", Nothing("has no effect")),
    ("plugins", Nothing("its members")),
    ("plugins.config_dir", Nothing("refused")),
    ("plugins.marketplaces", Nothing("refused")),
    (
        "plugins.local_marketplaces",
        For("plugins: {local_marketplaces: [~/shop], enabled: [plug@shop]}", "marketplace: "),
    ),
    ("plugins.enabled", For("plugins: {local_marketplaces: [shop], enabled: [plug@shop]}", "plugin: ")),
    ("plugins.local_plugins", For("plugins: {local_plugins: [~/shop/plug]}", "plugin: ")),
    ("plugins.remote_plugins", For("plugins: {remote_plugins: [~/shop/plug]}", "plugin: ")),
    ("skills", Nothing("its members")),
    ("skills.local", For("skills: {local: [~/notes]}", "skill: ")),
    ("skills.suggest_enabled", Nothing("has no effect")),
    ("skills.proactive_suggest_enabled", Nothing("has no effect")),
    ("mcp", Nothing("its members")),
    ("mcp.config", For("mcp: {config: mcp.json}", "variable GITHUB_TOKEN: ")),
    ("mcp.enabled", Nothing("names among those of `config`")),
    ("egress", Nothing("its members")),
    (
        "egress.extra_allow",
        For("egress: {extra_allow: ['*.evil.example:8443']}", "egress to *.evil.example:8443"),
    ),
    ("egress.unrestricted", Nothing("refused")),
    ("web_fetch", Nothing("its members")),
    ("web_fetch.approved_domains", Nothing("a permission of the agent; the egress rules hold")),
    ("normalise", Nothing("its members")),
    ("normalise[].name", Nothing("a name")),
    (
        "normalise[].pattern",
        Nothing("what recorded requests are compared without; nothing is opened or sent"),
    ),
    ("normalise[].reason", Nothing("a line of text")),
    ("staleness", Nothing("its members")),
    ("staleness.hash_ignore", Nothing("has no effect")),
    ("debug", Nothing("its members")),
    ("debug.max_thinking_tokens", Nothing("a limit")),
    ("debug.thinking_display", Nothing("a word")),
    ("agent_env", Nothing("its members")),
    ("agent_env.subagent_model", Nothing("a name")),
    ("agent_env.tool_search", Nothing("a switch of the agent")),
    ("agent_env.disable_experimental_betas", Nothing("a switch of the agent")),
    ("agent_env.auto_compact_window", Nothing("a number")),
];

/// The keys of a schema, without those of rules and checks, which have parsers of their own.
fn keys(schema: &Value, above: &str, out: &mut BTreeSet<String>) {
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let key = format!("{above}{key}");
        out.insert(key.clone());
        if !matches!(key.as_str(), "assert" | "answers") {
            keys(below, &format!("{key}."), out);
            keys(&below["items"], &format!("{key}[]."), out);
        }
    }
}

fn decided<'a>(keys: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    keys.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_key_was_decided_on() {
    let (mut scenario, mut session) = (BTreeSet::new(), BTreeSet::new());
    keys(&belljar_runner::SchemaKind::Scenario.schema(), "", &mut scenario);
    keys(&belljar_runner::SchemaKind::Session.schema(), "", &mut session);
    assert_eq!(scenario, decided(SCENARIO_KEYS.iter().map(|(key, _)| *key)));
    assert_eq!(session, decided(SESSION_KEYS.iter().map(|(key, _)| *key)));
    let reasons = SCENARIO_KEYS.iter().chain(&SESSION_KEYS).filter_map(|(key, asks)| match asks {
        Nothing(why) => Some((key, why)),
        For(..) => None,
    });
    reasons.for_each(|(key, why)| assert!(!why.is_empty(), "{key}"));
}

/// A suite beside a home that has one of everything.
fn world() -> Stage {
    let stage = suite(PLAIN);
    stage.write("home/session.yaml", PLAIN);
    stage.write("home/work/plan.txt", "private");
    stage.skill("home", "notes");
    let market =
        r#"{"name": "shop", "owner": {"name": "x"}, "plugins": [{"name": "plug", "source": "./plug"}]}"#;
    stage.write("home/shop/.claude-plugin/marketplace.json", market);
    stage.write("home/shop/plug/.claude-plugin/plugin.json", r#"{"name": "plug"}"#);
    stage.write("project/tests/shop/.claude-plugin/marketplace.json", market);
    stage.link("project/tests/shop/plug", "../../../home/shop/plug");
    let server = r#"{"mcpServers": {"forge": {"command": "cat", "env": {"TOKEN": "${GITHUB_TOKEN}"}}}}"#;
    stage.write("project/tests/mcp.json", server);
    stage
}

#[test]
fn every_key_that_can_ask_for_something_is_asked_about() {
    let stage = world();
    let args = ["test", "--scripted", "tests/a.yaml"];
    for (key, asks) in &SESSION_KEYS {
        let For(text, wish) = asks else { continue };
        stage.write("project/tests/session.yaml", format!("{text}\n"));
        assert!(refused(&stage, &args, wish).stderr.contains(wish), "{key}");
    }
    stage.write("project/tests/session.yaml", PLAIN);
    for (key, asks) in &SCENARIO_KEYS {
        let For(text, wish) = asks else { continue };
        let rest: String =
            SCENARIO.split_inclusive('\n').filter(|line| !line.starts_with("session:")).collect();
        stage.write("project/tests/a.yaml", format!("{text}\n{rest}"));
        assert!(refused(&stage, &args, wish).stderr.contains(wish), "{key}");
    }
}
