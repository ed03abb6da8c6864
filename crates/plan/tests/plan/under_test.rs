//! From a scenario and a session to the agent that is tested, through the compiler like any other agent.

use crate::scenarios::text;
use crate::world::{World, abs};
use belljar_contract::{
    Access, BackendKind, ConversationChoice, EnvName, HomeMode, LibraryName, Mount, MountSource,
    PermissionMode, Purpose, SessionTuning, ThinkingLimit,
};
use belljar_plan::{
    AGENT_UNDER_TEST, McpEntry, McpEnv, Scenario, Session, Staged, StagedError, agent_under_test, parse,
    parse_session, tuning,
};

fn scenario(yaml: &str) -> Scenario {
    crate::scenarios::scenario(text("smoke.yaml", yaml)).unwrap().scenario
}

fn session(yaml: &str) -> Session {
    parse_session(text("session.yaml", yaml)).unwrap().session
}

fn name(text: &str) -> LibraryName {
    LibraryName::new(text).unwrap()
}

fn staged() -> Staged {
    let env = |name: &str, value| (EnvName::new(name).unwrap(), value);
    Staged {
        read_only: vec![(abs("/home/ann/datasets"), "mnt/uploads/data set".to_owned())],
        skills: vec![(name("changelog"), abs("/srv/project/skills/changelog"))],
        plugins: vec![(name("discord"), abs("/home/ann/plugins/discord"))],
        mcp: vec![McpEntry {
            name: name("files.v2"),
            command: "files".to_owned(),
            args: vec!["--root=a \"b\"\n".to_owned()],
            env: vec![
                env("MODE", McpEnv::Literal("?not a question".to_owned())),
                env("KEY", McpEnv::Variable(EnvName::new("GITHUB_TOKEN").unwrap())),
            ],
        }],
        backend: Some(BackendKind::Bwrap),
        image: None,
        home: None,
        cost: None,
        variables: vec![(EnvName::new("SUBAGENT").unwrap(), "a \"b\"".to_owned())],
    }
}

const SESSION: &str = "agent: scribe@2.1.197
model: some-model
effort: high
egress: {extra_allow: [api.example.org, '*.example.net:8443']}
web_fetch: {approved_domains: [docs.example.org]}
";

#[test]
fn the_manifest_of_the_agent() {
    let scenario = scenario("prompt: hi\ntimeout_ms: 90500\n");
    let layer = agent_under_test(&scenario, &session(SESSION), &staged()).unwrap();
    assert_eq!(
        String::from_utf8(layer.bytes).unwrap(),
        r#"# The agent of the scenario "smoke".
[library.skills.changelog]
source = "/srv/project/skills/changelog"
[library.plugins.discord]
source = "/home/ann/plugins/discord"
[library.mcp."files.v2"]
command = "files"
args = ["--root=a \"b\"\n"]
env = { MODE = { value = "?not a question" }, KEY = { env = "GITHUB_TOKEN" } }
[agents.under-test]
home = "clean"
workspace = "direct"
agent = "scribe@2.1.197"
backend = "bwrap"
model = "some-model"
effort = "high"
skills = ["changelog"]
plugins = ["discord"]
mcp = ["files.v2"]
permissions = { skip_prompts = false, allow = ["WebFetch(domain:docs.example.org)"] }
mounts = [{ source = "/home/ann/datasets", target = "/workspace/mnt/uploads/data set", mode = "ro" }]
egress = { allow = ["api.example.org", "*.example.net:8443"] }
limits = { time = "1m31s" }
[agents.under-test.env]
SUBAGENT = { value = "a \"b\"" }
"#
    );
}

#[test]
fn it_compiles_to_what_was_meant() {
    let scenario = scenario("prompt: hi\ntimeout_ms: 1\n");
    let mut layer = agent_under_test(&scenario, &session(SESSION), &staged()).unwrap();
    // The tests' own agent stands in for the real one.
    let written = String::from_utf8(layer.bytes).unwrap();
    layer.bytes = written.replace("home = \"clean\"", "harness = \"scribe\"\nhome = \"clean\"").into_bytes();
    let manifest = parse(vec![layer]).unwrap_or_else(|error| panic!("{:#?}", error.diagnostics));
    let mut world = World::full();
    world.purpose = Purpose::Test;
    let (compiled, _, diagnostics) = world.compile(&manifest, AGENT_UNDER_TEST);
    let plan = compiled.unwrap_or_else(|| panic!("{diagnostics:#?}")).plan;
    assert_eq!(plan.home, HomeMode::Clean);
    let shown = plan.mounts.iter().find(|mount| mount.target == abs("/workspace/mnt/uploads/data set"));
    assert!(matches!(shown, Some(Mount { source: MountSource::Host(_), access: Access::ReadOnly, .. })));
    assert_eq!(plan.egress.rules.len(), 2);
    assert_eq!(plan.limits.time.unwrap().to_string(), "1s");
    assert_eq!((plan.skills.len(), plan.plugins.len(), plan.mcp.len()), (1, 1, 1));
}

