//! Checks that a type name is defined once per crate.

use std::collections::BTreeMap;
use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut defined: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for file in repository.files()? {
        let Some(package) = measured(&file) else { continue };
        for name in types_in(&fs::read_to_string(repository.path(&file))?) {
            defined.entry((package.to_owned(), name)).or_default().push(file.clone());
        }
    }
    let mut findings = Findings::default();
    for ((package, name), files) in defined.into_iter().filter(|(_, files)| files.len() > 1) {
        findings.faults.push(format!(
            "{package} defines `{name}` {} times, in {}: one name has one meaning",
            files.len(),
            files.join(", ")
        ));
    }
    Ok(findings)
}

/// The crate of a source file that is not a test.
fn measured(file: &str) -> Option<&str> {
    let (package, below) = file.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = below.ends_with("tests.rs") || below.split('/').any(|part| part == "tests");
    (below.ends_with(".rs") && !is_test).then_some(package)
}

/// The types that a source defines at the top level of a module, without its inline tests.
fn types_in(source: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.ends_with('{')) {
            break;
        }
        out.extend(defined_by(line));
    }
    out
}

fn defined_by(line: &str) -> Option<String> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => {
            let rest = rest.trim_start();
            rest.strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest)
                .trim_start()
        }
        None => line,
    };
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_where_they_are_defined() {
        let source = "pub struct A;\nenum B<T> {}\npub(crate) type C = u8;\n    type Inner = u8;\nfn d() {}\n\
                      // struct E\n#[cfg(test)]\nmod tests {\nstruct F;\n}\n";
        assert_eq!(types_in(source), ["A", "B", "C"]);
    }

    #[test]
    fn tests_are_not_measured() {
        assert_eq!(measured("crates/plan/src/lib.rs"), Some("plan"));
        assert_eq!(measured("crates/plan/src/a_tests.rs"), None);
        assert_eq!(measured("crates/plan/src/tests/a.rs"), None);
        assert_eq!(measured("crates/plan/tests/a.rs"), None);
        assert_eq!(measured("xtask/src/main.rs"), None);
    }
}
