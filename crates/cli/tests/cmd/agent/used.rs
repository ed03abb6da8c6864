//! A kept version of the agent is what runs.

use super::registry::{Answer, PACKAGE, Registry, archive_at, at, platform_package};
use super::{PROGRAM, refused, stored};
use crate::cmd::run::Screen;
use crate::stage::Stage;
use belljar_contract::Digest;
use belljar_testkit::agent::{OLDER_VERSION, VERSION};
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const HELLO: &str =
    r#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"text": "All done."}]}}}]}"#;

/// Where the store has a version.
fn at_version(version: &str) -> String {
    format!("data/belljar/agents/claude-code/{version}")
}

/// Puts a program into the store as a version, as an installation would have.
pub fn keep(stage: &Stage, version: &str, program: &Path) {
    let at = at_version(version);
    fs::create_dir_all(stage.path(&at)).unwrap();
    let to = stage.path(&format!("{at}/claude"));
    fs::hard_link(program, &to).or_else(|_other_disk| fs::copy(program, &to).map(|_bytes| ())).unwrap();
    let digest = Digest::of_reader(&mut File::open(&to).unwrap()).unwrap();
    let description = json!({
        "format": 1, "name": "claude-code", "version": version, "package": platform_package(),
        "integrity": super::integrity(b""), "installed_at_ms": 0, "program": digest,
        "bytes": fs::metadata(&to).unwrap().len(),
    });
    stage.write(&format!("{at}/agent.json"), description.to_string());
    stage.write(&format!("{at}/lock"), "");
}

/// A program that does not speak the agent's protocol.
fn fake(stage: &Stage, version: &str) {
    stage.write("fake", PROGRAM);
    fs::set_permissions(stage.path("fake"), fs::Permissions::from_mode(0o755)).unwrap();
    keep(stage, version, &stage.path("fake"));
}

/// A project with a scenario and its script, and both real agents in the store.
fn both() -> Stage {
    let stage = scenario();
    keep(&stage, VERSION, &agent::real().unwrap());
    keep(&stage, OLDER_VERSION, &agent::older().unwrap());
    stage
}

fn scenario() -> Stage {
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\nsession: session.yaml\nassert: [{result: success}]\n");
    stage.write("project/session.yaml", "effort: low\n");
    stage.write("project/a.script.json", HELLO);
    stage
}

fn with_path(stage: &Stage, program: &Path, arguments: &[&str]) -> Finished {
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    stage.finish(stage.command(arguments).env("PATH", path))
}

fn data(found: &Finished) -> Value {
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap_or_else(|_| panic!("{found:?}"));
    envelope["data"].clone()
}

fn release(version: &str) -> String {
    format!("claude-code@{version}")
}

fn used(version: &str, source: Value) -> Value {
    json!({"name": "claude-code", "version": version, "source": source})
}

fn kept(named_by: &str) -> Value {
    json!({"from": "kept", "named_by": named_by})
}

/// What the agent itself said about its version.
fn said(row: &Value) -> String {
    let frames = Path::new(row["directory"].as_str().unwrap()).join("frames.jsonl");
    let text = fs::read_to_string(frames).unwrap();
    let (_, rest) = text.split_once("\"claude_code_version\":\"").unwrap_or_else(|| panic!("{text}"));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn the_option_wins_over_the_session_and_the_session_over_the_path() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = both();
    let pinned = agent::real().unwrap();
    let run = |more: &[&str], version: &str, source: Value| {
        let found = with_path(&stage, &pinned, &[&["test", "--json", "--scripted", "a.yaml"], more].concat());
        let row = data(&found)["results"][0].clone();
        assert_eq!(found.status.code(), Some(0), "{row:#}");
        assert_eq!((&row["agent"], said(&row)), (&used(version, source), version.to_owned()), "{row:#}");
        row
    };
    run(&[], VERSION, json!({"from": "path"}));
    stage.write("project/session.yaml", format!("agent: {}\n", release(OLDER_VERSION)));
    let row = run(&[], OLDER_VERSION, kept("session"));
    let trace = stage.run(&["trace", row["directory"].as_str().unwrap()]);
    let line = format!("Agent: claude-code {OLDER_VERSION}, kept by belljar, named by the session\n");
    assert!(trace.stdout.contains(&line), "{trace:?}");
    run(&["--agent", &release(VERSION)], VERSION, kept("option"));
    // Workers get it, too.
    run(&["--repeat", "2", "--agent", &release(VERSION)], VERSION, kept("option"));
}

