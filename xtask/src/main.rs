//! Development tasks: architecture checks and generated files.
//!
//! Each task looks at the repository and returns what it found wrong; only `main` prints.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a development tool that speaks on the terminal"
)]

mod generated;
mod layering;
mod outside;
mod repository;
mod sizes;
mod types;
mod words;

use std::process::ExitCode;

use repository::Repository;

const USAGE: &str = "\
usage: cargo xtask TASK

  check              layering, sizes, types, words, outside and generated, together
  layering           the edges between the crates are the allowed ones, the pure crates are pure
  sizes              no source file has grown into a second idea
  types              no type name is defined twice in one crate
  words              no registry host and no path of somebody's machine is written down
  outside            every program that is started outside the sandbox is listed
  generated          the generated files are what their sources say
  generated --write  write them";

/// What a task found: lines to read, and lines that fail the task.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub notes: Vec<String>,
    pub faults: Vec<String>,
}

/// A task could not look at what it is to judge.
pub type TaskError = Box<dyn std::error::Error>;

type Task = fn(&Repository) -> Result<Findings, TaskError>;

const CHECKS: [(&str, Task); 6] = [
    ("layering", layering::check),
    ("sizes", sizes::check),
    ("types", types::check),
    ("words", words::check),
    ("outside", outside::check),
    ("generated", generated::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repository = Repository::this();
    let tasks: Vec<(&str, Task)> = match words.as_slice() {
        ["check"] => CHECKS.to_vec(),
        ["generated", "--write"] => vec![("generated", generated::write)],
        [name] => CHECKS.iter().filter(|(known, _)| known == name).copied().collect(),
        _ => Vec::new(),
    };
    if tasks.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    // Every task runs, so that one look shows all that is wrong.
    let outcomes: Vec<bool> = tasks.iter().map(|(name, task)| tell(name, task(&repository))).collect();
    if outcomes.iter().all(|&good| good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what a task found and says whether it is content.
fn tell(name: &str, found: Result<Findings, TaskError>) -> bool {
    match found {
        Ok(Findings { notes, faults }) => {
            for note in &notes {
                println!("{name}: {note}");
            }
            for fault in &faults {
                eprintln!("{name}: error: {fault}");
            }
            if faults.is_empty() {
                println!("{name}: ok");
            }
            faults.is_empty()
        }
        Err(cause) => {
            eprintln!("{name}: could not check: {cause}");
            false
        }
    }
}
