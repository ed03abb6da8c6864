//! TOML, with several errors in one pass.

use super::SyntaxError;
use belljar_contract::decode::{Key, Kind, Node, Table};
use toml::de::{DeTable, DeValue};

/// The tree of `text`, or every place where it is not TOML.
pub(crate) fn parse(text: &str) -> Result<Table, Vec<SyntaxError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(convert_table(table.get_ref()));
    }
    let mut out: Vec<SyntaxError> = errors.iter().map(|error| reworded(text, error)).collect();
    out.sort_by_key(|error| error.span.start);
    Err(out)
}

/// The parser's message, reworded where it would not help the reader.
fn reworded(text: &str, error: &toml::de::Error) -> SyntaxError {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    let at = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let line_start = at(0..span.start).rfind('\n').map_or(0, |newline| newline + 1);
    let before = at(line_start..span.start).trim_end();
    let (message, help) = match message.as_str() {
        "duplicate key" => {
            let message = format!("`{}` is there twice", belljar_contract::decode::shown(at(span.clone())));
            (message, Some("the first one is further up; keep one of them"))
        }
        "recursion limit" => ("this is nested too deeply".to_owned(), None),
        _ if text.trim_start().starts_with('{') => (message, Some("a manifest is TOML, not JSON")),
        _ if before.ends_with(':') || before.contains(": ") => (
            message,
            Some("a manifest is TOML: write `key = value`, and `[agents.NAME]` above an agent's keys"),
        ),
        _ => (message, None),
    };
    SyntaxError::new(message, span).help(help)
}

fn convert_table(table: &DeTable<'_>) -> Table {
    let mut entries: Vec<(Key, Node)> = table
        .iter()
        .map(|(key, value)| {
            let key = Key { text: key.get_ref().to_string(), span: key.span() };
            (key, Node { span: value.span(), kind: convert(value.get_ref()) })
        })
        .collect();
    entries.sort_by_key(|(key, _)| key.span.start);
    Table(entries)
}

fn convert(value: &DeValue<'_>) -> Kind {
    match value {
        DeValue::String(text) => Kind::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Kind::Foreign("a number beyond 64 bits"), Kind::Integer),
        DeValue::Float(number) => number.as_str().parse().map_or(Kind::Foreign("a number"), Kind::Float),
        DeValue::Boolean(value) => Kind::Boolean(*value),
        DeValue::Datetime(_) => Kind::Foreign("a date"),
        DeValue::Array(items) => Kind::Array(
            items.iter().map(|item| Node { span: item.span(), kind: convert(item.get_ref()) }).collect(),
        ),
        DeValue::Table(table) => Kind::Table(convert_table(table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_know_their_place() {
        let text = "'é' = 1\n[a.b]\nc = [ 'x', true ]\n";
        let table = parse(text).unwrap();
        let (key, node) = &table.0[0];
        assert_eq!((&text[key.span.clone()], &text[node.span.clone()]), ("'é'", "1"));
        let Kind::Table(a) = &table.get("a").unwrap().kind else { panic!("a table") };
        let Kind::Table(b) = &a.get("b").unwrap().kind else { panic!("a table") };
        let Kind::Array(c) = &b.get("c").unwrap().kind else { panic!("a list") };
        assert_eq!(&text[c[0].span.clone()], "'x'");
        assert_eq!(c[1].kind, Kind::Boolean(true));
    }

    #[test]
    fn several_errors_at_once() {
        let errors = parse("a = \nb = 1\nb = 2\n").unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
    }
}