#[test]
fn the_manifest_names_a_version_and_the_option_wins() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = both();
    stage.write("project/hello.json", HELLO);
    stage.write("project/belljar.toml", format!("[agents.a]\nagent = \"{}\"\n", release(OLDER_VERSION)));
    let run = |more: &[&str], version: &str, by: &str| {
        let arguments = [&["run", "--yes", "--script", "hello.json"], more, &["--", "-p", "hi"]].concat();
        let found = stage.run(&arguments);
        assert_eq!((found.status.code(), &*found.stdout), (Some(0), "All done.\n"), "{found:?}");
        let runs = data(&stage.run(&["runs", "--json"]));
        let directory = PathBuf::from(runs["runs"][0]["directory"].as_str().unwrap());
        let head: Value = serde_json::from_slice(&fs::read(directory.join("run.json")).unwrap()).unwrap();
        assert_eq!(head["host"]["agent"], used(version, kept(by)), "{head:#}");
        let program = stage.path(&format!("{}/claude", at_version(version)));
        assert_eq!(head["host"]["agent_program"], json!(program), "{head:#}");
        assert_eq!(runs["runs"][0]["agent"], head["host"]["agent"], "{runs:#}");
        fs::remove_dir_all(directory).unwrap();
    };
    run(&[], OLDER_VERSION, "manifest");
    run(&["--agent", &release(VERSION)], VERSION, "option");

    let plan = stage.run(&["plan"]).stdout;
    assert!(
        plan.contains(&format!("claude-code {OLDER_VERSION}, kept by belljar, named by the manifest")),
        "{plan}"
    );
    let why = stage.run(&["plan", "--why", "agent_version"]).stdout;
    assert!(why.contains(&format!("agent_version = {OLDER_VERSION}\n  belljar.toml:2:9")), "{why}");
    let asked = stage.run(&["plan", "--agent", &release(VERSION), "--json"]);
    assert_eq!(data(&asked)["agent"], used(VERSION, kept("option")));
    assert_eq!(data(&asked)["plan"]["agent_version"], json!(VERSION));
}

#[test]
fn the_kept_program_is_read_only_inside() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = both();
    let plan = stage.run(&["plan", "--json", "--agent", &release(OLDER_VERSION)]);
    let mounts = data(&plan)["plan"]["mounts"].clone();
    let program = mounts.as_array().unwrap().iter().find(|mount| mount["kind"] == "agent-program").unwrap();
    let (target, script) = (program["target"].as_str().unwrap(), stage.path("project/try.json"));
    let command = format!("echo x >> {target} || echo REFUSED; head -c 0 {target} && echo READ");
    let call = json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "x"}}});
    let turn = |content: Value| json!({"answer": {"reply": {"content": [content]}}});
    let text = json!({"version": 1, "turns": [turn(call), turn(json!({"text": "done"}))]});
    fs::write(script, text.to_string()).unwrap();
    let scenario = "prompt: go\nanswers: [{when_tool: Bash, decide: allow}]\nassert: [{result: success}]\n";
    stage.write("project/b.yaml", scenario);
    let before = fs::metadata(agent::older().unwrap()).unwrap().len();
    let found =
        stage.run(&["test", "--json", "--script", "try.json", "--agent", &release(OLDER_VERSION), "b.yaml"]);
    let row = data(&found)["results"][0].clone();
    let frames =
        fs::read_to_string(Path::new(row["directory"].as_str().unwrap()).join("frames.jsonl")).unwrap();
    assert!(frames.contains("REFUSED") && frames.contains("READ"), "{frames}");
    assert_eq!(fs::metadata(agent::older().unwrap()).unwrap().len(), before);
}

#[test]
fn a_suite_names_what_to_do_without_an_agent_once() {
    require!(Bwrap);
    let stage = scenario();
    fs::copy(stage.path("project/a.yaml"), stage.path("project/b.yaml")).unwrap();
    fs::copy(stage.path("project/a.script.json"), stage.path("project/b.script.json")).unwrap();
    let found = stage.run(&["test", "--scripted", "."]);
    assert_eq!(found.status.code(), Some(4), "{found:?}");
    let hints: Vec<&str> = found.stderr.lines().filter(|line| line.starts_with("hint: ")).collect();
    assert_eq!(hints.len(), 1, "{found:?}");
    assert!(hints[0].contains("--agent claude-code@VERSION --install"), "{hints:?}");
}

