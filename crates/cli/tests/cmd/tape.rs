mod upgrade_report;

use super::record::{SCENARIO, bash, data, files, main_turn, plain, recorded, scenario, script, with_agent};
use crate::services::{KEY, serve, streamed};
use crate::stage::Stage;
use belljar_contract::Digest;
use belljar_testkit::process::Finished;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

const TAPE: &str = "scenarios/hello.tape";

fn tape(stage: &Stage, args: &[&str]) -> Finished {
    stage.finish(&mut with_agent(stage, &[&["tape"], args].concat()))
}

fn row(found: &Finished) -> Value {
    data(found)["results"][0].clone()
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap()
}

/// The examples with their tapes, in a directory of their own.
fn copy_examples(to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(examples()).arg(to).status().unwrap().success());
}

fn shipped() -> Vec<PathBuf> {
    let all = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path());
    let tape =
        |directory: PathBuf| Some(directory.join(format!("{}.tape", directory.file_name()?.to_str()?)));
    all.filter(|path| path.is_dir()).filter_map(tape).collect()
}

#[track_caller]
fn all_faithful(found: &Finished) {
    let data = data(found);
    assert_eq!((found.status.code(), &data["passed"]), (Some(0), &json!(shipped().len())), "{data:#}");
    for row in data["results"].as_array().unwrap() {
        let replay = &row["replay"];
        assert_eq!((&replay["drifts"], &replay["unconsumed"]), (&json!([]), &json!([])), "{row:#}");
        assert_eq!(row["changed"], json!([]), "the plan is the same too: {row:#}");
    }
}

#[test]
fn the_shipped_tapes_are_whole_current_and_fit_to_be_given_away() {
    require!(Agent);
    assert_eq!(shipped().len(), 3);
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    let found = tape(&stage, &["verify", "--json", "examples"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stdout);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let private = [host.trim(), "/home/", "/Users/", "/root", "/tmp/"].map(str::to_owned);
    for file in shipped().iter().flat_map(|tape| files(tape)) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        // The home in the sandbox, and the agent's own socket there.
        let text = text.replace("/home/agent", "").replace("/tmp/cc-socks/", "");
        for word in private.iter().filter(|word| word.len() > 4 && word.as_str() != "localhost") {
            assert!(!text.contains(word.as_str()), "{word} in {}", file.display());
        }
    }
}

#[test]
fn the_shipped_tapes_replay() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    all_faithful(&stage.finish(&mut with_agent(&stage, &["replay", "--json", "examples"])));
    // No agent and no sandbox on this path.
    let mut command = stage.command(&["replay", "--json", "--protocol", "examples"]);
    let found = stage.finish(command.env("PATH", "/nonexistent"));
    assert_eq!((found.status.code(), &data(&found)["passed"]), (Some(0), &json!(3)), "{}", found.stdout);
}

/// Nine of ten changes to what each example recorded are noticed by its checks; what is not noticed is named with its place,
/// what is not tried with a reason.
#[test]
fn the_checks_of_the_examples_notice_what_they_could() {
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    let found = stage.run(&["replay", "--json", "--protocol", "--mutate", "examples"]);
    let data = data(&found);
    let rows = data["results"].as_array().unwrap();
    assert_eq!(rows.len(), shipped().len(), "{data:#}");
    let mut in_all = 0;
    for row in rows {
        let mutations = &row["mutations"];
        let tried = mutations["tried"].as_u64().unwrap();
        let unnoticed = mutations["unnoticed"].as_array().unwrap();
        assert!(tried > 0 && unnoticed.len() as u64 * 10 <= tried, "{row:#}");
        let named = |one: &Value, part: &str| one[part].as_str().is_some_and(|text| !text.is_empty());
        assert!(unnoticed.iter().all(|one| named(one, "what") && named(one, "place")), "{row:#}");
        let left = mutations["not_checkable"].as_array().unwrap();
        assert!(left.iter().all(|one| named(one, "what") && named(one, "why")), "{row:#}");
        in_all += tried;
    }
    assert!(in_all >= 19, "{in_all} changes were tried: {data:#}");
}

fn own(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| own(&entry.unwrap().path(), user));
    }
}

