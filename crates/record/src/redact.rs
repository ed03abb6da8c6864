//! Secrets are replaced before anything is written.

use belljar_contract::Scrubber;
use serde_json::Value;
use std::sync::Arc;

/// Replaces secrets in a text. Every free text passes one on its way to the disk; there is no default.
pub type Redact = Arc<Scrubber>;

/// The value with every text in it redacted, names of members included.
pub(crate) fn redact_value(value: Value, redact: &Redact) -> Value {
    match value {
        Value::String(text) => Value::String(redact.scrub(&text)),
        Value::Array(list) => match bytes(&list).and_then(|bytes| redact.scrub_bytes(&bytes)) {
            // A text that is not UTF-8 stands as a list of bytes; with a secret in it, its exact form is given up.
            Some(scrubbed) => Value::String(String::from_utf8_lossy(&scrubbed).into_owned()),
            None => Value::Array(list.into_iter().map(|item| redact_value(item, redact)).collect()),
        },
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, item)| (redact.scrub(&name), redact_value(item, redact)))
                .collect(),
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

fn bytes(list: &[Value]) -> Option<Vec<u8>> {
    list.iter().map(|item| item.as_u64().and_then(|number| u8::try_from(number).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::Secret;
    use serde_json::json;

    fn redact(name: &str, value: &str) -> Redact {
        Arc::new(Scrubber::new([(name, &Secret::new(value))]).0)
    }

    #[test]
    fn every_text_of_a_value() {
        let redact = redact("KEY", "s3cret");
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
        let redact = redact("ODD", "notice");
        let event = json!({"kind": "notice", "text": "a notice"});
        assert_eq!(redact_event(event, &redact), json!({"kind": "notice", "text": "a [redacted:ODD]"}));
    }
}
