//! Finds parts of a tape that should not be shared. They are reported by position and kind, never by value.

use super::{Bodies, Tape};
use crate::environment::HostEnvironment;
use belljar_egress::tape::{Followed, Private, has_word, kept_answer, text_without};
use belljar_session::Harnesses;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;

/// Names that many users have. So are the names of the agents' programs: images make a user for an agent.
const COMMON: [&str; 14] = [
    "root",
    "user",
    "users",
    "agent",
    "admin",
    "debian",
    "ubuntu",
    "runner",
    "test",
    "vagrant",
    "docker",
    "localhost",
    "host",
    "home",
];
/// Shorter names occur in any text.
const SHORTEST: usize = 4;

/// A part of a tape that should not be shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PrivateFinding {
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// The position in the line, if it is a JSON document.
    pub pointer: Option<String>,
    /// One of `home-path`, `email`, `token`, `user-name`, `host-name`.
    pub kind: &'static str,
}

/// The names that identify the user and the machine.
#[must_use]
pub fn own_names(environment: &HostEnvironment) -> BTreeMap<String, &'static str> {
    let variable =
        |name: &str| Some(environment.variables.get(OsStr::new(name))?.to_string_lossy().into_owned());
    let home = environment.home.file_name().map(|name| name.to_string_lossy().into_owned());
    let user = [variable("USER"), variable("LOGNAME"), home].into_iter().flatten();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = user.map(|name| (name, "user-name")).chain([(host, "host-name")]);
    let agents = Harnesses::built_in().list().into_iter().map(|agent| agent.profile().program.as_str());
    let common: Vec<&str> = COMMON.into_iter().chain(agents).collect();
    names.filter(|(name, _)| name.len() >= SHORTEST && !common.contains(&name.as_str())).collect()
}

/// The same names and the home directory, to be searched for in requests to the model.
pub(crate) fn sought(environment: &HostEnvironment) -> BTreeMap<String, &'static str> {
    let mut names = own_names(environment);
    let home = environment.home.to_string();
    // The home directory of root occurs everywhere.
    if home != "/root" && home.len() > SHORTEST {
        names.insert(home, "home-path");
    }
    names
}

/// Searches every file of a tape. In requests, a message that an earlier request has as well was searched there.
///
/// # Errors
/// If one cannot be read.
pub fn private_findings(
    tape: &Tape,
    names: &BTreeMap<String, &'static str>,
) -> io::Result<Vec<PrivateFinding>> {
    let mut out = BTreeSet::new();
    for file in tape.names() {
        search(&mut out, (&file, 1), &tape.read(&file)?, names);
    }
    let mut followed = Followed::default();
    for body in tape.requests() {
        let (file, line) = tape.place(body);
        let rest = followed.read(&Bodies(tape), body, &|()| true)?;
        let mut found = BTreeSet::new();
        search(&mut found, (&file, line), &rest.document, names);
        out.extend(found.into_iter().map(|found| found.behind(rest.left_out)));
        followed.keep(body, rest, ());
    }
    Ok(out.into_iter().collect())
}

impl PrivateFinding {
    /// The place in the whole request, if these messages were left out of it.
    fn behind(mut self, messages: usize) -> Self {
        let place = |pointer: &str| {
            let rest = pointer.strip_prefix("/messages/")?;
            let (number, below) =
                rest.split_once('/').map_or((rest, None), |(number, below)| (number, Some(below)));
            let number = number.parse::<usize>().ok()? + messages;
            Some(format!("/messages/{number}{}", below.map(|below| format!("/{below}")).unwrap_or_default()))
        };
        self.pointer = self.pointer.map(|pointer| place(&pointer).unwrap_or(pointer));
        self
    }
}

/// Searches a file whose first line has this number.
fn search(
    out: &mut BTreeSet<PrivateFinding>,
    (file, first): (&str, u64),
    bytes: &[u8],
    names: &BTreeMap<String, &'static str>,
) {
    let text = String::from_utf8_lossy(bytes);
    for (line, text) in (first..).zip(text.lines()) {
        let document = text.strip_prefix("data:").unwrap_or(text).trim();
        let parsed = serde_json::from_str(document).ok().filter(|value: &Value| !value.is_string());
        look(out, (file, line), parsed.as_ref(), text, names);
    }
    // Texts in several chunks are joined first.
    if text.contains("content_block_delta") {
        let whole = kept_answer(bytes);
        look(out, (file, first), whole.as_ref(), "", names);
    }
}

fn look(
    out: &mut BTreeSet<PrivateFinding>,
    (file, line): (&str, u64),
    document: Option<&Value>,
    text: &str,
    names: &BTreeMap<String, &'static str>,
) {
    let mut found = |pointer: Option<String>, text: &str| {
        for kind in kinds(text, names) {
            let pointer = pointer.as_deref().map(|pointer| nameless(pointer, names));
            out.insert(PrivateFinding { file: nameless(file, names), line, pointer, kind });
        }
    };
    match document {
        Some(value) => texts(value, "", &mut |pointer, text| found(Some(pointer.to_owned()), text)),
        None => found(None, text),
    }
}

fn kinds(text: &str, names: &BTreeMap<String, &'static str>) -> BTreeSet<&'static str> {
    let private = Private::ALL.into_iter().filter(|kind| !kind.places(text).is_empty()).map(Private::name);
    let own = names.iter().filter(|(name, _)| has_word(text, name)).map(|(_, kind)| *kind);
    private.chain(own).collect()
}

/// Redacts private names from a position.
fn nameless(place: &str, names: &BTreeMap<String, &'static str>) -> String {
    let place = text_without(place, &Private::ALL).unwrap_or_else(|| place.to_owned());
    names.iter().filter(|(name, _)| has_word(&place, name)).fold(place.clone(), |place, (name, kind)| {
        place.replace(name.as_str(), &format!("[redacted:{kind}]"))
    })
}

/// Every text of a document, including names of members.
fn texts(value: &Value, at: &str, found: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::String(text) => found(at, text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, item) in members {
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                found(&below, name);
                texts(item, &below, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_reported_and_values_are_not() {
        let names = BTreeMap::from([("maria".to_owned(), "user-name")]);
        let mut out = BTreeSet::new();
        let value = json!({"a/b": ["maria's file in /home/maria", "marias"], "x@post.ch": 1});
        look(&mut out, ("events.jsonl", 3), Some(&value), "", &names);
        let found: Vec<_> = out.iter().map(|one| (one.pointer.as_deref().unwrap(), one.kind)).collect();
        let wanted = [("/[redacted:email]", "email"), ("/a~1b/0", "home-path"), ("/a~1b/0", "user-name")];
        assert_eq!(found, wanted);
    }
}
