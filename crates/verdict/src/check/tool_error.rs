//! Calls that failed.

use super::{Check, Key, check};
use crate::finding::{Finding, count};
use crate::run::{Call, Run};
use crate::value::Count;
use belljar_contract::Pattern;

pub(super) const KEYS: &[Key] = &[NoError::KEY, NoErrorIfCalled::KEY, ErrorsMax::KEY];

check! {
    /// A tool whose name matches was called, and no such call failed. A name that matches no call fails, so that a
    /// typo is noticed. A call without a result does not count as a success. Needs the whole conversation.
    NoError(Tools, "tool_no_error", NotNeeded): Pattern
}
check! {
    /// No call of a tool whose name matches failed; none at all is fine. Needs the whole conversation.
    NoErrorIfCalled(Tools, "tool_no_error_if_called", NotNeeded): Pattern
}
check! {
    /// At most this many calls failed, of all tools and of sub-agents too. Needs the whole conversation.
    ErrorsMax(Tools, "max_tool_errors", NotNeeded): Count
}

/// The first of the calls that failed or never came back.
fn failed(calls: &[&Call<'_>], run: &Run<'_>) -> Option<Finding> {
    for call in calls {
        match call.back {
            Some(back) if back.is_error => {
                let finding = Finding::fail(format!("{} failed", call.tool)).seen(back.seq, back.text);
                return Some(run.unless_stopped(finding));
            }
            Some(_) => {}
            None => {
                let finding = run.fails_if_whole(format!("{} returned no result", call.tool));
                return Some(finding.seen(call.seq, &call.line()));
            }
        }
    }
    None
}

fn matching<'r, 'a>(run: &'r Run<'a>, pattern: &Pattern) -> Vec<&'r Call<'a>> {
    run.calls().iter().filter(|call| pattern.is_match(call.tool)).collect()
}

impl Check for NoError {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let calls = matching(run, &self.0);
        if calls.is_empty() {
            return run.fails_if_whole("no tool that matches was called");
        }
        if let Some(failed) = failed(&calls, run) {
            return failed;
        }
        let finding = run.holds_if_whole(format!("none of {} failed", count(calls.len(), "call")));
        calls.iter().fold(finding, |finding, call| finding.seen(call.seq, &call.line()))
    }
}

impl Check for NoErrorIfCalled {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let calls = matching(run, &self.0);
        let passed = || run.holds_if_whole(format!("none of {} failed", count(calls.len(), "call")));
        failed(&calls, run).unwrap_or_else(passed)
    }
}

impl Check for ErrorsMax {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let errors = run.returns().filter(|(back, _)| back.is_error);
        let errors: Vec<(u64, String)> =
            errors.map(|(back, tool)| (back.seq, format!("{tool}: {}", back.text))).collect();
        run.unless_stopped(run.at_most(errors.len() as u64, self.0.0, "failed calls", &errors))
    }
}
