//! Where the answers of a replay came from: the tape, or the scenario as it is now.

use crate::store::summary::decisions;
use belljar_contract::{ClaimAnswer, DecisionMade, Observation};
use belljar_session::By;
use serde::Serialize;
use std::collections::BTreeMap;

/// How the reason of an answer from a tape begins.
pub(super) const RECORDED: &str = "recorded: ";

/// Whether something was said when the tape was recorded, or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    Recorded,
    Now,
}

type Counts = BTreeMap<Given, BTreeMap<String, u64>>;

/// Who answered the agent's questions and judged the claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// The questions; the reason of an answer from the tape says so.
    pub decisions: Vec<DecisionMade>,
    /// How many answers each decider gave.
    pub answered_by: Counts,
    /// How many claims each model judged.
    pub judged_by: Counts,
}

impl Origins {
    /// Of a run on a tape: the answers of the tape say so. The claims were judged from there unless `judged` says otherwise.
    pub(super) fn of_run(seen: &[&Observation], claims: &[ClaimAnswer], judged: Given) -> Self {
        Self::of(decisions(seen), claims, judged)
    }

    /// Of a tape that is judged again: everything is from there.
    pub(super) fn of_tape(seen: &[&Observation], claims: &[ClaimAnswer]) -> Self {
        let mut decisions = decisions(seen);
        for one in decisions.iter_mut().filter(|one| one.by.is_some()) {
            one.reason.insert_str(0, RECORDED);
        }
        Self::of(decisions, claims, Given::Recorded)
    }

    fn of(decisions: Vec<DecisionMade>, claims: &[ClaimAnswer], judged: Given) -> Self {
        let mut out = Self { decisions, ..Self::default() };
        let count = |counts: &mut Counts, given, by: &str| {
            *counts.entry(given).or_default().entry(by.to_owned()).or_default() += 1;
        };
        for one in &out.decisions {
            // Hooks and servers of belljar answer nothing that was asked of a person.
            let Some(by) = one.by.as_deref().filter(|by| *by != By::Belljar.name()) else { continue };
            let given = if one.reason.starts_with(RECORDED) { Given::Recorded } else { Given::Now };
            count(&mut out.answered_by, given, by);
        }
        claims.iter().for_each(|one| count(&mut out.judged_by, judged, &one.by));
        out
    }

    /// One line for each decider and each judge.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let lines = |counts: &Counts, [one, several, done]: [&str; 3]| -> Vec<String> {
            let all = counts.iter().flat_map(|(given, each)| each.iter().map(move |one| (*given, one)));
            all.map(|(given, (by, count))| {
                let what = if *count == 1 { one } else { several };
                format!("{count} {what} {done} by {by}, {}", given.words())
            })
            .collect()
        };
        let answers = lines(&self.answered_by, ["question", "questions", "answered"]);
        [answers, lines(&self.judged_by, ["claim", "claims", "judged"])].concat()
    }

    /// One line for each answer.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |one: &DecisionMade| {
            let by = one.by.as_deref().filter(|by| *by != By::Belljar.name())?;
            let asked = one.tool.as_deref().unwrap_or(&one.about);
            let said = if one.chosen.is_empty() { one.answer.clone()? } else { one.chosen.join(", ") };
            Some(format!("{asked}: {said}, answered by {by} ({})", one.reason))
        };
        self.decisions.iter().filter_map(line).collect()
    }
}

impl Given {
    const fn words(self) -> &'static str {
        match self {
            Self::Recorded => "as recorded",
            Self::Now => "in this replay",
        }
    }
}
