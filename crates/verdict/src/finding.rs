//! What one check says, with the evidence it looked at.

use belljar_contract::{EvidenceNote, Outcome, visible_start};

/// Characters of a text that a note shows.
const SHOWN: usize = 160;

/// Maximum number of notes that a finding shows.
const NOTES: usize = 12;

/// An outcome, why, and on what evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub outcome: Outcome,
    pub message: String,
    pub notes: Vec<EvidenceNote>,
    pub rests_on: RestsOn,
}

/// What a finding rests on, for a run without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestsOn {
    /// What its key says: see [`crate::check::Isolation`].
    Key,
    /// On something that was seen, which no sandbox is needed for.
    Seen,
    /// It is unknown for want of a sandbox alone.
    Sandbox,
}

impl Finding {
    fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), notes: Vec::new(), rests_on: RestsOn::Key }
    }

    /// The same finding, which rests on something else than its key says.
    pub(crate) fn resting_on(self, rests_on: RestsOn) -> Self {
        Self { rests_on, ..self }
    }

    /// It holds; the notes say on what evidence.
    pub(crate) fn pass(message: impl Into<String>) -> Self {
        Self::new(Outcome::Pass, message)
    }

    /// It does not hold; the notes say on what evidence.
    pub(crate) fn fail(message: impl Into<String>) -> Self {
        Self::new(Outcome::Fail, message)
    }

    /// The evidence does not say.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(Outcome::Unknown, message)
    }

    /// The same finding with an event as evidence.
    pub(crate) fn seen(self, seq: u64, text: &str) -> Self {
        self.note(Some(seq), text)
    }

    /// The same finding with evidence other than an event of the conversation.
    pub(crate) fn shown(self, text: &str) -> Self {
        self.note(None, text)
    }

    fn note(mut self, seq: Option<u64>, text: &str) -> Self {
        if self.notes.len() < NOTES {
            self.notes.push(EvidenceNote { seq, text: excerpt(text) });
        }
        self
    }
}

/// The beginning of a text in one line, without anything that could forge another.
pub(crate) fn excerpt(text: &str) -> String {
    visible_start(text.trim(), SHOWN)
}

/// A text around a place in it, in one line.
pub(crate) fn around(text: &str, place: &std::ops::Range<usize>) -> String {
    let back = text[..place.start].char_indices().rev().nth(40).map_or(0, |(at, _)| at);
    let lead = if back > 0 { "…" } else { "" };
    excerpt(&format!("{lead}{}", &text[back..]))
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}
