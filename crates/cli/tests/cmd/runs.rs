use super::{HELLO, agent_path, record, script, tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const RUNS: &str = "home/.local/state/belljar/runs";

/// A stage with a skill, a manifest that allows a host, and two scenarios with their script.
pub fn stage() -> Stage {
    let stage = Stage::with("[agents.helper.egress]\nallow = [\"a.test\"]\n");
    stage.skill("project/skills", "notes");
    let played = script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": "printf 'one\\033[2Jtwo' > outputs/x; cat outputs/x"}}}),
        json!({"text": "All done."}),
    ]);
    stage.write("project/script.json", &played);
    let answers = "answers:\n  - {when_tool: Bash, decide: allow}\n";
    for (name, said) in [("good", "All done"), ("bad", "never said")] {
        let text =
            format!("name: A {name} one\nprompt: Go\n{answers}assert:\n  - transcript_contains: {said}\n");
        stage.write(&format!("project/scenarios/{name}.yaml"), text);
        stage.write(&format!("project/scenarios/{name}.script.json"), &played);
    }
    stage
}

/// Runs a scenario of the stage; gives its status and the directory of the run.
pub fn tested(stage: &Stage, name: &str) -> (i32, PathBuf) {
    let file = format!("scenarios/{name}.yaml");
    let (status, envelope) = tried_json(stage, &["test", "--scripted", "--json", &file]);
    let directory = envelope["data"]["results"][0]["directory"].as_str();
    (status, PathBuf::from(directory.unwrap_or_else(|| panic!("{envelope:#}"))))
}

/// The rows of `belljar runs`.
fn rows(stage: &Stage, more: &[&str]) -> Vec<Value> {
    let envelope = stage.json(&[&["runs", "--json"], more].concat());
    assert_eq!(envelope["exit_code"], 0, "{envelope:#}");
    envelope["data"]["runs"].as_array().unwrap().clone()
}

pub fn name(directory: &Path) -> String {
    directory.file_name().unwrap().to_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn every_kind_of_run_is_listed_with_what_it_was() {
    require!(Agent, Bwrap);
    let stage = stage();
    assert_eq!(stage.run(&["runs"]).stdout, "", "there is none yet");
    assert_eq!(rows(&stage, &[]), [Value::Null; 0]);
    let path = agent_path();
    let run = |arguments: &[&str]| {
        let found = stage.finish(stage.command(arguments).env("PATH", &path));
        found.status.code().unwrap_or_else(|| panic!("{found:?}"))
    };
    assert_eq!(tested(&stage, "good").0, 0);
    assert_eq!(tested(&stage, "bad").0, 1);
    assert_eq!(run(&["exec", "--yes", "--", "sh", "-c", "exit 3"]), 3);
    assert_eq!(run(&["run", "--yes", "--script", "script.json", "--", "-p", "go"]), 0);
    stage.write("project/hello.json", HELLO);
    assert_eq!(run(&["skill", "skills/notes", "Hello", "--script", "hello.json"]), 0);
    stage.write("project/scenarios/hello.yaml", "prompt: Hello\nassert:\n  - transcript_contains: Hello\n");
    stage.write("project/scenarios/hello.script.json", HELLO);
    let tape = record::recorded(&stage);
    assert_eq!(run(&["replay", tape.to_str().unwrap()]), 0);
    let found = rows(&stage, &[]);
    let short = |row: &Value| {
        let directory = name(Path::new(row["directory"].as_str().unwrap()));
        let id = row["id"].as_str().unwrap();
        let named = directory["YYYYMMDD-HHMMSS-".len()..].strip_suffix(&format!("-{id}")).unwrap().to_owned();
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        assert!(row["started_at_ms"].is_u64() && row["duration_ms"].is_u64(), "{row:#}");
        (text("verb"), text("subject"), named, text("state"), row["tool_calls"].as_u64())
    };
    let expected = [
        ("replay", "hello", "hello", "judged", Some(0)),
        ("record", "hello", "hello", "judged", Some(0)),
        ("skill", "notes", "notes", "judged", Some(0)),
        ("run", "helper", "helper", "ended", Some(1)),
        ("exec", "helper", "helper-exec", "ended", Some(0)),
        ("test", "A bad one", "a-bad-one", "judged", Some(1)),
        ("test", "A good one", "a-good-one", "judged", Some(1)),
    ]
    .map(|(verb, subject, named, state, tools)| {
        (verb.to_owned(), subject.to_owned(), named.to_owned(), state.to_owned(), tools)
    });
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    assert_eq!((&found[6]["conclusion"], &found[5]["conclusion"]), (&json!("passed"), &json!("failed")));
    assert_eq!(found[4]["status"], json!({"how": "exited", "code": 3}));
    let failed: Vec<Value> = rows(&stage, &["--failed"]).iter().map(|row| row["subject"].clone()).collect();
    assert_eq!(failed, ["helper", "A bad one"]);
    let page = stage.run(&["runs"]).stdout;
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 8, "{page}");
    let bad = format!("{}  ", found[5]["id"].as_str().unwrap());
    assert!(lines[6].starts_with(&bad) && lines[6].contains("test    A bad one   FAILED"), "{page}");
    every_kind_is_traced(&stage, &found);
}

