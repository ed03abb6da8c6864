//! The members of a request that are forwarded. Any other member is removed and logged, because its effect at the
//! provider is not known.

use super::messages::InvalidRequest;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Forwarded members and why. Those that are refused by default (`mcp_servers`, `container`) are checked later.
const MEMBERS: [(&str, &str); 24] = [
    ("betas", "names features; the header of that name says the same"),
    ("cache_control", "says what to cache of this request"),
    ("container", "screened: closed unless the manifest names it"),
    ("context_management", "edits of the conversation itself"),
    ("diagnostics", "ids of earlier answers of the same conversation"),
    ("inference_geo", "where the provider computes"),
    ("max_tokens", "bounds the answer; priced"),
    ("mcp_servers", "screened: closed unless the manifest names it"),
    ("messages", "the conversation; its sources are screened"),
    ("metadata", "an id of the user for the provider"),
    ("model", "the model; priced"),
    ("output_config", "the form of the answer"),
    ("output_format", "the form of the answer"),
    ("service_tier", "the provider's priority"),
    ("speed", "the speed; priced"),
    ("stop_sequences", "ends the answer"),
    ("stream", "how the answer is delivered"),
    ("system", "the system prompt; its sources are screened"),
    ("temperature", "sampling"),
    ("thinking", "whether and how much the model thinks"),
    ("tool_choice", "which tool is called"),
    ("tools", "screened: those of the provider are closed unless the manifest names them"),
    ("top_k", "sampling"),
    ("top_p", "sampling"),
];

/// How much of a member's name is logged.
const NAME_SHOWN: usize = 64;

/// The body without unknown members, if it has any, and their names.
///
/// # Errors
/// When the body is not a JSON object.
pub(in crate::gateway) fn known(body: &[u8]) -> Result<(Option<Vec<u8>>, Vec<String>), InvalidRequest> {
    let form = |error: String| InvalidRequest::Form(error);
    let text = std::str::from_utf8(body).map_err(|error| form(error.to_string()))?;
    let Members(all) = serde_json::from_str(text).map_err(|error| form(error.to_string()))?;
    let listed = |name: &str| MEMBERS.iter().any(|(known, _why)| *known == name);
    if all.iter().all(|(name, _)| listed(name)) {
        return Ok((None, Vec::new()));
    }
    let start = text.as_ptr() as usize;
    let ends: Vec<usize> =
        all.iter().map(|(_, value)| value.get().as_ptr() as usize - start + value.get().len()).collect();
    let kept: Vec<Range<usize>> = all
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| listed(name))
        .map(|(at, _)| match at.checked_sub(1) {
            // The comma is the first character after the previous value, apart from white space.
            Some(before) => after_comma(body, ends[before])..ends[at],
            None => text.find('{').map_or(0, |brace| brace + 1)..ends[at],
        })
        .collect();
    let mut out = vec![b'{'];
    for (number, range) in kept.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&body[range]);
    }
    out.push(b'}');
    let shown = |name: &str| format!("member {}", name.chars().take(NAME_SHOWN).collect::<String>());
    Ok((Some(out), all.iter().filter(|(name, _)| !listed(name)).map(|(name, _)| shown(name)).collect()))
}

fn after_comma(body: &[u8], from: usize) -> usize {
    body[from..].iter().position(|byte| *byte == b',').map_or(from, |at| from + at + 1)
}

/// The members of an object in order, including repeated ones.
struct Members<'d>(Vec<(Cow<'d, str>, &'d RawValue)>);

impl<'d> Deserialize<'d> for Members<'d> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'d> Visitor<'d> for MembersVisitor {
    type Value = Members<'d>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            all.push((name, map.next_value()?));
        }
        Ok(Members(all))
    }
}

/// A member's name, with escapes decoded.
struct Name<'d>(Cow<'d, str>);

impl<'d> Deserialize<'d> for Name<'d> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'d> Visitor<'d> for NameVisitor {
            type Value = Name<'d>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, name: &'d str) -> Result<Name<'d>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Name<'d>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn members_that_are_not_listed_are_taken_out() {
        for body in [
            r#"{"thread":{"id":"t,}"},"model":"m","messages":[]}"#,
            r#"{"model":"m","fallbacks":["a","b"],"messages":[]}"#,
            r#"{"model":"m","messages":[],"x":null}"#,
            "{ \"x\" : 1 ,\n \"model\" : \"m\" , \"y\" : \"a,b\" , \"messages\" : [ ] , \"z\" : {} }",
            r#"{"model":"m","x":1,"x":2,"messages":[]}"#,
            r#"{"\u0078":1,"model":"m","messages":[]}"#,
        ] {
            let (kept, names) = known(body.as_bytes()).unwrap();
            let kept: Value = serde_json::from_slice(&kept.unwrap()).unwrap();
            assert_eq!(kept, json!({"model": "m", "messages": []}), "{body}");
            assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("member ")), "{names:?}");
        }
    }

    #[test]
    fn a_body_without_such_members_is_untouched() {
        let body = r#"{ "model": "m", "messages": [], "mcp_servers": [1] }"#;
        assert_eq!(known(body.as_bytes()).unwrap(), (None, Vec::new()));
        for broken in ["[]", "", "{", "{\"model\":}", "\"x\""] {
            known(broken.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn the_table_is_sorted_and_has_no_name_twice() {
        assert!(MEMBERS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn fuzz_known_members() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            if let Ok((Some(kept), _)) = known(bytes) {
                assert_eq!(known(&kept).map(|(again, _)| again), Ok(None));
            }
        });
    }
}
