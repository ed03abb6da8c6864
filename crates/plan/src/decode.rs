//! From the tree to types: every fault is collected, none stops the rest.
//!
//! A table is defined once, with [`table!`]: the fields, their types and their documentation. Decoding, the
//! list of known keys and the JSON Schema all come from that one definition.

use crate::syntax::{Kind, Node, Table};
use belljar_contract::{Diagnostic, Label, visible_start};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::{Deref, Range};

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Index of the text.
    pub file: usize,
    /// Byte range in it.
    pub span: Range<usize>,
}

impl Place {
    /// A label at the place.
    #[must_use]
    pub fn label(&self, text: impl Into<String>) -> Label {
        Label { file: self.file, span: self.span.clone(), text: text.into() }
    }
}

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place.
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
    /// The name.
    pub name: K,
    /// Where the name is written.
    pub name_place: Place,
    /// The entry.
    pub value: T,
    /// Where the entry is written.
    pub place: Place,
    /// Whether something in it was wrong, so that it is known in part only.
    pub broken: bool,
}

/// More faults than this in one file are not listed: nobody reads them, and a hostile file has millions.
pub(crate) const FAULT_LIMIT: usize = 200;

/// The findings in one file.
#[derive(Debug)]
pub(crate) struct Faults {
    pub file: usize,
    pub list: Vec<Diagnostic>,
    /// Names whose entries could not be decoded at all.
    pub broken_names: BTreeSet<String>,
}

impl Faults {
    pub fn new(file: usize) -> Self {
        Self { file, list: Vec::new(), broken_names: BTreeSet::new() }
    }

    pub fn place(&self, span: &Range<usize>) -> Place {
        Place { file: self.file, span: span.clone() }
    }

    /// Whether there is room for one more; the last place is taken by a word that there were more.
    pub fn has_room(&self) -> bool {
        self.list.len() < FAULT_LIMIT
    }

    /// Something worth knowing that refuses nothing.
    pub fn warn(&mut self, code: &'static str, span: &Range<usize>, fault: Fault) {
        // The last place is kept for an error, which alone may say that more was left out.
        if self.list.len() + 1 < FAULT_LIMIT {
            self.push(code, span, fault);
            if let Some(last) = self.list.last_mut() {
                last.severity = belljar_contract::Severity::Warning;
            }
        }
    }

    pub fn push(&mut self, code: &'static str, span: &Range<usize>, fault: Fault) {
        if !self.has_room() {
            return;
        }
        let (code, fault) = if self.list.len() + 1 == FAULT_LIMIT {
            ("too-many-faults", Fault::new("there are more faults from here on, which are not listed"))
        } else {
            (code, fault)
        };
        let label = self.place(span).label(fault.label);
        // Here every fault passes, so that no text of a stranger reaches a terminal as more than one plain line.
        let mut diagnostic = Diagnostic::error(code, plain(&fault.message), label);
        diagnostic.help = fault.help.as_deref().map(plain);
        self.list.push(diagnostic);
    }

    /// Says that `node` is not what was expected; gives `None`, for `return`.
    pub fn mismatch<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        let found = node.describe();
        let mut fault =
            Fault::new(format!("expected {expected}, found {found}")).label(format!("this is {found}"));
        if expected == "a list" && matches!(node.kind, Kind::String(_)) {
            fault = fault.help("a list of one is written in brackets, as in `[\"…\"]`");
        }
        self.push("wrong-type", &node.span, fault);
        None
    }
}

/// What is wrong with a value, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub message: String,
    pub label: String,
    pub help: Option<String>,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), label: String::new(), help: None }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A type that a value in a file can have.
pub(crate) trait Shape: Sized {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self>;
    /// The JSON Schema of what is accepted.
    fn schema() -> Value;
}

/// A type that is written as a string.
pub(crate) trait Scalar: Sized {
    /// What is expected, with an article.
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Result<Self, Fault>;
    /// A regular expression for editors, where one says something useful.
    fn pattern() -> Option<&'static str> {
        None
    }
}

impl<T: Scalar> Shape for T {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, T::EXPECTED);
        };
        T::parse(text).map_err(|fault| faults.push("invalid-value", &node.span, fault)).ok()
    }

    fn schema() -> Value {
        let mut schema = json!({"type": "string"});
        if let Some(pattern) = T::pattern() {
            schema["pattern"] = json!(pattern);
        }
        schema
    }
}

