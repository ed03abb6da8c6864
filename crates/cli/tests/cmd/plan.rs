use super::project;
use crate::stage::{Stage, assert_outcome};
use serde_json::{Value, json};
use std::process::Command;

fn why(stage: &Stage, key: &str) -> String {
    stage.outcome(&["plan", "--why", key])
}

#[test]
fn a_page_with_everything_on_it() {
    let stage = project();
    let found = stage.run(&["plan"]);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""));
    let page = &found.stdout;
    assert!(page.starts_with("Agent reviewer  claude-code, claude-opus-4-8, bubblewrap\nsha256:"), "{page}");
    for section in ["Sees", "Reaches", "Secrets", "Environment, all of it", "Keeps", "Refused", "Starts"]
        .map(|s| format!("\n\n{s}"))
    {
        assert!(page.contains(&section), "{section} in\n{page}");
    }
    for line in [
        "  skill changelog                                   Does changelog\n",
        "  allow-1 api.github.com      allowed\n",
        "  ENTERS        DB_PASSWORD            asked at the terminal: Database password\n",
        "  LOG_LEVEL   written in the manifest\n",
        "\n! you have not agreed to this yet: `belljar trust reviewer`\n",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains("debug"), "a literal is not printed");
    assert!(page.lines().all(|line| line == line.trim_end()), "no blanks at the end of a line");
}

/// Keys that other programs rely on.
#[test]
fn one_json_object_with_stable_keys() {
    let stage = project();
    let found = stage.run(&["plan", "--json"]);
    assert_eq!(found.stderr, "");
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&envelope), "belljar version verb ok exit_code exit_meaning data diagnostics");
    assert_eq!(
        keys(&envelope["data"]),
        "digest plan by_hand reasons secrets default_limits not_isolated credential_found upstream program_found agent advice"
    );
    let plan = &envelope["data"]["plan"];
    assert_eq!(
        keys(plan),
        "format agent harness purpose backend model effort instance home home_directory workspace mounts files env \
         egress model_credentials provider_tools credentials ssh limits skills mcp plugins prompt argv refused"
    );
    assert_eq!(keys(&plan["instance"]), "key root directory");
    assert_eq!(keys(&plan["workspace"]), "mode source target directory");
    assert_eq!(
        plan["egress"],
        json!({"model": true, "rules": [
        {"id": "allow-1", "effect": "allow", "host": "api.github.com"}]})
    );
    assert_eq!(envelope["data"]["program_found"], Value::Null);
    assert_eq!((&envelope["belljar"], &plan["format"]), (&json!(1), &json!(1)));
}

#[test]
fn failures_are_json_too() {
    let stage = project();
    let found = stage.json(&["plan", "reviwer", "--json"]);
    assert_eq!(found["error"]["message"], "no agent `reviwer` is declared");
    assert_eq!(found["error"]["hints"], json!(["did you mean `reviewer`?"]));
    stage.write("project/belljar.toml", "modle = 1\n[agents.a]\n");
    let found = stage.json(&["plan", "--json"]);
    assert_eq!(found["diagnostics"][0]["code"], "unknown-key");
    assert_eq!((&found["ok"], &found["data"]), (&json!(false), &Value::Null));
}

#[test]
fn the_digest_is_the_same_until_something_changes() {
    let stage = project();
    let digest = || stage.json(&["plan", "--json"])["data"]["digest"].as_str().unwrap().to_owned();
    let first = digest();
    assert_eq!(first, digest());
    let changed = super::MANIFEST.replace("\"debug\"", "\"trace\"");
    stage.write("project/belljar.toml", changed);
    assert_ne!(first, digest(), "a literal counts, though it is not printed");
}

