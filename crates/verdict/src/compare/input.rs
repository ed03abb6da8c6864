//! Whether a frame shows the input that the model gave a tool.

use super::index::Index;
use belljar_contract::{Digest, ModelItem, input_digest};
use serde_json::Value;
use std::collections::BTreeMap;

/// Members that the agent fills in from a file of its own, where the model left them out (2.1.325, 2026-11-17).
const PLAN: [&str; 2] = ["plan", "planFilePath"];

/// Compares a served input, in all its forms, with the one that a frame shows.
pub(super) fn fits(
    index: &Index<'_>,
    served_by: usize,
    call: &str,
    tool: &str,
    forms: &BTreeMap<String, Vec<Digest>>,
    shown: &BTreeMap<String, Digest>,
) -> bool {
    let added = |name: &str| tool == "ExitPlanMode" && PLAN.contains(&name);
    let member = |(name, digest): (&String, &Digest)| match forms.get(name) {
        Some(forms) => forms.contains(digest),
        None => added(name),
    };
    // The agent leaves out the member of `Edit` that has its default.
    let by_default = |name: &str| {
        let default = input_digest(&Value::Bool(false));
        tool == "Edit"
            && name == "replace_all"
            && forms.get(name).is_some_and(|forms| forms.contains(&default))
    };
    let left_out = |name: &&String| !shown.contains_key(*name) && !by_default(name);
    if shown.iter().all(member) && !forms.keys().any(|name| left_out(&name)) {
        return true;
    }
    // `Edit` looks its strings up in the file and takes what stands there; the model sees that in the next request.
    let of_edit = |name: &&String| matches!(name.as_str(), "old_string" | "new_string");
    tool == "Edit"
        && shown.iter().all(|entry| of_edit(&entry.0) || member(entry))
        && forms.keys().filter(left_out).count() == 0
        && index.shows_call(served_by, call, shown)
}

impl Index<'_> {
    /// Whether a later request of the same conversation shows the call with this input.
    fn shows_call(&self, served_by: usize, call: &str, shown: &BTreeMap<String, Digest>) -> bool {
        let asked = &self.exchanges[served_by].request;
        let later = self.exchanges[served_by..].iter().skip(1);
        let alike = later.filter(|exchange| {
            (&exchange.request.session, &exchange.request.agent) == (&asked.session, &asked.agent)
        });
        let mut items = alike.flat_map(|exchange| &exchange.request.items);
        items
            .any(|item| matches!(item, ModelItem::Called { call: of, input } if of == call && input == shown))
    }
}
