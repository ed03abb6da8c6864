//! Whether the scenario that is frozen in a cassette is still the one of its file.
//!
//! A cassette has no digest of its scenario, so a check that was taken out of it can only be noticed by comparing it with
//! the file that it was recorded from.

use super::cassette::Cassette;
use super::facts::{Changed, ChangedCause};
use crate::environment::HostEnvironment;
use crate::suite::{Scope, Trial, load_scenario_alone};
use belljar_contract::{AbsPath, canonical_json, visible, with_causes};
use belljar_plan::{DocumentText, parse_document};
use serde_json::{Map, Value};

/// The keys that say what is asked, answered and checked.
const COMPARED: [&str; 5] = ["prompt", "answers", "assert", "expect_denied", "requires_capabilities"];

/// A cassette has no digests, so what else its conversation was recorded with cannot be compared.
pub(super) fn without_digests() -> Changed {
    Changed::unknown(
        ChangedCause::Files,
        "the skills, the inputs, the plan and the agent",
        "a cassette has no digests",
    )
}

/// The differences between the frozen scenario and its file. A scenario that cannot be compared counts as changed.
pub(super) fn changed(
    cassette: &Cassette,
    (path, frozen): (&AbsPath, &Trial),
    environment: &HostEnvironment,
) -> Vec<Changed> {
    let unknown = |why: String| {
        let what = "the scenario in the cassette".to_owned();
        let present = format!("cannot be verified: {why}");
        vec![Changed { cause: ChangedCause::Files, what, recorded: String::new(), present }]
    };
    let Some(named) = &cassette.source else {
        return unknown("the cassette does not name the file that it was recorded from".to_owned());
    };
    let Some(file) = find(path, named, environment) else {
        let named = visible(named);
        return unknown(format!("its file `{named}` is not found in the suite of the cassette"));
    };
    let present = match load_scenario_alone(environment, &file) {
        Ok(present) => present,
        Err(error) => return unknown(with_causes(&error)),
    };
    let mut out = differences(&cassette.scenario, &members(&present));
    if frozen.scenario.lane != present.scenario.lane {
        out.push(different("`lane` of the scenario differs from its file".to_owned()));
    }
    out
}

/// The file, seen from the cassette's directory or one above it, if it belongs to the cassette's suite.
fn find(cassette: &AbsPath, named: &str, environment: &HostEnvironment) -> Option<AbsPath> {
    let scope = Scope::of_file(cassette, environment);
    let root = scope.root()?;
    let mut directory = cassette.parent()?;
    loop {
        let file = directory.join(named).ok()?;
        if scope.holds(&file) && file.as_path().is_file() {
            return Some(file);
        }
        if !directory.is_within(root) {
            return None;
        }
        directory = directory.parent()?;
    }
}

fn members(trial: &Trial) -> Map<String, Value> {
    let document = parse_document(DocumentText { name: String::new(), bytes: trial.text.clone() });
    match document.map(|document| document.root().to_value()) {
        Ok(Value::Object(members)) => members,
        // The text was parsed before.
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            Map::new()
        }
    }
}

fn differences(frozen: &Map<String, Value>, present: &Map<String, Value>) -> Vec<Changed> {
    let mut out = Vec::new();
    for key in COMPARED {
        let (before, now) = (items(frozen.get(key)), items(present.get(key)));
        if before == now {
            continue;
        }
        let lines = |side: &[String], other: &[String], place: &str| -> Vec<Changed> {
            let only = side.iter().filter(|item| !other.contains(item));
            only.map(|item| different(format!("`{key}` has {} only in {place}", visible(item)))).collect()
        };
        let found =
            [lines(&before, &now, "the cassette"), lines(&now, &before, "the scenario's file")].concat();
        match found.is_empty() {
            true => out.push(different(format!("`{key}` has its items in another order or number"))),
            false => out.extend(found),
        }
    }
    out
}

/// The items of a list, or the one value; nothing is an empty list.
fn items(value: Option<&Value>) -> Vec<String> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.iter().map(canonical_json).collect(),
        Some(one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_))) => {
            vec![canonical_json(one)]
        }
    }
}

fn different(what: String) -> Changed {
    let present = "(the recording and the file are not the same test)".to_owned();
    Changed { cause: ChangedCause::Scenario, what, recorded: String::new(), present }
}
