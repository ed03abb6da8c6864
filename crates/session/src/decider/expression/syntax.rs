//! The tree of an expression.

use belljar_contract::Pattern;
use std::ops::Range;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub kind: NodeKind,
    pub span: Range<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    /// A pattern; stands only where one is matched.
    Pattern(Pattern),
    Name(String),
    Member {
        of: Box<Node>,
        name: String,
        chain: Access,
    },
    Item {
        of: Box<Node>,
        at: Box<Node>,
    },
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    Ask {
        method: Method,
        of: Box<Node>,
        with: Option<Box<Node>>,
        chain: Access,
    },
    Matches {
        text: Box<Node>,
        pattern: Pattern,
        chain: Access,
    },
}

/// How a member of a missing value is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// `.`: an error.
    Must,
    /// `?.`: `null`.
    May,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Includes,
    StartsWith,
    EndsWith,
    IndexOf,
    Trim,
    LowerCase,
    UpperCase,
}

impl Method {
    /// By its name in JavaScript, or a plain word.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "includes" | "contains" => Self::Includes,
            "startsWith" => Self::StartsWith,
            "endsWith" => Self::EndsWith,
            "indexOf" => Self::IndexOf,
            "trim" => Self::Trim,
            "toLowerCase" => Self::LowerCase,
            "toUpperCase" => Self::UpperCase,
            _ => return None,
        })
    }

    pub const fn takes_one(self) -> bool {
        match self {
            Self::Includes | Self::StartsWith | Self::EndsWith | Self::IndexOf => true,
            Self::Trim | Self::LowerCase | Self::UpperCase => false,
        }
    }
}
