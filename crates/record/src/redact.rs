//! Secrets are replaced before anything is written.

use serde_json::Value;
use std::sync::Arc;

/// Replaces secrets in a text. Every free text passes one on its way to the disk; there is no default.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Known secrets, by name. Neither printed nor stored.
pub struct Secrets {
    /// What is looked for and what stands in its place, the longest first: a secret may be part of another.
    patterns: Vec<(String, String)>,
}

impl Secrets {
    /// Takes names and values. An empty value is no secret.
    ///
    /// A value is also looked for the way JSON writes it, because texts quote JSON.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut patterns: Vec<(String, String)> = Vec::new();
        for (name, value) in secrets.into_iter().filter(|(_, value)| !value.is_empty()) {
            let mark = format!("[redacted:{name}]");
            let quoted = Value::from(value.as_str()).to_string();
            let escaped = &quoted[1..quoted.len() - 1];
            if escaped != value {
                patterns.push((escaped.to_owned(), mark.clone()));
            }
            patterns.push((value, mark));
        }
        patterns.sort_by(|(left, _), (right, _)| right.len().cmp(&left.len()).then(left.cmp(right)));
        Self { patterns }
    }

    /// The text without them. It is read once from left to right, so that no mark is searched again.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match self.patterns.iter().find(|(value, _)| rest.starts_with(value.as_str())) {
                Some((value, mark)) => {
                    out.push_str(mark);
                    rest = &rest[value.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }

    /// As the function that a writer takes.
    #[must_use]
    pub fn into_redact(self) -> Redact {
        Arc::new(move |text| self.redact(text))
    }
}

/// The value with every text in it redacted, names of members included.
pub(crate) fn redact_value(value: Value, redact: &Redact) -> Value {
    match value {
        Value::String(text) => Value::String(redact(&text)),
        Value::Array(list) => match bytes(&list).map(|text| (redact(&text), text)) {
            // A text that is not UTF-8 stands as a list of bytes; with a secret in it, its exact form is given up.
            Some((redacted, text)) if redacted != text => Value::String(redacted),
            _ => Value::Array(list.into_iter().map(|item| redact_value(item, redact)).collect()),
        },
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(name, item)| (redact(&name), redact_value(item, redact))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// An event's members redacted; their names and the event's kind are ours.
pub(crate) fn redact_event(event: Value, redact: &Redact) -> Value {
    let Value::Object(members) = event else { return redact_value(event, redact) };
    let member = |(name, item): (String, Value)| {
        let item = if name == "kind" { item } else { redact_value(item, redact) };
        (name, item)
    };
    Value::Object(members.into_iter().map(member).collect())
}

fn bytes(list: &[Value]) -> Option<String> {
    let byte = |item: &Value| item.as_u64().and_then(|number| u8::try_from(number).ok());
    let bytes: Option<Vec<u8>> = list.iter().map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets(list: &[(&str, &str)]) -> Secrets {
        Secrets::new(list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn literal_and_as_json_writes_it() {
        let secrets = secrets(&[("A", "tok\"en\n"), ("B", "plain"), ("EMPTY", "")]);
        for (text, redacted) in [
            ("", ""),
            ("nothing here, é", "nothing here, é"),
            ("x plain plain", "x [redacted:B] [redacted:B]"),
            ("tok\"en\n", "[redacted:A]"),
            (r#"{"a": "tok\"en\n"}"#, r#"{"a": "[redacted:A]"}"#),
            ("tok\"en", "tok\"en"),
        ] {
            assert_eq!(secrets.redact(text), redacted);
        }
    }

    #[test]
    fn the_longest_wins_and_marks_are_not_searched() {
        let secrets = secrets(&[("SHORT", "abc"), ("LONG", "abcdef"), ("WORD", "redacted")]);
        assert_eq!(secrets.redact("abcdef abc"), "[redacted:LONG] [redacted:SHORT]");
    }

    #[test]
    fn every_text_of_a_value() {
        let redact = secrets(&[("KEY", "s3cret")]).into_redact();
        let value = json!({
            "s3cret": 1,
            "list": ["a s3cret", {"deep": "s3cret"}],
            "bytes": [255, 115, 51, 99, 114, 101, 116],
            "numbers": [1, 2, 3],
        });
        let redacted = json!({
            "[redacted:KEY]": 1,
            "list": ["a [redacted:KEY]", {"deep": "[redacted:KEY]"}],
            "bytes": "\u{fffd}[redacted:KEY]",
            "numbers": [1, 2, 3],
        });
        assert_eq!(redact_value(value, &redact), redacted);
    }

    #[test]
    fn a_kind_is_never_a_secret() {
        let redact = secrets(&[("ODD", "notice")]).into_redact();
        let event = json!({"kind": "notice", "text": "a notice"});
        assert_eq!(redact_event(event, &redact), json!({"kind": "notice", "text": "a [redacted:ODD]"}));
    }
}
