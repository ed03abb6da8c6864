//! Sub-agents: their starts, calls and results.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, around};
use crate::run::{Origin, Return, Run};
use crate::value::{Count, Text, ToolGlob};
use belljar_contract::decode::table;
use belljar_contract::{Observation, Pattern};

pub(super) const KEYS: &[Key] =
    &[Dispatched::KEY, DispatchesMax::KEY, SubAgentToolUsed::KEY, ToolAbsent::KEY, OutputContains::KEY];

check! {
    /// A sub-agent was started whose type or description matches.
    Dispatched(SubAgents, "subagent_dispatched", NotNeeded): Pattern
}
check! {
    /// At most this many sub-agents were started. Needs the whole conversation.
    DispatchesMax(SubAgents, "dispatch_count_max", NotNeeded): Count
}
check! {
    /// A sub-agent called a tool of this name; `*` is any text, `?` one character. Calls of a skill or of a fork of the
    /// agent are the agent's own.
    SubAgentToolUsed(SubAgents, "subagent_tool_used", NotNeeded): ToolGlob
}
check! {
    /// No sub-agent called a tool of this name; `*` is any text, `?` one character. Needs the whole conversation.
    ToolAbsent(SubAgents, "subagent_tool_absent", NotNeeded): ToolGlob
}

table! {
    "`subagent_output_contains`"
    struct OutputSpec {
        /// Pattern for the type or description of the sub-agent; any when absent.
        which as "match": Option<Pattern>,
        /// The text to look for.
        contains: Text,
    }
}

check! {
    /// The result of a sub-agent contains this text. The lines that the agent adds about its id and usage do not count.
    OutputContains(SubAgents, "subagent_output_contains", NotNeeded): OutputSpec
}

/// A sub-agent that was started.
struct Dispatch<'a> {
    seq: u64,
    /// Its kind as asked for and as found, and its description, each with the event that says so.
    names: Vec<(u64, &'a str)>,
    back: Option<Return<'a>>,
}

fn dispatches<'a>(run: &Run<'a>) -> Vec<Dispatch<'a>> {
    let mut all: Vec<(Option<&str>, Dispatch<'a>)> = Vec::new();
    for call in run.calls().iter().filter(|call| call.is_dispatch()) {
        let input = call.input;
        let text = |key: &str| input.get(key).and_then(serde_json::Value::as_str);
        let names = ["subagent_type", "description"].into_iter().filter_map(text);
        let names = names.map(|name| (call.seq, name)).collect();
        all.push((Some(call.id.as_str()), Dispatch { seq: call.seq, names, back: call.back }));
    }
    for seen in &run.evidence.seen {
        let Observation::SubAgentStarted { task: _, call, agent, description } = &seen.what else { continue };
        let names = [agent, description].into_iter().filter_map(|name| Some((seen.seq, name.as_deref()?)));
        let id = call.as_ref().map(|call| call.as_str());
        match all.iter_mut().find(|(known, _)| id.is_some() && *known == id) {
            Some((_, dispatch)) => dispatch.names.extend(names),
            None => all.push((id, Dispatch { seq: seen.seq, names: names.collect(), back: None })),
        }
    }
    all.into_iter().map(|(_, dispatch)| dispatch).collect()
}

/// The result without what the agent adds to it: an id, token counts and a duration, which hold any short number by
/// chance.
fn own_words(text: &str) -> &str {
    let added = |at: usize| (at == 0 || text[..at].ends_with('\n')) && text.trim_end().ends_with("</usage>");
    match text.rfind("agentId: ") {
        Some(at) if added(at) => &text[..at],
        Some(_) | None => text,
    }
}

impl<'a> Dispatch<'a> {
    fn matching(&self, pattern: &Pattern) -> Option<(u64, &'a str)> {
        self.names.iter().copied().find(|(_, name)| pattern.is_match(name))
    }
}

impl Check for Dispatched {
    fn judge(&self, run: &Run<'_>) -> Finding {
        match dispatches(run).iter().find_map(|dispatch| dispatch.matching(&self.0)) {
            Some((seq, name)) => Finding::pass("the sub-agent was started").seen(seq, name),
            None => run.fails_if_whole("no sub-agent that matches was started"),
        }
    }
}

impl Check for DispatchesMax {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let all = dispatches(run);
        let places: Vec<(u64, String)> = all
            .iter()
            .map(|dispatch| {
                let names: Vec<&str> = dispatch.names.iter().map(|(_, name)| *name).collect();
                (dispatch.seq, names.join(", "))
            })
            .collect();
        run.at_most(all.len() as u64, self.0.0, "sub-agents", &places)
    }
}

impl Check for SubAgentToolUsed {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let mut calls = run.calls().iter().filter(|call| call.origin == Origin::SubAgent);
        match calls.find(|call| self.0.fits(call.tool)) {
            Some(call) => {
                Finding::pass(format!("a sub-agent called {}", call.tool)).seen(call.seq, &call.line())
            }
            None => run.fails_if_whole(format!("no sub-agent called {}", self.0)),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(run.calls().iter().map(|call| call.tool))
    }
}

impl Check for ToolAbsent {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let fitting = || run.calls().iter().filter(|call| self.0.fits(call.tool));
        if let Some(call) = fitting().find(|call| call.origin == Origin::SubAgent) {
            return Finding::fail(format!("a sub-agent called {}", call.tool)).seen(call.seq, &call.line());
        }
        match fitting().find(|call| call.origin == Origin::Unseen) {
            Some(call) => Finding::unknown(format!("who called {} is not known", call.tool)),
            None => run.holds_if_whole(format!("no sub-agent called {}", self.0)),
        }
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(run.calls().iter().map(|call| call.tool))
    }
}

impl Check for OutputContains {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let OutputSpec { which, contains } = &self.0;
        for dispatch in dispatches(run) {
            let named = match which {
                Some(which) => dispatch.matching(which).map(|(seq, _)| seq),
                None => Some(dispatch.seq),
            };
            let (Some(named), Some(back)) = (named, dispatch.back) else { continue };
            let output = own_words(back.text);
            if let Some(at) = output.find(&contains.0) {
                let text = around(output, &(at..at + contains.0.len()));
                return Finding::pass("a sub-agent brought it back")
                    .seen(back.seq, &text)
                    .seen(named, "begun here");
            }
        }
        run.fails_if_whole("no such sub-agent brought it back")
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(dispatches(run).into_iter().filter_map(|dispatch| Some(dispatch.back?.text)))
    }
}
