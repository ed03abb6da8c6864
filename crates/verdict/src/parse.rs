//! From the nodes of a file to checks, with every fault at once.

use crate::check::{Check, Key, keys};
use crate::checks::{Checks, Item, Part};
use crate::conflict::{self, Written};
use crate::finding::excerpt;
use crate::refused::{REFUSED, refused};
use belljar_contract::decode::{self, Fault, Faults, Kind, Node, shown};
use belljar_contract::{Lane, nearest};
use serde_json::Value;

/// Keys that the remote lane refuses: there, files of the workspace are not what is delivered.
const LOCAL_ONLY: [&str; 2] = ["file_absent", "user_visible_artifact"];

/// Reads the checks of a scenario: the items of its list `assert` and the hosts of `expect_denied`. `None` after a fault.
pub fn parse_checks(
    assert: &[Node],
    expect_denied: &[Node],
    lane: Lane,
    faults: &mut Faults<'_>,
) -> Option<Checks> {
    faults.whole(|faults| {
        let mut items = Vec::new();
        let mut written = Vec::new();
        for (at, item) in assert.iter().enumerate() {
            let parts = decode_item(item, lane, faults);
            items.push(Item { place: format!("assert[{at}]"), written: line(item), parts });
            written.extend(known_keys(item));
        }
        for (at, host) in expect_denied.iter().enumerate() {
            let Some(key) = known("egress_denied") else { continue };
            // The same check twice would be two lines that say the same.
            let value = host.to_value();
            if written.iter().any(|one: &Written<'_>| one.key.text == key.name && one.value == value) {
                continue;
            }
            let parts = (key.decode)(host, faults).map(|check| Part { key, check }).into_iter().collect();
            let written = format!("egress_denied: {}", excerpt(&value.to_string()));
            items.push(Item { place: format!("expect_denied[{at}]"), written, parts });
        }
        conflict::find(&written, faults);
        Some(Checks::new(items, lane))
    })
}

fn known(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

/// The keys of an item that are checks, to be compared with those of other items.
fn known_keys(item: &Node) -> Vec<Written<'_>> {
    let Kind::Table(table) = &item.kind else { return Vec::new() };
    let known = table.0.iter().filter(|(key, _)| known(&key.text).is_some());
    known.map(|(key, node)| Written { key, value: node.to_value() }).collect()
}

/// The checks of an item; those that cannot be decoded are faults.
fn decode_item(item: &Node, lane: Lane, faults: &mut Faults<'_>) -> Vec<Part> {
    let Kind::Table(table) = &item.kind else {
        let message = format!("expected a check, found {}", item.describe());
        faults.wrong_type::<()>(item, Fault::new(message).help("write it as `- tool_called: Bash`"));
        return Vec::new();
    };
    if table.0.is_empty() {
        faults.invalid::<()>(item, Fault::new("the check is empty, so it would always hold"));
    }
    let decoded = table.0.iter().filter_map(|(key, node)| {
        let (key, check) = decode_key(key, node, lane, faults)?;
        Some(Part { key, check })
    });
    decoded.collect()
}

fn decode_key(
    written: &decode::Key,
    node: &Node,
    lane: Lane,
    faults: &mut Faults<'_>,
) -> Option<(&'static Key, Box<dyn Check>)> {
    let name = written.text.as_str();
    if let Some(refused) = refused(name) {
        let fault = Fault::new(format!("`{name}` is refused: {}", refused.because)).help(refused.instead);
        faults.push("refused", &written.span, fault);
        return None;
    }
    let Some(key) = known(name) else {
        let names = keys().map(|key| key.name).chain(REFUSED.iter().map(|refused| refused.key));
        let mut fault = Fault::new(format!("there is no check `{}`", shown(name)))
            .help("docs/reference/checks.md lists all checks");
        if let Some(near) = nearest(name, names) {
            fault = fault.label(format!("did you mean `{near}`?"));
        }
        faults.push("unknown-key", &written.span, fault);
        return None;
    };
    if lane == Lane::Remote && LOCAL_ONLY.contains(&name) {
        let fault = Fault::new(format!(
            "`{name}` looks at files of the workspace, which `lane: remote` does not deliver"
        ))
        .help("check what is handed over instead, with `transcript_contains` or `tool_called`");
        faults.push("refused", &written.span, fault);
        return None;
    }
    (key.decode)(node, faults).map(|check| (key, check))
}

/// An item as it is written, in one line.
fn line(item: &Node) -> String {
    let value = item.to_value();
    let Value::Object(members) = value else { return excerpt(&value.to_string()) };
    let keys: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{}: {}", shown(key), excerpt(&value.to_string())))
        .collect();
    keys.join(", ")
}
