//! Live verdicts on runs that went wrong: what is not shown is not green, and what belljar did is not held against the
//! agent.

use crate::cmd::{agent_path, script, tried, tried_json};
use crate::repositories::git;
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Commands of the shell, then a last word.
fn commands(all: &[&str]) -> String {
    let call = |command: &&str| json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "do it"}}});
    let turns: Vec<Value> = all.iter().map(call).chain([json!({"text": "All done."})]).collect();
    script(&turns)
}

fn scenario(stage: &Stage, name: &str, keys: &str, script: &str) {
    let yaml = format!("prompt: go\nanswers: [{{when_tool: Bash, decide: allow}}]\n{keys}");
    stage.write(&format!("project/{name}.yaml"), yaml);
    stage.write(&format!("project/{name}.script.json"), script);
}

fn first(envelope: &Value) -> &Value {
    &envelope["data"]["results"][0]
}

/// Each check that was asked for, with its outcome.
fn outcomes(envelope: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = first(envelope)["checks"].as_array().unwrap().iter();
    checks.map(|check| (text(&check["check"]), text(&check["outcome"]))).collect()
}

#[track_caller]
fn assert_all(envelope: &Value, outcome: &str) {
    for (check, found) in outcomes(envelope) {
        assert_eq!(found, outcome, "{check}: {envelope:#}");
    }
}

#[test]
fn a_name_without_an_address_was_not_denied() {
    require!(Agent, Bwrap, Curl);
    let stage = Stage::new();
    stage.write("project/session.yaml", "egress: {extra_allow: [nowhere.invalid]}\n");
    let keys = "session: session.yaml\nexpect_denied: [nowhere.invalid]\n\
                assert: [{egress_denied: nowhere.invalid}, {egress_allowed: nowhere.invalid}]\n";
    scenario(&stage, "a", keys, &commands(&["curl -sS -m 20 https://nowhere.invalid/ 2>&1; true"]));
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--yes", "--json", "a.yaml"]);
    assert_all(&envelope, "fail");
    assert_eq!(status, 1, "{envelope:#}");
    let message = first(&envelope)["checks"][0]["evidence"].to_string();
    assert!(message.contains("Unresolved"), "{message}");
}

#[test]
fn what_a_time_limit_cut_off_shows_no_absence() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write("project/data/in.txt", "in\n");
    stage.write("project/session.yaml", "folders: [{from: data}]\n");
    // The limit leaves the agent time to begin on a busy machine, and the command waits for longer than any limit.
    let keys = "session: session.yaml\ntimeout_ms: 30000\nassert:\n\
        \x20 - tool_called: Bash\n\
        \x20 - tool_not_called: Write\n\
        \x20 - tool_calls_max: 3\n\
        \x20 - transcript_not_contains: never\n\
        \x20 - max_tool_errors: 0\n\
        \x20 - max_redundant_tool_calls: 0\n\
        \x20 - max_turns: 9\n\
        \x20 - max_tokens: 900000\n\
        \x20 - max_cost_usd: 100\n\
        \x20 - no_unexpected_files: []\n\
        \x20 - file_absent: outputs/x\n\
        \x20 - file_exists: outputs/y\n\
        \x20 - input_unmodified: data/*\n\
        \x20 - no_delete_in_outputs: true\n\
        \x20 - no_delete_in_mounts: true\n\
        \x20 - egress_denied: evil.example\n";
    scenario(&stage, "a", keys, &commands(&["tail -f /dev/null"]));
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    // What was seen was seen.
    let outcomes = outcomes(&envelope);
    assert_eq!(outcomes[0].1, "pass", "{envelope:#}");
    for (check, found) in &outcomes[1..] {
        assert_eq!(found, "unknown", "{check}: {envelope:#}");
    }
    assert_eq!((status, &first(&envelope)["conclusion"]), (6, &json!("budget_reached")), "{envelope:#}");
    assert_eq!(
        first(&envelope)["limits_reached"],
        json!([{"limit": "time", "value": "30s"}]),
        "{envelope:#}"
    );
    let message = first(&envelope)["checks"][1]["message"].as_str().unwrap();
    assert!(message.contains("time limit"), "{message}");
}

#[test]
fn a_skill_whose_script_failed_was_used_and_a_refused_one_was_not() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/skills/notes/scripts/fail.sh", "echo no luck; exit 3\n");
    stage.write("project/session.yaml", "skills: {local: [skills/notes]}\n");
    let run = commands(&["sh /opt/belljar/agent/.claude/skills/notes/scripts/fail.sh"]);
    let keys = "session: session.yaml\nassert: [{skill_triggered: notes}, {tool_result_contains: no luck}]\n";
    scenario(&stage, "a", keys, &run);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_all(&envelope, "pass");
    assert_eq!(status, 0, "{envelope:#}");
    let yaml = "prompt: go\nsession: session.yaml\nanswers: [{when_tool: Bash, decide: deny}]\n\
                assert: [{no_skill_triggered: notes}]\n";
    stage.write("project/b.yaml", yaml);
    stage.write("project/b.script.json", &run);
    let (_, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "b.yaml"]);
    assert_all(&envelope, "pass");
}