/// A run that belljar's user looks at again has no reason to be doubted, whatever it was.
fn every_kind_is_traced(stage: &Stage, rows: &[Value]) {
    for row in rows {
        let id = row["id"].as_str().unwrap();
        let envelope = stage.json(&["trace", &id[..7], "--json"]);
        assert_eq!(envelope["exit_code"], 0, "{envelope:#}");
        let source = match row["verb"].as_str().unwrap() {
            "run" => "transcript",
            "exec" => "none",
            _ => "frames",
        };
        assert_eq!(envelope["data"]["conversation"], source, "{envelope:#}");
        let page = stage.run(&["trace", id]);
        assert_eq!(page.status.code(), Some(0), "{page:?}");
        assert_eq!(page.stdout.contains("which belljar cannot verify"), source == "transcript", "{page:?}");
        assert_eq!(page.stdout.contains("Conversation: none; `exec` runs a command"), source == "none");
        let tools = envelope["data"]["trace"]["tools"].as_array().unwrap().len();
        assert_eq!(Some(tools as u64), row["tool_calls"].as_u64(), "{envelope:#}");
    }
}

#[test]
fn a_run_says_what_it_was_made_from_and_what_came_of_it() {
    require!(Agent, Bwrap);
    let stage = stage();
    stage.write("project/scenarios/session.yaml", "skills: {local: [../skills/notes]}\n");
    let scenario = "name: Notes\nsession: session.yaml\nprompt: Go\nanswers:\n  - {when_tool: Bash, decide: allow}\n\
                    assert:\n  - transcript_contains: never said\n";
    stage.write("project/scenarios/good.yaml", scenario);
    stage.write("project/belljar.toml", "");
    let (status, directory) = tested(&stage, "good");
    assert_eq!(status, 1);
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(read("scenario.yaml"), scenario);
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["format"], 1);
    assert_eq!((&summary["verb"], &summary["subject"]), (&json!("test"), &json!("Notes")));
    assert_eq!(summary["verdict"]["checks"][0]["outcome"], "fail");
    assert_eq!(summary["verdict"]["conclusion"], "failed");
    assert_eq!(summary["tools"], json!({"Bash": {"calls": 1, "errors": 0}}));
    assert_eq!(summary["final_message"], "All done.");
    let decision = &summary["decisions"][0];
    assert_eq!((&decision["tool"], &decision["by"]), (&json!("Bash"), &json!("scenario")));
    assert!(decision["reason"].as_str().unwrap().contains("rule 1"), "{decision}");
    for digest in ["plan", "scenario"] {
        assert!(summary["digests"][digest].as_str().unwrap().starts_with("sha256:"), "{summary:#}");
    }
    assert!(summary["digests"]["skills"]["notes"].is_string(), "{summary:#}");
}

#[test]
fn a_secret_in_a_scenario_is_in_no_file_of_the_run() {
    require!(Agent, Bwrap);
    const VALUE: &str = "zq93-secret-value";
    let stage = stage();
    let servers = json!({"mcpServers": {"s": {"command": "true", "env": {"T": "${TOKEN}"}}}});
    stage.write("project/scenarios/mcp.json", servers.to_string());
    stage.write("project/scenarios/session.yaml", "mcp: {config: mcp.json}\n");
    let scenario = format!(
        "name: About {VALUE}\nsession: session.yaml\nprompt: Say {VALUE}\nassert:\n  - transcript_contains: {VALUE}\n"
    );
    stage.write("project/scenarios/secret.yaml", scenario);
    stage
        .write("project/scenarios/secret.script.json", script(&[json!({"text": format!("It is {VALUE}.")})]));
    let mut command = stage.command(&["test", "--yes", "--json", "--scripted", "scenarios/secret.yaml"]);
    let found = stage.finish(command.env("PATH", agent_path()).env("TOKEN", VALUE));
    assert_eq!(found.status.code(), Some(3), "the record that is judged does not have it: {found:?}");
    let row = &rows(&stage, &[])[0];
    let directory = Path::new(row["directory"].as_str().unwrap());
    assert!(name(directory).contains("-about-redacted-"), "{row:#}");
    for file in record::files(directory) {
        let text = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(VALUE), "{}", file.display());
    }
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(directory.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["digests"]["scenario"], Value::Null, "it would help to guess the value");
    let judged = stage.run(&["judge", "last"]);
    assert_eq!(
        judged.status.code(),
        Some(3),
        "the kept check would find what the live one did not: {judged:?}"
    );
    assert!(judged.stderr.contains("secrets were replaced in the kept scenario"), "{judged:?}");
    assert_eq!(stage.run(&["judge", "last", "scenarios/secret.yaml"]).status.code(), Some(3));
}

