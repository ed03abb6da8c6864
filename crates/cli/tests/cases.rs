//! Bad input, one directory each: a project as a user might write it, and exactly what `belljar check` says about it, or
//! `belljar decide` where it has a `scenario.yaml` or a `policy.yaml`.
//!
//! `BELLJAR_BLESS=1` writes what is found; read the difference before it is committed.

use crate::stage::{Stage, blessing};
use std::fs;
use std::path::{Path, PathBuf};

fn directories() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut directories: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    directories
}

/// What is wrong with one case, if anything.
fn judge(directory: &Path) -> Option<String> {
    let file = directory.join("expected.txt");
    let stage = Stage::copy_of(directory);
    fs::remove_file(stage.path("project/expected.txt")).ok();
    let has = |name: &str| directory.join(name).exists();
    let found = stage.outcome(match (has("scenario.yaml"), has("policy.yaml")) {
        (true, _) => &["decide", "--tool", "Bash", "--scenario", "scenario.yaml"],
        (false, true) => &["decide", "--tool", "Bash", "--answer-policy", "policy.yaml"],
        (false, false) => &["check"],
    });
    if blessing() {
        fs::write(&file, &found).unwrap();
        return None;
    }
    match fs::read_to_string(&file) {
        Ok(expected) if expected == found => None,
        Ok(expected) => Some(format!("found\n{found}\nexpected\n{expected}")),
        Err(error) => Some(format!("{}: {error}; BELLJAR_BLESS=1 writes it", file.display())),
    }
}

#[test]
fn every_case_is_reported_as_expected() {
    let directories = directories();
    assert!(directories.len() > 50, "the cases are gone");
    let faults: Vec<String> = directories
        .iter()
        .filter_map(|directory| {
            Some(format!("== {}\n{}", directory.file_name()?.to_string_lossy(), judge(directory)?))
        })
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} cases differ\n{}",
        faults.len(),
        directories.len(),
        faults.join("\n")
    );
}

/// Words of the machinery that no user should read.
#[test]
fn no_message_speaks_of_the_machinery() {
    for directory in directories() {
        let expected = fs::read_to_string(directory.join("expected.txt")).unwrap_or_default().to_lowercase();
        for word in ["serde", "untagged", "enum ", "deserializ", "panicked", "src/", "winnow", "`option`"] {
            assert!(!expected.contains(word), "{}: {word}", directory.display());
        }
    }
}

/// Every error that has a place names file, line and column, and underlines something.
#[test]
fn every_finding_points() {
    for directory in directories() {
        let expected = fs::read_to_string(directory.join("expected.txt")).unwrap_or_default();
        for block in expected.split("\n\n") {
            let Some(start) = block.find("error[").or_else(|| block.find("warning[")) else { continue };
            let block = &block[start..];
            // A file that is empty or too large has no line to show.
            if block.starts_with("error[empty]") || block.starts_with("error[too-large]") {
                continue;
            }
            assert!(block.contains("--> "), "{}: no place in\n{block}", directory.display());
            assert!(block.contains('^'), "{}: nothing underlined in\n{block}", directory.display());
        }
    }
}