/// The tapes were recorded on another day, too, by another user in another home, and perhaps on another kernel.
#[test]
fn another_user_on_another_machine_replays_the_shipped_tapes() {
    require!(Agent, Bwrap, Root);
    let there = Stage::new();
    let directory = there.path("elsewhere/of another/project");
    fs::create_dir_all(&directory).unwrap();
    copy_examples(&directory);
    // The other user may not look into the directory of the checkout.
    let program = agent::real().unwrap();
    let agent = there.path("agent");
    fs::create_dir(&agent).unwrap();
    fs::copy(&program, agent.join(program.file_name().unwrap())).unwrap();
    let agent = agent.display().to_string();
    own(&there.path(""), 4242);
    let mut command = Command::new("unshare");
    command
        .args([
            "--uts",
            "sh",
            "-c",
            "hostname another-host && exec setpriv --reuid 4242 --regid 4242 --clear-groups \"$@\"",
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_belljar"))
        .args(["replay", "--json", "examples"])
        .current_dir(&directory)
        .env_clear()
        .envs(there.environment());
    command.env("PATH", format!("{agent}:/usr/bin:/bin"));
    for (name, value) in [
        ("USER", "somebody"),
        ("LOGNAME", "somebody"),
        ("TZ", "Asia/Tokyo"),
        ("LANG", "de_DE.UTF-8"),
        ("LC_ALL", "C"),
    ] {
        command.env(name, value);
    }
    all_faithful(&there.finish(&mut command));
}

/// How long a run of characters may be alike by chance.
const RUN: usize = 60;

/// Every run of that many characters.
fn runs(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let count = (characters.len() + 1).saturating_sub(RUN);
    (0..count).map(move |at| characters[at..at + RUN].iter().collect())
}

fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, out)),
        Value::Object(members) => members.values().for_each(|item| texts(item, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Words of the agent's own in a request; what belljar and the skill put among them is not.
fn agent_texts(body: &Value) -> Vec<String> {
    let mut all = Vec::new();
    texts(&body["system"], &mut all);
    texts(&body["tools"], &mut all);
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "system" || message.to_string().contains("<system-reminder>") {
            texts(&message["content"], &mut all);
        }
    }
    let own = |text: &str| text.split("# You are in a sandbox").next().unwrap_or_default().to_owned();
    all.iter().map(|text| own(text)).collect()
}

/// The texts of a file of a tape, as they stand and as a document's.
fn texts_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut out = Vec::new();
    for line in text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line)) {
        texts(&serde_json::from_str(line).unwrap_or_default(), &mut out);
    }
    texts(&serde_json::from_str(&text).unwrap_or_default(), &mut out);
    out.push(text);
    out
}

#[test]
fn no_shipped_tape_has_words_of_the_agents_own() {
    require!(Agent, Bwrap);
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bodies);
    let port = serve(move |_, body| {
        kept.lock().unwrap().push(body.to_vec());
        streamed(r#"{"type":"text","text":""}"#, r#"{"type":"text_delta","text":"done"}"#, "end_turn")
    });
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    let mut command = with_agent(&stage, &["test", "--json", "examples/forecast/forecast.yaml"]);
    command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    stage.finish(&mut command);
    let bodies = bodies.lock().unwrap();
    let body: Value = serde_json::from_slice(bodies.first().expect("the agent asked")).unwrap();
    let skills = files(&examples()).into_iter().filter(|path| path.ends_with("SKILL.md"));
    let ours: Vec<String> = skills.map(|path| fs::read_to_string(path).unwrap()).collect();
    let known: HashSet<String> = agent_texts(&body)
        .iter()
        .flat_map(|text| runs(text).collect::<Vec<_>>())
        .filter(|run| !ours.iter().any(|text| text.contains(run.as_str())))
        .collect();
    assert!(known.len() > 20_000, "the search would find nothing: {}", known.len());
    let found = |bytes: &[u8]| {
        texts_of(bytes).iter().flat_map(|text| runs(text).collect::<Vec<_>>()).find(|run| known.contains(run))
    };
    assert!(found(&bodies[0]).is_some(), "the search finds them where they are");
    for file in shipped().iter().flat_map(|tape| files(tape)) {
        let hit = found(&fs::read(&file).unwrap());
        assert!(hit.is_none(), "{} has text of the agent's own", file.display());
    }
}

