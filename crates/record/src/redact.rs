//! Redacts secrets before anything is written.

use belljar_contract::{Event, Logged, Scrubber};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Replaces secrets in texts. Every free text passes through one before it is written; there is no default.
pub type Redact = Arc<Scrubber>;

/// Redacts every string in a value, including the names of members. Strings without a secret are not copied.
pub fn redact_value(value: &mut Value, redact: &Redact) {
    match value {
        Value::String(text) => redact_text(text, redact),
        Value::Array(list) => match bytes(list).and_then(|bytes| redact.scrub_bytes(&bytes)) {
            // A text that is not UTF-8 is stored as a list of bytes. If it contains a secret, its exact bytes are
            // given up.
            Some(scrubbed) => *value = Value::String(String::from_utf8_lossy(&scrubbed).into_owned()),
            None => list.iter_mut().for_each(|item| redact_value(item, redact)),
        },
        Value::Object(members) => {
            // A path that is not UTF-8 is one member with its bytes. With a secret it becomes a text, as other paths are.
            if members.len() == 1
                && let Some(Value::Array(list)) = members.get("bytes")
                && let Some(scrubbed) = bytes(list).and_then(|bytes| redact.scrub_bytes(&bytes))
            {
                *value = Value::String(String::from_utf8_lossy(&scrubbed).into_owned());
                return;
            }
            if members.keys().any(|name| redact.scrub_bytes(name.as_bytes()).is_some()) {
                let named = std::mem::take(members).into_iter();
                *members = named.map(|(name, item)| (redact.scrub(&name), item)).collect();
            }
            members.values_mut().for_each(|item| redact_value(item, redact));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(crate) fn redact_text(text: &mut String, redact: &Redact) {
    if let Some(scrubbed) = redact.scrub_bytes(text.as_bytes()) {
        *text = String::from_utf8_lossy(&scrubbed).into_owned();
    }
}

/// Members of events whose values are belljar's own words.
const OWN_WORDS: [&str; 6] = ["kind", "act", "answer", "limit", "backend", "open"];

/// Redacts the members of an event. Their names are belljar's own. A path stays absolute, because an event with another
/// one cannot be read and would be lost.
pub(crate) fn redact_event(event: &mut Value, redact: &Redact) {
    match event {
        Value::Object(members) => {
            let free = members.iter_mut().filter(|(name, _)| !OWN_WORDS.contains(&name.as_str()));
            free.for_each(|(_, item)| redact_value(item, redact));
            if let Some(Value::String(path)) = members.get_mut("path")
                && !path.starts_with('/')
            {
                path.insert(0, '/');
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            redact_value(event, redact);
        }
    }
}

/// An event as it is recorded, for showing it live.
#[must_use]
pub fn redacted_event<'e>(event: &'e Event, redact: &Redact) -> Cow<'e, Event> {
    let mut value = json!(event);
    redact_event(&mut value, redact);
    match Logged::from_json(value) {
        Logged::Known(redacted) if redacted == *event => Cow::Borrowed(event),
        Logged::Known(redacted) => Cow::Owned(redacted),
        Logged::Unread(_) => {
            Cow::Owned(Event::Notice { text: "an event that cannot be redacted".to_owned() })
        }
    }
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
        let mut value = json!({
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
        redact_value(&mut value, &redact);
        assert_eq!(value, redacted);
    }

    /// Programs in the sandbox choose the path, so no path may make an attempt disappear.
    #[test]
    fn an_attempt_stays_an_attempt_whatever_its_path_holds() {
        use belljar_contract::{AbsPath, GuestAct};
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        for (secret, path, expected) in [
            ("s3cret", &b"/p/s3cret\xff/.envrc"[..], "/p/[redacted:KEY]\u{fffd}/.envrc"),
            ("/p/s3cret", b"/p/s3cret/.envrc", "/[redacted:KEY]/.envrc"),
            ("/p/s3cret", b"/p/s3cret\xff", "/[redacted:KEY]\u{fffd}"),
            ("make", b"/p/.envrc", "/p/.envrc"),
        ] {
            let path = AbsPath::new(OsStr::from_bytes(path)).unwrap();
            let event = Event::HostExecutedHeld { path, act: GuestAct::Make, why: "direnv".to_owned() };
            let path = AbsPath::new(expected).unwrap();
            let shown = Event::HostExecutedHeld { path, act: GuestAct::Make, why: "direnv".to_owned() };
            let redact = redact("KEY", secret);
            assert_eq!(redacted_event(&event, &redact).into_owned(), shown, "{secret}");
            let mut recorded = json!(event);
            redact_event(&mut recorded, &redact);
            assert_eq!(recorded, json!(shown), "{secret}");
        }
    }

    #[test]
    fn a_kind_is_never_a_secret() {
        for word in OWN_WORDS {
            let mut event = json!({ word: "always" });
            redact_event(&mut event, &redact("ODD", "always"));
            assert_eq!(event, json!({ word: "always" }));
        }
        let redact = redact("ODD", "notice");
        let mut event = json!({"kind": "notice", "text": "a notice"});
        redact_event(&mut event, &redact);
        assert_eq!(event, json!({"kind": "notice", "text": "a [redacted:ODD]"}));
    }
}
