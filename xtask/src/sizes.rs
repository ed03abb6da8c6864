//! Source files that grew until two ideas share a room.

use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// From here on a file is named, so that its next author asks whether to split it.
const NAMED_PAST: usize = 600;
/// From here on the check fails.
const REFUSED_PAST: usize = 900;

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
        if *lines > REFUSED_PAST {
            findings.faults.push(format!(
                "{file} has {lines} lines without its tests, more than {REFUSED_PAST}: move an idea out"
            ));
        } else if *lines > NAMED_PAST {
            findings
                .notes
                .push(format!("{file} has {lines} lines without its tests, more than {NAMED_PAST}"));
        }
    }
    findings
}

/// Tests, benchmarks and build products may be as long as their tables.
fn is_measured(file: &str) -> bool {
    let folders = ["tests", "benches", "fixtures", "generated"];
    file.ends_with(".rs")
        && !file.ends_with("_tests.rs")
        && !file.split('/').any(|part| folders.contains(&part))
}

/// An inline test module is by custom the last item of its file.
fn lines_without_tests(source: &str) -> usize {
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
            judge(&[(901, "a.rs".into()), (900, "b.rs".into()), (601, "c.rs".into()), (600, "d.rs".into())]);
        assert_eq!(found.faults, ["a.rs has 901 lines without its tests, more than 900: move an idea out"]);
        assert_eq!(found.notes.len(), 2);
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
        assert!(!is_measured("crates/cli/tests/cmd/run.rs"));
        assert!(!is_measured("docs/development.md"));
    }
}