#[test]
fn a_run_with_a_broken_record_is_listed_as_such() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (_, directory) = tested(&stage, "good");
    let runs = stage.path(RUNS);
    let made = |name: &str| {
        let copied = runs.join(name);
        copy(&directory, &copied);
        copied
    };
    let cut = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, &text[..text.len() / 2]).unwrap();
    };
    cut(made("20990101-000006-half-00000006").join("summary.json"));
    let killed = made("20990101-000005-killed-00000005");
    let running = made("20990101-000004-running-00000004");
    let headless = made("20990101-000003-headless-00000003");
    for name in ["summary.json", "manifest.json", "result.json"] {
        [&killed, &running, &headless].iter().for_each(|run| fs::remove_file(run.join(name)).unwrap());
    }
    cut(headless.join("run.json"));
    let lock = File::open(running.join("lock")).unwrap();
    lock.lock().unwrap();
    let renamed = made("20990101-000002-renamed-00000002");
    let edited = made("20990101-000001-edited-00000001").join("summary.json");
    fs::write(&edited, fs::read_to_string(&edited).unwrap().replace("\"calls\": 1", "\"calls\": 9")).unwrap();
    let unjudged = made("20990101-000000-unjudged-00000000");
    ["summary.json", "manifest.json"].iter().for_each(|name| fs::remove_file(unjudged.join(name)).unwrap());
    fs::create_dir(runs.join("a directory of somebody")).unwrap();
    let found = rows(&stage, &[]);
    let states: Vec<&str> = found.iter().map(|row| row["state"].as_str().unwrap()).collect();
    let expected =
        ["broken", "broken", "cut_short", "running", "broken", "changed", "changed", "not_judged", "judged"];
    assert_eq!(states, expected, "{found:#?}");
    assert!(found[1]["why"].as_str().unwrap().contains("summary.json"), "{found:#?}");
    assert_eq!(found[0]["id"], Value::Null, "no run has this name");
    assert_eq!((&found[2]["verb"], &found[2]["subject"]), (&json!("test"), &json!("A good one")));
    let failed = rows(&stage, &["--failed"]);
    assert_eq!(failed.len(), 7, "all but the running one and the one that passed: {failed:#?}");
    let page = stage.run(&["runs"]).stdout;
    for part in [
        "broken: ",
        "cut short",
        "not judged: exit 0",
        "running",
        "not verified: `manifest.json` was changed",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    looked_at_again(&stage, [&killed, &headless, &renamed], &running);
}

/// None of these is green, and each says why.
fn looked_at_again(stage: &Stage, [killed, headless, renamed]: [&PathBuf; 3], running: &Path) {
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    for (directory, status, why) in [
        (killed.as_path(), 3, "`manifest.json` is missing: the run was cut short"),
        (running, 3, "the run is still going on"),
        (headless.as_path(), 2, "run.json` was not written by belljar"),
        (renamed.as_path(), 3, "its files are those of the run"),
    ] {
        for verb in ["trace", "judge"] {
            let found = stage.run(&[verb, &shown(directory)]);
            assert_eq!(found.status.code(), Some(status), "{verb}: {found:?}");
            assert!(format!("{}{}", found.stdout, found.stderr).contains(why), "{verb} {why}: {found:?}");
        }
    }
}

#[test]
fn a_run_is_named_by_the_beginning_of_its_id() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (_, directory) = tested(&stage, "good");
    let id = name(&directory).rsplit_once('-').unwrap().1.to_owned();
    let other = if id.starts_with("ab") { "cd" } else { "ab" };
    for number in 1..=3 {
        let copied = format!("20990101-00000{number}-copy-{other}00000{number}");
        copy(&directory, &stage.path(RUNS).join(copied));
    }
    for named in [&id, &id[..3], &name(&directory), directory.to_str().unwrap()] {
        let envelope = stage.json(&["trace", named, "--json"]);
        assert_eq!(envelope["data"]["directory"], json!(directory), "{named}: {envelope:#}");
    }
    for verb in ["trace", "judge"] {
        let found = stage.run(&[verb, other]);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        let listed = found.stderr.lines().filter(|line| line.trim().starts_with("2099")).count();
        assert!(found.stderr.contains(&format!("`{other}` can mean 3 runs")) && listed == 3, "{found:?}");
        for unknown in ["nothing", "../../../etc", "zz", &id[1..]] {
            let found = stage.run(&[verb, unknown]);
            assert_eq!(found.status.code(), Some(2), "{found:?}");
            assert!(found.stderr.contains("no run is called `"), "{found:?}");
        }
        let envelope = stage.json(&[verb, "zz", "--json"]);
        assert_eq!(envelope["exit_code"], 2, "{envelope:#}");
        assert!(
            envelope["error"]["message"].as_str().unwrap().contains("no run is called `zz`"),
            "{envelope:#}"
        );
    }
    let last = stage.json(&["trace", "last", "--json"]);
    assert!(last["data"]["directory"].as_str().unwrap().contains("000003-copy-"), "{last:#}");
}

