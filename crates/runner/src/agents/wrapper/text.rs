//! What the text of a script says about the program that it starts. Only the plainest forms are understood.

use super::managers::Manager;
use std::path::{Path, PathBuf};

/// Interpreters whose scripts are read.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];
/// Programs whose first argument is the program.
const RUNTIMES: [&str; 3] = ["node", "bun", "deno"];
/// All arguments of a script, as it hands them on.
const ARGUMENTS: [&str; 4] = ["\"$@\"", "$@", "${1+\"$@\"}", "$*"];
/// The directory of the script, as scripts write it.
const OWN_DIRECTORY: [&str; 6] = [
    "$(dirname \"$0\")",
    "$(dirname -- \"$0\")",
    "$(dirname $0)",
    "${0%/*}",
    "$(cd \"$(dirname \"$0\")\" && pwd)",
    "$basedir",
];

/// What a file starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Starts {
    /// It does not hand its arguments on: it is the program.
    Itself,
    File(PathBuf),
    /// The program that the manager has chosen.
    Manager(Manager),
    /// Whatever the search path has under the same name.
    SameName,
    Unknown(String),
}

/// Reads a script at a path, which is not resolved: `$0` is that path.
pub(super) fn starts(text: &str, at: &Path, home: &Path, name: &str) -> Starts {
    if !is_for_a_shell(text) {
        return Starts::Itself;
    }
    if text.lines().any(|line| line.starts_with("# asdf-plugin: ")) {
        return Starts::Manager(Manager::Asdf);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let handing: Vec<&str> = lines.filter(|line| ARGUMENTS.iter().any(|all| line.contains(all))).collect();
    let mut found: Vec<Starts> = Vec::new();
    for line in &handing {
        let started = of_line(line, at, home, name);
        if !found.contains(&started) {
            found.push(started);
        }
    }
    match (found.len(), found.pop()) {
        (_, None) => Starts::Itself,
        (1, Some(only)) => only,
        (_, Some(_)) => Starts::Unknown("its lines start different programs".to_owned()),
    }
}

fn is_for_a_shell(text: &str) -> bool {
    let Some(line) = text.strip_prefix("#!").and_then(|rest| rest.lines().next()) else { return false };
    let mut words = line.split_whitespace().filter(|word| !word.starts_with('-'));
    let first = base(words.next().unwrap_or_default());
    let interpreter = if first == "env" { base(words.next().unwrap_or_default()) } else { first };
    SHELLS.contains(&interpreter)
}

fn of_line(line: &str, at: &Path, home: &Path, name: &str) -> Starts {
    let unknown = || Starts::Unknown(format!("its line `{line}` does not name a file"));
    let directory = at.parent().unwrap_or(at).display().to_string();
    let mut text = line.to_owned();
    for own in OWN_DIRECTORY {
        text = text.replace(own, &directory);
    }
    for own in ["$HOME", "${HOME}"] {
        text = text.replace(own, &home.display().to_string());
    }
    let Some(words) = words(&text) else { return unknown() };
    let mut words = words.iter().map(String::as_str).skip_while(|word| ["exec", "command"].contains(word));
    let mut first = words.next().unwrap_or_default();
    // `exec -a NAME`
    if first == "-a" {
        first = words.nth(1).unwrap_or_default();
    }
    if RUNTIMES.contains(&base(first)) {
        first = words.next().unwrap_or_default();
    }
    let file = match first.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(first),
    };
    match Manager::called(base(first)) {
        Some(manager) if words.any(|word| word == name) => Starts::Manager(manager),
        _ if first == name => Starts::SameName,
        // A variable that is left is one whose value is not known; `env` would set further ones.
        _ if file.is_absolute() && !first.contains(['$', '`']) && base(first) != "env" => Starts::File(file),
        _ => unknown(),
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The words of a line without quotes and escapes; `None` if a quote is not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word.take());
    quote.is_none().then_some(words)
}
