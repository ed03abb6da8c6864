//! Guesses from the raw arguments: whether a sandbox will be started, and what a wrong command line is about.
//!
//! Reading the command line, the manifests and the project takes as long as making namespaces, so both happen at once. A
//! wrong guess costs time and nothing else: what was started is ended unused.

use crate::cmd::Verb;
use crate::env;
use belljar_runner::{Waiting, guard_secrets, start_early};
use std::ffi::OsString;

/// The verbs that start something, as a rule.
const STARTING: [&str; 3] = ["run", "exec", "shell"];
/// Options that may stand before the verb and have a value.
const WITH_VALUE: [&str; 3] = ["-C", "--directory", "--color"];
/// Arguments with which no bubblewrap sandbox is started.
const NOTHING: [&str; 7] =
    ["--dry-run", "-h", "--help", "--backend=host", "host", "--backend=container", "container"];

/// Starts the part that every sandbox has in common, if the arguments look as if one will be needed.
pub fn start(arguments: impl Iterator<Item = OsString>) -> Option<Waiting> {
    if !looks_like_a_start(arguments) {
        return None;
    }
    // Before the first child: it inherits that no core file is written.
    guard_secrets().ok()?;
    start_early(&std::env::var_os(env::PATH)?, &env::guest().ok()?)
}

fn looks_like_a_start(arguments: impl Iterator<Item = OsString>) -> bool {
    // What follows is the command's own.
    let mut arguments = arguments.take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.iter().any(|option| argument == *option) {
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"-") {
            let starting = STARTING.iter().any(|verb| argument == *verb);
            return starting && !arguments.any(|argument| NOTHING.iter().any(|nothing| argument == *nothing));
        }
    }
    false
}

/// What a command line that cannot be parsed says all the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Guess {
    /// The verb, if it is one.
    pub verb: Option<&'static str>,
    /// Whether `--json` is among the arguments of belljar.
    pub json: bool,
}

pub fn guess(arguments: impl Iterator<Item = OsString>) -> Guess {
    // What follows is the command's own.
    let mut arguments = arguments.take_while(|argument| argument != "--");
    let mut json = false;
    while let Some(argument) = arguments.next() {
        json |= argument == "--json";
        if WITH_VALUE.iter().any(|option| argument == *option) {
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"-") {
            let verb = Verb::NAMES.iter().copied().find(|name| argument == *name);
            return Guess { verb, json: json | arguments.any(|argument| argument == "--json") };
        }
    }
    Guess { verb: None, json }
}

#[cfg(test)]
mod tests {
    use super::{Guess, guess, looks_like_a_start};

    #[test]
    fn the_json_of_a_command_after_two_dashes_does_not_count() {
        for (line, verb, json) in [
            ("exec --json -- true", Some("exec"), true),
            ("exec --nonsense -- tool --json", Some("exec"), false),
            ("-C --json plan --nonsense", Some("plan"), false),
            ("--json plan", Some("plan"), true),
            ("nonsense --json", None, true),
            ("", None, false),
        ] {
            assert_eq!(guess(line.split_whitespace().map(Into::into)), Guess { verb, json }, "{line}");
        }
    }

    #[test]
    fn what_looks_like_a_start() {
        for (line, expected) in [
            ("exec -- true", true),
            ("run", true),
            ("-C exec shell agent --yes", true),
            ("--color=never run", true),
            ("exec -- belljar exec --dry-run", true),
            ("", false),
            ("-C run plan", false),
            ("plan run", false),
            ("run --dry-run", false),
            ("exec --backend host -- true", false),
            ("shell --backend=host", false),
            ("exec --backend container -- true", false),
            ("run --help", false),
            ("-- run", false),
        ] {
            assert_eq!(looks_like_a_start(line.split_whitespace().map(Into::into)), expected, "{line}");
        }
    }
}
