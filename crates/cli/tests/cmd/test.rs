use super::{script, tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A call of the shell, then a last word.
fn one_command(command: &str) -> String {
    script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "do it"}}}),
        json!({"text": "All done."}),
    ])
}

fn scenario(stage: &Stage, name: &str, yaml: &str, script: &str) {
    stage.write(&format!("project/{name}.yaml"), yaml);
    stage.write(&format!("project/{name}.script.json"), script);
}

fn first(envelope: &Value) -> &Value {
    &envelope["data"]["results"][0]
}

fn outcomes(envelope: &Value) -> Vec<&str> {
    let checks = first(envelope)["checks"].as_array().unwrap().iter();
    checks.map(|check| check["outcome"].as_str().unwrap()).collect()
}

#[test]
fn the_examples_pass_together() {
    require!(Agent, Bwrap, Curl);
    let stage = Stage::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let (status, envelope) =
        tried_json(&stage, &["test", "--scripted", "--json", &examples.display().to_string()]);
    assert_eq!((status, &envelope["data"]["passed"]), (0, &json!(3)), "{envelope:#}");
    assert!(
        !stage.path("home/.local/state/belljar/staging").read_dir().unwrap().any(|_| true),
        "no stage stays"
    );
    assert_eq!(
        stage.json(&["instances", "--json"])["data"]["instances"],
        json!([]),
        "nor an instance of one"
    );
}

#[test]
fn checks_pass_and_fail_on_evidence() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let yaml = "prompt: go\n\
                answers: [{when_tool: Bash, decide: allow}]\n\
                assert:\n\
                \x20 - file_exists: outputs/made.txt\n\
                \x20 - file_exists: outputs/other.txt\n\
                \x20 - artifact_text: {artifact: outputs/made.txt, contains: [written]}\n\
                \x20 - transcript_contains: All done.\n\
                \x20 - tool_not_called: Bash\n";
    scenario(&stage, "a", yaml, &one_command("echo written > outputs/made.txt"));
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 1, "{envelope:#}");
    assert_eq!(outcomes(&envelope), ["pass", "fail", "pass", "pass", "fail"], "{envelope:#}");
    assert_eq!(first(&envelope)["conclusion"], "failed");
    let directory = Path::new(first(&envelope)["directory"].as_str().unwrap());
    assert_eq!(fs::read_to_string(directory.join("artifacts/files/outputs/made.txt")).unwrap(), "written\n");
    for name in ["events.jsonl", "frames.jsonl", "egress.jsonl", "files.json", "result.json", "run.json"] {
        assert!(directory.join(name).is_file(), "{name}");
    }
}

#[test]
fn a_tool_that_no_rule_names_is_held_against_the_run_or_refused() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let command = one_command("touch outputs/made.txt");
    scenario(&stage, "a", "prompt: go\nassert: [{file_exists: outputs/made.txt}]\n", &command);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 1, "{envelope:#}");
    assert_eq!(first(&envelope)["signals"][0]["code"], "permissive_auto_allow", "{envelope:#}");
    stage.write("project/session.yaml", "permission_parity: strict\n");
    let yaml = "prompt: go\nsession: session.yaml\nassert: [{file_absent: outputs/made.txt}]\n";
    scenario(&stage, "b", yaml, &command);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "b.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
}

