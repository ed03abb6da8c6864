//! Trials without a sandbox: nothing of the user's configuration is used, what is not isolated is listed on every run, and
//! no check passes that rests on a sandbox.

use crate::cmd::{agent_path, script};
use crate::stage::Stage;
use belljar_contract::{EgressLogState, EgressRow, Enforcement, read_egress_log};
use belljar_testkit::process::Finished;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CANARY: &str = "canary-of-the-user-6e1f";
const STATEMENT: &str = "no sandbox (backend host). NOT isolated:";

/// A user with a runtime directory outside the home.
fn user() -> Stage {
    let stage = Stage::new();
    fs::DirBuilder::new().mode(0o700).create(stage.path("runtime")).unwrap();
    stage
}

fn command(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.command(arguments);
    command.env("PATH", agent_path()).env("XDG_RUNTIME_DIR", stage.path("runtime"));
    command
}

fn run(stage: &Stage, arguments: &[&str]) -> Finished {
    stage.finish(&mut command(stage, arguments))
}

fn run_json(stage: &Stage, arguments: &[&str]) -> (i32, Value) {
    let found = run(stage, arguments);
    let value = serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    (found.status.code().unwrap(), value)
}

/// A call of the shell, then a last word.
fn one_command(command: &str) -> String {
    script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "do it"}}}),
        json!({"text": "All done."}),
    ])
}

fn scenario(stage: &Stage, name: &str, asserts: &str, command: &str) {
    let yaml = format!("prompt: go\nanswers: [{{when_tool: Bash, decide: allow}}]\nassert: {asserts}\n");
    stage.write(&format!("project/{name}.yaml"), yaml);
    stage.write(&format!("project/{name}.script.json"), one_command(command));
}

fn first(envelope: &Value) -> &Value {
    &envelope["data"]["results"][0]
}

fn directory(envelope: &Value) -> PathBuf {
    PathBuf::from(first(envelope)["directory"].as_str().unwrap())
}

fn outcomes(envelope: &Value) -> Vec<&str> {
    let checks = first(envelope)["checks"].as_array().unwrap().iter();
    checks.map(|check| check["outcome"].as_str().unwrap()).collect()
}

