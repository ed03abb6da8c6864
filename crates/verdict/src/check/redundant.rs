//! Calls that repeat an earlier one.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::Count;
use belljar_contract::{Outcome, holds_redaction};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const KEYS: &[Key] = &[RedundantMax::KEY];

check! {
    /// At most this many calls repeat an earlier one: the same tool with the same input, whatever the order of its
    /// members. Needs the whole conversation.
    RedundantMax(Tools, "max_redundant_tool_calls", NotNeeded): Count
}

impl Check for RedundantMax {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let mut known = BTreeSet::new();
        let mut repeated = Vec::new();
        for call in run.calls() {
            let mut input = Value::Object(call.input.clone());
            input.sort_all_objects();
            if !known.insert((call.tool, input.to_string())) {
                repeated.push((call.seq, call.line()));
            }
        }
        let finding = run.at_most(repeated.len() as u64, self.0.0, "repeated calls", &repeated);
        let certain = repeated.iter().filter(|(_, line)| !holds_redaction(line.as_bytes())).count() as u64;
        match finding.outcome {
            // Other values may have stood in the place of the same mark.
            Outcome::Fail if certain <= self.0.0 => {
                Finding::unknown(format!("{}, but values were redacted in them", finding.message))
            }
            Outcome::Pass | Outcome::Fail | Outcome::Unknown | Outcome::Waived => finding,
        }
    }
}