#[test]
fn a_version_that_is_not_installed_is_refused_before_anything_happens() {
    let stage = scenario();
    fake(&stage, "2.1.5");
    stage.skill("project/skills", "notes");
    stage.write("project/belljar.toml", "[agents.a]\nagent = \"claude-code@2.1.9\"\n");
    let parts = [
        "claude-code@2.1.9 is not installed",
        "hint: belljar agent install claude-code@2.1.9",
        "hint: installed is claude-code@2.1.5, not claude-code@2.1.9",
    ];
    let option = ["--agent", "claude-code@2.1.9"];
    for (arguments, code) in [
        (&["test", "--scripted", "a.yaml"][..], 2),
        (&["test", "--scripted", "--repeat", "2", "a.yaml"], 2),
        (&["record", "--scripted", "a.yaml"], 2),
        (&["skill", "skills/notes", "go", "--script", "a.script.json"], 2),
        (&["chat", "skills/notes", "--say", "go", "--script", "a.script.json"], 2),
        (&["run", "--yes"], 125),
    ] {
        refused(&stage.run(&[arguments, &option].concat()), code, &parts);
    }
    refused(&stage.run(&["run", "--yes"]), 125, &parts);
    stage.write("project/session.yaml", "agent: claude-code@2.1.9\n");
    refused(&stage.run(&["test", "--scripted", "a.yaml"]), 2, &parts);
    assert!(!stage.path("home/.local/state/belljar/runs").exists(), "nothing ran");
    // The plan is shown, and says it.
    let plan = stage.run(&["plan"]);
    assert_eq!(plan.status.code(), Some(0), "{plan:?}");
    assert!(plan.stdout.contains("claude-code@2.1.9 is not installed; belljar agent install"), "{plan:?}");
    assert!(stage.run(&["exec", "--yes", "--dry-run", "--", "true"]).status.success());
}

#[test]
fn what_names_no_version_is_refused() {
    let stage = scenario();
    let said = |arguments: &[&str], parts: &[&str]| refused(&stage.run(arguments), 2, parts);
    said(
        &["test", "--agent", "claude-code", "a.yaml"],
        &["expected NAME@VERSION", "a version of the agent's program"],
    );
    said(&["test", "--agent", "claude-code@latest", "a.yaml"], &["`latest` is not a version such as"]);
    said(&["test", "--agent", "recorded", "a.yaml"], &["expected NAME@VERSION"]);
    said(
        &["test", "--agent", "claude-cod@2.1.9", "a.yaml"],
        &["belljar knows no agent `claude-cod`", "did you mean `claude-code`?"],
    );
    stage.write("project/session.yaml", "agent: claude-cod@2.1.9\n");
    said(&["test", "--scripted", "a.yaml"], &["`agent` names `claude-cod@2.1.9`", "knows no agent"]);
    said(&["check", "session.yaml"], &["session.yaml:1:8", "knows no agent `claude-cod`"]);
    stage.write("project/session.yaml", "agent: claude-code@latest\n");
    said(&["test", "--scripted", "a.yaml"], &["session.yaml:1:8", "name an exact one"]);
    // A name of the manifest and a version are not confused.
    stage.write("project/belljar.toml", "[agents.a]\n");
    refused(
        &stage.run(&["run", "claude-code@2.1.9"]),
        125,
        &["no agent `claude-code@2.1.9` is declared", "--agent claude-code@2.1.9"],
    );
}

fn install(stage: &Stage, registry: &Registry, arguments: &[&str]) -> Finished {
    stage.finish(stage.command(arguments).env("npm_config_registry", registry.url()))
}

#[test]
fn a_file_never_installs_and_the_option_does() {
    require!(Bwrap);
    let (stage, registry) = (scenario(), Registry::start());
    registry.publish(&["2.1.203", "2.1.204"], PROGRAM);
    stage.write("project/session.yaml", "agent: claude-code@2.1.203\n");
    refused(
        &install(&stage, &registry, &["test", "--scripted", "a.yaml"]),
        2,
        &["claude-code@2.1.203 is not installed"],
    );
    assert!(registry.heard().is_empty(), "nothing was fetched: {:?}", registry.heard());

    let found = install(&stage, &registry, &["test", "--scripted", "--install", "a.yaml"]);
    assert!(found.stderr.starts_with("belljar: fetching claude-code@2.1.203"), "{found:?}");
    assert_eq!(found.status.code(), Some(5), "it ran, and it is no agent: {found:?}");
    assert_eq!(stored(&stage), ["2.1.203"]);
    // What is there is not fetched again, and --json is one object.
    let asked = registry.heard().len();
    let found = install(&stage, &registry, &["test", "--json", "--scripted", "--install", "a.yaml"]);
    assert_eq!(data(&found)["results"][0]["agent"]["source"], kept("session"), "{found:?}");
    assert_eq!(registry.heard().len(), asked);
    let option = ["test", "--json", "--scripted", "--install", "--agent", "claude-code@2.1.204", "a.yaml"];
    assert_eq!(data(&install(&stage, &registry, &option))["results"][0]["agent"]["source"], kept("option"));
    assert_eq!(stored(&stage), ["2.1.203", "2.1.204"]);
}

