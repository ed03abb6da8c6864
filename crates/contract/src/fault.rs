//! What is wrong with a part of a file, told by someone who sees its data but not its text.

use std::ops::Range;

/// A fault at a place in data; whoever has the text finds the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct DataFault {
    /// Where in the data, as in `[2].allow_if`.
    pub path: String,
    /// What.
    pub message: String,
    /// Where in the string at that place, in bytes, where the fault is only a part of it.
    pub span: Option<Range<usize>>,
    /// The way out.
    pub help: Option<String>,
}

impl DataFault {
    /// A fault at a place.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), span: None, help: None }
    }

    /// The same with a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same, seen from further out: `at` comes before the path.
    #[must_use]
    pub fn under(mut self, at: &str) -> Self {
        self.path = format!("{at}{}", self.path);
        self
    }
}