#[test]
fn stale_broken_and_missing_parts_are_reported_with_their_cause() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let path = recorded(&stage);
    let verify = || tape(&stage, &["verify", "--json", TAPE]);
    let found = verify();
    assert_eq!(found.status.code(), Some(0), "{}", found.stdout);
    let causes = |found: &Finished| -> Vec<String> {
        let row = row(found);
        let cause = |one: &Value| one["cause"].as_str().unwrap().to_owned();
        row["changed"].as_array().unwrap().iter().map(cause).collect()
    };
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    let found = verify();
    assert_eq!(
        (found.status.code(), causes(&found)),
        (Some(1), vec!["skill".to_owned()]),
        "{}",
        found.stdout
    );
    stage.write("project/skills/hello/scripts/hello.sh", "echo hello from the script\n");
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("Say hello", "Say it"));
    assert_eq!(causes(&verify()), ["scenario"]);
    stage.write("project/scenarios/hello.yaml", SCENARIO);
    let session = fs::read_to_string(stage.path("project/scenarios/session.yaml")).unwrap();
    stage.write("project/scenarios/session.yaml", format!("model: claude-sonnet-4-5\n{session}"));
    assert_eq!(causes(&verify()), ["session", "plan"]);
    stage.write("project/scenarios/session.yaml", &session);
    assert_eq!(verify().status.code(), Some(0));

    let frames = fs::read_to_string(path.join("frames.jsonl")).unwrap();
    fs::write(path.join("frames.jsonl"), frames.replace("all done", "all gone")).unwrap();
    assert_eq!(verify().status.code(), Some(2));
    fs::remove_file(path.join("frames.jsonl")).unwrap();
    let found = verify();
    assert_eq!(found.status.code(), Some(3), "{}", found.stdout);
    assert!(row(&found)["error"].as_str().unwrap().contains("cannot be used"), "{}", found.stdout);
    let found = tape(&stage, &["verify", "skills"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("there is no tape"), "{}", found.stderr);
}

#[test]
fn another_agent_makes_a_tape_stale() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let directory = agent::older().unwrap().parent().unwrap().display().to_string();
    let mut command = stage.command(&["tape", "verify", "--json", TAPE]);
    let found = stage.finish(command.env("PATH", format!("{directory}:/usr/bin:/bin")));
    assert_eq!((found.status.code(), &row(&found)["changed"][0]["cause"]), (Some(1), &json!("agent")));
}

#[test]
fn what_is_private_is_found_scrubbed_and_still_matches() {
    require!(Agent, Bwrap);
    let (address, home) = ("maria@post.ch", "/home/maria");
    let calls = json!([bash(&format!("echo {address} | tee outputs/kept.txt")), bash(PLAIN_CALL)]);
    let stage = scenario(&script(&[main_turn(&calls), main_turn(&json!([{"text": "all done"}]))]));
    stage.write("project/skills/hello/scripts/hello.sh", format!("echo notes are in {home}/notes\n"));
    let path = recorded(&stage);
    let found = tape(&stage, &["verify", TAPE]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stdout);
    for part in [
        "home-path in frames.jsonl:",
        "email in bodies/",
        "email in requests.jsonl:2",
        "email in artifacts/files/outputs/kept.txt:1",
    ] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
    assert!(!found.stdout.contains(address) && !found.stdout.contains(home), "{}", found.stdout);

    let found = tape(&stage, &["scrub", "--json", TAPE]);
    let scrubbed = data(&found);
    assert_eq!(found.status.code(), Some(0), "{scrubbed:#}");
    assert_eq!((&scrubbed["replaced"], &scrubbed["left"]), (&json!(["home-path", "email"]), &json!([])));
    for file in files(&path) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(address) && !text.contains(home), "{}", file.display());
    }
    assert_eq!(tape(&stage, &["verify", TAPE]).status.code(), Some(0));
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--json", TAPE]));
    let replayed = row(&found);
    assert_eq!((found.status.code(), &replayed["replay"]["exact"]), (Some(0), &json!(2)), "{replayed:#}");
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--json", "--protocol", TAPE]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stdout);
    // It is not blind to the rest.
    stage.write("project/skills/hello/scripts/hello.sh", format!("echo notes are in {home}/motes\n"));
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--json", TAPE]));
    assert_eq!(found.status.code(), Some(7), "{}", found.stdout);
}

const PLAIN_CALL: &str = "sh /opt/belljar/agent/.claude/skills/hello/scripts/hello.sh";