fn needs(open: &Value) -> Vec<&str> {
    open.as_array().unwrap().iter().map(|open| open["need"].as_str().unwrap()).collect()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn a_trial_runs_and_says_what_is_not_isolated() {
    require!(Agent);
    let stage = user();
    scenario(&stage, "a", "[{file_exists: outputs/made.txt}]", "echo x > outputs/made.txt");
    for more in [&[][..], &["--quiet"], &["--verbose"]] {
        let found = run(&stage, &[&["test", "--scripted", "--backend", "host", "a.yaml"], more].concat());
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert_eq!(found.stderr.matches(STATEMENT).count(), 1, "{}", found.stderr);
    }
    let (status, envelope) =
        run_json(&stage, &["test", "--scripted", "--json", "--backend", "host", "a.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
    let result = first(&envelope);
    assert_eq!(result["tier"], "host");
    let open = needs(&result["not_isolated"]);
    for need in ["files", "processes", "network", "egress", "lifetime", "privileges"] {
        assert!(open.contains(&need), "{need} in {open:?}");
    }
    let signals = result["signals"].to_string();
    assert!(signals.contains("not_isolated") && signals.contains("did not use the proxy"), "{signals}");
    let summary = fs::read_to_string(directory(&envelope).join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(needs(&summary["not_isolated"]), open);
    assert!(summary["verdict"]["signals"].to_string().contains("not_isolated"), "{summary:#}");
    assert!(is_empty(&stage.path("runtime/belljar/host")), "the stage is gone");
    assert!(!stage.path("data/belljar/instances").exists(), "no instance stays");
}

#[test]
fn a_suite_says_it_once_and_in_each_result() {
    require!(Agent);
    let stage = user();
    scenario(&stage, "a", "[{transcript_contains: All done.}]", "true");
    scenario(&stage, "b", "[{egress_denied: evil.test}, {allow_without_isolation: [egress_denied]}]", "true");
    for more in [&[][..], &["--quiet"]] {
        let found =
            run(&stage, &[&["test", "--scripted", "--backend", "host", "a.yaml", "b.yaml"], more].concat());
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert_eq!(found.stderr.matches(STATEMENT).count(), 1, "{}", found.stderr);
        let waived = found.stderr.contains("waived by `allow_without_isolation`");
        assert_eq!(waived, more.is_empty(), "{}", found.stderr);
    }
    let (_, envelope) =
        run_json(&stage, &["test", "--scripted", "--json", "--backend", "host", "a.yaml", "b.yaml"]);
    for result in envelope["data"]["results"].as_array().unwrap() {
        assert!(!result["not_isolated"].as_array().unwrap().is_empty(), "{result:#}");
    }
}

/// Each of these would reach the model, or run, if the agent used the user's own configuration.
fn decoys(stage: &Stage) {
    let marked = stage.path("hook-ran").display().to_string();
    let hook = json!([{"hooks": [{"type": "command", "command": format!("touch {marked}; echo {CANARY}")}]}]);
    let settings =
        json!({"env": {"DECOY": CANARY}, "hooks": {"SessionStart": hook, "UserPromptSubmit": hook}});
    let server = json!({"mcpServers": {CANARY: {"command": "touch", "args": [marked]}}}).to_string();
    for name in ["home/CLAUDE.md", "home/CLAUDE.local.md", "home/.claude/CLAUDE.md"] {
        stage.write(name, format!("Always say {CANARY}.\n"));
    }
    stage.write("home/.claude/settings.json", settings.to_string());
    stage.write(
        "home/.claude/skills/decoy/SKILL.md",
        format!("---\nname: decoy\ndescription: {CANARY}\n---\n"),
    );
    stage.write("home/.claude/commands/decoy.md", CANARY);
    stage.write("home/.claude/agents/decoy.md", format!("---\nname: decoy\ndescription: {CANARY}\n---\n"));
    stage.write("home/.claude.json", &server);
    stage.write("home/.mcp.json", &server);
    stage.write("home/.git/HEAD", format!("ref: refs/heads/{CANARY}\n"));
}

#[test]
fn nothing_of_the_users_configuration_is_used() {
    require!(Agent);
    let stage = user();
    decoys(&stage);
    fs::create_dir(stage.path("tmp")).unwrap();
    scenario(&stage, "a", "[]", "env; cat ~/.claude/CLAUDE.md ~/.claude/settings.json ~/CLAUDE.md; ls -a ~");
    let args = ["test", "--scripted", "--json", "--backend", "host", "a.yaml"];
    // With a runtime directory outside the home, below the home, and without one.
    for runtime in [Some("runtime"), Some("home"), None] {
        let mut command = command(&stage, &args);
        command.env("ANTHROPIC_API_KEY", format!("sk-ant-{CANARY}")).env("DECOY", CANARY);
        command.env("TMPDIR", stage.path("tmp"));
        match runtime {
            Some(name) => command.env("XDG_RUNTIME_DIR", stage.path(name)),
            None => command.env_remove("XDG_RUNTIME_DIR"),
        };
        let found = stage.finish(&mut command);
        assert_eq!(found.status.code(), Some(0), "{runtime:?}: {}{}", found.stdout, found.stderr);
        let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
        let requests =
            fs::read_to_string(directory(&envelope).join("artifacts/model-requests.jsonl")).unwrap();
        assert!(requests.contains("belljar-placeholder-not-a-key"), "the environment was shown: {requests}");
        assert!(!requests.contains(CANARY), "{runtime:?}: {requests}");
        assert!(!stage.path("hook-ran").exists(), "{runtime:?}: neither a hook nor a server was started");
    }
    for left in ["runtime/belljar/host", "tmp"] {
        let kept: Vec<_> = walk(&stage.path(left));
        assert!(kept.iter().all(|path| path.is_dir()), "{kept:?}");
    }
}

/// Everything below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| std::iter::once(path.clone()).chain(walk(&path)).collect::<Vec<_>>()).collect()
}

#[test]
fn a_workspace_below_instructions_of_the_user_is_refused() {
    require!(Agent);
    let stage = user();
    stage.write("runtime/CLAUDE.md", CANARY);
    scenario(&stage, "a", "[]", "true");
    let found = run(&stage, &["test", "--scripted", "--backend", "host", "a.yaml"]);
    assert_eq!(found.status.code(), Some(4), "{}", found.stderr);
    assert!(
        found.stderr.contains("runtime/CLAUDE.md") && found.stderr.contains("TMPDIR"),
        "{}",
        found.stderr
    );
}

#[test]
fn checks_that_rest_on_a_sandbox_are_unknown_or_waived() {
    require!(Agent, Curl);
    let stage = user();
    let checks = "{egress_denied: evil.test}, {egress_allowed: good.test}, {transcript_no_host_path: true}, \
                  {no_delete_in_mounts: true}, {no_unexpected_files: []}, {transcript_contains: All done.}";
    scenario(&stage, "a", &format!("[{checks}]"), "curl -sS -m 100 http://evil.test/; true");
    let args = |name: &'static str| ["test", "--scripted", "--json", "--backend", "host", name];
    let (status, envelope) = run_json(&stage, &args("a.yaml"));
    assert_eq!(status, 3, "{envelope:#}");
    assert_eq!(outcomes(&envelope), ["unknown", "unknown", "unknown", "unknown", "unknown", "pass"]);
    let message = first(&envelope)["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains("needs a sandbox, and the run had none: programs can connect"), "{message}");
    let waiver = "{allow_without_isolation: [egress_denied, egress_allowed, transcript_no_host_path, \
                  no_delete_in_mounts, no_unexpected_files]}";
    scenario(&stage, "b", &format!("[{checks}, {waiver}]"), "curl -sS -m 100 http://evil.test/; true");
    let (status, envelope) = run_json(&stage, &args("b.yaml"));
    assert_eq!(status, 0, "{envelope:#}");
    assert_eq!(outcomes(&envelope), ["waived", "waived", "waived", "waived", "waived", "pass", "pass"]);
    // What was seen to fail counts all the same.
    scenario(
        &stage,
        "c",
        "[{no_unexpected_files: []}, {allow_without_isolation: [no_unexpected_files]}]",
        "touch outputs/x",
    );
    let (status, envelope) = run_json(&stage, &args("c.yaml"));
    assert_eq!((status, outcomes(&envelope)[0]), (1, "fail"), "{envelope:#}");
    // So does a path of the machine that is not the run's own, in a message.
    let waiver = "{transcript_no_host_path: true}, {allow_without_isolation: [transcript_no_host_path]}";
    for (name, said, status, outcome) in
        [("d", "See /home/maria/.ssh/id_rsa", 1, "fail"), ("e", "See /etc/hosts", 0, "waived")]
    {
        scenario(&stage, name, &format!("[{waiver}]"), "true");
        let said = script(&[json!({"text": said})]);
        stage.write(&format!("project/{name}.script.json"), said);
        let file = format!("{name}.yaml");
        let (found, envelope) =
            run_json(&stage, &["test", "--scripted", "--json", "--backend", "host", &file]);
        assert_eq!((found, outcomes(&envelope)[0]), (status, outcome), "{envelope:#}");
    }
}

/// A process without a sandbox can change the files that were copied, and ask the provider without the gateway.
#[test]
fn uploads_and_budgets_are_not_known_to_be_kept() {
    require!(Agent);
    let stage = user();
    stage.write("project/notes.txt", "notes\n");
    stage.write("project/session.yaml", "uploads: [notes.txt]\n");
    let budgets = "{max_cost_usd: 5}, {max_tokens: 100000}, {input_unmodified: uploads/notes.txt}";
    let waiver = "{allow_without_isolation: [max_cost_usd, max_tokens, input_unmodified]}";
    for (name, checks, status, outcome) in [
        ("a", budgets.to_owned(), 3, "unknown"),
        ("b", format!("{budgets}, {waiver}"), 0, "waived"),
        ("c", format!("{{max_tokens: 1}}, {{input_unmodified: uploads/absent.txt}}, {waiver}"), 1, "fail"),
    ] {
        scenario(&stage, name, &format!("[{checks}]\nsession: session.yaml"), "true");
        let file = format!("{name}.yaml");
        let (found, envelope) =
            run_json(&stage, &["test", "--scripted", "--json", "--yes", "--backend", "host", &file]);
        assert_eq!(found, status, "{envelope:#}");
        let mut found = outcomes(&envelope);
        found.retain(|one| *one != "pass");
        assert!(found.len() >= 2 && found.iter().all(|one| *one == outcome), "{envelope:#}");
    }
}

#[test]
fn hosts_of_expect_denied_are_not_refused_for_certain() {
    require!(Agent, Curl);
    let stage = user();
    scenario(&stage, "a", "[]\nexpect_denied: [evil.test]", "curl -sS -m 100 http://evil.test/; true");
    let (status, envelope) =
        run_json(&stage, &["test", "--scripted", "--json", "--backend", "host", "a.yaml"]);
    assert_eq!((status, outcomes(&envelope)), (3, vec!["unknown"]), "{envelope:#}");
}

#[test]
fn a_waiver_does_nothing_in_a_sandbox() {
    require!(Agent, Bwrap, Curl);
    let stage = user();
    let checks = "[{egress_denied: evil.test}, {allow_without_isolation: [egress_denied]}]";
    scenario(&stage, "a", checks, "curl -sS -m 100 http://evil.test/; true");
    scenario(&stage, "b", checks, "true");
    let (status, envelope) = run_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!((status, outcomes(&envelope)), (0, vec!["pass", "pass"]), "{envelope:#}");
    assert_eq!(first(&envelope).get("not_isolated"), None);
    let (status, envelope) = run_json(&stage, &["test", "--scripted", "--json", "b.yaml"]);
    assert_eq!((status, outcomes(&envelope)), (1, vec!["fail", "pass"]), "{envelope:#}");
}

#[test]
fn a_waiver_names_checks_that_need_isolation() {
    let stage = user();
    for (named, expected) in [
        ("egress_denid", "did you mean `egress_denied`?"),
        ("file_exists", "`file_exists` does not need isolation"),
    ] {
        scenario(&stage, "a", &format!("[{{allow_without_isolation: [{named}]}}]"), "true");
        let found = run(&stage, &["test", "--scripted", "--backend", "host", "a.yaml"]);
        assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
        assert!(found.stderr.contains(expected), "{}", found.stderr);
    }
}

#[test]
fn a_file_cannot_choose_it_without_agreement() {
    require!(Agent);
    let stage = user();
    scenario(&stage, "a", "[{file_exists: outputs/x}]\nfidelity: protocol", "touch outputs/x");
    let found = run(&stage, &["test", "--scripted", "a.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("backend `host`: runs without isolation"), "{}", found.stderr);
    assert!(!stage.path("home/.local/state/belljar/runs").exists(), "nothing ran");
    let digest = found.stderr.split_whitespace().find(|word| word.starts_with("sha256:")).unwrap();
    for agreement in [&["--yes"][..], &["--agree-to", digest]] {
        let found = run(&stage, &[&["test", "--scripted", "a.yaml"], agreement].concat());
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert!(
            found.stderr.contains("host for protocol") && found.stderr.contains(STATEMENT),
            "{}",
            found.stderr
        );
    }
}

#[test]
fn decisions_on_egress_are_logged_as_not_enforced() {
    require!(Agent, Curl);
    let stage = user();
    scenario(&stage, "a", "[]", "curl -sS -m 100 http://evil.test/; true");
    let (_, envelope) = run_json(&stage, &["test", "--scripted", "--json", "--backend", "host", "a.yaml"]);
    assert!(first(&envelope)["denied"][0].as_str().unwrap().ends_with("(not enforced)"), "{envelope:#}");
    let directory = directory(&envelope);
    let log = read_egress_log(&fs::read_to_string(directory.join("egress.jsonl")).unwrap(), None);
    assert_eq!(log.state, EgressLogState::Unenforced, "never complete");
    let decided = |row: &EgressRow| match row {
        EgressRow::Decided { enforcement, .. } => Some(*enforcement),
        _ => None,
    };
    assert_eq!(log.rows.iter().filter_map(decided).collect::<Vec<_>>(), [Enforcement::NotEnforced]);
    let run_name = directory.file_name().unwrap().to_str().unwrap();
    let shown = run(&stage, &["trace", run_name, "--only", "egress"]).stdout;
    assert!(shown.contains("denied, not enforced") && shown.contains("did not use the proxy"), "{shown}");
    let (_, envelope) = run_json(&stage, &["trace", run_name, "--json"]);
    assert_eq!(envelope["data"]["trace"]["egress"][0]["enforced"], false, "{envelope:#}");
}

#[test]
fn the_other_verbs_run_or_say_why_not() {
    require!(Agent);
    let stage = user();
    stage.skill("project/skills", "changelog");
    stage.write("project/hello.json", script(&[json!({"text": "Hello."})]));
    scenario(&stage, "a", "[]", "true");
    let skill = ["skill", "skills/changelog", "Hi", "--backend", "host", "--script", "hello.json"];
    let found = run(&stage, &skill);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains(STATEMENT), "{}", found.stderr);
    let chat = ["chat", "skills/changelog", "--say", "Hi", "--backend", "host", "--script", "hello.json"];
    for more in [&[][..], &["--quiet"]] {
        let found = run(&stage, &[&chat[..], more].concat());
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert!(found.stderr.contains(STATEMENT), "{}", found.stderr);
    }
    let (_, envelope) = run_json(&stage, &[&chat[..], &["--json"]].concat());
    assert!(needs(&envelope["data"]["not_isolated"]).contains(&"files"), "{envelope:#}");
    for (args, why) in [
        (&["record", "--scripted", "--backend", "host", "a.yaml"][..], "no replay could match a tape"),
        (&[&skill[..], &["--session-id", "x"]].concat(), "your own instructions"),
    ] {
        let found = run(&stage, args);
        assert_eq!(found.status.code(), Some(4), "{}", found.stderr);
        assert!(found.stderr.contains(why), "{}", found.stderr);
    }
    assert!(!stage.path("project/a.tape").exists());
}

#[test]
fn a_replay_is_refused() {
    require!(Agent, Bwrap);
    let stage = user();
    scenario(&stage, "a", "[{transcript_contains: All done.}]", "true");
    let found = run(&stage, &["record", "--scripted", "a.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let found = run(&stage, &["replay", "--backend", "host", "a.tape"]);
    assert_eq!(found.status.code(), Some(4), "{}", found.stderr);
    assert!(found.stderr.contains("cannot keep the agent off the network"), "{}", found.stderr);
}

#[test]
fn a_plan_shows_no_isolation_that_is_not_there() {
    let stage = user();
    stage.skill("project/skills", "changelog");
    let dry = ["skill", "skills/changelog", "Hi", "--backend", "host", "--dry-run"];
    for args in [&dry[..], &["plan", "--backend", "host"]] {
        let page = run(&stage, args).stdout;
        assert!(page.contains(STATEMENT), "{page}");
        for isolation in
            ["/workspace", "/etc ", "/proc", "it is not there", "processes of the sandbox", "  ro "]
        {
            let found =
                page.lines().find(|line| line.contains(isolation) && !line.contains("settings in /etc"));
            assert_eq!(found.filter(|line| !line.contains("host/")), None, "{page}");
        }
        let (status, envelope) = run_json(&stage, &[args, &["--json"]].concat());
        assert_eq!(status, 0);
        assert!(needs(&envelope["data"]["not_isolated"]).contains(&"network"), "{envelope:#}");
        let refused = envelope["data"]["plan"]["refused"].to_string();
        assert!(!refused.contains("everything of this machine"), "{refused}");
    }
}

/// The agents that were started with a home below a directory.
fn agents(below: &Path) -> Vec<u32> {
    let mark = below.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |process: &u32| {
        let text = |name: &str| fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&text("environ")).into_owned();
        environment.contains(&format!("HOME={mark}")) && text("comm").starts_with(b"claude")
    };
    numbers.filter(holds).collect()
}

#[test]
fn an_interrupt_leaves_neither_the_agent_nor_its_files() {
    require!(Agent);
    let stage = user();
    let (ready, held) = (stage.path("ready"), stage.path("held"));
    assert!(Command::new("mkfifo").args([&ready, &held]).status().unwrap().success());
    // The agent's shell leaves the group: it ends with the test, which holds the pipe open that it reads from.
    let _held = fs::File::options().read(true).write(true).open(&held).unwrap();
    scenario(&stage, "a", "[]", &format!("echo ready > {}; cat {}", ready.display(), held.display()));
    let mut command = command(&stage, &["test", "--scripted", "--backend", "host", "a.yaml"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Returns once the agent's command has written.
    assert_eq!(fs::read_to_string(&ready).unwrap(), "ready\n");
    assert!(!agents(&stage.path("runtime")).is_empty(), "it runs");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(&stage.path("runtime/belljar/host")), "the stage is gone");
    // The kernel takes a moment to end what was killed.
    let gone = wait::for_end(|| agents(&stage.path("runtime")));
    assert!(gone.is_ok(), "{:?}", agents(&stage.path("runtime")));
}
