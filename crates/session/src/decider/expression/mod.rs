//! The language of `allow_if`: a condition on a tool's input, without side effects or loops. An error never allows.
//!
//! The syntax is a small part of JavaScript, with plain words as alternatives. Every expression terminates: its size and
//! depth are bounded, and its patterns take linear time. What does not fit the input (a missing
//! name, a number where a text must be) is an error, neither true nor false.

mod evaluate;
mod parse;
mod syntax;
mod token;

pub use evaluate::EvaluationError;

use belljar_contract::PatternError;
use serde_json::{Map, Value};
use std::ops::Range;
use syntax::Node;

/// A parsed expression.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    root: Node,
}

/// Why a text is not a valid expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    pub message: String,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    /// How to fix it.
    pub help: Option<String>,
}

impl ExpressionError {
    fn of_pattern(error: &PatternError, span: Range<usize>) -> Self {
        Self { message: error.to_string(), span, help: error.help().map(str::to_owned) }
    }
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// If it is not valid, with the place.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let root = parse::parse(text)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// Evaluates the expression on a tool's input.
    ///
    /// # Errors
    /// If it does not fit the input, which is neither true nor false.
    pub fn holds(&self, input: &Map<String, Value>) -> Result<bool, EvaluationError> {
        evaluate::holds(&self.root, input)
    }

    /// The source text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
#[path = "expression_tests.rs"]
mod tests;
