//! Files of a project that belljar runs or reads outside the sandbox, because a manifest names them.
//!
//! Their content is part of what a user agrees to: a path alone does not say which code will run.

use crate::{AbsPath, Digest, EnvSource};
use serde::Serialize;

/// The maximum size in bytes of a file that can be part of an agreement.
pub const USED_OUTSIDE_MAX: u64 = 16 << 20;

/// A file of the project, and its content when the plan was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UsedOutside {
    /// The file, with links resolved.
    #[serde(rename = "what")]
    pub path: AbsPath,
    /// The digest of its content.
    pub digest: Digest,
}

impl EnvSource {
    /// The paths of files that may be run or read to get the value. `directory` is the working directory of a
    /// command.
    #[must_use]
    pub fn may_use(&self, directory: &AbsPath) -> Vec<AbsPath> {
        match self {
            EnvSource::File(path) => vec![path.clone()],
            EnvSource::Command(argv) => may_use(argv, directory),
            EnvSource::Literal(_)
            | EnvSource::Constant(_)
            | EnvSource::Variable(_)
            | EnvSource::Prompt(_)
            | EnvSource::Run(_) => Vec::new(),
        }
    }
}

/// The paths that the arguments of a command may name.
#[must_use]
pub fn may_use(argv: &[String], directory: &AbsPath) -> Vec<AbsPath> {
    let mut out = Vec::new();
    for (number, argument) in argv.iter().enumerate() {
        // A program without a slash is searched for on `PATH` only.
        if number == 0 && !argument.contains('/') {
            continue;
        }
        for word in path_words(argument.as_bytes()) {
            let word = String::from_utf8_lossy(&word).into_owned();
            out.extend(directory.join(word).ok());
        }
    }
    out.sort();
    out.dedup();
    out
}

/// The words of a command line that may be paths, split as a shell would and more generously: quoted strings are
/// taken whole and in pieces, and text after a variable, an option's `=` or a substitution counts separately.
#[must_use]
pub fn path_words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut out = vec![text.to_vec()];
    out.extend(quoted_words(text));
    let separates = |byte: u8| byte.is_ascii_whitespace() || b";&|()<>`'\"={},\\$".contains(&byte);
    let mut start = 0;
    for end in 0..=text.len() {
        if text.get(end).is_some_and(|byte| !separates(*byte)) {
            continue;
        }
        let word = &text[start..end];
        out.push(word.to_vec());
        // `$TOP/tool`, `${TOP}/tool` and `$(top)/tool`: the directory is not known, but the rest is.
        let open = start.checked_sub(1).map(|before| text[before]);
        if let (Some(b'$' | b'}' | b')' | b'`' | b'"'), Some(slash)) =
            (open, word.iter().position(|byte| *byte == b'/'))
        {
            out.push(word[slash + 1..].to_vec());
        }
        start = end + 1;
    }
    out.retain(|word| !word.is_empty() && !word.contains(&0));
    out.sort();
    out.dedup();
    out
}

/// The words as a shell splits them, without its operators.
fn quoted_words(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut out, mut word) = (Vec::new(), Vec::new());
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None | Some(b'"'), b'\\') => word.extend(bytes.next()),
            (None, byte) if byte.is_ascii_whitespace() || b";&|()<>`".contains(&byte) => {
                out.push(std::mem::take(&mut word));
            }
            (_, byte) => word.push(byte),
        }
    }
    out.push(word);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        path_words(text.as_bytes()).into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn finds_the_paths_of_a_command_line() {
        for (text, path) in [
            ("./x.sh", "./x.sh"),
            ("sh -c 'exec ./a/x.sh --quiet'", "./a/x.sh"),
            ("python3 \"my tools/x.py\" %f", "my tools/x.py"),
            ("$(git rev-parse --show-toplevel)/tools/x", "tools/x"),
            ("\"$TOP\"/tools/x", "tools/x"),
            ("${TOP}/tools/x", "tools/x"),
            ("--config=tools/x", "tools/x"),
            ("a&&./b;c|./d", "./d"),
            ("my\\ tools/x", "my tools/x"),
        ] {
            assert!(words(text).iter().any(|word| word == path), "{text}: {:?}", words(text));
        }
        assert_eq!(words(""), Vec::<String>::new());
    }

    #[test]
    fn a_program_without_a_slash_is_not_of_the_project() {
        let directory = AbsPath::new("/p/sub").unwrap();
        let paths = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            may_use(&argv, &directory).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(paths(&["pass", "show"]), ["/p/sub/show"]);
        assert_eq!(paths(&["../x"]), ["/p/x"]);
        assert_eq!(paths(&["/p/x", "y"]), ["/p/sub/y", "/p/x"]);
    }

    #[test]
    fn fuzz_path_words() {
        bolero::check!().for_each(|text: &[u8]| {
            assert!(path_words(text).iter().all(|word| !word.is_empty() && !word.contains(&0)));
        });
    }
}
