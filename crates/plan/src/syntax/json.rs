//! JSON to a tree that knows its places.
//!
//! `serde_json` alone decides what is JSON. The walk behind it only finds places, so it may take the form for
//! granted. YAML's parser would not do: it refuses some characters and long keys that JSON permits.

use belljar_contract::decode::{Fault, Faults, Key, Kind, Node, Table, shown};
use std::collections::BTreeMap;
use std::ops::Range;

/// The tree of `text`. A key that stands twice is reported and the rest is still looked at.
pub(crate) fn parse(text: &str, faults: &mut Faults<'_>) -> Option<Node> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        syntax(text, &error, faults);
        return None;
    }
    Walk { text, at: 0, faults }.value()
}

fn syntax(text: &str, error: &serde_json::Error, faults: &mut Faults<'_>) {
    let at = offset(text, error.line(), error.column());
    let end = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
    let full = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let mut fault = Fault::new(format!("not JSON: {}", full.strip_suffix(&suffix).unwrap_or(&full)));
    match text[at..].chars().next() {
        Some('/' | '#') => fault = fault.help("JSON has no comments"),
        Some('\'') => fault = fault.help("JSON has double quotes only"),
        Some('}' | ']') if full.starts_with("trailing comma") => {
            fault = fault.help("delete the comma in front of it");
        }
        _ => {}
    }
    faults.push("syntax", &(at..end), fault);
}

/// The offset of a line and of a column that counts bytes, both from one. Column zero is the newline before.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut at = (start + column).saturating_sub(1).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

struct Walk<'a, 't> {
    text: &'a str,
    at: usize,
    faults: &'a mut Faults<'t>,
}