#[test]
fn answers_reach_the_model() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let question = |text: &str, header: &str, multi: bool| {
        json!({"question": text, "header": header, "multiSelect": multi, "options": [
            {"label": "Blue", "description": "b"}, {"label": "Red", "description": "r"}]})
    };
    let ask = |questions: Vec<Value>| json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": questions}}});
    let played = script(&[
        ask(vec![question("Which colour?", "one", false), question("Which ones?", "many", true)]),
        ask(vec![question("In your words?", "free", false)]),
        json!({"text": "Thank you."}),
    ]);
    let yaml = "prompt: go\n\
                answers:\n\
                \x20 - {when_question: which colour, choose: red}\n\
                \x20 - {when_question: which ones, choose: [Blue, Red]}\n\
                \x20 - {when_question: your words, answer: as green as grass}\n\
                assert:\n\
                \x20 - gate_answers_delivered: true\n\
                \x20 - gate_answer_count_min: 2\n\
                \x20 - tool_result_contains: '\"Which colour?\"=\"Red\"'\n\
                \x20 - tool_result_contains: '\"Which ones?\"=\"Blue, Red\"'\n";
    scenario(&stage, "a", yaml, &played);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
    let directory = Path::new(first(&envelope)["directory"].as_str().unwrap());
    let requests = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    let last = requests.lines().last().unwrap();
    for answer in ["Red", "Blue, Red", "as green as grass"] {
        assert!(last.contains(answer), "{answer} in {last}");
    }
}

