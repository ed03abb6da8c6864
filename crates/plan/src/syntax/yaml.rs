//! YAML, bounded: one document, no tags; aliases only where they are asked for, and then within limits.

use super::SyntaxError;
use belljar_contract::decode::{Key, Kind, Node, Table};
use granit_parser::{Event, Parser, ScalarStyle};
use std::collections::BTreeMap;
use std::ops::Range;

/// Whether a value may be written once and meant several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aliases {
    Refused,
    /// As far as they stay small: an alias is copied, and copies of copies grow without end.
    Bounded,
}

/// Deeper than any file of ours is; keeps every later walk over the tree shallow.
const DEPTH: usize = 64;
/// More values than any file of ours has; each takes far more memory than text.
const VALUES: usize = 1 << 17;
/// What anchors and the copies of them may hold together, counted by [`weight`].
const REPEATED: usize = 4 << 20;
/// Maximum number of duplicate keys that are reported.
const DUPLICATES: usize = 100;

struct Open {
    node: OpenNode,
    span: Range<usize>,
    anchor: usize,
}

enum OpenNode {
    Array(Vec<Node>),
    Table { table: Table, seen: BTreeMap<String, Range<usize>>, pending: Option<Pending> },
}

/// A key whose value has not come yet; a second one of the same text has its value dropped.
enum Pending {
    Key(Key),
    Duplicate,
}

/// The tree of `text`; an empty document is a null. Duplicate keys are reported together; anything else stops at
/// the first error, as the format demands.
pub(crate) fn parse(text: &str, aliases: Aliases) -> Result<Node, Vec<SyntaxError>> {
    let mut builder = Builder {
        aliases,
        open: Vec::new(),
        root: None,
        anchors: BTreeMap::new(),
        repeated: 0,
        values: 0,
        duplicates: Vec::new(),
    };
    for next in Parser::new_from_str(text) {
        let taken = match next {
            Ok((event, span)) => builder.take(event, span.byte_range().unwrap_or(0..0)),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
                Err(SyntaxError::new(error.info(), at..at).help(remedy(&error.info())))
            }
        };
        if let Err(error) = taken {
            let mut errors = builder.duplicates;
            errors.push(error);
            return Err(errors);
        }
    }
    if builder.duplicates.is_empty() {
        Ok(builder.root.unwrap_or(Node { span: 0..0, kind: Kind::Null }))
    } else {
        Err(builder.duplicates)
    }
}

fn remedy(info: &str) -> Option<&'static str> {
    if info.contains("tab") {
        Some("indent with spaces")
    } else if info.contains("mapping values") {
        Some("a value with `: ` or `#` in it goes in quotes")
    } else if info.contains("escape") {
        Some("in double quotes a backslash is written twice; in single quotes it stands for itself")
    } else if info.contains("anchor") {
        Some("an alias `*name` comes behind the `&name` that it repeats")
    } else {
        None
    }
}

struct Builder {
    aliases: Aliases,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Node>,
    repeated: usize,
    values: usize,
    duplicates: Vec<SyntaxError>,
}

impl Builder {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's event type is open")]
    fn take(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), SyntaxError> {
        let refuse = |what: &str| SyntaxError::new(format!("{what} cannot be used here"), span.clone());
        if let Event::Scalar(_, _, anchor, _)
        | Event::SequenceStart(_, anchor, _)
        | Event::MappingStart(_, anchor, _) = &event
        {
            if *anchor != 0 && self.aliases == Aliases::Refused {
                return Err(refuse("an anchor"));
            }
            self.values += 1;
            if self.values > VALUES {
                return Err(SyntaxError::new(format!("a file holds at most {VALUES} values"), span));
            }
        }
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Comment(..) => Ok(()),
            Event::DocumentStart(..) if self.root.is_some() => Err(refuse("a second document")),
            Event::DocumentStart(..) => Ok(()),
            Event::Alias(_) if self.aliases == Aliases::Refused => Err(refuse("an alias")),
            Event::Alias(anchor) => {
                let node = self.copy(anchor, span)?;
                self.add(node)
            }
            Event::UnresolvedAlias(_) => Err(refuse("an alias")),
            Event::Anchor(..) => Err(refuse("an anchor")),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => Err(refuse("a tag")),
            Event::Scalar(value, style, anchor, None) => {
                let kind = scalar(&value, style).ok_or_else(|| {
                    SyntaxError::new("this number is larger than any that can be kept", span.clone())
                })?;
                self.finish(Node { span, kind }, anchor)
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if self.open.len() >= DEPTH => {
                Err(refuse("nesting this deep"))
            }
            Event::SequenceStart(_, anchor, None) => {
                self.open.push(Open { node: OpenNode::Array(Vec::new()), span, anchor });
                Ok(())
            }
            Event::MappingStart(_, anchor, None) => {
                let node = OpenNode::Table { table: Table::default(), seen: BTreeMap::new(), pending: None };
                self.open.push(Open { node, span, anchor });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => {
                    let anchor = open.anchor;
                    self.finish(close(open, span.end), anchor)
                }
                None => Err(refuse("this construct")),
            },
            // What a later parser adds is refused until it is understood.
            _ => Err(refuse("this construct")),
        }
    }