#[test]
fn a_tape_is_shown_compared_and_refreshed() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let path = recorded(&stage);
    let found = tape(&stage, &["show", TAPE]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    for part in [
        "hello.yaml",
        agent::VERSION,
        "? Say hello",
        "! Bash",
        "? -> hello from the script",
        "! all done",
        "200",
    ] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
    let shown = data(&tape(&stage, &["show", "--json", TAPE]));
    assert_eq!(shown["exchanges"][1]["asked"], json!(["-> hello from the script"]), "{shown:#}");

    let copied =
        Command::new("cp").arg("-r").arg(&path).arg(stage.path("project/old.tape")).status().unwrap();
    assert!(copied.success());
    let refresh = || tape(&stage, &["refresh", "--json", "--scripted", "scenarios"]);
    let found = refresh();
    assert_eq!((found.status.code(), &data(&found)["refreshed"]), (Some(0), &json!(0)), "{}", found.stdout);
    assert_eq!(tape(&stage, &["diff", "old.tape", TAPE]).status.code(), Some(0));

    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    // A tape that is none does not keep the others from it.
    stage.write("project/scenarios/broken.tape/tape.json", "{}");
    let found = refresh();
    assert_eq!((found.status.code(), &data(&found)["refreshed"]), (Some(2), &json!(1)), "{}", found.stdout);
    let rows = data(&found)["results"].clone();
    assert!(rows[0]["error"].as_str().unwrap().contains("broken.tape"), "{rows:#}");
    fs::remove_dir_all(stage.path("project/scenarios/broken.tape")).unwrap();
    assert_eq!(rows[1]["changed"][0]["cause"], "skill");
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--json", TAPE]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stdout);

    let found = tape(&stage, &["diff", "--json", "old.tape", TAPE]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    let difference = data(&found)["difference"].clone();
    let asked = &difference["exchanges"][0]["request"][0];
    assert!(asked["pointer"].as_str().unwrap().starts_with("/messages/"), "{difference:#}");
    let values = (&asked["recorded"], &asked["present"]);
    assert_eq!(values, (&json!("hello from the script"), &json!("hellp from the script")));
    assert_eq!(difference["environment"][0]["pointer"], "/scenario/skills/hello", "{difference:#}");
    let found = tape(&stage, &["diff", "old.tape", TAPE]);
    assert!(
        found.stdout.contains("- hello from") && found.stdout.contains("+ hellp from"),
        "{}",
        found.stdout
    );
}

#[test]
fn an_archive_has_every_exchange_and_no_more_than_the_tape() {
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    let found = tape(&stage, &["export", "examples/report/report.tape", "--har", "report.har"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let text = fs::read_to_string(stage.path("project/report.har")).unwrap();
    let log = serde_json::from_str::<Value>(&text).unwrap()["log"].clone();
    assert_eq!((&log["version"], &log["pages"]), (&json!("1.2"), &json!([])));
    let entries = log["entries"].as_array().unwrap();
    let directory = examples().join("report/report.tape");
    let lines = fs::read_to_string(directory.join("exchanges.jsonl")).unwrap();
    assert_eq!(entries.len(), lines.lines().count());
    for (entry, line) in entries.iter().zip(lines.lines()) {
        for (part, names) in [
            (
                "request",
                &[
                    "method",
                    "url",
                    "httpVersion",
                    "cookies",
                    "headers",
                    "queryString",
                    "headersSize",
                    "bodySize",
                ][..],
            ),
            (
                "response",
                &[
                    "status",
                    "statusText",
                    "httpVersion",
                    "cookies",
                    "headers",
                    "content",
                    "redirectURL",
                    "headersSize",
                    "bodySize",
                ],
            ),
            ("timings", &["send", "wait", "receive"]),
        ] {
            for name in names {
                assert!(entry[part].get(name).is_some(), "{part}.{name}");
            }
        }
        let started = entry["startedDateTime"].as_str().unwrap();
        assert_eq!((started.len(), &started[10..11], &started[23..]), (24, "T", "Z"), "{started}");
        let asked = entry["request"]["postData"]["text"].as_str().unwrap();
        let exchange: Value = serde_json::from_str(line).unwrap();
        let digest = Digest::of(asked.as_bytes()).to_string();
        assert_eq!(exchange["request"]["body"]["digest"], digest, "the body of the tape, byte for byte");
    }
    assert!(text.contains("<agent's words: sha256:"), "digests stay digests");
    let found = tape(&stage, &["export", "examples/report/report.tape", "--har", "report.har"]);
    assert_eq!(found.status.code(), Some(2), "never overwrites: {}", found.stderr);
}