#[test]
fn an_installation_that_fails_starts_nothing() {
    let (stage, registry) = (scenario(), Registry::start());
    registry.publish(&["2.1.203"], PROGRAM);
    let with_patience = |version: &str, milliseconds: &str| {
        let arguments = ["test", "--scripted", "--install", "--agent", &release(version), "a.yaml"];
        let mut command = stage.command(&arguments);
        command.env("npm_config_registry", registry.url()).env("npm_config_fetch_timeout", milliseconds);
        stage.finish(&mut command)
    };
    let wanted = |version: &str| with_patience(version, "300000");
    refused(&wanted("2.1.9"), 2, &["has no version `2.1.9`", "hint: the nearest is `2.1.203`"]);
    registry.put(&archive_at("2.1.203"), Answer::Stalls(vec![0; 100]));
    // Everything else of the registry takes its time on a busy machine.
    refused(&with_patience("2.1.203", "3000"), 4, &["sent nothing for 3s", "hint: try again"]);
    registry.put(&at(PACKAGE), Answer::Whole(b"<html>".to_vec()));
    refused(&wanted("2.1.203"), 4, &["is not valid"]);
    let mut absent =
        stage.command(&["test", "--scripted", "--install", "--agent", "claude-code@2.1.203", "a.yaml"]);
    let found = stage.finish(absent.env("npm_config_registry", "http://127.0.0.1:1/"));
    refused(&found, 4, &["cannot connect to 127.0.0.1:1", "hint: the registry is the one of ~/.npmrc"]);
    assert!(stored(&stage).is_empty());
    assert!(!stage.path("home/.local/state/belljar/runs").exists(), "nothing ran");
}

