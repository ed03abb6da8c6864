//! Source files that are so long that they should be split.

use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// A longer file is reported as a note, so that its next author considers splitting it.
const NAMED_PAST: usize = 400;
/// A longer file fails the check.
const REFUSED_PAST: usize = 650;
/// Crates whose files fail the check at the size where others are reported.
const KEPT_SHORT: [&str; 2] = ["crates/cli/", "crates/runner/"];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut sizes = Vec::new();
    for file in repository.files()? {
        if is_measured(&file) {
            sizes.push((lines_without_tests(&fs::read_to_string(repository.path(&file))?), file));
        }
    }
    sizes.sort_by(|left, right| right.cmp(left));
    Ok(judge(&sizes))
}

fn judge(sizes: &[(usize, String)]) -> Findings {
    let mut findings = Findings::default();
    for (lines, file) in sizes {
        let is_kept_short = KEPT_SHORT.iter().any(|directory| file.starts_with(directory));
        let refused_past = if is_kept_short { NAMED_PAST } else { REFUSED_PAST };
        if *lines > refused_past {
            findings.faults.push(format!(
                "{file} has {lines} lines without its tests, more than {refused_past}: split it"
            ));
        } else if *lines > NAMED_PAST {
            findings
                .notes
                .push(format!("{file} has {lines} lines without its tests, more than {NAMED_PAST}"));
        }
    }
    findings
}

/// Tests, benchmarks, fixtures and generated files may be longer.
fn is_measured(file: &str) -> bool {
    let exempt = ["tests", "benches", "fixtures", "generated"];
    file.ends_with(".rs")
        && !file.ends_with("_tests.rs")
        && !file.ends_with("/tests.rs")
        && !file.split('/').any(|part| exempt.contains(&part))
}

/// An inline test module is by convention the last item of its file.
pub fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let inline_tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    inline_tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_then_refused() {
        let found =
            judge(&[(651, "a.rs".into()), (650, "b.rs".into()), (401, "c.rs".into()), (400, "d.rs".into())]);
        assert_eq!(found.faults, ["a.rs has 651 lines without its tests, more than 650: split it"]);
        assert_eq!(found.notes.len(), 2);
    }

    #[test]
    fn cli_and_runner_are_refused_earlier() {
        let file = |name: &str| format!("crates/{name}/src/a.rs");
        let found =
            judge(&[(401, file("cli")), (401, file("runner")), (401, file("plan")), (400, file("cli"))]);
        assert_eq!(
            found.faults,
            ["cli", "runner"].map(|name| format!(
                "crates/{name}/src/a.rs has 401 lines without its tests, more than 400: split it"
            ))
        );
        assert_eq!(found.notes.len(), 1);
    }

    #[test]
    fn inline_tests_do_not_count() {
        assert_eq!(lines_without_tests("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_without_tests("#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\nfn a() {}\n"), 4);
    }

    #[test]
    fn test_files_are_not_measured() {
        assert!(is_measured("crates/plan/src/lib.rs"));
        assert!(!is_measured("crates/plan/src/lib_tests.rs"));
        assert!(!is_measured("crates/plan/src/init/tests.rs"));
        assert!(!is_measured("crates/cli/tests/cmd/run.rs"));
        assert!(!is_measured("docs/development.md"));
    }
}
