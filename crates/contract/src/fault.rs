//! A problem in parsed data, reported by code that does not have the text of the file.

use std::ops::Range;

/// A problem at a path in data. The caller that has the text finds the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct DataFault {
    /// The path in the data, such as `[2].allow_if`.
    pub path: String,
    pub message: String,
    /// The byte range in the string at that path, if only a part of it is wrong.
    pub span: Option<Range<usize>>,
    /// How to fix it.
    pub help: Option<String>,
}

impl DataFault {
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), span: None, help: None }
    }

    /// Adds a hint on how to fix it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prefixes the path with `at`.
    #[must_use]
    pub fn under(mut self, at: &str) -> Self {
        self.path = format!("{at}{}", self.path);
        self
    }
}
