//! From data to checks, with every fault at once.

use crate::check::{Check, Key, keys};
use crate::checks::{Checks, Item, Part};
use crate::conflict::{self, Written};
use crate::finding::excerpt;
use crate::form::{Reader, kind, nearest, shown};
use crate::refused::{REFUSED, refused};
use belljar_contract::{DataFault, Lane};
use serde_json::Value;

/// Keys that the remote lane refuses: there, files of the workspace are not what is delivered.
const LOCAL_ONLY: [&str; 2] = ["file_absent", "user_visible_artifact"];

/// Reads the checks of a scenario: its list `assert` and its hosts `expect_denied`.
///
/// # Errors
/// With every fault there is. A path that begins with `[` is one below `assert`; the others are whole.
pub fn parse_checks(assert: &Value, expect_denied: &[String], lane: Lane) -> Result<Checks, Vec<DataFault>> {
    let mut reader = Reader::default();
    let mut items = Vec::new();
    let mut written = Vec::new();
    match assert {
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                let parts = reader.at(&format!("[{at}]"), |reader| read_item(item, lane, reader));
                items.push(Item { place: format!("assert[{at}]"), written: line(item), parts });
                written.extend(written_keys(at, item));
            }
        }
        other => {
            reader.fault::<()>(format!("the checks are a list, this is {}", kind(other)));
        }
    }
    for (at, host) in expect_denied.iter().enumerate() {
        let place = format!("expect_denied[{at}]");
        let value = Value::String(host.clone());
        let Some(key) = known("egress_denied") else { continue };
        let check = reader.at(&place, |reader| (key.read)(&value, reader));
        let parts = check.into_iter().map(|check| Part { key, check }).collect();
        items.push(Item { place, written: format!("egress_denied: {}", excerpt(&value.to_string())), parts });
    }
    conflict::find(&written, &mut reader);
    if reader.faults.is_empty() { Ok(Checks::new(items, lane)) } else { Err(reader.faults) }
}

fn known(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

/// The keys of an item that are known, for those who compare items.
fn written_keys(item: usize, value: &Value) -> Vec<Written<'_>> {
    let members = value.as_object().into_iter().flatten();
    let known = members.filter_map(|(name, value)| Some(Written { item, key: known(name)?.name, value }));
    known.collect()
}

/// The checks of an item; those that cannot be read are faults.
fn read_item(item: &Value, lane: Lane, reader: &mut Reader) -> Vec<Part> {
    let Value::Object(members) = item else {
        reader.fault_with::<()>(
            format!("a check is an object, this is {}", kind(item)),
            "write it as `- tool_called: Bash`",
        );
        return Vec::new();
    };
    if members.is_empty() {
        reader.fault::<()>("the check is empty; it would hold always");
    }
    let mut parts = Vec::new();
    for (name, value) in members {
        let check = reader.at(&format!(".{}", shown(name)), |reader| read_key(name, value, lane, reader));
        parts.extend(check.map(|(key, check)| Part { key, check }));
    }
    parts
}

fn read_key(
    name: &str,
    value: &Value,
    lane: Lane,
    reader: &mut Reader,
) -> Option<(&'static Key, Box<dyn Check>)> {
    if let Some(refused) = refused(name) {
        return reader.fault_with(format!("this check is refused: {}", refused.because), refused.instead);
    }
    let Some(key) = known(name) else {
        let names = keys().map(|key| key.name).chain(REFUSED.iter().map(|refused| refused.key));
        return match nearest(name, names) {
            Some(near) => reader.fault_with("there is no such check", format!("did you mean `{near}`?")),
            None => reader.fault_with("there is no such check", "docs/reference/checks.md has them all"),
        };
    };
    if lane == Lane::Remote && LOCAL_ONLY.contains(&name) {
        return reader.fault_with(
            "in the remote lane a file of the workspace is not delivered, so this says nothing",
            "check what is handed over instead, with `transcript_contains` or `tool_called`",
        );
    }
    (key.read)(value, reader).map(|check| (key, check))
}

/// An item as it is written, in one line.
fn line(item: &Value) -> String {
    match item {
        Value::Object(members) => {
            let keys: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{}: {}", shown(key), excerpt(&value.to_string())))
                .collect();
            keys.join(", ")
        }
        other => excerpt(&other.to_string()),
    }
}
