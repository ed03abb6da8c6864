//! A run that was to be recorded and of which no tape can be made is kept as a run, and belljar says why and where.

use crate::cmd::record::data;
use crate::faults::{WAITS, begun, command, kill, says, with_agent};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const ASKS: &str =
    "greet(); take(); ask(); heard(); text('All done.'); result(); idle()\nwhile heard() is not None: pass";
const SCENARIO: &str = "prompt: go\nassert: [{transcript_contains: All done.}]\n";

/// A scenario whose question is answered by a program on the host, which does this first: the run has begun then.
fn meanwhile(does: &str) -> Stage {
    let stage = with_agent(ASKS);
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/a.yaml", SCENARIO);
    stage.write(
        "decide",
        format!("#!/bin/sh\nread asked\n{does}\necho '{{\"id\":\"1\",\"behavior\":\"allow\"}}'\ncat\n"),
    );
    fs::set_permissions(stage.path("decide"), fs::Permissions::from_mode(0o755)).unwrap();
    stage
}

fn args<'a>(decider: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["record", "--scripted", "a.yaml", "--decider-cmd", decider], more].concat()
}

/// The run is kept, was judged, and can be shown and judged again.
#[track_caller]
fn kept_as_a_run(stage: &Stage, found: &Finished, why: &str) {
    kept_with(stage, found, why, ("passed", 3, 0));
}

/// The same of a run with this conclusion, and the status of the recording and of the judgement of the run.
#[track_caller]
fn kept_with(stage: &Stage, found: &Finished, why: &str, (conclusion, status, judged_as): (&str, i32, i32)) {
    let row = data(found)["results"][0].clone();
    assert_eq!(found.status.code(), Some(status), "{row:#}{}", found.stderr);
    assert_eq!((&row["conclusion"], &row["exit_code"]), (&conclusion.into(), &status.into()), "{row:#}");
    assert_eq!(row["tape"], Value::Null);
    let said = row["not_recorded"]["why"].as_str().unwrap();
    assert!(said.contains(why), "{said}");
    let run = PathBuf::from(row["not_recorded"]["run"].as_str().unwrap());
    assert_eq!(row["directory"], row["not_recorded"]["run"]);
    assert!(run.join("tape/exchanges.jsonl").exists(), "what was seen of the model is kept");
    let id = run.file_name().unwrap().to_str().unwrap();
    let shown = stage.finish(&mut command(stage, &["trace", id, "--full"]));
    assert_eq!(shown.status.code(), Some(0), "{}", shown.stderr);
    assert!(shown.stdout.contains("All done."), "{}", shown.stdout);
    let judged = stage.finish(&mut command(stage, &["judge", id]));
    assert_eq!(judged.status.code(), Some(judged_as), "{}{}", judged.stdout, judged.stderr);
}

#[test]
fn a_target_that_is_lost_during_the_run_loses_no_run() {
    require!(Bwrap, Python);
    for (does, why) in [
        ("mkdir -p tapes/a.tape && touch tapes/a.tape/precious", "exists and is not a tape"),
        ("rm -rf tapes && touch tapes", "cannot write"),
        ("rm a.yaml", "cannot read"),
    ] {
        let stage = meanwhile(&format!("cd '{}' && {does}", "PROJECT"));
        let project = stage.path("project").display().to_string();
        let text = fs::read_to_string(stage.path("decide")).unwrap().replace("PROJECT", &project);
        fs::write(stage.path("decide"), text).unwrap();
        let decider = stage.path("decide").display().to_string();
        let found = stage.finish(&mut command(&stage, &args(&decider, &["--json", "--out", "tapes"])));
        kept_as_a_run(&stage, &found, why);
    }
}

#[test]
fn the_run_that_is_kept_is_named_with_what_can_be_done_with_it() {
    require!(Bwrap, Python);
    let stage = meanwhile("mkdir -p \"$TAPE\" && touch \"$TAPE/precious\"");
    let text = fs::read_to_string(stage.path("decide")).unwrap();
    let tape = stage.path("project/a.tape").display().to_string();
    fs::write(stage.path("decide"), text.replace("$TAPE", &tape)).unwrap();
    let decider = stage.path("decide").display().to_string();
    let found = stage.finish(&mut command(&stage, &args(&decider, &[])));
    assert_eq!(found.status.code(), Some(3), "{}", found.stderr);
    for said in [
        "not recorded: `",
        "exists and is not a tape",
        "the run is kept in ",
        "belljar trace ",
        "belljar judge ",
    ] {
        assert!(found.stderr.contains(said), "{said}: {}", found.stderr);
    }
    assert!(stage.path("project/a.tape/precious").exists());
}

