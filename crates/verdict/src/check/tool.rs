//! Which tools were called, and how often.

use super::{Check, Key, Search, check};
use crate::finding::Finding;
use crate::run::{Origin, Run};
use crate::value::{Count, ToolGlob};

pub(super) const KEYS: &[Key] = &[Called::KEY, NotCalled::KEY, CallsMax::KEY];

check! {
    /// The agent itself called a tool of this name; `*` is any text, `?` one character. Whether the call was allowed or
    /// succeeded does not matter here, see `tool_no_error`; for sub-agents see `subagent_tool_used`.
    Called(Tools, "tool_called", NotNeeded): ToolGlob
}
check! {
    /// No tool of this name was called, also not by a sub-agent; `*` is any text, `?` one character. Needs the whole conversation.
    NotCalled(Tools, "tool_not_called", NotNeeded): ToolGlob
}
check! {
    /// The agent itself made at most this many calls; those of sub-agents do not count. Needs the whole conversation.
    CallsMax(Tools, "tool_calls_max", NotNeeded): Count
}

impl Check for Called {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let own = run.calls().iter().filter(|call| call.origin == Origin::Main);
        let calls = own.filter(|call| self.0.fits(call.tool));
        let calls: Vec<(u64, String)> = calls.map(|call| (call.seq, call.line())).collect();
        if calls.is_empty() {
            return run.fails_if_whole(format!("the agent itself called no tool {}", self.0));
        }
        let finding = Finding::pass(format!("{} was called, {} in all", self.0, calls.len()));
        calls.iter().fold(finding, |finding, (seq, line)| finding.seen(*seq, line))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(run.calls().iter().map(|call| call.tool))
    }
}

impl Check for NotCalled {
    fn judge(&self, run: &Run<'_>) -> Finding {
        match run.calls().iter().find(|call| self.0.fits(call.tool)) {
            Some(call) => Finding::fail(format!("{} was called", call.tool)).seen(call.seq, &call.line()),
            None => run.holds_if_whole(format!("no tool {} was called", self.0)),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(run.calls().iter().map(|call| call.tool))
    }
}

impl Check for CallsMax {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let calls = run.calls().iter().filter(|call| call.origin != Origin::SubAgent);
        let calls: Vec<(u64, String)> = calls.map(|call| (call.seq, call.line())).collect();
        run.at_most(calls.len() as u64, self.0.0, "calls of the agent itself", &calls)
    }
}
