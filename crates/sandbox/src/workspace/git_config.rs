//! The places that a git configuration makes git execute or obey, as far as they lie in the work tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A place that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) what: What,
    pub(super) path: PathBuf,
}

/// What git does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Runs the hooks in it. Relative to the work tree.
    Hooks,
    /// Reads it as configuration. Relative to the file that names it.
    Config,
    /// Reads it as attributes. Relative to the work tree.
    Attributes,
    /// Runs it. Relative to the work tree.
    Program,
    /// Takes it for the work tree. Relative to the git directory.
    WorkTree,
}

/// Reads the few keys that matter; what is not understood names nothing.
pub(super) fn named(text: &[u8]) -> Vec<Named> {
    let mut section = Vec::new();
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut line = line.trim_ascii();
        if let Some(rest) = line.strip_prefix(b"[") {
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            let name = rest[..end].split(|byte| *byte == b' ' || *byte == b'"').next().unwrap_or_default();
            section = name.to_ascii_lowercase();
            // git takes a setting on the line of its section.
            line = rest.get(end + 1..).unwrap_or_default().trim_ascii();
        }
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else { continue };
        let key = line[..equals].trim_ascii().to_ascii_lowercase();
        let what = match (section.as_slice(), key.as_slice()) {
            (b"core", b"hookspath") => What::Hooks,
            (b"core", b"attributesfile") => What::Attributes,
            (b"core", b"fsmonitor") => What::Program,
            (b"core", b"worktree") => What::WorkTree,
            (b"include" | b"includeif", b"path") => What::Config,
            _ => continue,
        };
        let value = unquoted(&line[equals + 1..]);
        found.push(Named { what, path: PathBuf::from(OsStr::from_bytes(&value)) });
    }
    found
}

fn unquoted(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut quoted, mut escaped) = (false, false);
    for byte in value.trim_ascii() {
        match byte {
            _ if escaped => {
                out.push(*byte);
                escaped = false;
            }
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => break,
            other => out.push(*other),
        }
    }
    out.trim_ascii_end().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_git_obeys() {
        let text = b"[core]\n\thooksPath = .githooks # ours\n\tbare = false\n[includeIf \"gitdir:/x/\"]\npath=\"a b\"\n\
            [CORE] fsmonitor = ./tools/watch\n[remote \"hooksPath\"]\n\turl = x\nhookspath = not-core\n";
        let expected = [(What::Hooks, ".githooks"), (What::Config, "a b"), (What::Program, "./tools/watch")];
        let expected: Vec<Named> =
            expected.map(|(what, path)| Named { what, path: path.into() }).into_iter().collect();
        assert_eq!(named(text), expected);
        assert_eq!(named(b"[core\nhooksPath"), []);
        assert_eq!(named(b"\xff[core]\n=\n"), []);
    }
}