impl Shape for bool {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
        match &node.kind {
            Kind::Boolean(value) => Some(*value),
            _ => faults.mismatch(node, "`true` or `false`"),
        }
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

/// A type that a key in a table can have, by how it treats absence.
///
/// What may be absent is decoded as far as it goes: its faults are on the list, and the rest of the file can still
/// be checked. Whoever wants a whole value looks at the list.
pub(crate) trait Field: Sized {
    const REQUIRED: bool;
    fn decode_field(node: Option<&Node>, faults: &mut Faults) -> Option<Self>;
    fn field_schema() -> Value;
}

impl<T: Shape> Shape for At<T> {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
        let place = faults.place(&node.span);
        T::decode(node, faults).map(|value| At { value, place })
    }

    fn schema() -> Value {
        T::schema()
    }
}

impl<T: Shape> Field for At<T> {
    const REQUIRED: bool = true;
    fn decode_field(node: Option<&Node>, faults: &mut Faults) -> Option<Self> {
        At::decode(node?, faults)
    }
    fn field_schema() -> Value {
        T::schema()
    }
}

impl<T: Shape> Field for Option<At<T>> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults) -> Option<Self> {
        match node {
            None => Some(None),
            Some(node) => Some(At::decode(node, faults)),
        }
    }
    fn field_schema() -> Value {
        T::schema()
    }
}

impl<T: Shape> Field for Vec<At<T>> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults) -> Option<Self> {
        let Some(node) = node else { return Some(Vec::new()) };
        let Kind::Array(items) = &node.kind else {
            return faults.mismatch(node, "a list").or_else(|| Some(Vec::new()));
        };
        Some(items.iter().filter_map(|item| At::decode(item, faults)).collect())
    }
    fn field_schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

/// A name that an author chooses, as a key of a table.
pub(crate) trait NameKey: Sized {
    fn parse_key(text: &str) -> Result<Self, Fault>;
    fn pattern() -> &'static str;
}

impl<K: NameKey, T: Shape> Field for Vec<Named<K, T>> {
    const REQUIRED: bool = false;
    fn decode_field(node: Option<&Node>, faults: &mut Faults) -> Option<Self> {
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

/// What a table's definition says about one key.
pub(crate) struct KeySpec {
    pub name: &'static str,
    pub required: bool,
    pub doc: &'static [&'static str],
    pub schema: fn() -> Value,
}

/// The table in `node`, with its keys checked against the known ones.
pub(crate) fn known_table<'a>(
    node: &'a Node,
    what: &str,
    keys: &[KeySpec],
    faults: &mut Faults,
) -> Option<&'a Table> {
    let Kind::Table(table) = &node.kind else {
        return faults.mismatch(node, "a table");
    };
    let mut misspelt = BTreeSet::new();
    for (key, _) in &table.0 {
        if keys.iter().any(|known| known.name == key.text) || !faults.has_room() {
            continue;
        }
        let names: Vec<&str> = keys.iter().map(|known| known.name).collect();
        let mut fault = Fault::new(format!("unknown key `{}` in {what}", shown(&key.text)));
        fault.help = Some(match nearest(&key.text, &names) {
            Some(near) => {
                misspelt.insert(near);
                fault.label = format!("did you mean `{near}`?");
                format!("known keys are {}", list(&names))
            }
            None => {
                "not a known key".clone_into(&mut fault.label);
                format!("known keys are {}", list(&names))
            }
        });
        faults.push("unknown-key", &key.span, fault);
    }
    for known in keys.iter().filter(|known| known.required) {
        // Written, but under another name, which has been said.
        if table.get(known.name).is_none() && !misspelt.contains(known.name) {
            let fault = Fault::new(format!("{what} lacks `{}`", known.name))
                .label(format!("`{}` belongs here", known.name))
                .help(format!("`{}`: {}", known.name, known.doc.join(" ").trim()));
            faults.push("missing-key", &node.span, fault);
        }
    }
    Some(table)
}