#[test]
fn an_open_question_fails_with_the_line_that_would_answer_it() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let played = script(&[
        json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
            {"question": "Which format?", "header": "Format", "multiSelect": false, "options": [
                {"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}}),
        json!({"text": "Thank you."}),
    ]);
    scenario(&stage, "a", "prompt: go\n", &played);
    let found = tried(&stage, &["test", "--scripted", "a.yaml"]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(found.stderr.contains("when_question") && found.stderr.contains("PDF"), "{}", found.stderr);
    let found = tried(&stage, &["test", "--scripted", "a.yaml", "--answer", "format=HTML"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("= HTML"), "{}", found.stderr);
    // Among others, too, and before what follows from it.
    scenario(&stage, "b", "prompt: go\nassert: [{file_exists: outputs/made.pdf}]\n", &played);
    for more in [&[][..], &["--quiet"]] {
        let found = tried(&stage, &[&["test", "--scripted", "a.yaml", "b.yaml"], more].concat());
        assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
        let of_b = found.stderr.split("b.yaml").nth(1).unwrap();
        let at = |part: &str| of_b.find(part).unwrap_or_else(|| panic!("{part} in {}", found.stderr));
        assert!(at("unanswered: ") < at("- when_question: \"^Which format"), "{}", found.stderr);
        assert!(at("choose: \"PDF\"  # or \"HTML\"") < at("file_exists: "), "{}", found.stderr);
    }
    let found = tried(&stage, &["test", "--scripted", "a.yaml", "--first"]);
    assert!(found.stderr.contains("= PDF"), "{}", found.stderr);
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let played = script(&[json!({"text": "Hello."})]);
    scenario(&stage, "good", "prompt: go\nassert: [{transcript_contains: Hello}]\n", &played);
    scenario(&stage, "bad", "prompt: go\nasert: []\n", &played);
    scenario(&stage, "wrong", "prompt: go\nassert: [{transcript_contains: Bye}]\n", &played);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "."]);
    assert_eq!(status, 1, "{envelope:#}");
    let codes: Vec<u64> = envelope["data"]["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["exit_code"].as_u64().unwrap())
        .collect();
    assert_eq!(codes, [2, 0, 1], "{envelope:#}");
    let found = tried(&stage, &["test", "--scripted", "."]);
    assert!(found.stderr.contains("bad.yaml:2: unknown key `asert`"), "{}", found.stderr);
    assert!(found.stderr.contains("1 passed, 1 failed, 1 not valid"), "{}", found.stderr);
    assert!(
        found.stderr.contains("    | Hello.\n"),
        "the last words of the one that failed: {}",
        found.stderr
    );
    let found = tried(&stage, &["test", "--scripted", ".", "--quiet"]);
    assert!(
        found.stderr.contains("transcript_contains") && !found.stderr.contains("| Hello."),
        "{}",
        found.stderr
    );
    let found = tried(&stage, &["test", "--scripted", ".", "-k", "good"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let (_, envelope) =
        tried_json(&stage, &["test", "--scripted", "--json", ".", "--jobs", "1", "--fail-fast"]);
    assert_eq!(envelope["data"]["results"].as_array().unwrap().len(), 1, "{envelope:#}");
    let (_, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "good.yaml", "--repeat", "3"]);
    assert_eq!(envelope["data"]["passed"], 3, "{envelope:#}");
}

#[test]
fn faults_of_a_file_are_reported_before_anything_happens() {
    let stage = Stage::new();
    stage.write(
        "project/a.yaml",
        "prompt: go\nassert:\n  - transcript_match: x\n  - transcript_matches: '(?=x)'\n",
    );
    let found = stage.run(&["test", "a.yaml"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(
        found.stderr.contains("transcript_match") && found.stderr.contains("a.yaml:3"),
        "{}",
        found.stderr
    );
    assert!(found.stderr.contains("a.yaml:4"), "{}", found.stderr);
    assert!(!stage.path("home/.local").exists(), "nothing was made");
    let found = stage.run(&["test", "nowhere.yaml"]);
    assert_eq!(found.status.code(), Some(2));
    stage.write("project/empty/x.txt", "");
    let found = stage.run(&["test", "empty"]);
    assert!(found.stderr.contains("no scenario"), "{}", found.stderr);
}

#[test]
fn a_failed_agent_is_distinguished_from_a_failed_check() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    // The agent sends a refused request several times.
    let refused =
        json!({"answer": {"error": {"status": 400, "type": "invalid_request_error", "message": "no"}}});
    let error = &json!({"version": 1, "turns": vec![refused; 12]}).to_string();
    scenario(&stage, "a", "prompt: go\nassert: [{result: success}]\n", error);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!((status, &first(&envelope)["conclusion"]), (5, &json!("agent_failed")), "{envelope:#}");
    scenario(&stage, "b", "prompt: go\nassert: [{result: error}]\n", error);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "b.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
}

/// Skills that come with the agent would compete with those under test.
#[test]
fn the_model_is_offered_the_skills_of_the_session_and_no_others() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/session.yaml", "skills: {local: [skills/notes]}\n");
    scenario(&stage, "a", "prompt: go\nsession: session.yaml\nassert: [{result: success}]\n", super::HELLO);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
    let directory = Path::new(first(&envelope)["directory"].as_str().unwrap());
    let requests = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    let (_, list) = requests.split_once("skills are available for use with the Skill tool").unwrap();
    let (_, list) = list.split_once(r"\n\n").unwrap();
    let (list, _) = list.split_once(r"\n\n").unwrap();
    let names: Vec<&str> = list.split(r"\n").map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(names, ["- notes"], "{list}");
}

#[test]
fn time_that_is_up_ends_the_run() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let yaml = "prompt: go\ntimeout_ms: 4000\nanswers: [{when_tool: Bash, decide: allow}]\n";
    scenario(&stage, "a", yaml, &one_command("tail -f /dev/null"));
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert!(status == 5 || status == 6, "{envelope:#}");
    let directory = Path::new(first(&envelope)["directory"].as_str().unwrap());
    let result: Value =
        serde_json::from_str(&fs::read_to_string(directory.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["status"]["how"], "limit_reached", "{result}");
}

#[test]
fn a_text_of_a_megabyte_is_judged_and_one_beyond_the_record_is_unknown() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let long = |bytes: usize| format!("first {}last", "many words ".repeat(bytes / 11));
    let write = json!({"tool_use": {"name": "Write", "input": {"file_path": "/workspace/outputs/a.txt", "content": long(1_000_000)}}});
    let played = script(&[write, json!({"text": long(1_000_000)})]);
    let yaml = "prompt: go\n\
                answers: [{when_tool: Write, decide: allow}]\n\
                assert:\n\
                \x20 - transcript_matches: 'words last$'\n\
                \x20 - transcript_not_contains: more bytes\n\
                \x20 - artifact_text: {artifact: outputs/a.txt, contains: [words last]}\n";
    scenario(&stage, "a", yaml, &played);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
    let played = script(&[json!({"text": long(9_000_000)})]);
    scenario(&stage, "b", "prompt: go\nassert: [{transcript_not_contains: absent}]\n", &played);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "b.yaml"]);
    assert_eq!((status, outcomes(&envelope)), (3, vec!["unknown"]), "{:#}", first(&envelope)["signals"]);
    let signals = first(&envelope)["signals"].to_string();
    assert!(signals.contains("could not be read or kept"), "{signals}");
}

#[test]
fn a_cap_on_the_cost_ends_a_scenario_with_its_own_status() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\n");
    // No server listens there: a request beyond the cap is refused before it is sent.
    let mut command = stage.command(&["test", "--json", "a.yaml", "--max-cost-usd", "0.000001"]);
    command.env("PATH", super::agent_path()).env("ANTHROPIC_API_KEY", "sk-made-up-key");
    command.env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9");
    let found = stage.finish(&mut command);
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(6), "{envelope:#}");
    assert_eq!(first(&envelope)["conclusion"], "budget_reached");
    assert_eq!(first(&envelope)["metrics"]["cost_micros_usd"], 0, "nothing was spent");
    let found = stage.run(&["test", "a.yaml", "--max-cost-usd", "none"]);
    assert!(found.status.code() == Some(2) && found.stderr.contains("0.50"), "{}", found.stderr);
}

