//! Names of one agent or one model provider, outside of the places that hold them.
//!
//! The rest of the code asks the `Harness` trait, or the gateway's module for the provider. So a second agent is one
//! more directory, and not a search through every crate.

use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// In lower case; a file is searched without regard to case.
const NAMES: [&str; 2] = ["claude", "anthropic"];

/// Where the names may be, and why. A place ends with `/` if it is a directory.
const PLACES: [(&str, &str); 5] = [
    ("crates/session/src/harness/", "the agents themselves"),
    ("crates/egress/src/gateway/messages_api/", "the provider of the model"),
    ("crates/plan/src/import/", "the file of another tool, which bears the name"),
    ("crates/class/src/table.rs", "the guard knows the files of many agents and editors, used here or not"),
    ("crates/testkit/", "finds the real agent for the tests"),
];

/// Directories whose files are not part of the program.
const NOT_SHIPPED: [&str; 4] = ["tests", "examples", "benches", "fixtures"];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut files = Vec::new();
    for file in repository.files()?.into_iter().filter(|file| is_searched(file)) {
        let content =
            fs::read(repository.path(&file)).map_err(|cause| format!("cannot read {file}: {cause}"))?;
        files.push((file, String::from_utf8_lossy(&content).into_owned()));
    }
    Ok(judge(&files))
}

/// Judges files, each with its content.
fn judge(files: &[(String, String)]) -> Findings {
    let mut findings = Findings::default();
    let mut used = [false; PLACES.len()];
    for (file, content) in files {
        let place = PLACES.iter().position(|(place, _why)| is_at(file, place));
        for (line, name) in found_in(content) {
            match place {
                Some(at) => used[at] = true,
                None => findings.faults.push(format!(
                    "{file}:{line}: `{name}` belongs to a harness or to the gateway's module for the provider; \
                     take the name from there, or write the sentence without it"
                )),
            }
        }
    }
    let unused = PLACES.iter().zip(used).filter(|(_, used)| !used);
    findings.faults.extend(unused.map(|((place, _why), _)| {
        format!("{place} has none of the names; remove it from the list in xtask/src/harness.rs")
    }));
    findings
}

fn is_at(file: &str, place: &str) -> bool {
    if place.ends_with('/') { file.starts_with(place) } else { file == place }
}

/// Tests may use the names: they show what users and agents see.
fn is_searched(file: &str) -> bool {
    file.starts_with("crates/")
        && !file.ends_with("_tests.rs")
        && !file.ends_with("/tests.rs")
        && !file.split('/').any(|part| NOT_SHIPPED.contains(&part))
}

/// Line numbers and the names found there.
fn found_in(content: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.to_lowercase();
        found.extend(NAMES.iter().filter(|name| line.contains(**name)).map(|name| (index + 1, *name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let all_places = PLACES.iter().map(|(place, _why)| {
            let file = if place.ends_with('/') { format!("{place}a.rs") } else { (*place).to_owned() };
            (file, NAMES[0].to_owned())
        });
        let more = list.iter().map(|(file, content)| ((*file).to_owned(), (*content).to_owned()));
        all_places.chain(more).collect()
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        for content in ["let a;\n// .Claude/settings\n", "\n\"x-claude-id\"", "\nCLAUDE_X"] {
            assert_eq!(found_in(content), [(2, "claude")]);
        }
        assert_eq!(found_in("Anthropic's Claude"), [(1, "claude"), (1, "anthropic")]);
        assert_eq!(found_in("the agent, the provider, a clause"), []);
    }

    #[test]
    fn a_name_is_refused_outside_of_its_places() {
        assert_eq!(judge(&files(&[])), Findings::default());
        for file in
            ["crates/plan/src/lib.rs", "crates/class/src/table.rs.bak", "crates/egress/src/gateway/live.rs"]
        {
            let found = judge(&files(&[(file, "ANTHROPIC_API_KEY")]));
            assert!(
                found.faults.len() == 1 && found.faults[0].starts_with(&format!("{file}:1: ")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_place_without_the_names_is_removed() {
        let found = judge(&files(&[])[1..]);
        assert!(found.faults.len() == 1 && found.faults[0].starts_with(PLACES[0].0), "{found:?}");
    }

    #[test]
    fn tests_and_other_directories_are_not_searched() {
        assert!(is_searched("crates/plan/defaults.toml") && is_searched("crates/plan/src/lib.rs"));
        for file in [
            "crates/plan/src/lib_tests.rs",
            "crates/plan/src/init/tests.rs",
            "crates/cli/tests/cmd/run.rs",
            "crates/egress/examples/a.rs",
            "docs/gateway.md",
        ] {
            assert!(!is_searched(file), "{file}");
        }
    }
}
