//! Evaluates an expression on an input: true, false, or an error.

use super::syntax::{Access, Comparison, Method, Node, NodeKind};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// Why an expression cannot be evaluated on an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvaluationError {
    pub message: String,
    /// The part of the expression, in bytes.
    pub span: Range<usize>,
}

pub(super) fn holds(root: &Node, input: &Map<String, Value>) -> Result<bool, EvaluationError> {
    Ok(value(root, input)?.is_true())
}

#[derive(Debug, Clone)]
enum Seen<'a> {
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    List(Vec<Seen<'a>>),
    Object(&'a Map<String, Value>),
}

type Evaluated<'a> = Result<Seen<'a>, EvaluationError>;

fn value<'a>(node: &'a Node, input: &'a Map<String, Value>) -> Evaluated<'a> {
    let misfit = |message: String| EvaluationError { message, span: node.span.clone() };
    Ok(match &node.kind {
        NodeKind::Null | NodeKind::Pattern(_) => Seen::Null,
        NodeKind::Bool(bool) => Seen::Bool(*bool),
        NodeKind::Number(number) => Seen::Number(*number),
        NodeKind::Text(text) => Seen::Text(Cow::Borrowed(text)),
        NodeKind::List(items) => {
            Seen::List(items.iter().map(|item| value(item, input)).collect::<Result<_, _>>()?)
        }
        NodeKind::Name(name) if name == "input" => Seen::Object(input),
        NodeKind::Name(name) => match input.get(name) {
            Some(found) => Seen::from_json(found),
            None => return Err(misfit(format!("the input has no `{name}`"))),
        },
        NodeKind::Member { of, name, chain } => {
            let of = value(of, input)?;
            member(&of, name, *chain).map_err(misfit)?
        }
        NodeKind::Item { of, at } => item(&value(of, input)?, &value(at, input)?).map_err(misfit)?,
        NodeKind::Not(inner) => Seen::Bool(!value(inner, input)?.is_true()),
        NodeKind::And(left, right) => {
            Seen::Bool(value(left, input)?.is_true() && value(right, input)?.is_true())
        }
        NodeKind::Or(left, right) => {
            Seen::Bool(value(left, input)?.is_true() || value(right, input)?.is_true())
        }
        NodeKind::Compare(comparison, left, right) => {
            let (left, right) = (value(left, input)?, value(right, input)?);
            Seen::Bool(compare(*comparison, &left, &right).map_err(misfit)?)
        }
        NodeKind::Ask { method, of, with, chain } => {
            let of = value(of, input)?;
            let with = with.as_ref().map(|with| value(with, input)).transpose()?;
            ask(*method, of, with.as_ref(), *chain).map_err(misfit)?
        }
        NodeKind::Matches { text, pattern, chain } => match (value(text, input)?, chain) {
            (Seen::Text(text), _) => Seen::Bool(pattern.is_match(&text)),
            (Seen::Null, Access::May) => Seen::Null,
            (other, _) => {
                return Err(misfit(format!("{} cannot be matched against a pattern", other.kind())));
            }
        },
    })
}

impl<'a> Seen<'a> {
    fn from_json(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::from_json).collect()),
            Value::Object(object) => Self::Object(object),
        }
    }

    /// Truthiness as in JavaScript.
    fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(bool) => *bool,
            Self::Number(number) => *number != 0.0 && !number.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::List(_) | Self::Object(_) => true,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Values of different kinds are never the same; lists and objects are only what they are made of.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Number(left), Self::Number(right)) => left == right,
            (Self::Text(left), Self::Text(right)) => left == right,
            (Self::List(left), Self::List(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.is_same(right))
            }
            (Self::Object(left), Self::Object(right)) => left == right,
            (
                Self::Null
                | Self::Bool(_)
                | Self::Number(_)
                | Self::Text(_)
                | Self::List(_)
                | Self::Object(_),
                _,
            ) => false,
        }
    }
}

fn member<'a>(of: &Seen<'a>, name: &str, chain: Access) -> Result<Seen<'a>, String> {
    match (of, name) {
        (Seen::Object(object), _) => Ok(object.get(name).map_or(Seen::Null, Seen::from_json)),
        (Seen::Text(text), "length") => Ok(Seen::Number(count(text.encode_utf16().count()))),
        (Seen::List(items), "length") => Ok(Seen::Number(count(items.len()))),
        (Seen::Null, _) if chain == Access::May => Ok(Seen::Null),
        (other, _) => Err(format!("{} has no `{name}`", other.kind())),
    }
}

fn item<'a>(of: &Seen<'a>, at: &Seen<'a>) -> Result<Seen<'a>, String> {
    match (of, at) {
        (Seen::Object(object), Seen::Text(name)) => {
            Ok(object.get(name.as_ref()).map_or(Seen::Null, Seen::from_json))
        }
        (Seen::List(items), Seen::Number(number)) => {
            let found = items.iter().enumerate().find(|(index, _)| count(*index) == *number);
            Ok(found.map_or(Seen::Null, |(_, item)| item.clone()))
        }
        (of, at) => Err(format!("{} has no item at {}", of.kind(), at.kind())),
    }
}

fn compare(comparison: Comparison, left: &Seen<'_>, right: &Seen<'_>) -> Result<bool, String> {
    let order = match comparison {
        Comparison::Equal => return Ok(left.is_same(right)),
        Comparison::Unequal => return Ok(!left.is_same(right)),
        Comparison::Less | Comparison::AtMost | Comparison::Greater | Comparison::AtLeast => {
            match (left, right) {
                (Seen::Number(left), Seen::Number(right)) => left.partial_cmp(right),
                (Seen::Text(left), Seen::Text(right)) => Some(left.cmp(right)),
                (left, right) => return Err(format!("{} and {} have no order", left.kind(), right.kind())),
            }
        }
    };
    Ok(match comparison {
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Comparison::Equal | Comparison::Unequal => false,
    })
}

fn ask<'a>(method: Method, of: Seen<'a>, with: Option<&Seen<'a>>, chain: Access) -> Result<Seen<'a>, String> {
    if let (Seen::Null, Access::May) = (&of, chain) {
        return Ok(Seen::Null);
    }
    if let (Method::Includes, Seen::List(items), Some(with)) = (method, &of, with) {
        return Ok(Seen::Bool(items.iter().any(|item| item.is_same(with))));
    }
    let Seen::Text(text) = of else { return Err(format!("{} cannot be asked this", of.kind())) };
    let argument = match with {
        None => "",
        Some(Seen::Text(argument)) => argument.as_ref(),
        Some(other) => return Err(format!("a text is looked for in a text, not {}", other.kind())),
    };
    Ok(match method {
        Method::Includes => Seen::Bool(text.contains(argument)),
        Method::StartsWith => Seen::Bool(text.starts_with(argument)),
        Method::EndsWith => Seen::Bool(text.ends_with(argument)),
        Method::IndexOf => {
            let at = text.find(argument).map(|at| count(text[..at].encode_utf16().count()));
            Seen::Number(at.unwrap_or(-1.0))
        }
        Method::Trim => Seen::Text(Cow::Owned(text.trim().to_owned())),
        Method::LowerCase => Seen::Text(Cow::Owned(text.to_lowercase())),
        Method::UpperCase => Seen::Text(Cow::Owned(text.to_uppercase())),
    })
}

/// No text or list in memory is longer than what this holds exactly.
#[expect(clippy::cast_precision_loss, reason = "lengths stay far below 2^53")]
fn count(length: usize) -> f64 {
    length as f64
}
