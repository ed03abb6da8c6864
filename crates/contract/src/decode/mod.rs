//! Decoding of the files that people write: a tree of values in, a typed value and every fault out.
//!
//! Text is parsed elsewhere, into a [`Node`] in which every key and value has its place. A type says with [`Decode`] how it
//! is read from a node and what its JSON Schema is, so that the two cannot differ; [`table!`] derives both from one
//! definition. A fault does not stop decoding: it goes on the list of [`Faults`], and what else is in the file is looked
//! at too. `docs/design/decoding.md` gives the reasons.

mod choice;
mod fault;
mod node;
mod part;
mod plain;
mod table;
mod values;

#[doc(hidden)]
pub use choice::{choice_schema, choice_text};
pub use fault::{FAULT_LIMIT, Fault, Faults, choices, list, plain, shown};
pub use node::{Key, Kind, Node, Table};
pub use plain::{Many, whole_number, whole_number_schema};
pub use table::{KeySpec, known_table, table_schema, titled};

#[doc(inline)]
pub use crate::{decode_choice as choice, decode_table as table};
pub use serde_json::Value;

use crate::Label;
use serde_json::json;
use std::ops::{Deref, Range};

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Index of the file among the sources.
    pub file: usize,
    /// Byte range in its text.
    pub span: Range<usize>,
}

impl Place {
    /// A label at the place.
    #[must_use]
    pub fn label(&self, text: impl Into<String>) -> Label {
        Label { file: self.file, span: self.span.clone(), text: text.into() }
    }
}

/// A value and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    /// Where it is written.
    pub place: Place,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// An entry of a table whose keys are names that the author chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<K, T> {
    pub name: K,
    /// Where the key is written.
    pub name_place: Place,
    /// The value of the key.
    pub value: T,
    /// Where the value is written.
    pub place: Place,
    /// Whether something in it was wrong, so that `value` is incomplete.
    pub broken: bool,
}

/// A type that a value in a file can have.
pub trait Decode: Sized {
    /// The value; `None` only after a fault was added. A value that comes with faults is incomplete.
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self>;

    /// The JSON Schema of what is accepted.
    fn schema() -> Value;
}

/// A type that is written as a string.
pub trait Scalar: Sized {
    /// What is expected, with an article.
    const EXPECTED: &'static str;

    /// Reads the text.
    ///
    /// # Errors
    /// What is wrong with it.
    fn parse(text: &str) -> Result<Self, Fault>;

    /// A regular expression for editors, where one says something useful.
    #[must_use]
    fn pattern() -> Option<&'static str> {
        None
    }
}

impl<T: Scalar> Decode for T {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, T::EXPECTED);
        };
        T::parse(text).map_or_else(|fault| faults.invalid(node, fault), Some)
    }

    fn schema() -> Value {
        let mut schema = json!({"type": "string"});
        if let Some(pattern) = T::pattern() {
            schema["pattern"] = json!(pattern);
        }
        schema
    }
}

impl<T: Decode> Decode for At<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let place = faults.place(&node.span);
        T::decode(node, faults).map(|value| At { value, place })
    }

    fn schema() -> Value {
        T::schema()
    }
}

/// A type that a key in a table can have, by how it treats absence.
///
/// What may be absent is decoded as far as it goes: its faults are on the list, and the rest of the file is still checked.
pub trait Field: Sized {
    /// Whether the table is refused without the key.
    const REQUIRED: bool;

    /// The value of the key, where the key is there.
    fn decode_field(node: Option<&Node>, faults: &mut Faults<'_>) -> Option<Self>;

    /// The JSON Schema of the value.
    fn field_schema() -> Value;
}

impl<T: Decode> Field for T {
    const REQUIRED: bool = true;
    fn decode_field(node: Option<&Node>, faults: &mut Faults<'_>) -> Option<Self> {
        T::decode(node?, faults)
    }
    fn field_schema() -> Value {
        T::schema()
    }
}

impl<T: Decode> Field for Option<T> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults<'_>) -> Option<Self> {
        Some(node.and_then(|node| T::decode(node, faults)))
    }
    fn field_schema() -> Value {
        T::schema()
    }
}

impl<T: Decode> Field for Vec<T> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults<'_>) -> Option<Self> {
        let list = node.and_then(|node| Many::decode(node, faults));
        Some(list.map_or_else(Vec::new, |Many(items)| items))
    }
    fn field_schema() -> Value {
        Many::<T>::schema()
    }
}

/// A name that an author chooses, as a key of a table.
pub trait NameKey: Sized {
    /// Reads the key.
    ///
    /// # Errors
    /// What is wrong with it.
    fn parse_key(text: &str) -> Result<Self, Fault>;

    /// A regular expression for editors.
    fn pattern() -> &'static str;
}

impl<K: NameKey, T: Decode> Field for Vec<Named<K, T>> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults<'_>) -> Option<Self> {
        let Some(node) = node else { return Some(Vec::new()) };
        let Kind::Table(table) = &node.kind else {
            return faults.mismatch(node, "a table").or_else(|| Some(Vec::new()));
        };
        let mut out = Vec::with_capacity(table.0.len());
        for (key, node) in &table.0 {
            let before = faults.list.len();
            let name =
                K::parse_key(&key.text).map_err(|fault| faults.push("invalid-name", &key.span, fault)).ok();
            let value = T::decode(node, faults);
            let (Some(name), Some(value)) = (name, value) else {
                faults.broken_names.insert(key.text.clone());
                continue;
            };
            let broken = faults.list.len() > before || !faults.has_room();
            let (name_place, place) = (faults.place(&key.span), faults.place(&node.span));
            out.push(Named { name, name_place, value, place, broken });
        }
        Some(out)
    }
    fn field_schema() -> Value {
        json!({
            "type": "object",
            "propertyNames": {"pattern": K::pattern()},
            "additionalProperties": T::schema(),
        })
    }
}
