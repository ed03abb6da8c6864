//! The difference between two versions of a file, for people or for `patch`.

use crate::Style;
use belljar_contract::{visible_bytes, visible_lines};
use similar::TextDiff;

/// Which sides there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileVersions<'a> {
    /// The file is new.
    Added(&'a [u8]),
    /// The file was removed.
    Deleted(&'a [u8]),
    /// The file was changed.
    Changed { before: &'a [u8], after: &'a [u8] },
}

/// The difference, or a note for files that are not text. Characters that a terminal would not show are escaped.
#[must_use]
pub fn render_difference(path: &[u8], sides: FileVersions<'_>, style: Style) -> String {
    let shown = visible_bytes(path);
    let Some(text) = unified(sides, (&format!("a/{shown}"), &format!("b/{shown}"))) else {
        return format!("{shown}: not text\n");
    };
    let mut out = String::new();
    for line in text.split_terminator('\n') {
        // One line, with its tabs. A trailing `\r` belongs to the line and is shown, because it may be the only
        // change.
        let (line, end) = line.strip_suffix('\r').map_or((line, ""), |line| (line, "\\r"));
        let line = visible_lines(line, "") + end;
        out.push_str(&match line.chars().next() {
            Some('+') => style.added(&line),
            Some('-') => style.removed(&line),
            Some('@') => style.dim(&line),
            _ => line,
        });
        out.push('\n');
    }
    out
}

/// The same for `patch -p1` and `git apply`, with the files' own bytes. Only names are quoted, as git does, so that a
/// name cannot forge a header.
#[must_use]
pub fn patch_text(path: &[u8], sides: FileVersions<'_>) -> String {
    let name = |side: &str| quoted([side.as_bytes(), path].concat().as_slice());
    let header = match sides {
        FileVersions::Added(_) => ("/dev/null".to_owned(), name("b/")),
        FileVersions::Deleted(_) => (name("a/"), "/dev/null".to_owned()),
        FileVersions::Changed { .. } => (name("a/"), name("b/")),
    };
    unified(sides, (&header.0, &header.1)).unwrap_or_else(|| format!("{}: not text\n", visible_bytes(path)))
}

fn unified(sides: FileVersions<'_>, header: (&str, &str)) -> Option<String> {
    let (before, after) = match sides {
        FileVersions::Added(after) => (&b""[..], after),
        FileVersions::Deleted(before) => (before, &b""[..]),
        FileVersions::Changed { before, after } => (before, after),
    };
    let (before, after) = (std::str::from_utf8(before).ok()?, std::str::from_utf8(after).ok()?);
    // Split here, because a lone `\r` does not end a line for `patch`.
    let before: Vec<&str> = before.split_inclusive('\n').collect();
    let after: Vec<&str> = after.split_inclusive('\n').collect();
    let diff = TextDiff::configure().newline_terminated(true).diff_slices(&before, &after);
    Some(diff.unified_diff().context_radius(3).header(header.0, header.1).to_string())
}

/// A name as git writes it: in quotes if it contains a quote, a backslash, or a byte that is not printable.
fn quoted(name: &[u8]) -> String {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if name.iter().all(plain) {
        // As git does: a tab follows a name with a space in it, which `patch` would otherwise take for the end of the
        // name.
        let end = if name.contains(&b' ') { "\t" } else { "" };
        return format!("{}{end}", String::from_utf8_lossy(name));
    }
    let mut out = "\"".to_owned();
    for byte in name {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed<'a>(before: &'a str, after: &'a str) -> FileVersions<'a> {
        FileVersions::Changed { before: before.as_bytes(), after: after.as_bytes() }
    }

    #[test]
    fn lines_are_compared_and_cannot_paint() {
        let text = render_difference(b"x", changed("a\nb\n", "a\n\x1b[31m\u{202e}c\td\n"), Style::Plain);
        let lines = "@@ -1,2 +1,2 @@\n a\n-b\n+\\u{1b}[31m\\u{202e}c\td\n";
        assert_eq!(text, format!("--- a/x\n+++ b/x\n{lines}"));
        assert_eq!(
            render_difference(b"x\xff\n", FileVersions::Added(b"\xff"), Style::Plain),
            "x\\xff\\n: not text\n"
        );
    }

    #[test]
    fn the_end_of_a_line_is_seen() {
        let text = render_difference(b"x", changed("a\nb\rc\n", "a\r\nb\rc\n"), Style::Plain);
        assert_eq!(text, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+a\\r\n b\\rc\n");
    }

    #[test]
    fn a_patch_keeps_bytes_and_quotes_names() {
        let text = patch_text(b"x", changed("a\r\nb\rc\n", "a\r\n\u{1b}[31m\u{202e}\n"));
        assert_eq!(text, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\r\n-b\rc\n+\u{1b}[31m\u{202e}\n");
        let text = patch_text("é\n--- a/y\n".as_bytes(), FileVersions::Added(b"new\n"));
        let header = "--- /dev/null\n+++ \"b/\\303\\251\\012--- a/y\\012\"\n";
        assert_eq!(text, format!("{header}@@ -0,0 +1 @@\n+new\n"));
        let text = patch_text(b"x", FileVersions::Deleted(b"old"));
        assert_eq!(text, "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\\ No newline at end of file\n");
    }
}
