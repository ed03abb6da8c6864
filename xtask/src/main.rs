//! Development tasks: architecture checks and generated files.
//!
//! Each task examines the repository and returns its findings; only `main` prints.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a development tool that prints to the terminal"
)]

mod generated;
mod harness;
mod layering;
mod outside;
mod parts;
mod repository;
mod sizes;
mod types;
mod words;

use std::process::ExitCode;

use repository::Repository;

const USAGE: &str = "\
usage: cargo xtask TASK

  check              layering, sizes, types, words, harness, outside and generated, together
  layering           crates have only their allowed dependencies, and pure crates are pure
  sizes              no source file is too long
  types              no type name is defined twice in one crate, or public in two libraries
  words              no file contains a registry host or a path of one machine
  harness            names of one agent or provider are in their own directories
  outside            every program that is started outside the sandbox is listed
  generated          the generated files match their sources
  generated --write  write them

  bill TARGET        print the parts of the program for a target, as CycloneDX
  licences TARGET    print the licences of what others wrote of it";

/// The findings of a task: notes, and faults that fail the task.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub notes: Vec<String>,
    pub faults: Vec<String>,
}

/// A task could not run its check.
pub type TaskError = Box<dyn std::error::Error>;

type Task = fn(&Repository) -> Result<Findings, TaskError>;

const CHECKS: [(&str, Task); 7] = [
    ("layering", layering::check),
    ("sizes", sizes::check),
    ("types", types::check),
    ("words", words::check),
    ("harness", harness::check),
    ("outside", outside::check),
    ("generated", generated::check),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repository = Repository::this();
    match arguments.as_slice() {
        ["bill", target] => {
            return print(source_date().and_then(|date| parts::bill(&repository, target, date)));
        }
        ["licences", target] => return print(parts::licences(&repository, target)),
        _ => {}
    }
    let tasks: Vec<(&str, Task)> = match arguments.as_slice() {
        ["check"] => CHECKS.to_vec(),
        ["generated", "--write"] => vec![("generated", generated::write)],
        [name] => CHECKS.iter().filter(|(known, _)| known == name).copied().collect(),
        _ => Vec::new(),
    };
    if tasks.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    // Every task runs, so that one run shows all faults.
    let outcomes: Vec<bool> =
        tasks.iter().map(|(name, task)| print_findings(name, task(&repository))).collect();
    if outcomes.iter().all(|&good| good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The date of what is built, in seconds since 1970.
fn source_date() -> Result<u64, TaskError> {
    let date = std::env::var("SOURCE_DATE_EPOCH").map_err(|_unset| "SOURCE_DATE_EPOCH is not set")?;
    Ok(date.parse().map_err(|cause| format!("SOURCE_DATE_EPOCH is {date}: {cause}"))?)
}

fn print(text: Result<String, TaskError>) -> ExitCode {
    match text {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("error: {cause}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the findings of a task and returns whether it passed.
fn print_findings(name: &str, found: Result<Findings, TaskError>) -> bool {
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
