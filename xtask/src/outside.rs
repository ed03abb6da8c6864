//! Checks that every program that is started outside the sandbox is listed, and that every listed one is started
//! somewhere.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use belljar_contract::{OUTSIDE, OutsideProgram};

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// Code that starts a program.
const STARTS: [&str; 5] = ["Command::new(", "Program {", "execve(", "fexecve(", "posix_spawn("];
/// The crate that implements the system calls, and the only file that may execute a program.
const MECHANISM: (&str, &str) = ("crates/sys/src/", "crates/sys/src/spawn.rs");
/// How many lines above a start its comment may be.
const ABOVE: usize = 2;

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    let mut started = BTreeSet::new();
    for file in repository.files()? {
        let source = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
        let test =
            file.ends_with("tests.rs") || file.contains("/tests/") || file.starts_with("crates/testkit/");
        if !source || test {
            continue;
        }
        let text = fs::read_to_string(repository.path(&file))
            .map_err(|cause| format!("cannot read {file}: {cause}"))?;
        for Start { line, marker } in starts(&file, &text) {
            match marker {
                Marker::Outside(id) if OUTSIDE.iter().any(|row| row.id == id) => {
                    started.insert(id);
                }
                Marker::Outside(id) => {
                    findings.faults.push(format!("{file}:{line}: no row of OUTSIDE has the id `{id}`"));
                }
                Marker::Inside => {}
                Marker::None => findings.faults.push(format!(
                    "{file}:{line}: a program is started; say which with `// outside: ID`, and list it in \
                     crates/contract/src/outside.rs"
                )),
            }
        }
    }
    let unused = OUTSIDE.iter().filter(|row| !started.contains(row.id));
    findings.faults.extend(unused.map(|row| format!("OUTSIDE lists `{}`, which nothing starts", row.id)));
    Ok(findings)
}

struct Start {
    line: usize,
    marker: Marker,
}

enum Marker {
    Outside(String),
    /// Starts a program only in the sandbox.
    Inside,
    None,
}

fn starts(file: &str, text: &str) -> Vec<Start> {
    let (mechanism, executes) = MECHANISM;
    if file == executes {
        return Vec::new();
    }
    let lines = without_tests(text);
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let mut out = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = code(line);
        let is_impl = code.trim_start().strip_prefix("impl").is_some_and(|rest| rest.starts_with([' ', '<']));
        let declares = code.contains("struct Program") || is_impl || code.contains("let Program {");
        let starts = STARTS.iter().any(|start| has_word(&code, start)) && !declares;
        if !starts {
            continue;
        }
        let near = lines[index.saturating_sub(ABOVE)..=index].iter().rev();
        let marker = near.filter_map(|line| marker(file, line)).next().unwrap_or(Marker::None);
        // The crate with the system calls does not start anything itself.
        let marker = if file.starts_with(mechanism) { Marker::None } else { marker };
        out.push(Start { line: index + 1, marker });
    }
    out
}

/// The lines before the first inline test module, which is at the end of a file.
fn without_tests(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_module = |line: &str| {
        let name = line.strip_prefix("mod ").and_then(|rest| rest.split_once('{'));
        name.is_some_and(|(name, _)| !name.contains(';'))
    };
    let begins = |at: usize| {
        let mut rest = lines[at + 1..].iter().skip_while(|line| line.starts_with("#["));
        lines[at] == "#[cfg(test)]" && rest.next().is_some_and(|line| is_module(line))
    };
    let tests = (0..lines.len()).find(|at| begins(*at));
    lines[..tests.unwrap_or(lines.len())].to_vec()
}

/// Whether the code contains the word, and not only as the end of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    let goes_on = |before: char| before.is_alphanumeric() || before == '_';
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(goes_on))
}

