//! The JSON Schemas of scenario and session files, for editors.

use super::scenario_spec::ScenarioSpec;
use super::session_spec::SessionSpec;
use belljar_contract::decode::{Decode, titled};
use serde_json::Value;

/// The schema of a scenario; `check` is that of one item under `assert`, `rule` that of one under `answers`.
#[must_use]
pub fn scenario_schema(check: &Value, rule: &Value) -> Value {
    let mut schema = ScenarioSpec::schema();
    schema["properties"]["assert"]["items"] = check.clone();
    schema["properties"]["answers"]["items"] = rule.clone();
    titled("belljar scenario", schema)
}

/// The schema of a session.
#[must_use]
pub fn session_schema() -> Value {
    titled("belljar session", SessionSpec::schema())
}
