//! The tree that TOML, YAML and JSON are parsed into.

use serde_json::{Map, Value, json};
use std::fmt::{self, Debug};
use std::ops::Range;

/// A value and its place.
#[derive(Clone, PartialEq)]
pub struct Node {
    /// Bytes of the text, or a number of its own where there is no text: see [`Node::of_value`].
    pub span: Range<usize>,
    /// What is written there.
    pub kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Nothing, as in `null`.
    Null,
    /// A string, without its quotes and escapes.
    String(String),
    Integer(i64),
    /// A number with a fraction or an exponent, or one beyond 64 bits.
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Table),
    /// A value of the format that no key takes, such as a date, by its name in messages.
    Foreign(&'static str),
}

/// A key and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key without quotes and escapes.
    pub text: String,
    /// As that of a value: see [`Node::span`].
    pub span: Range<usize>,
}

/// Entries in the order of the file. Keys are distinct: the parsers refuse duplicates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table(pub Vec<(Key, Node)>);

impl Table {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }
}

/// The data alone, because the span of every value would hide it.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_value().fmt(f)
    }
}

impl Node {
    /// What it is, with an article, for a sentence that begins with "found".
    #[must_use]
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

    /// The items of the list that it is, if it is one.
    #[must_use]
    pub fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => None,
        }
    }

    /// The number that it is, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self.kind {
            #[expect(clippy::cast_precision_loss, reason = "numbers this large are beyond every limit")]
            Kind::Integer(number) => Some(number as f64),
            Kind::Float(number) => Some(number),
            Kind::Null
            | Kind::String(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => None,
        }
    }

    /// The data without its places.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.kind {
            // Only TOML has foreign values, and no key of a manifest takes arbitrary data.
            Kind::Null | Kind::Foreign(_) => Value::Null,
            Kind::String(text) => Value::String(text.clone()),
            Kind::Integer(number) => json!(number),
            Kind::Float(number) => json!(number),
            Kind::Boolean(flag) => Value::Bool(*flag),
            Kind::Array(items) => items.iter().map(Node::to_value).collect(),
            Kind::Table(table) => Value::Object(
                table.0.iter().map(|(key, node)| (key.text.clone(), node.to_value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The tree of data that has no text. Its spans count the keys and values, so that [`Node::pointer`] finds them.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        numbered(value, &mut 0)
    }

    /// The value at a place such as `turns[1].headers.x-a`; the last one on the way where the rest is absent.
    #[must_use]
    pub fn nearest_to(&self, at: &str) -> &Self {
        let found = match &self.kind {
            Kind::Array(items) => at.strip_prefix('[').and_then(|rest| {
                let (index, rest) = rest.split_once(']')?;
                Some((items.get(index.parse::<usize>().ok()?)?, rest))
            }),
            // A name may contain dots, so the longest key that fits is taken.
            Kind::Table(table) => {
                let fits = table.0.iter().filter_map(|(key, node)| {
                    let rest = at.strip_prefix(key.text.as_str())?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((key.text.len(), node, rest))
                });
                fits.max_by_key(|(length, _, _)| *length).map(|(_, node, rest)| (node, rest))
            }
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Foreign(_) => None,
        };
        match found {
            Some((node, "")) => node,
            Some((node, rest)) => node.nearest_to(rest.strip_prefix('.').unwrap_or(rest)),
            None => self,
        }
    }

    /// The JSON pointer (RFC 6901) of the key or value with this span.
    #[must_use]
    pub fn pointer(&self, span: &Range<usize>) -> Option<String> {
        if self.span == *span {
            return Some(String::new());
        }
        let below = |step: &str, key: Option<&Range<usize>>, node: &Node| {
            let rest = if key == Some(span) { Some(String::new()) } else { node.pointer(span) };
            rest.map(|rest| format!("/{}{rest}", step.replace('~', "~0").replace('/', "~1")))
        };
        match &self.kind {
            Kind::Array(items) => {
                items.iter().enumerate().find_map(|(at, item)| below(&at.to_string(), None, item))
            }
            Kind::Table(table) => {
                table.0.iter().find_map(|(key, node)| below(&key.text, Some(&key.span), node))
            }
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Foreign(_) => None,
        }
    }
}

fn numbered(value: &Value, next: &mut usize) -> Node {
    let mut number = || {
        *next += 1;
        *next - 1..*next
    };
    let span = number();
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(flag) => Kind::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Kind::Integer(integer),
            (None, Some(float)) => Kind::Float(float),
            (None, None) => Kind::Foreign("a number"),
        },
        Value::String(text) => Kind::String(text.clone()),
        Value::Array(items) => Kind::Array(items.iter().map(|item| numbered(item, next)).collect()),
        Value::Object(members) => {
            let mut table = Table::default();
            for (text, value) in members {
                let key = Key { text: text.clone(), span: *next..*next + 1 };
                *next += 1;
                table.0.push((key, numbered(value, next)));
            }
            Kind::Table(table)
        }
    };
    Node { span, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_leads_to_its_value_or_as_far_as_it_goes() {
        let root = Node::of_value(&json!({"a": [{"b": 1}, {"x.y": {"z": 2}}], "a.b": 3}));
        for (at, value) in [
            ("a[0].b", json!(1)),
            ("a[1].x.y.z", json!(2)),
            ("a.b", json!(3)),
            ("a[0].missing.more", json!({"b": 1})),
            ("a[9]", json!([{"b": 1}, {"x.y": {"z": 2}}])),
        ] {
            assert_eq!(root.nearest_to(at).to_value(), value, "{at}");
        }
        assert_eq!(root.nearest_to("none"), &root);
    }

    #[test]
    fn data_without_text_has_pointers() {
        let value = json!({"a/b": [1, {"c~": null}], "d": 18_446_744_073_709_551_615_u64});
        let root = Node::of_value(&value);
        let Kind::Table(table) = &root.kind else { panic!("a table") };
        let Kind::Array(items) = &table.0[0].1.kind else { panic!("a list") };
        let Kind::Table(inner) = &items[1].kind else { panic!("a table") };
        for (span, pointer) in [
            (&root.span, ""),
            (&table.0[0].0.span, "/a~1b"),
            (&items[0].span, "/a~1b/0"),
            (&inner.0[0].0.span, "/a~1b/1/c~0"),
            (&inner.0[0].1.span, "/a~1b/1/c~0"),
            (&table.0[1].1.span, "/d"),
        ] {
            assert_eq!(root.pointer(span).as_deref(), Some(pointer));
        }
        assert_eq!(root.pointer(&(90..91)), None);
        assert_eq!(root.to_value()["a/b"], value["a/b"]);
    }
}