#[test]
fn why_names_the_place() {
    let stage = project();
    let ok = |text: &str| format!("exit 0\n--- stdout\n{text}--- stderr\n");
    assert_outcome(&why(&stage, "model"), &ok("model = claude-opus-4-8\n  belljar.toml:5:9\n"));
    assert_outcome(
        &why(&stage, "home"),
        &ok("home = project\n  default: a conversation can be resumed, and nothing of yours is visible\n"),
    );
    assert_outcome(
        &why(&stage, "env.LOG_LEVEL"),
        &ok("env.LOG_LEVEL = written in the manifest\n  belljar.toml:9:1\n"),
    );
    assert_outcome(
        &why(&stage, "env.PATH"),
        &ok("env.PATH = constant\n  harness: programs of the system are found\n"),
    );
    assert_outcome(
        &why(&stage, "library"),
        &ok("library.skills.changelog = declared\n  belljar.toml:1:17\n"),
    );
}

#[test]
fn why_a_family_is_all_of_it() {
    let stage = project();
    let found = stage.run(&["plan", "--why", "env"]);
    assert!(found.stdout.lines().count() > 10);
    assert!(found.stdout.lines().step_by(2).all(|line| line.starts_with("env.")), "{}", found.stdout);
    // A prefix is a whole word.
    assert_eq!(stage.run(&["plan", "--why", "en"]).status.code(), Some(2));
    let list = stage.json(&["plan", "--json", "--why", "egress"]);
    assert_eq!(
        list["data"]["reasons"],
        json!([{"key": "egress.allow-1", "value": "api.github.com", "origin": "belljar.toml:13:10"}])
    );
}

#[test]
fn why_something_unknown_names_what_is_near() {
    let stage = project();
    assert_outcome(
        &why(&stage, "hom"),
        "exit 2\n--- stdout\n--- stderr\nerror: the plan has no `hom`\n  hint: did you mean `home`?\n",
    );
    assert_outcome(
        &why(&stage, "nothing"),
        "exit 2\n--- stdout\n--- stderr\nerror: the plan has no `nothing`\n  hint: it has agent, harness, agent_version, model, backend, \
         home, workspace, skills, library, instance, egress, env, permissions\n",
    );
}

/// The project's file wins over the user's on the same name, whole entries at a time.
#[test]
fn why_shows_whose_file_won() {
    let stage = project();
    stage.write(
        "config/belljar/belljar.toml",
        "[library.skills.changelog]\nsource = \"mine\"\n\n[agents.reviewer]\nmodel = \"mine\"\neffort = \"high\"\n\n[agents.other]\nskills = [\"changelog\"]\n",
    );
    let said = |agent: &str, key: &str| stage.run(&["plan", agent, "--why", key]).stdout;
    assert_eq!(said("reviewer", "model"), "model = claude-opus-4-8\n  belljar.toml:5:9\n");
    assert_eq!(said("reviewer", "effort"), "", "nothing of the user's entry is left");
    assert_eq!(said("other", "library"), "library.skills.changelog = declared\n  belljar.toml:1:17\n");
    let place = stage.path("config/belljar/belljar.toml:9:11");
    assert_eq!(said("other", "skills"), format!("skills.changelog = picked\n  {}\n", place.display()));
}

#[test]
fn an_agent_must_be_named_among_several() {
    let stage = Stage::with("[agents.reviewer]\n[agents.writer]\n");
    assert_outcome(
        &stage.outcome(&["plan"]),
        "exit 2\n--- stdout\n--- stderr\nerror: several agents are declared and none was named\n  hint: name one of `reviewer` and `writer`\n",
    );
    assert_outcome(
        &stage.outcome(&["plan", "a/../\u{1b}[31m"]),
        "exit 2\n--- stdout\n--- stderr\nerror: no agent `a/../\\u{1b}[31m` is declared\n  hint: declared: `reviewer` and `writer`\n",
    );
}

