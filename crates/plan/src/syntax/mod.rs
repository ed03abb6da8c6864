//! Text to a tree in which every key and every value knows its place.

mod json;
mod toml;
mod yaml;

pub(crate) use json::parse as parse_json;
pub(crate) use toml::parse as parse_toml;
pub(crate) use yaml::{Aliases, parse as parse_yaml};

use std::ops::Range;

/// A place where the text is not what its format demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub message: String,
    pub help: Option<&'static str>,
    pub span: Range<usize>,
    /// Of a key that stands twice, the first.
    pub first: Option<Range<usize>>,
}

impl SyntaxError {
    pub fn new(message: impl Into<String>, span: Range<usize>) -> Self {
        Self { message: message.into(), help: None, span, first: None }
    }

    pub fn help(mut self, help: Option<&'static str>) -> Self {
        self.help = help;
        self
    }
}
