//! Every key of a scenario and a session has an effect, or is refused or warned of by name. A key that is added fails
//! here until its effect is written down.

use super::requests::tests::environment;
use super::{Answering, Consent, Conversation, LoadError, Planning, Trial, TrialUse, load_scenario};
use crate::environment::HostEnvironment;
use belljar_contract::{
    AbsPath, Evidence, Lane, Metrics, ModelEvidence, PermissionRequest, SandboxChoice, Whole,
};
use belljar_session::Question;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;

/// What a key does.
enum Does {
    /// With the second text something else happens than with the first.
    Change(&'static str, &'static str),
    /// This text is refused, and the message has these words.
    Refuse(&'static str, &'static str),
    /// This text has no effect, and a warning with these words says so.
    Warn(&'static str, &'static str),
    /// What its members do.
    Members,
}

use Does::{Change, Members, Refuse, Warn};

const SCENARIO_KEYS: [(&str, Does); 15] = [
    ("name", Change("", "name: other")),
    ("baseline", Refuse("baseline: desktop-1.2.3", "`baseline: desktop-1.2.3`")),
    ("session", Change("", "session: other.yaml")),
    ("fidelity", Change("", "fidelity: protocol")),
    ("execution", Refuse("execution: cloud-describe", "`execution: cloud-describe`")),
    ("lane", Refuse("lane: remote\nassert: [{file_absent: outputs/a}]", "`lane: remote`")),
    ("prompt", Change("prompt: go", "prompt: stop")),
    ("timeout_ms", Change("", "timeout_ms: 5000")),
    ("answers", Change("", "answers: [{when_tool: Bash, decide: deny}]")),
    ("on_unanswered", Change("", "on_unanswered: llm")),
    ("expect_denied", Change("", "expect_denied: [evil.example]")),
    ("assert", Change("", "assert: [{tool_called: Bash}]")),
    ("skills", Refuse("skills: [unheard-of]", "`skills` names `unheard-of`")),
    ("requires_capabilities", Change("", "requires_capabilities: [ocr]")),
    ("allow_host_writes", Warn("allow_host_writes: true", "`allow_host_writes` has no effect")),
];

const SESSION_KEYS: [(&str, Does); 50] = [
    ("agent", Change("", "agent: claude-code@2.1.197")),
    ("model", Change("", "model: claude-opus-4-8")),
    ("effort", Change("", "effort: high")),
    ("extended_thinking", Change("", "extended_thinking: false")),
    ("agent_max_turns", Change("", "agent_max_turns: 3")),
    ("account_name", Warn("account_name: Ann", "there is no account here")),
    ("permission_mode", Change("", "permission_mode: plan")),
    ("permission_parity", Change("", "permission_parity: strict")),
    ("folders", Members),
    ("folders[].from", Change("", "folders: [{from: work}]")),
    ("folders[].mode", Change("folders: [{from: work, mode: rw}]", "folders: [{from: work, mode: rwd}]")),
    ("projects", Members),
    ("projects[].uuid", Change("projects: [{uuid: p, from: work}]", "projects: [{uuid: q, from: work}]")),
    ("projects[].from", Change("", "projects: [{uuid: p, from: work}]")),
    ("uploads", Change("", "uploads: [work/plan.txt]")),
    ("trusted_folders", Warn("trusted_folders: [work]", "no directory is trusted here")),
    ("auto_mount_folders", Warn("auto_mount_folders: true", "no directory appears without being listed")),
    ("plugins", Members),
    ("plugins.config_dir", Refuse("plugins: {config_dir: work}", "configuration directory")),
    ("plugins.marketplaces", Refuse("plugins: {marketplaces: [shop.example]}", "marketplace")),
    ("plugins.local_marketplaces", Change("", "plugins: {local_marketplaces: [shop], enabled: [plug@shop]}")),
    (
        "plugins.enabled",
        Change(
            "plugins: {local_marketplaces: [shop]}",
            "plugins: {local_marketplaces: [shop], enabled: [plug@shop]}",
        ),
    ),
    ("plugins.local_plugins", Change("", "plugins: {local_plugins: [shop/plug]}")),
    ("plugins.remote_plugins", Change("", "plugins: {remote_plugins: [shop/plug]}")),
    ("skills", Members),
    ("skills.local", Change("", "skills: {local: [notes]}")),
    ("skills.suggest_enabled", Warn("skills: {suggest_enabled: true}", "skills are not suggested here")),
    (
        "skills.proactive_suggest_enabled",
        Warn("skills: {proactive_suggest_enabled: true}", "skills are not suggested here"),
    ),
    ("mcp", Members),
    ("mcp.config", Change("", "mcp: {config: mcp.json}")),
    ("mcp.enabled", Change("mcp: {config: mcp.json}", "mcp: {config: mcp.json, enabled: [one]}")),
    ("egress", Members),
    ("egress.extra_allow", Change("", "egress: {extra_allow: [one.example]}")),
    ("egress.unrestricted", Refuse("egress: {unrestricted: true}", "`unrestricted`")),
    ("web_fetch", Members),
    ("web_fetch.approved_domains", Change("", "web_fetch: {approved_domains: [one.example]}")),
    ("normalise", Members),
    (
        "normalise[].name",
        Change(
            "normalise: [{name: one, pattern: 'zq[0-9]', reason: a counter}]",
            "normalise: [{name: two, pattern: 'zq[0-9]', reason: a counter}]",
        ),
    ),
    (
        "normalise[].pattern",
        Refuse("normalise: [{name: one, pattern: '.*', reason: a counter}]", "matches the empty text"),
    ),
    (
        "normalise[].reason",
        Change(
            "normalise: [{name: one, pattern: 'zq[0-9]', reason: a counter}]",
            "normalise: [{name: one, pattern: 'zq[0-9]', reason: a clock}]",
        ),
    ),
    ("staleness", Members),
    ("staleness.hash_ignore", Warn("staleness: {hash_ignore: ['*.md']}", "`hash_ignore` has no effect")),
    ("debug", Members),
    ("debug.max_thinking_tokens", Change("", "debug: {max_thinking_tokens: 2000}")),
    ("debug.thinking_display", Change("", "debug: {thinking_display: omitted}")),
    ("agent_env", Members),
    ("agent_env.subagent_model", Change("", "agent_env: {subagent_model: claude-haiku-4-5}")),
    ("agent_env.tool_search", Change("", "agent_env: {tool_search: off}")),
    ("agent_env.disable_experimental_betas", Change("", "agent_env: {disable_experimental_betas: true}")),
    ("agent_env.auto_compact_window", Change("", "agent_env: {auto_compact_window: 200000}")),
];

