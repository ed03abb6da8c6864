//! Values in a JSON file.

use super::{Check, Key, check};
use crate::files::content;
use crate::finding::{Finding, excerpt};
use crate::run::Run;
use crate::value::{NonEmpty, PathName, Yes};
use belljar_contract::decode::table;
use serde_json::{Number, Value};

pub(super) const KEYS: &[Key] = &[ArtifactJson::KEY];

table! {
    "`artifact_json`"
    struct ArtifactJsonSpec {
        /// The file, below the workspace.
        artifact: PathName,
        /// Members with dots between them, numbers for items of a list; the whole document when absent.
        path: Option<String>,
        /// The value is this one; the order of members does not matter.
        equals: Option<Value>,
        /// The value is one of these.
        one_of as "in": Option<NonEmpty<Value>>,
        /// The value is a number above this one.
        gt: Option<Number>,
        /// The value is there, whatever it is.
        exists: Option<Yes>,
        /// The value is not there, though what should hold it is.
        absent: Option<Yes>,
        /// The value is `null`.
        is_null: Option<Yes>,
    }
}

check! {
    /// A JSON file has a value. `path` leads to it by members and numbers of items, with dots between them
    /// (`summary.rows.0.name`); all but its last step must be there. Of `equals`, `in`, `gt`, `exists`, `absent` and
    /// `is_null` each that is given must hold; without any the value must exist. Files of up to 10 MiB are read.
    ArtifactJson(Files, "artifact_json", NotNeeded): ArtifactJsonSpec
}

impl Check for ArtifactJson {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let ArtifactJsonSpec { artifact, path, equals, one_of, gt, exists: _, absent, is_null } = &self.0;
        let (body, note) = match content(run, artifact) {
            Ok(content) => content,
            Err(finding) => return finding,
        };
        let document: Value = match serde_json::from_slice(body) {
            Ok(document) => document,
            Err(error) => {
                let finding = Finding::fail(format!("{artifact} is not JSON: {error}")).shown(&note);
                return run.unless_cut_short(finding);
            }
        };
        let path = path.as_deref().unwrap_or_default();
        let fail = |message: String| run.unless_cut_short(Finding::fail(message).shown(&note));
        let value = match (step_to(&document, path), absent) {
            (Err(step), _) => return fail(format!("`{step}` of `{path}` is not there")),
            (Ok(None), None) => return fail(format!("`{path}` is not there")),
            (Ok(None), Some(Yes)) => {
                let finding = Finding::pass(format!("`{path}` is not there")).shown(&note);
                return run.unless_cut_short(finding);
            }
            (Ok(Some(value)), Some(Yes)) => return fail(format!("`{path}` is {}", line(value))),
            (Ok(Some(value)), None) => value,
        };
        let is = format!("`{path}` is {}", line(value));
        let differs = equals.as_ref().is_some_and(|wanted| !same(wanted, value))
            || one_of.as_ref().is_some_and(|wanted| !wanted.0.iter().any(|one| same(one, value)))
            || gt.as_ref().is_some_and(|least| !above(value, least))
            || (is_null.is_some() && !value.is_null());
        if differs { fail(is) } else { Finding::pass(is).shown(&note) }
    }

    fn misuse(&self) -> Option<String> {
        let ArtifactJsonSpec { artifact: _, path, equals, one_of, gt, exists, absent, is_null } = &self.0;
        let others =
            equals.is_some() || one_of.is_some() || gt.is_some() || exists.is_some() || is_null.is_some();
        if absent.is_some() && others {
            return Some(
                "`absent` cannot be combined with other keys: a missing value has no properties".to_owned(),
            );
        }
        let empty =
            path.as_deref().is_some_and(|path| path.split('.').any(str::is_empty) && !path.is_empty());
        empty.then(|| "a step of `path` is empty".to_owned())
    }
}

/// The value at a path; `None` if only the last step is missing, an error with the step if an earlier one is.
fn step_to<'a>(document: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    if path.is_empty() {
        return Ok(Some(document));
    }
    let steps: Vec<&str> = path.split('.').collect();
    let mut value = document;
    for (at, step) in steps.iter().enumerate() {
        let last = at + 1 == steps.len();
        let next = match value {
            Value::Object(members) => members.get(*step),
            Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            // A text has no members: the path is wrong, not the value missing.
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(steps[..=at].join("."));
            }
        };
        match next {
            Some(next) => value = next,
            None if last => return Ok(None),
            None => return Err(steps[..=at].join(".")),
        }
    }
    Ok(Some(value))
}

/// Whether two values are equal. The order of members does not matter, and `1` equals `1.0`.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => same_number(left, right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        (left, right) => left == right,
    }
}

fn same_number(left: &Number, right: &Number) -> bool {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => left == right,
        _ => left.as_f64() == right.as_f64(),
    }
}

fn above(value: &Value, least: &Number) -> bool {
    let Value::Number(value) = value else { return false };
    match (value.as_i128(), least.as_i128()) {
        (Some(value), Some(least)) => value > least,
        _ => value.as_f64().zip(least.as_f64()).is_some_and(|(value, least)| value > least),
    }
}

fn line(value: &Value) -> String {
    excerpt(&value.to_string())
}