#[test]
fn a_failure_of_belljar_is_not_the_agents() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    scenario(&stage, "a", "", &commands(&[]));
    scenario(&stage, "b", "", &commands(&[]));
    stage.skill("project/skills", "notes");
    // The records of runs belong into a directory of this name.
    stage.write("home/.local/state/belljar/runs", "in the way");
    for arguments in [
        &["test", "--scripted", "a.yaml"][..],
        &["test", "--scripted", "."],
        &["skill", "skills/notes", "go", "--script", "a.script.json"],
    ] {
        let found = tried(&stage, arguments);
        assert_eq!(found.status.code(), Some(125), "{arguments:?}: {}", found.stderr);
    }
}

/// Starts the binary with the real agent on its path.
fn start(stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = stage.command(arguments);
    command.env("PATH", agent_path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends a signal once standard error has this text; the status, standard output and standard error.
fn interrupt_after(mut child: Child, text: &str, signal: &str) -> (Option<i32>, String, String) {
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(text) {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{said}");
    }
    Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    errors.read_to_string(&mut said).unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    (child.wait().unwrap().code(), output, said)
}

#[test]
fn an_interrupted_run_is_not_held_against_the_agent() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let keys = "assert: [{result: success}, {file_exists: outputs/x}, {tool_not_called: Write}]\n";
    // The agent asks nothing about this one, and refuses one that begins with the sleep.
    scenario(&stage, "a", keys, &commands(&["true; sleep 300"]));
    for (arguments, signal) in [
        (&["test", "--scripted", "a.yaml"][..], "INT"),
        (&["test", "--scripted", "a.yaml"], "TERM"),
        (&["skill", "skills/notes", "go", "--script", "a.script.json"], "INT"),
    ] {
        let (status, _, said) = interrupt_after(start(&stage, arguments), "sleep 300", signal);
        assert_eq!(status, Some(130), "{arguments:?}: {said}");
        assert!(said.contains("INTERRUPTED"), "{said}");
        assert!(!said.contains("  x "), "nothing failed: {said}");
    }
}

#[test]
fn an_interrupt_ends_a_suite_and_starts_nothing_more() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    scenario(&stage, "a", "assert: [{transcript_contains: All done}]\n", &commands(&[]));
    for name in ["b", "c"] {
        let keys = format!("assert: [{{result: success}}, {{file_exists: outputs/{name}}}]\n");
        scenario(&stage, name, &keys, &commands(&["tail -f /dev/null"]));
    }
    for signal in ["INT", "TERM"] {
        let runs = stage.path("home/.local/state/belljar/runs");
        if runs.exists() {
            fs::remove_dir_all(&runs).unwrap();
        }
        let child = start(&stage, &["test", "--scripted", "--jobs", "1", "."]);
        let (status, _, said) = interrupt_after(child, "a.yaml", signal);
        assert_eq!(status, Some(130), "{said}");
        assert!(said.contains("interrupted") && said.contains("1 passed"), "{said}");
        assert!(said.contains("1 not started"), "{said}");
        assert!(!said.contains("x  ") && !said.contains("AGENT FAILED"), "{said}");
        let runs = fs::read_dir(&runs).unwrap().filter(|run| run.as_ref().unwrap().path().is_dir());
        assert!(runs.count() <= 2, "the third scenario was not started: {said}");
    }
}

#[test]
fn a_time_limit_is_offered_and_named() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    for verb in ["test", "skill", "record"] {
        let help = stage.run(&[verb, "-h"]).stdout;
        let line = help.lines().skip_while(|line| !line.contains("--timeout")).take(2);
        assert!(line.collect::<String>().contains("[default: "), "{verb}: {help}");
    }
    stage.skill("project/skills", "notes");
    stage.write("project/s.json", commands(&["tail -f /dev/null"]));
    stage.write("project/policy.yaml", "answers: [{when_tool: Bash, decide: allow}]\n");
    let arguments = [
        "skill",
        "skills/notes",
        "go",
        "--script",
        "s.json",
        "--timeout",
        "4s",
        "--answer-policy",
        "policy.yaml",
    ];
    let found = tried(&stage, &arguments);
    assert_eq!(found.status.code(), Some(6), "{}", found.stderr);
    assert!(found.stderr.contains("the time limit of 4s was reached"), "{}", found.stderr);
}

