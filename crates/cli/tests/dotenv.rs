//! `.env` files: what their values serve, where a file may lie, and that no record has a value.

use crate::cmd::record::{bash, files, main_turn, script, with_agent};
use crate::cmd::{agent_path, tried};
use crate::services::{serve, streamed};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

const OWN: &str = "config/belljar/.env";
const TOKEN: &str = "tok-5f0c1e77-a2b9";
const KEY: &str = "sk-ant-dotenv-4711-x";

/// Writes a file that only the user can change.
fn write(stage: &Stage, name: &str, text: &str) {
    stage.write(name, text);
    fs::set_permissions(stage.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// The files below a directory that hold a text.
fn holders(directory: &Path, text: &str) -> Vec<String> {
    let holds = |path: &std::path::PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files(directory).into_iter().filter(holds).map(|path| path.display().to_string()).collect()
}

#[test]
fn the_shell_wins_over_files_and_the_last_file_over_earlier_ones() {
    require!(Bwrap);
    let names = ["A", "B", "C", "D"];
    let env: String = names.iter().map(|name| format!("{name} = \"${{{name}}}\"\n")).collect();
    let stage = Stage::with(&format!("[agents.a.env]\n{env}"));
    write(&stage, OWN, "A=own\nB=own\nC=own\nD=own\nNOT_NAMED=hidden\n");
    write(&stage, "first.env", "B=first\nC=first\nD=first\n");
    write(&stage, "second.env", "# comment\nexport C='second'\nD=second\n");
    let args =
        ["exec", "--yes", "--dotenv", "../first.env", "--dotenv", "../second.env", "--", "/usr/bin/env"];
    let found = stage.finish(stage.command(&args).env("D", "shell"));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    for line in ["A=own", "B=first", "C=second", "D=shell"] {
        assert!(found.stdout.lines().any(|seen| seen == line), "{line}: {}", found.stdout);
    }
    assert!(!found.stdout.contains("NOT_NAMED"), "nothing enters by itself: {}", found.stdout);
}

#[test]
fn the_credential_of_the_model_can_come_from_a_file() {
    require!(Agent, Bwrap);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let port = serve(move |head, _| {
        let key = head.lines().find_map(|line| line.strip_prefix("x-api-key: ").map(str::to_owned));
        seen.lock().unwrap().push(key);
        let delta = json!({"type": "text_delta", "text": format!("the key is {KEY}")}).to_string();
        streamed(r#"{"type":"text","text":""}"#, &delta, "end_turn")
    });
    let stage = Stage::with("[agents.a]\n");
    let base = format!("ANTHROPIC_BASE_URL=http://127.0.0.1:{port}\n");
    write(&stage, OWN, &format!("ANTHROPIC_API_KEY=\"{KEY}\"\n{base}"));
    let plan = stage.json(&["plan", "--json"]);
    let place = plan["data"]["credential_found"].as_str().unwrap();
    assert!(place.contains("ANTHROPIC_API_KEY") && place.ends_with("belljar/.env"), "{place}");
    let found = tried(&stage, &["run", "--yes", "--", "-p", "hi"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let keys = keys.lock().unwrap();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.as_deref() == Some(KEY)), "{keys:?}");
    assert_eq!(holders(&stage.path("home/.local/state/belljar"), KEY), [] as [String; 0]);
}

#[test]
fn a_file_that_the_agent_gets_is_refused() {
    let stage = Stage::with("[agents.a]\nmounts = [{ source = \"../shared\", target = \"/srv/shared\" }]\n");
    write(&stage, "project/.env", &format!("A={TOKEN}\n"));
    write(&stage, "shared/keys.env", &format!("A={TOKEN}\n"));
    stage.link("link.env", "project/.env");
    stage.link("project/out.env", "../keys.env");
    write(&stage, "keys.env", "A=1\n");
    for (file, refused) in
        [(".env", true), ("../link.env", true), ("../shared/keys.env", true), ("out.env", false)]
    {
        for (verb, status) in [("exec", 125), ("plan", 2)] {
            let more: &[&str] = if verb == "exec" { &["--dry-run", "--", "true"] } else { &[] };
            let found = stage.run(&[&[verb, "--dotenv", file], more].concat());
            let expected = if refused { status } else { 0 };
            assert_eq!(found.status.code(), Some(expected), "{verb} {file}: {}", found.stderr);
            let said = found.stderr.contains("which the agent gets") && found.stderr.contains("hint:");
            assert_eq!(said, refused, "{verb} {file}: {}", found.stderr);
            assert!(!found.stderr.contains(TOKEN), "{}", found.stderr);
        }
    }
}

#[test]
fn a_faulty_file_is_named_with_its_lines_and_without_its_text() {
    let stage = Stage::with("[agents.a]\n");
    let check = |arguments: &[&str], parts: &[&str]| {
        let found = stage.run(arguments);
        assert_eq!(found.status.code(), Some(2), "{arguments:?}: {found:?}");
        for part in parts {
            assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
        }
        assert!(!found.stderr.contains(TOKEN), "{}", found.stderr);
    };
    write(&stage, "bad.env", &format!("A=1\n{TOKEN}\nB=\"${{{TOKEN}}}\"\n"));
    check(&["plan", "--dotenv", "../bad.env"], &["bad.env:2: expected `NAME=value`", "bad.env:3: `${"]);
    write(&stage, "large.env", &format!("A={}\n", "x".repeat(70_000)));
    check(&["plan", "--dotenv", "../large.env"], &["large.env", "larger than 65536 bytes"]);
    check(&["plan", "--dotenv", "../absent.env"], &["cannot read", "absent.env"]);
    let pipe = stage.path("pipe.env");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    check(&["plan", "--dotenv", "../pipe.env"], &["it is not a regular file"]);
    stage.write(OWN, format!("A={TOKEN}\n"));
    fs::set_permissions(stage.path(OWN), fs::Permissions::from_mode(0o664)).unwrap();
    check(&["plan"], &["other users can change", "chmod 600"]);
}

/// A scenario in a repository whose agent prints a value that the server of the session gets, and another text.
fn suite(text: &str) -> Stage {
    let stage = Stage::new();
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    let config = json!({"mcpServers": {"tools": {"command": "cat", "env": {"K": "${SERVER_VALUE}"}}}});
    stage.write("project/scenarios/mcp.json", config.to_string());
    stage.skill("project/skills", "notes");
    let session = "mcp:\n  config: mcp.json\nskills:\n  local: [../skills/notes]\n";
    stage.write("project/scenarios/session.yaml", session);
    let call = bash(&format!("echo \"[$BELLJAR_MCP_1_K] {text}\" | tee outputs/kept.txt"));
    let said = json!([{"text": format!("all done {text}")}]);
    let turns = script(&[main_turn(&json!([call])), main_turn(&said)]);
    stage.write("project/scenarios/hello.script.json", turns.to_string());
    stage.write("project/scenarios/hello.yaml", crate::cmd::record::SCENARIO);
    fs::create_dir(stage.path("elsewhere")).unwrap();
    stage
}

/// Runs a verb for the scenario in a directory of the stage.
fn tested(stage: &Stage, directory: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let file = stage.path("project/scenarios/hello.yaml").display().to_string();
    let args = [&["test", "--yes", "--json", "--scripted", &file], more].concat();
    let found = stage.finish(with_agent(stage, &args).current_dir(stage.path(directory)));
    (found.status.code(), found.stdout, found.stderr)
}

#[test]
fn a_trial_uses_the_file_of_the_working_directory_unless_the_suite_holds_it() {
    require!(Agent, Bwrap);
    let stage = suite("nothing");
    write(&stage, "elsewhere/.env", &format!("SERVER_VALUE={TOKEN}\n"));
    write(&stage, "project/.env", &format!("SERVER_VALUE={TOKEN}\n"));
    write(&stage, "project/skills/notes/.env", &format!("SERVER_VALUE={TOKEN}\n"));
    let (status, out, err) = tested(&stage, "elsewhere", &[]);
    assert_eq!(status, Some(0), "{out}{err}");
    let envelope: Value = serde_json::from_str(&out).unwrap();
    let notice = envelope["data"]["results"][0]["notice"].as_str().unwrap();
    assert!(notice.contains("the `.env` of the working directory sets SERVER_VALUE"), "{notice}");
    assert!(!format!("{out}{err}").contains(TOKEN), "{out}{err}");
    // Several runs at once are processes of their own, which read the same files.
    let (status, out, err) = tested(&stage, "elsewhere", &["--repeat", "2"]);
    assert_eq!(status, Some(0), "{out}{err}");
    let (status, out, err) = tested(&stage, "project", &[]);
    assert_ne!(status, Some(0), "{out}{err}");
    assert!(out.contains("SERVER_VALUE"), "{out}");
    let (status, out, err) = tested(&stage, "project", &["--dotenv", ".env"]);
    assert_eq!(status, Some(0), "the suite's own file is not staged: {out}{err}");
    let (status, out, err) = tested(&stage, "elsewhere", &["--dotenv", "../project/skills/notes/.env"]);
    assert_eq!(status, Some(2), "{out}{err}");
    assert!(out.contains("which the agent gets") && !out.contains(TOKEN), "{out}");
    assert_eq!(holders(&stage.path("home/.local/state/belljar/runs"), TOKEN), [] as [String; 0]);
}

/// Nothing marks where a suite ends that is only a directory of what somebody else wrote.
#[test]
fn a_file_above_the_suite_is_not_used_unless_it_is_named() {
    require!(Agent, Bwrap);
    let stage = suite("nothing");
    fs::remove_dir_all(stage.path("project/.git")).unwrap();
    write(&stage, "project/.env", &format!("SERVER_VALUE={TOKEN}\n"));
    stage.link("elsewhere/.env", "../project/.env");
    let (status, out, err) = tested(&stage, "project", &["--dotenv", ".env"]);
    assert_eq!(status, Some(0), "{out}{err}");
    for directory in ["project", "elsewhere"] {
        let (status, out, err) = tested(&stage, directory, &[]);
        assert_ne!(status, Some(0), "{directory}: {out}{err}");
        assert!(out.contains("SERVER_VALUE"), "{directory}: {out}");
    }
    // One whose text lies elsewhere is the suite's all the same.
    fs::remove_file(stage.path("elsewhere/.env")).unwrap();
    fs::rename(stage.path("project/.env"), stage.path("elsewhere/.env")).unwrap();
    stage.link("project/.env", "../elsewhere/.env");
    let (status, out, err) = tested(&stage, "project", &[]);
    assert_ne!(status, Some(0), "{out}{err}");
    let (status, out, err) = tested(&stage, "elsewhere", &[]);
    assert_eq!(status, Some(0), "{out}{err}");
}

#[test]
fn a_value_that_is_redacted_on_request_is_in_no_record_and_no_output() {
    require!(Agent, Bwrap);
    let extra = "extra-value-0815-q";
    let unused = "unused-of-the-file-1-z";
    let stage = suite(&format!("{extra} {unused}"));
    write(&stage, "keys.env", &format!("SERVER_VALUE={TOKEN}\nUNUSED={unused}\n"));
    let file = stage.path("project/scenarios/hello.yaml").display().to_string();
    for verb in ["test", "record"] {
        let args = [verb, "--yes", "--json", "--scripted", &file, "--dotenv", "../keys.env"];
        let more = ["--redact-env", "EXTRA", "--keep"];
        let mut command = with_agent(&stage, &[&args[..], &more[..]].concat());
        let found = stage.finish(command.env("EXTRA", extra));
        assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
        for value in [extra, unused, TOKEN] {
            assert!(!found.stdout.contains(value) && !found.stderr.contains(value), "{value}: {found:?}");
        }
    }
    let tape = stage.path("project/scenarios/hello.tape");
    let state = stage.path("home/.local/state/belljar/runs");
    for directory in [&state, &tape] {
        for value in [extra, unused, TOKEN] {
            let kept = holders(directory, value);
            // The workspace that --keep copies is the agent's own.
            let kept: Vec<_> = kept.iter().filter(|path| !path.contains("/workspace/")).collect();
            assert!(kept.is_empty(), "{value}: {kept:?}");
        }
        assert_ne!(holders(directory, "[redacted:EXTRA]"), [] as [String; 0]);
        assert_ne!(holders(directory, "[redacted:UNUSED]"), [] as [String; 0]);
    }
    let head = fs::read_to_string(tape.join("tape.json")).unwrap();
    assert!(!head.contains("UNUSED"), "the tape does not list the names of the file: {head}");
}

#[test]
fn a_variable_that_cannot_be_redacted_is_an_error() {
    let stage = Stage::with("[agents.a]\n");
    let plan = |value: Option<&str>| {
        let mut command = stage.command(&["plan", "--redact-env", "EXTRA"]);
        let found = stage.finish(command.env("PATH", agent_path()).envs(value.map(|value| ("EXTRA", value))));
        (found.status.code(), found.stderr)
    };
    let (status, said) = plan(None);
    assert!(status == Some(2) && said.contains("`EXTRA`: the variable is not set"), "{said}");
    let (status, said) = plan(Some("abc"));
    assert!(status == Some(2) && said.contains("fewer than 5 characters"), "{said}");
    assert_eq!(plan(Some("long-enough")).0, Some(0));
}

#[test]
fn a_manifest_names_further_variables_to_redact() {
    require!(Agent, Bwrap);
    let stage = Stage::with("[agents.a]\nredact = [\"EXTRA\"]\n");
    let said = json!([{"text": format!("it is {TOKEN}")}]);
    stage.write("project/script.json", script(&[main_turn(&said)]).to_string());
    let run = |file: &str| {
        tried(&stage, &["run", "--yes", "--script", "script.json", "--dotenv", file, "--", "-p", "go"])
    };
    let set = ["run", "--yes", "--script", "script.json", "--", "-p", "go"];
    let found = stage.finish(with_agent(&stage, &set).env("EXTRA", TOKEN));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let state = stage.path("home/.local/state/belljar/runs");
    assert_eq!(holders(&state, TOKEN), [] as [String; 0]);
    assert_ne!(holders(&state, "[redacted:EXTRA]"), [] as [String; 0]);
    write(&stage, "short.env", "EXTRA=abc\n");
    let found = run("../short.env");
    assert_eq!(found.status.code(), Some(125), "{}", found.stderr);
    assert!(found.stderr.contains("fewer than 5 characters"), "{}", found.stderr);
    write(&stage, "empty.env", "");
    let found = run("../empty.env");
    assert_eq!(found.status.code(), Some(125), "{}", found.stderr);
    assert!(
        found.stderr.contains("`EXTRA` is not set") && found.stderr.contains("--dotenv"),
        "{}",
        found.stderr
    );
}