    /// A whole value; kept when it has a name.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.spend(&node, &node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.add(node)
    }

    /// What an alias means; its own place is the alias, that of its parts is where they are written.
    fn copy(&mut self, anchor: usize, span: Range<usize>) -> Result<Node, SyntaxError> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(SyntaxError::new("an alias cannot stand inside the value that it repeats", span));
        };
        self.spend(&node, &span)?;
        if self.open.len() + height(&node) > DEPTH {
            return Err(SyntaxError::new("nesting this deep cannot be used here", span));
        }
        Ok(Node { span, kind: node.kind })
    }

    fn spend(&mut self, node: &Node, span: &Range<usize>) -> Result<(), SyntaxError> {
        self.repeated = self.repeated.saturating_add(weight(node));
        if self.repeated > REPEATED {
            return Err(SyntaxError::new(
                "anchors and aliases repeat more than a file of ours needs",
                span.clone(),
            )
            .help(Some("write the value out where it is used")));
        }
        Ok(())
    }

    fn add(&mut self, node: Node) -> Result<(), SyntaxError> {
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let (table, seen, pending) = match &mut parent.node {
            OpenNode::Array(items) => {
                items.push(node);
                return Ok(());
            }
            OpenNode::Table { table, seen, pending } => (table, seen, pending),
        };
        match pending.take() {
            Some(Pending::Key(key)) => table.0.push((key, node)),
            Some(Pending::Duplicate) => {}
            None => {
                let key = key(node)?;
                if let Some(first) = seen.get(&key.text) {
                    *pending = Some(Pending::Duplicate);
                    let message =
                        format!("the key `{}` is there twice", belljar_contract::decode::shown(&key.text));
                    let error =
                        SyntaxError { first: Some(first.clone()), ..SyntaxError::new(message, key.span) };
                    if self.duplicates.len() < DUPLICATES {
                        self.duplicates.push(error);
                    }
                } else {
                    seen.insert(key.text.clone(), key.span.clone());
                    *pending = Some(Pending::Key(key));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of text, and a node's own size for each value.
fn weight(node: &Node) -> usize {
    let own = size_of::<Node>();
    own + match &node.kind {
        Kind::String(text) => text.len(),
        Kind::Array(items) => items.iter().map(weight).sum(),
        Kind::Table(table) => {
            table.0.iter().map(|(key, node)| size_of::<Key>() + key.text.len() + weight(node)).sum()
        }
        Kind::Null | Kind::Integer(_) | Kind::Float(_) | Kind::Boolean(_) | Kind::Foreign(_) => 0,
    }
}

fn height(node: &Node) -> usize {
    match &node.kind {
        Kind::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Kind::Table(table) => 1 + table.0.iter().map(|(_, node)| height(node)).max().unwrap_or(0),
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Foreign(_) => 0,
    }
}

fn close(open: Open, end: usize) -> Node {
    let kind = match open.node {
        OpenNode::Array(items) => Kind::Array(items),
        OpenNode::Table { table, .. } => Kind::Table(table),
    };
    Node { span: open.span.start..end.max(open.span.end), kind }
}

fn key(node: Node) -> Result<Key, SyntaxError> {
    let text = match node.kind {
        Kind::String(text) => text,
        Kind::Integer(number) => number.to_string(),
        Kind::Boolean(value) => value.to_string(),
        Kind::Null | Kind::Float(_) | Kind::Array(_) | Kind::Table(_) | Kind::Foreign(_) => {
            return Err(SyntaxError::new("expected a plain word as key", node.span));
        }
    };
    if text == "<<" {
        return Err(SyntaxError::new("`<<` does not merge: YAML 1.2 has no such key", node.span)
            .help(Some("repeat the keys, or a whole value with `&name` and `*name`")));
    }
    Ok(Key { text, span: node.span })
}

/// The core schema of YAML 1.2: `no` is a string. Nothing where a number does not fit.
fn scalar(value: &str, style: ScalarStyle) -> Option<Kind> {
    if style != ScalarStyle::Plain {
        return Some(Kind::String(value.to_owned()));
    }
    match value {
        "" | "~" | "null" | "Null" | "NULL" => Some(Kind::Null),
        "true" | "True" | "TRUE" => Some(Kind::Boolean(true)),
        "false" | "False" | "FALSE" => Some(Kind::Boolean(false)),
        _ => {
            // Rust reads words such as `inf` as numbers, which YAML does not.
            let numeric = value.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
                && value.bytes().any(|b| b.is_ascii_digit())
                && !value.starts_with(['e', 'E']);
            let text = || Some(Kind::String(value.to_owned()));
            if !numeric {
                return text();
            }
            match (value.parse(), value.parse::<f64>()) {
                (Ok(integer), _) => Some(Kind::Integer(integer)),
                (Err(_), Ok(float)) => float.is_finite().then_some(Kind::Float(float)),
                (Err(_), Err(_)) => text(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::decode::Faults;

    #[test]
    fn reads_a_mapping_with_places() {
        let text = "name: é\nno: no\nlist: [1, 2.5, 'x']\n";
        let Kind::Table(table) = parse(text, Aliases::Refused).unwrap().kind else { panic!("a table") };
        let (key, name) = &table.0[0];
        assert_eq!((&text[key.span.clone()], &text[name.span.clone()]), ("name", "é"));
        assert_eq!(table.get("no").unwrap().kind, Kind::String("no".into()));
        let Kind::Array(list) = &table.get("list").unwrap().kind else { panic!("a list") };
        assert_eq!(list[1].kind, Kind::Float(2.5));
    }

    fn first(text: &str, aliases: Aliases) -> String {
        parse(text, aliases).unwrap_err()[0].message.clone()
    }

    #[test]
    fn refuses_what_could_surprise() {
        for (text, message) in [
            ("a: &x 1", "an anchor cannot be used here"),
            ("a: 1\na: 2", "the key `a` is there twice"),
            ("a: !!str 1", "a tag cannot be used here"),
            ("a: !x [1]", "a tag cannot be used here"),
            ("a: !x {b: 1}", "a tag cannot be used here"),
            ("a: 1\n---\nb: 2", "a second document cannot be used here"),
            ("[1]: 2", "expected a plain word as key"),
            ("<<: {a: 1}", "`<<` does not merge: YAML 1.2 has no such key"),
            ("a: 1e999", "this number is larger than any that can be kept"),
        ] {
            assert_eq!(first(text, Aliases::Refused), message, "{text}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(first(&deep, Aliases::Refused), "nesting this deep cannot be used here");
        assert!(parse("a: [1", Aliases::Refused).is_err());
        assert_eq!(parse("", Aliases::Refused).unwrap().kind, Kind::Null);
    }

    #[test]
    fn every_duplicate_key_is_reported_with_the_first() {
        let text = "a: 1\nb: {c: 1, c: 2}\na: 3\n";
        let errors = parse(text, Aliases::Refused).unwrap_err();
        let places: Vec<_> = errors.iter().map(|e| (e.span.clone(), e.first.clone().unwrap())).collect();
        assert_eq!(places, [(15..16, 9..10), (21..22, 0..1)]);
    }

    #[test]
    fn words_that_look_like_numbers_to_rust() {
        for word in ["inf", "+inf", "-nan", "infinity", ".", "e5", "1-2", "1_000", "0x10", "2026-01-01"] {
            assert_eq!(parse(word, Aliases::Refused).unwrap().kind, Kind::String(word.to_owned()), "{word}");
        }
        assert_eq!(parse("-1.5e3", Aliases::Refused).unwrap().kind, Kind::Float(-1500.0));
    }

    #[test]
    fn an_alias_is_what_its_anchor_is() {
        let text = "a: &x {k: [v]}\nb: *x\n";
        let Kind::Table(table) = parse(text, Aliases::Bounded).unwrap().kind else { panic!("a table") };
        assert_eq!(table.0[0].1.kind, table.0[1].1.kind);
        assert_eq!(&text[table.0[1].1.span.clone()], "*x", "its place is where it is used");
    }

    #[test]
    fn aliases_end_somewhere() {
        let laughs: String = (1..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let before = n - 1;
            text + &format!("a{n}: &a{n} [{}]\n", format!("*a{before},").repeat(9))
        });
        let too_much = "anchors and aliases repeat more than a file of ours needs";
        assert_eq!(first(&laughs, Aliases::Bounded), too_much);
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1000));
        assert_eq!(first(&long, Aliases::Bounded), too_much);
        let nested = format!("a: {}\n", "[&x ".repeat(60) + "1" + &"]".repeat(60));
        assert!(parse(&nested, Aliases::Bounded).is_ok());
        let deep = (1..80)
            .fold("a0: &a0 [x]\n".to_owned(), |text, n| text + &format!("a{n}: &a{n} [*a{}]\n", n - 1));
        assert_eq!(first(&deep, Aliases::Bounded), "nesting this deep cannot be used here");
        assert_eq!(
            first("a: &x [*x]", Aliases::Bounded),
            "an alias cannot stand inside the value that it repeats"
        );
        assert!(first("a: *nowhere", Aliases::Bounded).contains("anchor"));
        let many = "- 1\n".repeat(VALUES + 1);
        assert_eq!(first(&many, Aliases::Bounded), "a file holds at most 131072 values");
    }

    fn found(scalar: &str, part: &str) -> Option<String> {
        let text = format!("k: {scalar}\n");
        let Kind::Table(table) = parse(&text, Aliases::Refused).unwrap().kind else { panic!("a table") };
        let node = table.get("k").unwrap();
        let Kind::String(value) = &node.kind else { panic!("a string") };
        let at = value.find(part).unwrap_or_else(|| panic!("{part:?} in {value:?}"));
        let place = Faults::new(0, &text).part(node, &(at..at + part.len()));
        place.map(|place| text[place].to_owned())
    }

    #[test]
    fn a_part_of_a_string_is_found_in_every_style() {
        for (scalar, part, written) in [
            ("command.bad(x)", "bad", "bad"),
            ("'it''s bad'", "bad", "bad"),
            ("'it''s bad'", "'", "''"),
            ("\"a \\\"b\\\" \\u00e9 bad\"", "bad", "bad"),
            ("\"a \\\"b\\\" \\u00e9 bad\"", "é", "\\u00e9"),
            ("\"a\\n\\tbad\"", "bad", "bad"),
            ("\"a \\\n  bad\"", "bad", "bad"),
            ("plain over\n  lines bad", "bad", "bad"),
            ("'quoted\n  lines bad'", "bad", "bad"),
            ("|\n  first\n  second bad\n", "bad", "bad"),
            ("|\n  first\n    more\n\n  second bad\n", "bad", "bad"),
            (">-\n  first\n  more\n\n  second bad\n", "more", "more"),
            ("plain\n\n  two\n\n\n  lines bad", "bad", "bad"),
            (">-\n  first\n  second bad\n", "bad", "bad"),
            ("é && bad", "bad", "bad"),
            ("|-  # why\n  \"quoted\" \\ bad", "bad", "bad"),
            ("|2\n    first\n  bad\n", "bad", "bad"),
        ] {
            assert_eq!(found(scalar, part).as_deref(), Some(written), "{scalar:?}");
        }
    }
}