/// The examples, with tapes of two versions: `report` of the older one, the others as they are shipped.
fn two_versions() -> Stage {
    let stage = Stage::copy_of(Path::new(EXAMPLES));
    let older = agent::older().unwrap();
    let found = with_path(&stage, &older, &["record", "--scripted", "report"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    fs::remove_dir_all(stage.path("home")).unwrap();
    fs::create_dir(stage.path("home")).unwrap();
    stage
}

#[test]
fn each_tape_is_replayed_on_the_version_that_it_names() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = two_versions();
    let replay = ["replay", "--json", "--agent", "recorded", "."];
    let missing = stage.run(&["replay", "--agent", "recorded", "."]);
    let line = format!("hint: belljar agent install {} {}\n", release(OLDER_VERSION), release(VERSION));
    refused(&missing, 2, &["are not installed", &line]);
    assert!(!stage.path("home/.local/state/belljar/runs").exists(), "nothing ran");

    keep(&stage, VERSION, &agent::real().unwrap());
    keep(&stage, OLDER_VERSION, &agent::older().unwrap());
    let found = stage.run(&replay);
    let rows = data(&found)["results"].as_array().unwrap().clone();
    assert_eq!(found.status.code(), Some(0), "{rows:#?}");
    assert_eq!(rows.len(), 3);
    for row in rows {
        let report = row["tape"].as_str().unwrap().ends_with("report.tape");
        let version = if report { OLDER_VERSION } else { VERSION };
        assert_eq!(
            (&row["agent"], said(&row)),
            (&used(version, kept("tape")), version.to_owned()),
            "{row:#}"
        );
        assert_eq!(row["agents"], json!({"recorded": version, "present": version}), "{row:#}");
        assert_eq!((&row["replay"]["crossed"], &row["changed"]), (&json!(0), &json!([])), "{row:#}");
    }
}

/// The line for a CI: nothing is there but the tapes and belljar.
#[test]
fn a_replay_installs_what_the_tapes_name_and_runs_it() {
    require!(Agent, Bwrap);
    let (stage, registry) = (Stage::copy_of(Path::new(EXAMPLES)), Registry::start());
    let program = fs::read(agent::real().unwrap()).unwrap();
    registry.publish_large(VERSION, &program);
    fs::remove_dir_all(stage.path("data")).unwrap();
    assert_eq!(fs::read_dir(stage.path("home")).unwrap().count(), 0);
    let mut command = stage.command(&["replay", "--agent", "recorded", "--install", "."]);
    // A quarter of a gigabyte is packed, verified and unpacked, by programs that are not optimised.
    let patience = Duration::from_secs(300);
    let found = run_within(command.env("npm_config_registry", registry.url()), patience).unwrap();
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(found.stderr.contains("3 passed, 0 failed"), "{found:?}");
    assert_eq!(registry.asked(&archive_at(VERSION)), 1);
}

#[test]
fn a_tape_without_a_version_that_can_be_started_is_named() {
    let stage = Stage::copy_of(Path::new(EXAMPLES));
    let head = stage.path("project/report/report.tape/tape.json");
    let text = fs::read_to_string(&head).unwrap();
    let mut tape: belljar_contract::TapeHead = serde_json::from_str(&text).unwrap();
    let harness = tape.agent.harness.clone();
    for (name, version, parts) in [
        (
            &*harness,
            None,
            ["does not name the version of the agent", "hint: `--agent NAME@VERSION` names one"],
        ),
        (&*harness, Some("new\n"), ["names `new\\n` as the version", "hint: `--agent NAME@VERSION`"]),
        ("scribe", Some("1.2.3"), ["an agent that this belljar cannot start", "knows no agent `scribe`"]),
    ] {
        tape.agent.harness = name.to_owned();
        tape.agent.version = version.map(str::to_owned);
        tape.integrity = tape.reckoned();
        fs::write(&head, serde_json::to_string_pretty(&tape).unwrap()).unwrap();
        refused(&stage.run(&["replay", "--agent", "recorded", "--install", "report"]), 2, &parts);
    }
}

#[test]
fn a_program_that_was_altered_is_not_started() {
    require!(Bwrap);
    let stage = scenario();
    fake(&stage, "2.1.203");
    let test = || stage.run(&["test", "--scripted", "--agent", "claude-code@2.1.203", "a.yaml"]);
    assert_eq!(test().status.code(), Some(5), "it is started, and it is no agent: {:?}", test());
    let program = stage.path(&format!("{}/claude", at_version("2.1.203")));
    let altered = String::from_utf8(PROGRAM.to_vec()).unwrap().replace("echo", "exit");
    assert_eq!(altered.len(), PROGRAM.len());
    fs::write(&program, altered).unwrap();
    refused(
        &test(),
        2,
        &[
            "its program was altered after the installation",
            "hint: `belljar agent remove claude-code@2.1.203`",
        ],
    );
    stage.write("project/belljar.toml", "[agents.a]\n");
    let run = stage.run(&["run", "--yes", "--agent", "claude-code@2.1.203"]);
    refused(&run, 125, &["its program was altered after the installation"]);
}

/// The version is held while the user reads the plan, so that it cannot be removed meanwhile.
#[test]
fn a_version_is_not_removed_between_the_agreement_and_the_start() {
    require!(Tmux);
    let stage = Stage::with("[agents.a]\nagent = \"claude-code@2.1.203\"\n");
    fake(&stage, "2.1.203");
    let line = format!("{} run; exec sleep 60", env!("CARGO_BIN_EXE_belljar"));
    let screen = Screen::open(&stage, "/usr/bin:/bin", &line);
    screen.wait_for("Start this?");
    refused(&stage.run(&["agent", "remove", "claude-code@2.1.203"]), 2, &["is in use by a run"]);
    fs::remove_dir_all(stage.path(&at_version("2.1.203"))).unwrap();
    screen.keys(&["y", "Enter"]);
    screen.wait_for("error:");
}

#[test]
fn doctor_tells_the_agents_apart() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let page = || stage.run(&["doctor"]).stdout;
    assert!(page().contains("is not on PATH, and belljar keeps no version"), "{}", page());
    assert!(page().contains("belljar agent install claude-code"), "{}", page());
    fake(&stage, "2.1.3");
    keep(&stage, VERSION, &agent::real().unwrap());
    let text = page();
    assert!(text.contains(&format!("{VERSION} (tested), 2.1.3 (too old for tests)")), "{text}");
    assert!(text.contains("a run starts only a version that is named"), "{text}");
    stage.write(&format!("{}/agent.json", at_version("2.1.3")), "{}");
    assert!(page().contains("a damaged version is not started"), "{}", page());
}