/// The agent saw what was staged. A tape with the digests of what is there at the end would never be stale.
#[test]
fn what_changes_during_a_recording_is_named_and_its_tape_is_stale() {
    require!(Bwrap, Python);
    for (does, named) in [
        ("sed -i s/go/stop/ a.yaml", "`prompt` of the scenario"),
        ("echo '# new' >> session.yaml", "the session"),
        ("echo more >> notes/SKILL.md", "the skill `notes`"),
        ("mkdir notes/empty", "the skill `notes`"),
        ("echo more >> up.txt", "the upload `up.txt`"),
        ("echo >> mcp.json", "the file that declares the MCP servers"),
    ] {
        let stage = meanwhile(&format!("cd '$PROJECT' && {does}"));
        let project = stage.path("project").display().to_string();
        let text = fs::read_to_string(stage.path("decide")).unwrap().replace("$PROJECT", &project);
        fs::write(stage.path("decide"), text).unwrap();
        stage.skill("project", "notes");
        stage.write("project/up.txt", "up");
        stage.write("project/mcp.json", "{\"mcpServers\": {}}");
        let session = "skills: {local: [notes]}\nuploads: [up.txt]\nmcp: {config: mcp.json}\n";
        stage.write("project/session.yaml", session);
        stage.write("project/a.yaml", format!("session: session.yaml\n{SCENARIO}"));
        let decider = stage.path("decide").display().to_string();
        let found = stage.finish(&mut command(&stage, &args(&decider, &["--json"])));
        let row = data(&found)["results"][0].clone();
        assert_eq!(found.status.code(), Some(0), "{does}: {row:#}{}", found.stderr);
        let meanwhile = row["changed_meanwhile"].as_array().unwrap();
        let says = |sentence: &Value| sentence.as_str().unwrap().starts_with(named);
        assert!(meanwhile.len() == 1 && meanwhile.iter().all(says), "{does}: {row:#}");
        let replayed = stage.finish(&mut command(&stage, &["replay", "--protocol", "--json", "a.tape"]));
        let row = data(&replayed)["results"][0].clone();
        assert_eq!(replayed.status.code(), Some(3), "{does}: {row:#}");
        let stale = row["signals"].as_array().unwrap().iter().find(|one| one["code"] == "stale_recording");
        assert!(stale.unwrap()["message"].as_str().unwrap().contains(named), "{does}: {row:#}");
    }
}

#[test]
fn a_recording_without_a_change_names_none() {
    require!(Bwrap, Python);
    let stage = meanwhile("true");
    let decider = stage.path("decide").display().to_string();
    let found = stage.finish(&mut command(&stage, &args(&decider, &["--json"])));
    let row = data(&found)["results"][0].clone();
    assert_eq!(
        (found.status.code(), &row["changed_meanwhile"]),
        (Some(0), &serde_json::json!([])),
        "{row:#}"
    );
}

/// The tapes have a file system of their own, with less room than a tape takes.
#[test]
fn a_disk_that_takes_no_more_loses_no_run() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/a.yaml", SCENARIO);
    let line =
        "mount -t tmpfs -o size=4k tmpfs tapes && exec \"$0\" record --scripted --json a.yaml --out tapes";
    fs::create_dir_all(stage.path("project/tapes")).unwrap();
    let mut full = Command::new("unshare");
    full.args(["-rm", "sh", "-c", line, env!("CARGO_BIN_EXE_belljar")]).current_dir(stage.path("project"));
    full.env_clear().envs(stage.environment());
    full.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", stage.path("bin").display()));
    let found = stage.finish(&mut full);
    kept_as_a_run(&stage, &found, "No space left on device");
}

/// A request that the gateway does not take, in the middle of a conversation that goes on.
#[test]
fn a_limit_that_is_reached_in_the_middle_loses_no_run() {
    require!(Bwrap, Python);
    let large = r"
def large():
    try:
        gateway = Gateway('localhost')
        gateway.request('POST', '/v1/messages', 'x' * (40 << 20),
            {'Content-Type': 'application/json', 'X-Claude-Code-Session-Id': SESSION})
        gateway.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass
";
    let stage = with_agent(&format!(
        "{large}greet(); take(); large(); text('All done.'); result(); idle()\nwhile heard() is not None: pass"
    ));
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/a.yaml", SCENARIO);
    stage.write("project/a.script.json", says(&["All done."]));
    let args = ["record", "--scripted", "--json", "--allow-failing", "a.yaml"];
    let found = stage.finish(&mut command(&stage, &args));
    kept_with(&stage, &found, "the exchanges with the model were not recorded", ("passed", 3, 0));
}

#[test]
fn an_interrupted_recording_is_kept_as_a_run() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    let mut child = begun(&stage, &["record", "--scripted", "a.yaml"]);
    kill(&child, "-INT");
    assert_ne!(child.wait().unwrap().code(), Some(0));
    assert!(!stage.path("project/a.tape").exists());
    let shown = stage.finish(&mut command(&stage, &["trace", "last", "--full"]));
    assert_eq!(shown.status.code(), Some(0), "{}", shown.stderr);
    assert!(shown.stdout.contains("I wait."), "{}", shown.stdout);
}

#[test]
fn a_target_that_cannot_be_written_is_found_before_the_run() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/a.yaml", SCENARIO);
    stage.write("project/file", "");
    stage.write("project/other/a.tape/precious", "");
    for (out, why, hint) in [
        ("other", "exists and is not a tape", "move `"),
        ("file", "cannot write `", "make the directory writable"),
        ("file/below", "cannot write `", "make the directory writable"),
    ] {
        let found = stage.finish(&mut command(&stage, &["record", "--scripted", "a.yaml", "--out", out]));
        assert_eq!(found.status.code(), Some(2), "{out}: {}", found.stderr);
        assert!(found.stderr.contains(why) && found.stderr.contains(hint), "{out}: {}", found.stderr);
    }
    let runs = stage.finish(&mut command(&stage, &["runs", "--json"]));
    assert_eq!(data(&runs)["runs"], serde_json::json!([]), "nothing was run");
}