/// A skill, a hook or the agent's defaults run a tool without a question, which no rule can answer.
#[test]
fn a_denied_tool_that_ran_unasked_fails_the_run() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write(
        "project/skill/SKILL.md",
        "---\nname: skill\ndescription: d\nallowed-tools: Bash, Write\n---\nhi\n",
    );
    let script = script(&[
        json!({"tool_use": {"name": "Skill", "input": {"skill": "skill"}}}),
        json!({"tool_use": {"name": "Bash", "input": {"command": "touch outputs/made.txt", "description": "d"}}}),
        json!({"text": "All done."}),
    ]);
    let parity = "permission_parity: strict\n";
    for (name, session, rules, options, by) in [
        ("rule", "", "answers: [{when_tool: Bash, decide: deny}]\n", &[][..], "rule 1 of scenario"),
        ("flag", "", "", &["--deny-tool", "Bash"][..], "rule 1 of command-line"),
        ("strict", parity, "", &[][..], "`permission_parity: strict`"),
        ("allowed", parity, "answers: [{when_tool: Bash, decide: allow}]\n", &[][..], ""),
    ] {
        stage
            .write(&format!("project/{name}.session.yaml"), format!("{session}skills: {{local: [skill]}}\n"));
        // The rule for the skill itself is not about what it allows.
        let allows = if rules.is_empty() {
            "answers: [{when_tool: Skill, decide: allow}]\n".to_owned()
        } else {
            rules.replace("]\n", ", {when_tool: Skill, decide: allow}]\n")
        };
        let yaml =
            format!("prompt: go\nsession: {name}.session.yaml\n{allows}assert: [{{result: success}}]\n");
        scenario(&stage, name, &yaml, &script);
        let file = format!("{name}.yaml");
        let (status, envelope) =
            tried_json(&stage, &[&["test", "--scripted", "--json", &file], options].concat());
        let signals = first(&envelope)["signals"].to_string();
        assert_eq!(status, i32::from(!by.is_empty()), "{name}: {envelope:#}");
        assert_eq!(signals.contains("denied_tool_ran"), !by.is_empty(), "{name}: {signals}");
        assert!(
            by.is_empty()
                || signals.contains(&format!("Bash ran without a question, although it is denied by {by}")),
            "{name}: {signals}"
        );
        let (again, judged) = tried_json(&stage, &["judge", "--json", "last"]);
        assert_eq!(again, status, "{name}: {judged:#}");
    }
}

