//! YAML, bounded: one document, no anchors, no aliases, no tags.

use super::{Key, Kind, Node, SyntaxError, Table};
use granit_parser::{Event, Parser, ScalarStyle};
use std::ops::Range;

/// Deeper than any file of ours is; keeps every later walk over the tree shallow.
const DEPTH: usize = 64;

enum Open {
    Array(Range<usize>, Vec<Node>),
    Table(Range<usize>, Table, Option<Key>),
}

/// The tree of `text`; an empty document is a null. Stops at the first error, as the format demands.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut open: Vec<Open> = Vec::new();
    let mut root: Option<Node> = None;
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
            let help = match error.info() {
                text if text.contains("tab") => Some("indent with spaces"),
                text if text.contains("mapping values") => {
                    Some("a value with `: ` or `#` in it goes in quotes")
                }
                _ => None,
            };
            SyntaxError { message: error.info().to_owned(), help, span: at..at }
        })?;
        let span = span.byte_range().unwrap_or(0..0);
        let refuse = |what: &str| SyntaxError {
            message: format!("{what} cannot be used here"),
            help: None,
            span: span.clone(),
        };
        let finished = match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Comment(..) => None,
            Event::DocumentStart(..) if root.is_some() => return Err(refuse("a second document")),
            Event::DocumentStart(..) => None,
            Event::Alias(_) | Event::UnresolvedAlias(_) => return Err(refuse("an alias")),
            Event::Anchor(..) => return Err(refuse("an anchor")),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(_, anchor, _)
            | Event::MappingStart(_, anchor, _)
                if anchor != 0 =>
            {
                return Err(refuse("an anchor"));
            }
            Event::Scalar(_, _, _, Some(_)) => return Err(refuse("a tag")),
            Event::Scalar(value, style, _, None) => Some(Node { span, kind: scalar(&value, style) }),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= DEPTH => {
                return Err(refuse("nesting this deep"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::Array(span, Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Table(span, Table::default(), None));
                None
            }
            // The event type is open; what a later parser adds is refused until it is understood.
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|closed| close(closed, span.end)),
            _ => return Err(refuse("this construct")),
        };
        if let Some(node) = finished {
            match open.last_mut() {
                Some(parent) => add(parent, node)?,
                None => root = Some(node),
            }
        }
    }
    Ok(root.unwrap_or(Node { span: 0..0, kind: Kind::Null }))
}

fn close(open: Open, end: usize) -> Node {
    let (span, kind) = match open {
        Open::Array(span, items) => (span, Kind::Array(items)),
        Open::Table(span, table, _) => (span, Kind::Table(table)),
    };
    Node { span: span.start..end.max(span.end), kind }
}

fn add(parent: &mut Open, node: Node) -> Result<(), SyntaxError> {
    match parent {
        Open::Array(_, items) => items.push(node),
        Open::Table(_, table, pending) => match pending.take() {
            Some(key) => table.0.push((key, node)),
            None => *pending = Some(key(table, node)?),
        },
    }
    Ok(())
}

fn key(table: &Table, node: Node) -> Result<Key, SyntaxError> {
    let text = match node.kind {
        Kind::String(text) => text,
        Kind::Integer(number) => number.to_string(),
        Kind::Boolean(value) => value.to_string(),
        Kind::Null | Kind::Float(_) | Kind::Array(_) | Kind::Table(_) | Kind::Foreign(_) => {
            return Err(SyntaxError {
                message: "expected a plain word as key".to_owned(),
                help: None,
                span: node.span,
            });
        }
    };
    if table.get(&text).is_some() {
        return Err(SyntaxError {
            message: format!("the key `{}` is there twice", crate::decode::shown(&text)),
            help: None,
            span: node.span,
        });
    }
    Ok(Key { text, span: node.span })
}

/// The core schema of YAML 1.2: `no` is a string.
fn scalar(value: &str, style: ScalarStyle) -> Kind {
    if style != ScalarStyle::Plain {
        return Kind::String(value.to_owned());
    }
    match value {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Boolean(true),
        "false" | "False" | "FALSE" => Kind::Boolean(false),
        _ => {
            let numeric = value.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
            let integer = value.parse().ok().map(Kind::Integer);
            let number = integer.or_else(|| value.parse().ok().map(Kind::Float));
            number.filter(|_| numeric).unwrap_or_else(|| Kind::String(value.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_mapping_with_places() {
        let text = "name: é\nno: no\nlist: [1, 2.5, 'x']\n";
        let Kind::Table(table) = parse(text).unwrap().kind else { panic!("a table") };
        let (key, name) = &table.0[0];
        assert_eq!((&text[key.span.clone()], &text[name.span.clone()]), ("name", "é"));
        assert_eq!(table.get("no").unwrap().kind, Kind::String("no".into()));
        let Kind::Array(list) = &table.get("list").unwrap().kind else { panic!("a list") };
        assert_eq!(list[1].kind, Kind::Float(2.5));
    }

    #[test]
    fn refuses_what_could_surprise() {
        for (text, message) in [
            ("a: &x 1", "an anchor cannot be used here"),
            ("a: 1\na: 2", "the key `a` is there twice"),
            ("a: !!str 1", "a tag cannot be used here"),
            ("a: 1\n---\nb: 2", "a second document cannot be used here"),
            ("[1]: 2", "expected a plain word as key"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, message);
        }
        assert_eq!(
            parse(&("[".repeat(100) + &"]".repeat(100))).unwrap_err().message,
            "nesting this deep cannot be used here"
        );
        assert!(parse("a: [1").is_err());
        assert_eq!(parse("").unwrap().kind, Kind::Null);
    }
}
