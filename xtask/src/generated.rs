//! Files that are written from code and compared with it by the check.
//!
//! A generated file is committed, so that it can be read without a build; a change of its source
//! that forgets it fails here.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use belljar_contract::ExitCode;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// A file and the function that knows its content.
struct Generated {
    path: &'static str,
    content: fn() -> Result<String, TaskError>,
}

/// Every generated file. A new one is one line here and its function below.
const FILES: [Generated; 1] = [Generated { path: "docs/reference/exit-codes.md", content: exit_codes }];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    for Generated { path, content } in &FILES {
        if let Some(difference) = difference(read(repository, path)?.as_deref(), &content()?) {
            findings.faults.push(format!("{path}: {difference}; run `cargo xtask generated --write`"));
        }
    }
    Ok(findings)
}

pub fn write(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    for Generated { path, content } in &FILES {
        let content = content()?;
        if read(repository, path)?.as_deref() == Some(content.as_str()) {
            continue;
        }
        let target = repository.path(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)
                .map_err(|cause| format!("cannot make {}: {cause}", folder.display()))?;
        }
        fs::write(&target, content).map_err(|cause| format!("cannot write {path}: {cause}"))?;
        findings.notes.push(format!("wrote {path}"));
    }
    Ok(findings)
}

/// The content of a file, or nothing when there is none.
fn read(repository: &Repository, path: &str) -> Result<Option<String>, TaskError> {
    match fs::read_to_string(repository.path(path)) {
        Ok(content) => Ok(Some(content)),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(format!("cannot read {path}: {cause}").into()),
    }
}

/// Where a file first differs from what it should be.
fn difference(found: Option<&str>, wanted: &str) -> Option<String> {
    let Some(found) = found else { return Some("is not there".to_owned()) };
    if found == wanted {
        return None;
    }
    let same = found.lines().zip(wanted.lines()).take_while(|(left, right)| left == right).count();
    let line_of =
        |text: &str| text.lines().nth(same).map_or("the end".to_owned(), |line| format!("`{line}`"));
    Some(format!("line {} is {} and should be {}", same + 1, line_of(found), line_of(wanted)))
}

fn exit_codes() -> Result<String, TaskError> {
    let mut page = String::from(
        "<!-- Written by `cargo xtask generated --write` from crates/contract/src/exit.rs. -->\n\n\
         # Exit codes\n\n\
         The status every verb ends with. `run`, `exec` and `shell` pass on the status of the command\n\
         they ran, and keep 125, 126 and 127 for their own failures.\n\n\
         | code | name | meaning |\n\
         | ---: | --- | --- |\n",
    );
    for code in ExitCode::ALL {
        writeln!(page, "| {} | {code:?} | {} |", code.code(), code.meaning())?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_where_it_starts() {
        assert_eq!(difference(Some("a\nb\n"), "a\nb\n"), None);
        assert_eq!(difference(None, "a\n").as_deref(), Some("is not there"));
        assert_eq!(difference(Some("a\nb\n"), "a\nc\n").as_deref(), Some("line 2 is `b` and should be `c`"));
        assert_eq!(difference(Some("a\n"), "a\nc\n").as_deref(), Some("line 2 is the end and should be `c`"));
    }

    #[test]
    fn every_exit_code_has_a_row() {
        let page = exit_codes().unwrap();
        for code in ExitCode::ALL {
            assert!(page.contains(&format!("| {} | {code:?} |", code.code())), "{code:?}");
        }
    }
}