pub(crate) fn table_schema(doc: &[&str], keys: &[KeySpec]) -> Value {
    let mut properties = serde_json::Map::new();
    for key in keys {
        let mut schema = (key.schema)();
        schema["description"] = json!(key.doc.join(" ").trim());
        properties.insert(key.name.to_owned(), schema);
    }
    let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": doc.join(" ").trim(),
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The known word nearest to `word`, when one is near.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // A stranger's key may be megabytes long; nothing near it is.
    if word.len() > 80 {
        return None;
    }
    let folded = word.to_lowercase();
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&folded, &candidate.to_lowercase()), *candidate))
        .filter(|(score, _)| *score >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, quoted.
pub(crate) fn list<T: std::fmt::Display>(words: &[T]) -> String {
    joined(words, "and")
}

/// `a`, `b` or `c`, quoted.
pub(crate) fn choices<T: std::fmt::Display>(words: &[T]) -> String {
    joined(words, "or")
}

fn joined<T: std::fmt::Display>(words: &[T], last_word: &str) -> String {
    match words {
        [] => "none".to_owned(),
        [only] => format!("`{only}`"),
        [front @ .., last] => {
            let front: Vec<String> = front.iter().map(|word| format!("`{word}`")).collect();
            format!("{} {last_word} `{last}`", front.join(", "))
        }
    }
}

/// A stranger's text, made fit for one line: bounded, hidden characters escaped.
pub(crate) fn shown(text: &str) -> String {
    visible_start(text, 60)
}

/// A whole message, made fit for one line.
pub(crate) fn plain(text: &str) -> String {
    visible_start(text, 1000)
}

/// Defines a table: a struct whose fields are [`Field`]s, with its decoder and its schema.
macro_rules! table {
    ($(#[doc = $doc:literal])+ $what:literal pub struct $name:ident {
        $( $(#[doc = $field_doc:literal])+ $field:ident : $type:ty, )*
    }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $( $(#[doc = $field_doc])+ pub $field: $type, )* }

        impl $name {
            const KEYS: &'static [$crate::decode::KeySpec] = &[ $( $crate::decode::KeySpec {
                name: stringify!($field),
                required: <$type as $crate::decode::Field>::REQUIRED,
                doc: &[$($field_doc),+],
                schema: <$type as $crate::decode::Field>::field_schema,
            }, )* ];
        }

        impl $crate::decode::Shape for $name {
            fn decode(node: &$crate::syntax::Node, faults: &mut $crate::decode::Faults) -> Option<Self> {
                let table = $crate::decode::known_table(node, $what, Self::KEYS, faults)?;
                $( let $field = <$type as $crate::decode::Field>::decode_field(
                    table.get(stringify!($field)), faults); )*
                Some(Self { $( $field: $field?, )* })
            }

            fn schema() -> serde_json::Value {
                $crate::decode::table_schema(&[$($doc),+], Self::KEYS)
            }
        }
    };
}
pub(crate) use table;

/// Decodes one of a closed set of words.
pub(crate) fn decode_choice<T: Copy>(
    node: &Node,
    faults: &mut Faults,
    expected: &str,
    known: &[(&str, T)],
) -> Option<T> {
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    let Kind::String(text) = &node.kind else {
        return faults.mismatch(node, &format!("{expected}: {}", choices(&words)));
    };
    if let Some((_, value)) = known.iter().find(|(word, _)| word == text) {
        return Some(*value);
    }
    let mut fault = Fault::new(format!("expected {expected}, found `{}`", shown(text)))
        .help(format!("write {}", choices(&words)));
    if let Some(near) = nearest(text, &words) {
        fault = fault.label(format!("did you mean `{near}`?"));
    }
    faults.push("invalid-value", &node.span, fault);
    None
}

/// Defines how a closed set of words is decoded.
macro_rules! choice {
    ($type:ty, $expected:literal, { $( $word:literal => $value:expr ),+ $(,)? }) => {
        impl $crate::decode::Shape for $type {
            fn decode(node: &$crate::syntax::Node, faults: &mut $crate::decode::Faults) -> Option<Self> {
                $crate::decode::decode_choice(node, faults, $expected, &[$( ($word, $value) ),+])
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"enum": [$($word),+]})
            }
        }
    };
}
pub(crate) use choice;