#[test]
fn a_script_that_ran_out_is_neither_an_expected_error_nor_a_failed_agent() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let script =
        script(&[json!({"tool_use": {"name": "Bash", "input": {"command": "ls", "description": "d"}}})]);
    for wanted in ["error", "success"] {
        let yaml = format!("prompt: go\nassert: [{{result: {wanted}}}, {{tool_not_called: Write}}]\n");
        scenario(&stage, wanted, &yaml, &script);
        let (status, envelope) =
            tried_json(&stage, &["test", "--scripted", "--json", &format!("{wanted}.yaml")]);
        assert_eq!(status, 3, "{envelope:#}");
        assert_eq!(outcomes(&envelope), ["unknown", "unknown"], "{envelope:#}");
        let signals = first(&envelope)["signals"].to_string();
        assert!(signals.contains("script_exhausted"), "{signals}");
    }
}

#[test]
fn no_file_that_may_be_a_scenario_is_passed_over_in_silence() {
    let stage = Stage::new();
    let body = "assert: [{result: error}]\n";
    for (name, text) in [
        ("plain", format!("prompt: hi\n{body}")),
        ("quoted", format!("\"prompt\": hi\n{body}")),
        ("flow", "{prompt: hi, assert: [{result: error}]}\n".to_owned()),
        ("space", format!("prompt : hi\n{body}")),
        ("indented", "  prompt: hi\n  assert: [{result: error}]\n".to_owned()),
        ("bom", format!("\u{feff}prompt: hi\n{body}")),
        ("typo", format!("promt: hi\n{body}")),
        ("two", format!("---\nprompt: hi\n{body}---\nprompt: hi\n{body}")),
        ("broken", "prompt: \"hi\n".to_owned()),
    ] {
        stage.write(&format!("project/suite/{name}.yaml"), text);
    }
    stage.write("project/suite/session.yaml", "effort: low\n");
    stage.write("project/suite/policy.yaml", "- {when_tool: Bash, decide: deny}\n");
    stage.write("project/suite/empty.yaml", "");
    stage.write("project/suite/other.yaml", "on: push\n");
    stage.write("project/suite/LOUD.YAML", "prompt: hi\n");
    fs::write(stage.path("project/suite/utf16.yaml"), b"\xff\xfep\0r\0").unwrap();
    std::os::unix::fs::symlink("nowhere", stage.path("project/suite/gone.yaml")).unwrap();
    stage.write("project/suite/linked.txt", format!("prompt: hi\n{body}"));
    std::os::unix::fs::symlink("linked.txt", stage.path("project/suite/link.yaml")).unwrap();
    stage.write("project/beyond.yaml", format!("prompt: hi\n{body}"));
    std::os::unix::fs::symlink("../beyond.yaml", stage.path("project/suite/away.yaml")).unwrap();
    stage.write("project/suite/1/2/3/4/5/6/7/8/9/deep.yaml", format!("prompt: hi\n{body}"));
    fs::File::create(stage.path("project/suite/huge.yaml")).unwrap().set_len(1 << 30).unwrap();
    let (status, envelope) = tried_json(&stage, &["test", "--list", "--json", "suite"]);
    assert_eq!(status, 0, "{envelope:#}");
    let names = |member: &str, of: &dyn Fn(&Value) -> String| -> Vec<String> {
        let list = envelope["data"][member].as_array().unwrap().iter();
        list.map(|one| of(one).rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names("scenarios", &|one| one.as_str().unwrap().to_owned()),
        [
            "deep.yaml",
            "bom.yaml",
            "broken.yaml",
            "flow.yaml",
            "indented.yaml",
            "link.yaml",
            "plain.yaml",
            "quoted.yaml",
            "space.yaml",
            "two.yaml",
            "typo.yaml"
        ]
    );
    assert_eq!(
        names("skipped", &|one| one["path"].as_str().unwrap().to_owned()),
        ["LOUD.YAML", "away.yaml", "empty.yaml", "gone.yaml", "huge.yaml", "other.yaml", "utf16.yaml"]
    );
    let found = stage.run(&["check", "suite"]);
    for name in ["LOUD.YAML", "away.yaml", "empty.yaml", "gone.yaml", "huge.yaml", "other.yaml", "utf16.yaml"]
    {
        assert!(found.stderr.contains(name), "{name}: {}", found.stderr);
    }
}