fn marker(file: &str, line: &str) -> Option<Marker> {
    let comment = line.split_once("//")?.1.trim();
    if let Some(id) = comment.strip_prefix("outside: ") {
        return Some(Marker::Outside(id.trim().to_owned()));
    }
    (comment.starts_with("inside: ") && file.starts_with("crates/guest/")).then_some(Marker::Inside)
}

/// The page of the list.
pub fn page() -> Result<String, TaskError> {
    let mut page = String::from(
        "<!-- Written by `cargo xtask generated --write` from crates/contract/src/outside.rs. -->\n\n\
         # Programs outside the sandbox\n\n\
         Every program that belljar starts outside the sandbox, where, and with which environment. A check of the\n\
         source fails when belljar starts one that is not listed. git runs in projects that `prove` makes up, and\n\
         nowhere else: belljar reads a repository's index, configuration and ignore files by itself. \"Yours\" means\n\
         inherited from belljar itself.\n\n\
         | program | when | current directory | environment | standard input |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for OutsideProgram { id: _, program, when, directory, environment, input } in OUTSIDE {
        writeln!(page, "| {program} | {when} | {directory} | {environment} | {input} |")?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts_in(file: &str, text: &str) -> Vec<String> {
        let one = |start: Start| match start.marker {
            Marker::Outside(id) => format!("{} {id}", start.line),
            Marker::Inside => format!("{} inside", start.line),
            Marker::None => format!("{} none", start.line),
        };
        starts(file, text).into_iter().map(one).collect()
    }

    #[test]
    fn a_start_without_a_comment_is_found() {
        let file = "crates/runner/src/x.rs";
        assert_eq!(starts_in(file, "let a = Command::new(\"git\");\n"), ["1 none"]);
        assert_eq!(starts_in(file, "// outside: bwrap\nlet a = Command::new(\"x\");\n"), ["2 bwrap"]);
        assert_eq!(starts_in(file, "// outside: bwrap\n\n\n\nlet a = Command::new(\"x\");\n"), ["5 none"]);
        assert_eq!(starts_in(file, "// inside: x\nlet program = Program {\n"), ["2 none"]);
        assert_eq!(
            starts_in("crates/guest/src/x.rs", "// inside: x\nlet program = Program {\n"),
            ["2 inside"]
        );
        assert_eq!(
            starts_in("crates/sys/src/x.rs", "// outside: bwrap\nunsafe { libc::execve(a) }\n"),
            ["2 none"]
        );
        assert_eq!(starts_in("crates/sys/src/spawn.rs", "unsafe { libc::execve(a) }\n"), [] as [&str; 0]);
    }

    #[test]
    fn texts_declarations_and_tests_are_not_starts() {
        let text = "/// `Command::new(` starts\npub struct Program {\nimpl Program {\nGuestProgram { x }\n\
                    #[cfg(test)]\nmod tests {\n    Command::new(\"x\");\n}\n";
        assert_eq!(starts_in("crates/runner/src/x.rs", text), [] as [&str; 0]);
    }

    #[test]
    fn a_start_behind_a_declared_module_of_tests_is_found() {
        let file = "crates/runner/src/x.rs";
        let text = "#[cfg(test)]\nmod tests;\nmod other;\n\nfn a() { Command::new(\"x\"); }\n\
                    #[cfg(test)]\nmod more {\n    Command::new(\"x\");\n}\n";
        assert_eq!(starts_in(file, text), ["5 none"]);
    }

    #[test]
    fn a_start_beside_the_word_impl_is_found() {
        let file = "crates/runner/src/x.rs";
        for line in [
            "fn a(b: impl Fn()) { Command::new(\"x\"); }",
            "let simple = Command::new(\"x\");",
            "implied(Command::new(\"x\"));",
        ] {
            assert_eq!(starts_in(file, line), ["1 none"], "{line}");
        }
        assert_eq!(starts_in(file, "    impl<'a> Program {\n"), [] as [&str; 0]);
    }

    #[test]
    fn the_list_is_sorted_and_has_no_id_twice() {
        assert!(OUTSIDE.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
}