/// Nothing staged and nothing written grants nothing.
#[test]
fn an_empty_session_grants_nothing() {
    let layer = agent_under_test(&scenario("prompt: hi\n"), &Session::default(), &Staged::default()).unwrap();
    let written = String::from_utf8(layer.bytes).unwrap();
    for line in ["skip_prompts = false, allow = []", "mounts = []", "egress = { allow = [] }"] {
        assert!(written.contains(line), "{written}");
    }
    assert!(!written.contains("limits") && !written.contains("library") && !written.contains("backend"));
}

#[test]
fn questions_are_skipped_only_where_it_is_said() {
    for (mode, skipped) in
        [("default", false), ("acceptEdits", false), ("plan", false), ("bypassPermissions", true)]
    {
        let session = session(&format!("permission_mode: {mode}\n"));
        let layer = agent_under_test(&scenario("prompt: hi\n"), &session, &Staged::default()).unwrap();
        let written = String::from_utf8(layer.bytes).unwrap();
        assert!(written.contains(&format!("skip_prompts = {skipped}")), "{mode}: {written}");
        let bypassed = tuning(&session).permission_mode == PermissionMode::BypassPermissions;
        assert_eq!(bypassed, skipped, "{mode}");
    }
}

#[test]
fn what_is_staged_stays_below_the_workspace() {
    for below in ["", ".", "/etc", "..", "a/../../b", "a/../b", "a\0b"] {
        let staged =
            Staged { read_only: vec![(abs("/home/ann/datasets"), below.to_owned())], ..Staged::default() };
        let error = agent_under_test(&scenario("prompt: hi\n"), &Session::default(), &staged).unwrap_err();
        assert_eq!(error, StagedError::Outside { path: below.to_owned() });
    }
}

/// A name in a scenario is text, whatever it looks like.
#[test]
fn no_text_becomes_a_key() {
    let scenario = scenario("prompt: hi\nname: \"x\\\"]\\u2028[agents.evil]\"\n");
    let layer = agent_under_test(&scenario, &Session::default(), &Staged::default()).unwrap();
    let manifest = parse(vec![layer]).unwrap_or_else(|error| panic!("{:#?}", error.diagnostics));
    let agents: Vec<&str> = manifest.agents.keys().map(|name| name.as_str()).collect();
    assert_eq!(agents, [AGENT_UNDER_TEST]);
}

#[test]
fn the_tuning_of_a_session() {
    let nothing = SessionTuning {
        conversation: ConversationChoice::Fresh,
        permission_mode: PermissionMode::Default,
        thinking: None,
        thinking_display: None,
        max_turns: None,
        subagent_model: None,
        tool_search: None,
        stable_api_only: false,
        compact_after: None,
        foreground_only: false,
    };
    for (yaml, expected) in [
        ("model: x\n", nothing.clone()),
        (
            "extended_thinking: true\n",
            SessionTuning { thinking: Some(ThinkingLimit::Tokens(31_999)), ..nothing.clone() },
        ),
        (
            "extended_thinking: false\n",
            SessionTuning { thinking: Some(ThinkingLimit::Disabled), ..nothing.clone() },
        ),
        (
            "extended_thinking: true\npermission_mode: plan\nagent_max_turns: 7\ndebug: {max_thinking_tokens: 9, thinking_display: omitted}\n",
            SessionTuning {
                permission_mode: PermissionMode::Plan,
                thinking: Some(ThinkingLimit::Tokens(9)),
                thinking_display: Some("omitted"),
                max_turns: Some(7),
                ..nothing.clone()
            },
        ),
        (
            "agent_env:\n  {subagent_model: m, tool_search: off, disable_experimental_betas: true, auto_compact_window: 100000}\n",
            SessionTuning {
                subagent_model: Some("m"),
                tool_search: Some(false),
                stable_api_only: true,
                compact_after: Some(100_000),
                ..nothing.clone()
            },
        ),
        ("agent_env: {tool_search: auto}\n", SessionTuning { tool_search: Some(true), ..nothing.clone() }),
    ] {
        assert_eq!(tuning(&session(yaml)), expected, "{yaml}");
    }
}