#[test]
fn only_tracked_files_are_staged() {
    require!(Agent, Bwrap, Git);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/skills/notes/tracked.txt", "here\n");
    git(&stage.path("project"), &["init", "-q"]);
    git(&stage.path("project"), &["add", "-A"]);
    stage.write("project/skills/notes/forgotten.txt", "only here\n");
    stage.write("project/session.yaml", "skills: {local: [skills/notes]}\n");
    let list = commands(&["ls /opt/belljar/agent/.claude/skills/notes"]);
    let keys = |check: &str| {
        format!("session: session.yaml\nassert: [{{tool_result_contains: tracked.txt}}, {check}]\n")
    };
    scenario(&stage, "without", &keys("{tool_result_not_contains: forgotten.txt}"), &list);
    scenario(&stage, "with", &keys("{tool_result_contains: forgotten.txt}"), &list);
    let found = tried(&stage, &["test", "--scripted", "without.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let line = found.stderr.lines().find(|line| line.contains("forgotten.txt")).unwrap_or_default();
    assert!(line.contains("not tracked by git") && line.contains("--include-untracked"), "{}", found.stderr);
    let found = tried(&stage, &["test", "--scripted", "--include-untracked", "with.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let found = tried(
        &stage,
        &["test", "--scripted", "--include-untracked", "with.yaml", "with.yaml", "--repeat", "2"],
    );
    assert_eq!(found.status.code(), Some(0), "a worker does as its suite: {}", found.stderr);
    stage.write("project/s.json", commands(&[]));
    let found = tried(&stage, &["skill", "skills/notes", "go", "--script", "s.json"]);
    assert!(found.stderr.contains("forgotten.txt"), "{}", found.stderr);
}

#[test]
fn budgets_are_judged_from_scripted_usage() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let played = json!({"version": 1, "turns": [{"answer": {"reply": {
        "content": [{"text": "All done."}],
        "usage": {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 50_000},
    }}}]});
    // A side request of the agent counts as well, so there is room above the reply's own figures.
    let green = "assert: [{max_tokens: 20000}, {max_cost_usd: 1}, {max_turns: 1}]\n";
    let red = "assert: [{max_tokens: 1000}, {max_cost_usd: 0.0001}, {max_turns: 0}]\n";
    stage.write("project/session.yaml", "model: claude-opus-4-8\n");
    for (name, keys, outcome) in [("green", green, "pass"), ("red", red, "fail")] {
        scenario(&stage, name, &format!("session: session.yaml\n{keys}"), &played.to_string());
        let (_, envelope) = tried_json(&stage, &["test", "--scripted", "--json", &format!("{name}.yaml")]);
        assert_all(&envelope, outcome);
    }
}

#[test]
fn what_cannot_be_a_scenario_is_refused_at_once() {
    let stage = Stage::new();
    let made = Command::new("mkfifo").arg(stage.path("project/pipe.yaml")).status().unwrap();
    assert!(made.success());
    stage.write("project/directory.yaml/inner.txt", "");
    for (name, part) in [("pipe.yaml", "not a regular file"), ("/dev/zero", "not a regular file")] {
        for verb in ["test", "record"] {
            let found = stage.run(&[verb, name]);
            assert_eq!(found.status.code(), Some(2), "{verb} {name}: {}", found.stderr);
            assert!(found.stderr.contains(part), "{verb} {name}: {}", found.stderr);
        }
    }
    let found = stage.run(&["test", "directory.yaml"]);
    assert!(found.stderr.contains("no scenario"), "{}", found.stderr);
    // Neither does one in a directory that is searched hang.
    let found = stage.run(&["test", "."]);
    assert!(found.stderr.contains("no scenario"), "{}", found.stderr);
}

#[test]
fn a_scenario_whose_name_is_not_text_finds_its_script() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    scenario(&stage, "a", "", &commands(&[]));
    let name = |ending: &str| {
        let name = [b"odd-\xff".as_slice(), ending.as_bytes()].concat();
        stage.path("project").join(std::ffi::OsString::from_vec(name))
    };
    for ending in [".yaml", ".script.json"] {
        fs::rename(stage.path(&format!("project/a{ending}")), name(ending)).unwrap();
    }
    let mut command = stage.command(&["test", "--scripted"]);
    let found = stage.finish(command.arg(Path::new(&name(".yaml"))).env("PATH", agent_path()));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// A change to a record without a seal could not be noticed.
#[test]
fn a_run_whose_record_cannot_be_sealed_is_not_green() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    scenario(&stage, "a", "assert: [{transcript_contains: All done}]\n", &commands(&[]));
    let run = |arguments: &[&str]| {
        let mut command = stage.command(arguments);
        stage.finish(command.env("PATH", agent_path()))
    };
    assert_eq!(run(&["test", "--scripted", "a.yaml"]).status.code(), Some(0));
    let key = stage.path("home/.local/state/belljar/digest.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    for arguments in [&["test", "--scripted", "a.yaml"][..], &["test", "--json", "--scripted", "a.yaml"]] {
        let found = run(arguments);
        assert_eq!(found.status.code(), Some(125), "{found:?}");
        assert!(format!("{}{}", found.stdout, found.stderr).contains("digest.key"), "{found:?}");
    }
}
