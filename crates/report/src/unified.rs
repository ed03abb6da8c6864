//! The difference between two versions of a file, as people read it.

use crate::Style;
use similar::TextDiff;

/// The difference, or a word about files that are not text. Control characters of the files are not passed on.
#[must_use]
pub fn render_difference(path: &str, before: &[u8], after: &[u8], style: Style) -> String {
    let (Ok(before), Ok(after)) = (std::str::from_utf8(before), std::str::from_utf8(after)) else {
        return format!("{path}: not text\n");
    };
    let diff = TextDiff::from_lines(before, after);
    let text =
        diff.unified_diff().context_radius(3).header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    let mut out = String::new();
    for line in text.lines() {
        let plain: String =
            line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
        out.push_str(&match plain.chars().next() {
            Some('+') => style.added(&plain),
            Some('-') => style.removed(&plain),
            Some('@') => style.dim(&plain),
            _ => plain,
        });
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_and_cannot_paint() {
        let text = render_difference("x", b"a\nb\n", b"a\n\x1b[31mc\n", Style::Plain);
        assert_eq!(text, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+\u{fffd}[31mc\n");
        assert_eq!(render_difference("x", b"\xff", b"", Style::Plain), "x: not text\n");
    }
}
