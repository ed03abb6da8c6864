//! Problems in a file, with their positions.

use serde::Serialize;
use std::ops::Range;

/// Whether a problem stops belljar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is refused.
    Warning,
    /// belljar does not use the file as it is.
    Error,
}

/// A file's text and the name under which it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The path as messages show it.
    pub name: String,
    pub text: String,
}

/// The texts that diagnostics point into, by index.
pub type Sources = Vec<SourceFile>;

/// A place in a text with a short note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Index into [`Sources`].
    pub file: usize,
    /// Byte range in the text.
    pub span: Range<usize>,
    /// Text next to the underline; may be empty.
    pub text: String,
}

/// One problem: what is wrong, where, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A stable code for machines, such as `unknown-key`.
    pub code: &'static str,
    /// The problem in one line.
    pub message: String,
    /// The place; `None` for a problem with a whole file or a missing file.
    pub label: Option<Label>,
    /// Other places that matter, such as the first of two duplicates.
    pub related: Vec<Label>,
    /// How to fix it, in one line.
    pub help: Option<String>,
}

impl Diagnostic {
    #[must_use]
    pub fn error(code: &'static str, message: impl Into<String>, label: Label) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            label: Some(label),
            related: Vec::new(),
            help: None,
        }
    }

    /// Adds a hint on how to fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Turns the problem into a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The form for editors and other programs.
    #[must_use]
    pub fn to_json(&self, sources: &[SourceFile]) -> serde_json::Value {
        let place = |label: &Label| {
            let source = sources.get(label.file);
            let text = source.map_or("", |source| source.text.as_str());
            let (start, end) = (position(text, label.span.start), position(text, label.span.end));
            serde_json::json!({
                "file": source.map(|source| source.name.as_str()),
                "line": start.0,
                "column": start.1,
                "end_line": end.0,
                "end_column": end.1,
                "label": label.text,
            })
        };
        serde_json::json!({
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "place": self.label.as_ref().map(place),
            "related": self.related.iter().map(place).collect::<Vec<_>>(),
            "help": self.help,
        })
    }
}

/// Line and column of a byte offset, both counted from 1, the column in characters.
#[must_use]
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        let text = "é = 1\nab";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 2), (1, 2));
        assert_eq!(position(text, 1), (1, 1), "inside a character means its start");
        assert_eq!(position(text, text.len()), (2, 3));
        assert_eq!(position(text, 999), (2, 3));
    }
}
