//! What tools returned, each return by itself and in its full length.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, around};
use crate::run::Run;
use crate::value::Text;
use belljar_contract::Pattern;
use std::ops::Range;

pub(super) const KEYS: &[Key] =
    &[ResultContains::KEY, ResultNotContains::KEY, ResultMatches::KEY, ResultNotMatches::KEY];

check! {
    /// The result of a tool contains this text exactly.
    ResultContains(Tools, "tool_result_contains", NotNeeded): Text
}
check! {
    /// No tool returned this text. Needs the whole conversation.
    ResultNotContains(Tools, "tool_result_not_contains", NotNeeded): Text
}
check! {
    /// What a tool returned matches. Needs the whole conversation, because a pattern may depend on where a text ends, and long
    /// ones may have been cut.
    ResultMatches(Tools, "tool_result_matches", NotNeeded): Pattern
}
check! {
    /// Nothing that a tool returned matches. Needs the whole conversation.
    ResultNotMatches(Tools, "tool_result_not_matches", NotNeeded): Pattern
}

/// The first return in which something is found.
fn first(run: &Run<'_>, find: impl Fn(&str) -> Option<Range<usize>>) -> Option<(u64, String)> {
    run.returns().find_map(|(back, tool)| {
        find(back.text).map(|place| (back.seq, format!("{tool}: {}", around(back.text, &place))))
    })
}

/// A finding that holds where something is found.
fn returned(run: &Run<'_>, found: Finding, find: impl Fn(&str) -> Option<Range<usize>>) -> Finding {
    match first(run, find) {
        Some((seq, text)) => found.seen(seq, &text),
        None => run.fails_if_whole("no tool returned it"),
    }
}

fn not_returned(run: &Run<'_>, find: impl Fn(&str) -> Option<Range<usize>>) -> Finding {
    match first(run, find) {
        Some((seq, text)) => Finding::fail("a tool returned it").seen(seq, &text),
        None => run.holds_if_whole("no tool returned it"),
    }
}

fn find(text: &str, wanted: &str) -> Option<Range<usize>> {
    text.find(wanted).map(|at| at..at + wanted.len())
}

fn texts<'a>(run: &Run<'a>) -> impl Iterator<Item = &'a str> {
    run.returns().map(|(back, _)| back.text)
}

impl Check for ResultContains {
    fn judge(&self, run: &Run<'_>) -> Finding {
        returned(run, Finding::pass("a tool returned it"), |text| find(text, &self.0.0))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(texts(run))
    }
}

impl Check for ResultNotContains {
    fn judge(&self, run: &Run<'_>) -> Finding {
        not_returned(run, |text| find(text, &self.0.0))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(texts(run))
    }
}

impl Check for ResultMatches {
    fn judge(&self, run: &Run<'_>) -> Finding {
        returned(run, run.holds_if_whole("a tool returned what matches"), |text| self.0.find(text))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(texts(run))
    }
}

impl Check for ResultNotMatches {
    fn judge(&self, run: &Run<'_>) -> Finding {
        not_returned(run, |text| self.0.find(text))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(texts(run))
    }
}
