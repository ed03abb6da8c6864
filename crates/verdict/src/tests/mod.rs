//! Evidence made by hand, and what is judged of it.

mod cases;
mod compared;
mod judging;
mod made;
mod paths;
mod property;
mod reading;

use crate::{Checks, parse_checks};
use belljar_contract::{CheckResult, Evidence, Lane};
use serde_json::{Value, json};

/// The checks of a list.
fn checks(assert: &Value) -> Checks {
    parse_checks(assert, &[], Lane::Local).unwrap_or_else(|faults| panic!("{assert}: {faults:?}"))
}

/// What one item says.
fn result(item: &Value, evidence: &Evidence) -> CheckResult {
    checks(&json!([item])).judge(evidence).checks.remove(0)
}