/// The keys of a schema, without those of rules and checks, which have tests of their own.
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

#[test]
fn every_key_of_both_schemas_is_listed() {
    let listed = |keys: &[(&str, Does)]| keys.iter().map(|(key, _)| (*key).to_owned()).collect();
    let (mut scenario, mut session) = (BTreeSet::new(), BTreeSet::new());
    keys(&belljar_plan::scenario_schema(&json!({}), &json!({})), "", &mut scenario);
    keys(&belljar_plan::session_schema(), "", &mut session);
    let (wanted, wanted_of_sessions): (BTreeSet<String>, BTreeSet<String>) =
        (listed(&SCENARIO_KEYS), listed(&SESSION_KEYS));
    assert_eq!(scenario, wanted);
    assert_eq!(session, wanted_of_sessions);
}

struct World {
    _directory: tempfile::TempDir,
    top: AbsPath,
    environment: HostEnvironment,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let environment = environment(&top);
        fs::create_dir_all(top.child("home")).unwrap();
        let world = Self { _directory: directory, top, environment };
        let market =
            r#"{"name": "shop", "owner": {"name": "x"}, "plugins": [{"name": "plug", "source": "./plug"}]}"#;
        for (name, text) in [
            ("work/plan.txt", "a plan"),
            ("notes/SKILL.md", "---\nname: notes\ndescription: Notes\n---\nBody.\n"),
            ("shop/.claude-plugin/marketplace.json", market),
            ("shop/plug/.claude-plugin/plugin.json", r#"{"name": "plug"}"#),
            ("mcp.json", r#"{"mcpServers": {"one": {"command": "cat"}, "two": {"command": "cat"}}}"#),
            ("other.yaml", "effort: low\n"),
        ] {
            world.write(name, text);
        }
        world
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.top.child("suite").as_path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn load(&self, scenario: &str, session: &str) -> Result<Trial, LoadError> {
        let prompt = if scenario.starts_with("prompt:") { "" } else { "prompt: go\n" };
        let named = if scenario.starts_with("session:") { "" } else { "session: session.yaml\n" };
        self.write("a.yaml", &format!("{scenario}\n{prompt}{named}"));
        self.write("session.yaml", if session.is_empty() { "effort: medium\n" } else { session });
        load_scenario(&self.environment, &self.top.child("suite/a.yaml"), &|_| true)
    }

    /// Everything that follows from the files: what is planned, staged, said, answered and judged.
    fn consequences(&self, scenario: &str, session: &str) -> String {
        let trial =
            self.load(scenario, session).unwrap_or_else(|error| panic!("{scenario} {session}: {error:?}"));
        let sandbox = SandboxChoice::default();
        let consent = Consent::to(TrialUse::Run, vec![trial.wishes(&sandbox, TrialUse::Run)]);
        let (environment, conversation) = (&self.environment, &Conversation::Fresh);
        let planning =
            Planning { environment, sandbox: &sandbox, agent: None, conversation, consent: &consent };
        let (stage, planned) =
            trial.planned(&planning).unwrap_or_else(|error| panic!("{scenario} {session}: {error}"));
        let mut files = Vec::new();
        list(stage.path(), &mut files);
        let plan = serde_json::to_string(&planned.compiled.plan).unwrap();
        let text = format!(
            "{}\n{}\n{plan}\n{:?}\n{files:?} {:?} {:?} {:?}\n{}\n{:?}\n{:?}",
            trial.scenario.name,
            trial.scenario.prompt,
            trial.arguments(&planned, None, conversation).unwrap(),
            stage.visible,
            stage.read_only,
            stage.lasting,
            answers(&trial),
            trial.checks.judge(&nothing(trial.scenario.lane)),
            trial.session.normalise,
        );
        // The stage has another name in each run, and with it the instance.
        let instance = &planned.compiled.plan.instance;
        let passing = [stage.path().to_string(), instance.directory.to_string(), instance.key.to_string()];
        passing.iter().fold(text, |text, name| text.replace(name, "-"))
    }
}

fn list(directory: &AbsPath, out: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = AbsPath::new(entry.unwrap().path()).unwrap();
        out.push(path.to_string());
        if path.as_path().is_dir() {
            list(&path, out);
        }
    }
    out.sort();
}

/// How a tool that asks is answered, and whether anyone is asked in the end.
fn answers(trial: &Trial) -> String {
    let deciders = trial.answers().deciders(Answering::default(), None);
    let bash = Question::Permission(PermissionRequest::of("Bash", Map::new()));
    format!("{:?} {}", deciders.chain.decide(&bash), deciders.outside.is_some())
}

fn nothing(lane: Lane) -> Evidence {
    Evidence {
        seen: Vec::new(),
        conversation: Whole::Yes,
        end: None,
        egress: None,
        model: ModelEvidence::NotKept,
        files: None,
        metrics: Metrics::default(),
        duration_ms: None,
        stopped_by: None,
        isolation: belljar_contract::RunIsolation::Sealed,
        claims: Vec::new(),
        lane,
    }
}

/// What is wrong with a key, if something is.
fn fault(world: &World, does: &Does, of_session: bool) -> Option<String> {
    let at = |text: &'static str| if of_session { ("", text) } else { (text, "") };
    let load = |text| {
        let (scenario, session) = at(text);
        world.load(scenario, session)
    };
    match does {
        Members => None,
        Change(without, with) => {
            let [before, after] = [without, with].map(|text| {
                let (scenario, session) = at(text);
                world.consequences(scenario, session)
            });
            (before == after).then(|| "changes nothing".to_owned())
        }
        Refuse(text, words) => match load(text) {
            Ok(_) => Some("is not refused".to_owned()),
            Err(LoadError::Invalid { diagnostics, .. }) if diagnostics[0].message.contains(words) => None,
            Err(error) if error.to_string().contains(words) => None,
            Err(error) => Some(format!("is refused otherwise: {error:?}")),
        },
        Warn(text, words) => {
            let warnings = load(text).unwrap().warnings;
            let found = warnings.iter().any(|(_, warning)| warning.message.contains(words));
            (!found).then(|| format!("is not warned of: {warnings:?}"))
        }
    }
}

#[test]
fn every_key_has_its_effect_or_is_named() {
    let world = World::new();
    let control = [(); 2].map(|()| world.consequences("", ""));
    assert_eq!(control[0], control[1], "the same files have the same consequences");
    let lists = [(false, &SCENARIO_KEYS[..]), (true, &SESSION_KEYS[..])];
    let all = lists.into_iter().flat_map(|(of_session, list)| list.iter().map(move |one| (of_session, one)));
    let faults: Vec<String> = all
        .filter_map(|(of_session, (key, does))| Some(format!("`{key}` {}", fault(&world, does, of_session)?)))
        .collect();
    assert_eq!(faults, [""; 0]);
}
