//! Paths of a user's machine in the conversation.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, excerpt};
use crate::run::{Run, Who};
use crate::value::Yes;
use belljar_contract::RunIsolation;

pub(super) const KEYS: &[Key] = &[NoHostPath::KEY];

/// Directories of a user's machine.
const DIRECTORIES: [&str; 7] =
    ["/Users", "/opt/cowork", "/home", "/root", "/private/var", "/var/folders", "/Volumes"];

check! {
    /// No message contains a path below `/Users`, `/opt/cowork`, `/home`, `/root`, `/private/var`, `/var/folders` or
    /// `/Volumes`, plain or percent-encoded. Needs the whole conversation.
    ///
    /// Inside the sandbox such a path alone is not a leak: a project may be mounted below `/home`. So belljar checks it
    /// only where a scenario asks for it. Without a sandbox a path in the run's own directories does not count.
    NoHostPath(Outcome, "transcript_no_host_path", ForPass("the workspace and the agent's home are directories of this machine")): Yes
}

impl Check for NoHostPath {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        let own: &[String] = match &run.evidence.isolation {
            RunIsolation::Sealed => &[],
            RunIsolation::Missing { own } => own,
        };
        for (seq, said) in run.said(Who::Anyone) {
            let mut found = [host_paths(said), host_paths(&decoded(said))].concat().into_iter();
            if let Some(path) = found.find(|path| !own.iter().any(|own| is_below(path, own))) {
                return Finding::fail(format!(
                    "a message contains a path of the machine: {}",
                    excerpt(&path)
                ))
                .seen(seq, said);
            }
        }
        run.holds_if_whole("no message contains a path of the machine")
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(run.said(Who::Anyone).map(|(_, text)| text))
    }
}

/// Whether a path is a directory or lies below it. Punctuation may follow a path in a sentence.
fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    let ends = |rest: &str| !rest.starts_with(|char: char| char.is_alphanumeric() || "_-.".contains(char));
    directory.is_empty()
        || path.strip_prefix(directory).is_some_and(ends) && !path.split('/').any(|part| part == "..")
}

/// The paths below one of the directories.
fn host_paths(text: &str) -> Vec<String> {
    let below = DIRECTORIES.iter().flat_map(|directory| {
        text.match_indices(directory).filter_map(move |(at, _)| {
            let before = &text[..at];
            let after = &text[at + directory.len()..];
            // `example.org/home` and `src/home` are not paths of a machine, `file:///home` is one.
            let inner = |char: char| char.is_alphanumeric() || "._~-/%".contains(char);
            let begins = before.ends_with("file://") || !before.ends_with(inner);
            let ends = !after.starts_with(|char: char| char.is_alphanumeric() || "_-.".contains(char));
            let path =
                || text[at..].split(|char: char| char.is_whitespace()).next().unwrap_or_default().to_owned();
            (begins && ends).then(path)
        })
    });
    below.collect()
}

/// Decodes percent-encoded bytes; other text stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
