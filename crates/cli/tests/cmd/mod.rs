//! The verbs, one file each.

pub mod agent;
mod answer;
mod apply;
mod chat;
mod check;
mod completions;
mod decide;
mod diff;
mod discard;
mod doctor;
mod exec;
mod findings;
mod gates;
mod gc;
mod image;
mod import;
mod init;
mod instances;
mod judge;
mod man;
mod plan;
mod prove;
pub mod record;
pub mod replay;
mod run;
mod runs;
pub mod scenario;
mod schema;
mod script;
mod shell;
mod skill;
mod tape;
mod test;
mod trace;
mod trust;

use crate::stage::Stage;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The verbs that the list of the help leaves out, because packagers call them and nobody else.
pub const UNLISTED: [&str; 1] = ["man"];

/// The verbs that the binary itself lists, and the others.
pub fn verbs() -> Vec<String> {
    let help = Stage::new().run(&["--help"]).stdout;
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let names = list.lines().take_while(|line| !line.is_empty());
    // A line that is indented further goes on with the text above.
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .chain(UNLISTED.map(str::to_owned))
        .collect()
}

#[test]
fn every_verb_has_its_tests_and_no_file_is_forgotten() {
    let files = |directory: &str| -> BTreeSet<String> {
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory))
            .unwrap()
            .filter_map(|entry| {
                entry.unwrap().file_name().to_string_lossy().strip_suffix(".rs").map(str::to_owned)
            })
            .filter(|name| name != "mod" && name != "cli")
            .collect()
    };
    let modules = |source: &str| -> BTreeSet<String> {
        let name = |line: &str| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
        };
        source.lines().filter_map(name).filter(|name| name != "cmd").collect()
    };
    assert_eq!(
        files("tests"),
        modules(include_str!("../cli.rs")),
        "each file in tests is a module of cli.rs"
    );
    let files = files("tests/cmd");
    assert_eq!(files, modules(include_str!("mod.rs")), "each file in tests/cmd is a module of its mod.rs");
    let verbs: BTreeSet<String> = verbs().into_iter().collect();
    assert_eq!(verbs, files, "each verb has a file in tests/cmd");
}

/// A script of one sentence.
pub const HELLO: &str =
    r#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"text": "Hello to you."}]}}}]}"#;

/// The search path with the real agent on it.
pub fn agent_path() -> String {
    let directory = belljar_testkit::agent::real().unwrap().parent().unwrap().display().to_string();
    format!("{directory}:/usr/bin:/bin")
}

/// Runs the binary with the real agent on its path.
pub fn tried(stage: &Stage, arguments: &[&str]) -> belljar_testkit::process::Finished {
    stage.finish(stage.command(arguments).env("PATH", agent_path()))
}

/// The envelope of such a run.
pub fn tried_json(stage: &Stage, arguments: &[&str]) -> (i32, serde_json::Value) {
    let found = tried(stage, arguments);
    let value = serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    (found.status.code().unwrap(), value)
}

/// A script: each turn is the content of an answer.
pub fn script(turns: &[serde_json::Value]) -> String {
    let turns: Vec<serde_json::Value> =
        turns.iter().map(|turn| serde_json::json!({"answer": {"reply": {"content": [turn]}}})).collect();
    serde_json::json!({"version": 1, "turns": turns}).to_string()
}

/// A manifest with a little of everything that shows.
pub const MANIFEST: &str = r#"[library.skills.changelog]
source = "skills/changelog"

[agents.reviewer]
model = "claude-opus-4-8"
skills = ["changelog"]

[agents.reviewer.env]
LOG_LEVEL = "debug"
DB_PASSWORD = "?Database password"

[agents.reviewer.egress]
allow = ["api.github.com"]
"#;

/// A project with [`MANIFEST`].
pub fn project() -> Stage {
    let stage = Stage::with(MANIFEST);
    stage.skill("project/skills", "changelog");
    stage
}
