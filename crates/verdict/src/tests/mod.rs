//! Evidence made by hand, and what is judged of it.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

mod cases;
mod compared;
mod isolation;
mod judge_votes;
mod judging;
mod made;
mod paths;
mod property;
mod reading;
mod redacted;
mod replayed;

use crate::{Checks, parse_checks};
use belljar_contract::decode::{Faults, Node};
use belljar_contract::{CheckResult, Diagnostic, Evidence, Lane};
use serde_json::{Value, json};

/// The checks of a list, or every fault with the JSON pointer of its place.
fn read(assert: &Value, denied: &[&str], lane: Lane) -> Result<Checks, Vec<(String, Diagnostic)>> {
    let root = Node::of_value(&json!([assert, denied]));
    let [assert, denied] = root.items().unwrap() else { unreachable!() };
    let mut faults = Faults::new(0, "");
    let checks = parse_checks(assert.items().unwrap_or_default(), denied.items().unwrap(), lane, &mut faults);
    let pointer = |fault: &Diagnostic| root.pointer(&fault.label.as_ref().unwrap().span).unwrap();
    let faults: Vec<_> = faults.list.into_iter().map(|fault| (pointer(&fault), fault)).collect();
    assert_eq!(checks.is_some(), faults.is_empty());
    checks.ok_or(faults)
}

fn checks(assert: &Value) -> Checks {
    read(assert, &[], Lane::Local).unwrap_or_else(|faults| panic!("{assert}: {faults:?}"))
}

/// What one item says.
fn result(item: &Value, evidence: &Evidence) -> CheckResult {
    checks(&json!([item])).judge(evidence).checks.remove(0)
}
