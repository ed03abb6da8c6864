//! Texts, numbers and lists with bounds.

use belljar_contract::decode::{Decode, Fault, Faults, Kind, Many, Node};
use serde_json::{Value, json};

/// `true` and nothing else: the opposite is asked for by another key, or by none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Yes;

impl Decode for Yes {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match node.kind {
            Kind::Boolean(true) => Some(Self),
            Kind::Boolean(false) => faults
                .invalid(node, Fault::new("this key takes `true` only").help("leave the key out instead")),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, "`true`"),
        }
    }

    fn schema() -> Value {
        json!({"const": true})
    }
}

/// A text that is looked for as it is. Never empty: an empty text is found everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub String);

impl Decode for Text {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let text = String::decode(node, faults)?;
        if text.is_empty() {
            return faults.invalid(node, Fault::new("expected a text to look for, found an empty one"));
        }
        Some(Self(text))
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// A whole number from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub u64);

impl Decode for Count {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let expected = "a whole number from 0";
        let Kind::Integer(number) = node.kind else {
            return faults.mismatch(node, expected);
        };
        match u64::try_from(number) {
            Ok(number) => Some(Self(number)),
            Err(_negative) => {
                faults.invalid(node, Fault::new(format!("expected {expected}, found {number}")))
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }
}

/// A number from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal(pub f64);

impl Decode for Decimal {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let expected = "a number from 0";
        let Some(number) = node.as_number() else {
            return faults.mismatch(node, expected);
        };
        if number.is_finite() && number >= 0.0 {
            return Some(Self(number));
        }
        faults.invalid(node, Fault::new(format!("expected {expected}, found {number}")))
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0})
    }
}

/// A list with at least one item.
#[derive(Debug, Clone)]
pub(crate) struct NonEmpty<T>(pub Vec<T>);

impl<T: Decode> Decode for NonEmpty<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        if node.kind == Kind::Array(Vec::new()) {
            let fault = Fault::new("expected a list with at least one item, found an empty one");
            return faults.invalid(node, fault);
        }
        Many::decode(node, faults).map(|Many(items)| Self(items))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema(), "minItems": 1})
    }
}

/// One value, or a list with at least one item.
#[derive(Debug, Clone)]
pub(crate) struct OneOrMore<T>(pub Vec<T>);

impl<T: Decode> Decode for OneOrMore<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match node.kind {
            Kind::Array(_) => NonEmpty::decode(node, faults).map(|NonEmpty(items)| Self(items)),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => T::decode(node, faults).map(|one| Self(vec![one])),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [T::schema(), NonEmpty::<T>::schema()]})
    }
}
