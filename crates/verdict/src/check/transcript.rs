//! What the agent said. Sub-agents are left out; what they said reaches the user only through the agent.

use super::{Check, Key, Search, check};
use crate::finding::{Finding, around};
use crate::run::{Run, Who};
use crate::value::Text;
use belljar_contract::Pattern;
use std::ops::Range;

pub(super) const KEYS: &[Key] =
    &[TranscriptContains::KEY, TranscriptNotContains::KEY, TranscriptMatches::KEY, TranscriptNotMatches::KEY];

check! {
    /// The agent's messages contain this text exactly. The messages are joined by newlines.
    TranscriptContains(Outcome, "transcript_contains", NotNeeded): Text
}
check! {
    /// The agent did not say this text. Needs the whole conversation.
    TranscriptNotContains(Outcome, "transcript_not_contains", NotNeeded): Text
}
check! {
    /// What the agent said matches. The messages are joined by newlines. Needs the whole conversation, because a pattern
    /// may depend on where the text begins and ends.
    TranscriptMatches(Outcome, "transcript_matches", NotNeeded): Pattern
}
check! {
    /// What the agent said does not match. Needs the whole conversation.
    TranscriptNotMatches(Outcome, "transcript_not_matches", NotNeeded): Pattern
}

/// The texts in one, and where each event begins in it.
struct Transcript {
    text: String,
    starts: Vec<(usize, u64)>,
}

impl Transcript {
    fn of(run: &Run<'_>) -> Self {
        let mut text = String::new();
        let mut starts = Vec::new();
        for (seq, said) in run.said(Who::Agent) {
            if !text.is_empty() {
                text.push('\n');
            }
            starts.push((text.len(), seq));
            text.push_str(said);
        }
        Self { text, starts }
    }

    /// A finding for a place, with every event that it spans.
    fn at(&self, finding: Finding, place: &Range<usize>) -> Finding {
        let first = self.starts.partition_point(|(start, _)| *start <= place.start).saturating_sub(1);
        let spanned = self.starts.iter().enumerate().skip(first);
        let within = spanned.take_while(|(at, (start, _))| *at == first || *start < place.end);
        let shown = around(&self.text, place);
        within.fold(finding, |finding, (_, (_, seq))| finding.seen(*seq, &shown))
    }
}

/// Where a text is.
fn find(text: &str, wanted: &str) -> Option<Range<usize>> {
    text.find(wanted).map(|at| at..at + wanted.len())
}

/// How far a place in the joined texts can be relied on where some of them are lost.
enum Reach {
    /// The text of one event holds it.
    Event,
    /// It may rest on what stands before or after.
    Whole,
}

fn said(run: &Run<'_>, what: &str, reach: &Reach, find: impl Fn(&str) -> Option<Range<usize>>) -> Finding {
    if matches!(reach, Reach::Event)
        && let Some((seq, text, place)) =
            run.said(Who::Agent).find_map(|(seq, text)| Some((seq, text, find(text)?)))
    {
        return Finding::pass(format!("the agent said {what}")).seen(seq, &around(text, &place));
    }
    let transcript = Transcript::of(run);
    match find(&transcript.text) {
        Some(place) => transcript.at(run.holds_if_whole(format!("the agent said {what}")), &place),
        None => run.fails_if_whole(format!("the agent did not say {what}")),
    }
}

fn not_said(run: &Run<'_>, what: &str, find: impl Fn(&str) -> Option<Range<usize>>) -> Finding {
    let transcript = Transcript::of(run);
    match find(&transcript.text) {
        Some(place) => transcript.at(Finding::fail(format!("the agent said {what}")), &place),
        None => run.holds_if_whole(format!("the agent did not say {what}")),
    }
}

fn texts<'a>(run: &Run<'a>) -> impl Iterator<Item = &'a str> {
    run.said(Who::Agent).map(|(_, text)| text)
}

impl Check for TranscriptContains {
    fn judge(&self, run: &Run<'_>) -> Finding {
        said(run, "the text", &Reach::Event, |text| find(text, &self.0.0))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(texts(run))
    }
}

impl Check for TranscriptNotContains {
    fn judge(&self, run: &Run<'_>) -> Finding {
        not_said(run, "the text", |text| find(text, &self.0.0))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(texts(run))
    }
}

impl Check for TranscriptMatches {
    fn judge(&self, run: &Run<'_>) -> Finding {
        said(run, "something that matches", &Reach::Whole, |text| self.0.find(text))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::wanted(texts(run))
    }
}

impl Check for TranscriptNotMatches {
    fn judge(&self, run: &Run<'_>) -> Finding {
        not_said(run, "something that matches", |text| self.0.find(text))
    }

    fn search<'a>(&self, run: &Run<'a>) -> Option<Search<'a>> {
        Search::unwanted(texts(run))
    }
}
