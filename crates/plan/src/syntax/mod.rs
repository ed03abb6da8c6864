//! Text to a tree in which every key and every value knows its place.

mod node;
mod toml;
mod yaml;

pub(crate) use node::{Key, Kind, Node, Table};
pub(crate) use toml::parse as parse_toml;
pub(crate) use yaml::parse as parse_yaml;

/// A place where the text is not what its format demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub message: String,
    pub help: Option<&'static str>,
    pub span: std::ops::Range<usize>,
}
