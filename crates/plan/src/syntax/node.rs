//! The tree that all formats become.

use std::ops::Range;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Null,
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
    /// A value of the format that no key of ours takes, with its name for people.
    Foreign(&'static str),
}

/// A key and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub text: String,
    pub span: Range<usize>,
}

/// Entries in the order of the file; keys are distinct, the parsers see to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table(pub Vec<(Key, Node)>);

impl Table {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }
}

impl Node {
    /// What it is, with an article, for a sentence that begins with "found".
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::String(_) => "a string",
            Kind::Integer(_) => "a number",
            Kind::Float(_) => "a number with a fraction",
            Kind::Boolean(_) => "a boolean",
            Kind::Array(_) => "a list",
            Kind::Table(_) => "a table",
            Kind::Foreign(name) => name,
        }
    }
}
