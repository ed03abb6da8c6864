//! The verbs, one file each.

mod check;
mod completions;
mod plan;
mod trust;

use crate::stage::Stage;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The verbs that the binary itself lists.
pub fn verbs() -> Vec<String> {
    let help = Stage::new().run(&["--help"]).stdout;
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let names = list.lines().take_while(|line| !line.is_empty());
    // A line that is indented further goes on with the text above.
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_verb_has_its_tests_and_no_file_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    let files: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_string_lossy().strip_suffix(".rs").map(str::to_owned)
        })
        .filter(|name| name != "mod")
        .collect();
    let modules: BTreeSet<String> = include_str!("mod.rs")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned()))
        .collect();
    assert_eq!(files, modules, "each file in tests/cmd is a module in its mod.rs");
    let verbs: BTreeSet<String> = verbs().into_iter().collect();
    assert_eq!(verbs, files, "each verb has a file in tests/cmd");
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
