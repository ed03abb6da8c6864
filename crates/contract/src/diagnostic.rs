//! What is wrong with a file, and where.

use serde::Serialize;
use std::ops::Range;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is refused.
    Warning,
    /// The file cannot be used as it is.
    Error,
}

/// A text that was read, under the name people know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The path as it is shown.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The texts that diagnostics point into, by index.
pub type Sources = Vec<SourceFile>;

/// A place in a text and a word about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Index into [`Sources`].
    pub file: usize,
    /// Byte range in the text.
    pub span: Range<usize>,
    /// What is said at the underline; may be empty.
    pub text: String,
}

/// One finding: what, where, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for machines, such as `unknown-key`.
    pub code: &'static str,
    /// The finding in one line.
    pub message: String,
    /// The place; none for a finding about a whole file or about its absence.
    pub label: Option<Label>,
    /// Other places that matter, such as the first of two duplicates.
    pub related: Vec<Label>,
    /// The way out in one line.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
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

    /// The same with a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same as a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Whether it is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The form for editors and other machines.
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

/// Line and column, both from one, the column in characters, of a byte offset.
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