/// What is legal in a value reaches the plan's inside as it is, and its outside not at all.
#[test]
fn values_are_passed_verbatim() {
    let prompt = "quotes \" ' \n$(rm -rf /) `x` ${HOME} \\ é \u{1b}[31m";
    let text = format!(
        "[library.mcp.a]\ncommand = \"x\"\nargs = [\"$(id)\", \"a b\", \"\\\"\"]\n[agents.a]\nmcp = [\"a\"]\nprompt = {}\n[agents.a.env]\nX = {}\n",
        json!(prompt),
        json!("$(id) \n '")
    );
    let plan = Stage::with(&text).json(&["plan", "--json"])["data"]["plan"].clone();
    assert_eq!(plan["prompt"]["text"], prompt);
    assert_eq!(plan["mcp"][0]["args"], json!(["$(id)", "a b", "\""]));
    let file = plan["files"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["target"] == "/opt/belljar/agent/prompt.md");
    assert_eq!(file.unwrap()["text"], prompt);
    let x = plan["env"].as_array().unwrap().iter().find(|entry| entry["name"] == "X").unwrap();
    assert_eq!(x["source"], json!({"from": "manifest"}));
    // The first message is a file, so that no text of it can be taken for a flag.
    assert!(plan["argv"].as_array().unwrap().iter().all(|word| !word.as_str().unwrap().contains("rm -rf")));
}

#[test]
fn control_characters_cannot_colour_the_page() {
    let stage = Stage::with("[agents.a]\nprompt = \"\\u001b[31mred\\r\\nsecond\"\n");
    let page = stage.run(&["plan"]).stdout;
    assert!(!page.contains('\u{1b}') && !page.contains('\r'), "{page}");
}

/// A reader that goes away early wants no complaint; a result that is lost wants one.
#[test]
fn closed_and_full_outputs() {
    let stage = project();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line, env!("CARGO_BIN_EXE_belljar")]).current_dir(stage.path("project"));
        stage.finish(command.env_clear().envs(stage.environment()))
    };
    for arguments in ["plan", "plan --json", "completions bash", "--help", "plan --help", "check"] {
        let gone = shell(&format!("{{ \"$0\" {arguments}; echo $? >&2; }} | :"));
        assert_eq!(gone.stderr, "0\n", "{arguments}");
    }
    let closed = shell("\"$0\" plan >&-");
    assert!(!closed.stderr.contains("panicked"), "{}", closed.stderr);
    for arguments in ["plan", "plan --json"] {
        let full = shell(&format!("\"$0\" {arguments} >/dev/full"));
        assert_eq!(full.status.code(), Some(2), "{arguments}");
        assert!(full.stderr.starts_with("error: cannot write to standard output\n"), "{}", full.stderr);
    }
}

/// Where the agent's program and the model's credential are now, without a look at any value.
#[test]
fn what_is_here_now() {
    use std::os::unix::fs::PermissionsExt;
    let stage = project();
    stage.write("bin/claude", "#!/bin/sh\n");
    std::fs::set_permissions(stage.path("bin/claude"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = "sk-ant-secret-value";
    let mut command = stage.command(&["plan", "--json"]);
    command.env("PATH", format!("relative:{}:/usr/bin", stage.path("bin").display()));
    command.env("CLAUDE_CODE_OAUTH_TOKEN", secret);
    let found = stage.finish(&mut command);
    let data: Value = serde_json::from_str::<Value>(&found.stdout).unwrap()["data"].clone();
    assert_eq!(data["program_found"], json!(stage.path("bin/claude")));
    assert_eq!(data["credential_found"], "CLAUDE_CODE_OAUTH_TOKEN");
    assert!(!found.stdout.contains(secret));
}

#[test]
fn a_model_that_is_elsewhere_is_on_the_page() {
    let stage = project();
    let row = |url: &str| {
        let found = stage.finish(stage.command(&["plan"]).env("ANTHROPIC_BASE_URL", url));
        let row = found.stdout.lines().find(|line| line.starts_with("  model ")).unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let usual = "model through the gateway";
    assert_eq!(
        row("http://user:word@127.0.0.1:8080/v9"),
        format!("{usual} to the URL in ANTHROPIC_BASE_URL, which is not valid")
    );
    assert_eq!(row("http://127.0.0.1:8080/v9"), format!("{usual} to 127.0.0.1:8080 (ANTHROPIC_BASE_URL)"));
    assert_eq!(row("https://api.anthropic.com"), usual);
    assert_eq!(row(""), usual);
}