/// Within the deadline of a stage.
#[test]
fn a_thousand_runs_are_listed_at_once() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (_, directory) = tested(&stage, "good");
    let id = name(&directory).rsplit_once('-').unwrap().1.to_owned();
    for number in 0..1000 {
        let (minute, second) = (number / 60, number % 60);
        let copied = stage.path(RUNS).join(format!("20990101-00{minute:02}{second:02}-a-{id}"));
        copy(&directory, &copied);
    }
    let found = rows(&stage, &[]);
    assert_eq!(found.len(), 1001);
    assert!(found.iter().all(|row| row["state"] == "judged"), "{:#}", found[0]);
}

#[test]
fn a_run_and_its_findings_have_the_same_id() {
    require!(Agent, Bwrap);
    let stage = stage();
    let command = ["exec", "--yes", "--", "ln", "-s", "/etc", "out"];
    let found = tried(&stage, &command);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let id = rows(&stage, &[])[0]["id"].as_str().unwrap().to_owned();
    for named in [&id, &id[..5]] {
        let listed = stage.run(&["findings", named]);
        assert_eq!(listed.status.code(), Some(0), "{listed:?}\n{found:?}");
        assert!(listed.stdout.contains("out  new; a link"), "{listed:?}");
    }
}

/// A file of a run, and what is done to it.
type Altered = (&'static str, fn(&Path));

/// What `judge` does not accept is not listed as passed.
#[test]
fn a_run_that_was_altered_is_not_listed_as_passed() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (_, directory) = tested(&stage, "good");
    let id = name(&directory).rsplit_once('-').unwrap().1.to_owned();
    let altered: [Altered; 4] = [
        ("events.jsonl", |run| append(&run.join("events.jsonl"))),
        ("result.json", |run| fs::remove_file(run.join("result.json")).unwrap()),
        ("added", |run| fs::write(run.join("added"), "x").unwrap()),
        ("result.json", |run| append(&run.join("result.json"))),
    ];
    for (number, (file, alter)) in altered.into_iter().enumerate() {
        let copied = stage.path(RUNS).join(format!("2099010{number}-000000-a-{id}"));
        copy(&directory, &copied);
        assert_eq!(rows(&stage, &[])[0]["state"], "judged", "a copy is as it was");
        alter(&copied);
        let failed = rows(&stage, &["--failed"]);
        assert_eq!(
            (failed.len(), &failed[0]["state"]),
            (number + 1, &json!("changed")),
            "{file}: {failed:#?}"
        );
        assert!(failed[0]["why"].as_str().unwrap().contains(file), "{failed:#?}");
        let path = copied.to_str().unwrap();
        for verb in ["judge", "trace"] {
            let found = stage.run(&[verb, path]);
            let said = format!("{}{}", found.stdout, found.stderr);
            assert_eq!(found.status.code(), Some(3), "{verb} {file}: {said}");
            assert!(said.contains(&format!("`{file}`")), "{verb}: {said}");
        }
    }
}

fn append(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, text + "x\n").unwrap();
}

#[test]
fn quiet_prints_failures_only() {
    require!(Agent, Bwrap);
    let stage = stage();
    let both = "prompt: Go\nanswers:\n  - {when_tool: Bash, decide: allow}\nassert:\n  \
                - tool_called: Bash\n  - transcript_contains: never said\n";
    stage.write("project/scenarios/both.yaml", both);
    fs::copy(stage.path("project/script.json"), stage.path("project/scenarios/both.script.json")).unwrap();
    for (arguments, status) in [
        (&["test", "-q", "--scripted", "scenarios/good.yaml"][..], 0),
        (&["judge", "-q", "last"], 0),
        (&["test", "-q", "--scripted", "scenarios/both.yaml"], 1),
        (&["judge", "-q", "last"], 1),
    ] {
        let found = tried(&stage, arguments);
        assert_eq!(found.status.code(), Some(status), "{found:?}");
        match status {
            0 => assert_eq!((found.stdout.as_str(), found.stderr.as_str()), ("", ""), "{arguments:?}"),
            _ => assert!(
                found.stderr.contains("x  transcript_contains") && !found.stderr.contains("ok "),
                "{arguments:?}: {}",
                found.stderr
            ),
        }
    }
}