impl Walk<'_, '_> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let space = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.at += space;
        rest.get(space).copied()
    }

    /// Takes the next byte when it is one of these, which separate and carry no meaning.
    fn skip(&mut self, separators: &[u8]) {
        if self.peek().is_some_and(|b| separators.contains(&b)) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Node> {
        let first = self.peek()?;
        let start = self.at;
        let kind = match first {
            b'{' => self.table()?,
            b'[' => self.array()?,
            b'"' => Kind::String(self.string()?.0),
            _ => self.word()?,
        };
        Some(Node { span: start..self.at, kind })
    }

    fn array(&mut self) -> Option<Kind> {
        self.at += 1;
        let mut items = Vec::new();
        while self.peek()? != b']' {
            items.push(self.value()?);
            self.skip(b",");
        }
        self.at += 1;
        Some(Kind::Array(items))
    }

    fn table(&mut self) -> Option<Kind> {
        self.at += 1;
        let mut table = Table::default();
        let mut seen: BTreeMap<String, Range<usize>> = BTreeMap::new();
        while self.peek()? != b'}' {
            let (text, span) = self.string()?;
            self.skip(b":");
            let value = self.value()?;
            self.skip(b",");
            if let Some(first) = seen.get(&text) {
                self.duplicate(&text, &span, first);
                continue;
            }
            seen.insert(text.clone(), span.clone());
            table.0.push((Key { text, span }, value));
        }
        self.at += 1;
        Some(Kind::Table(table))
    }

    fn duplicate(&mut self, text: &str, span: &Range<usize>, first: &Range<usize>) {
        let fault = Fault::new(format!("the key `{}` is there twice", shown(text)))
            .label("the second")
            .help("keep one of them; programs differ on which one counts");
        self.faults.push("duplicate-key", span, fault);
        let first = self.faults.place(first).label("the first");
        if let Some(last) = self.faults.list.last_mut() {
            last.related.push(first);
        }
    }

    fn string(&mut self) -> Option<(String, Range<usize>)> {
        self.peek()?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        while *bytes.get(end)? != b'"' {
            end += if bytes.get(end) == Some(&b'\\') { 2 } else { 1 };
        }
        self.at = end + 1;
        let text = serde_json::from_str(self.text.get(start..self.at)?).ok()?;
        Some((text, start..self.at))
    }

    fn word(&mut self) -> Option<Kind> {
        let rest = self.text.get(self.at..)?;
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ']' | '}');
        let word = rest.split(ends).next()?;
        self.at += word.len();
        Some(match word {
            "null" => Kind::Null,
            "true" => Kind::Boolean(true),
            "false" => Kind::Boolean(false),
            number => match (number.parse(), number.parse()) {
                (Ok(integer), _) => Kind::Integer(integer),
                (Err(_), Ok(float)) => Kind::Float(float),
                (Err(_), Err(_)) => Kind::Foreign("a number"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn faults() -> Faults<'static> {
        Faults::new(0, "")
    }

    #[test]
    fn agrees_with_serde_json() {
        let long_key = format!("{{\"{}\": 1}}", "k".repeat(5000));
        let deep = "[".repeat(120) + &"]".repeat(120);
        for text in [
            r#"{"a":"\ud83d\ude00 \u0000 \/\b\f\n\r\t\"\\"}"#,
            "{\n\t\"a\":\t\"x\",\r\n\t\"b\" \n:\n [\n\t\t1 , 2\n\t]\n}\n",
            "{\"\":\"\u{7f}\u{80}\u{85}\u{2028}\u{fffe}\u{feff}é😀\"}",
            r#"{"null":null,"1.5":true,"true":false,"x":[],"y":{},"z":[[],{}]}"#,
            "[1, -0, 1e5, -1.5E-3, 0.1, 9223372036854775807, 92233720368547758070]",
            "  \"just text\"  ",
            "null",
            r#"{"a\\":"\\","b\"":"}]"}"#,
            &long_key,
            &deep,
        ] {
            let mut faults = faults();
            let node = parse(text, &mut faults).unwrap();
            let numbers = |value: &Value| value.to_string().replace("-0,", "0,").replace("-0.0,", "0,");
            assert_eq!(numbers(&node.to_value()), numbers(&serde_json::from_str(text).unwrap()), "{text}");
            assert_eq!(&text[node.span], text.trim_matches([' ', '\n']));
            assert!(faults.list.is_empty());
        }
    }

    #[test]
    fn keys_and_values_know_their_place() {
        let text = "{\"é\\n\": [true,\t\"x\"]}";
        let Kind::Table(table) = parse(text, &mut faults()).unwrap().kind else { panic!("a table") };
        let (key, node) = &table.0[0];
        assert_eq!((&text[key.span.clone()], &text[node.span.clone()]), ("\"é\\n\"", "[true,\t\"x\"]"));
        let Kind::Array(items) = &node.kind else { panic!("a list") };
        assert_eq!((&text[items[0].span.clone()], &text[items[1].span.clone()]), ("true", "\"x\""));
    }

    #[test]
    fn what_is_not_json_is_refused_at_its_place() {
        for (text, place, message) in [
            ("{\"a\": 1,}", "}", "not JSON: trailing comma"),
            ("{\n  // no\n}", "/", "not JSON: key must be a string"),
            ("{'a': 1}", "'", "not JSON: key must be a string"),
            ("{\"é\": é}", "é", "not JSON: expected value"),
            ("{\"a\": \"\\ud83d\"}", "\"", "not JSON: unexpected end of hex escape"),
            (
                "{\"a\": \"x\ny\"}",
                "\n",
                "not JSON: control character (\\u0000-\\u001F) found while parsing a string",
            ),
            ("{\"a\": NaN}", "N", "not JSON: expected value"),
            ("{} {}", "{", "not JSON: trailing characters"),
            ("{\"a\"", "\"", "not JSON: EOF while parsing an object"),
            ("{\"a\": 1e999}", "9", "not JSON: number out of range"),
            (&"[".repeat(200), "[", "not JSON: recursion limit exceeded"),
        ] {
            let mut faults = faults();
            assert_eq!(parse(text, &mut faults), None);
            let label = faults.list[0].label.clone().unwrap();
            assert_eq!((&text[label.span], faults.list[0].message.as_str()), (place, message), "{text}");
            assert_eq!(faults.list.len(), 1);
        }
    }

    #[test]
    fn every_duplicate_is_reported() {
        let text = r#"{"a":1,"a":{"b":1,"\u0062":2},"a":3}"#;
        let mut faults = faults();
        assert!(parse(text, &mut faults).is_some());
        let seen: Vec<_> = faults
            .list
            .iter()
            .map(|fault| {
                (fault.message.as_str(), fault.label.clone().unwrap().span, fault.related[0].span.clone())
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("the key `b` is there twice", 18..26, 12..15),
                ("the key `a` is there twice", 7..10, 1..4),
                ("the key `a` is there twice", 30..33, 1..4),
            ]
        );
    }
}
