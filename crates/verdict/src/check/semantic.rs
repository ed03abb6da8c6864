//! Claims that only a reader can judge.

use super::{Check, Key, check};
use crate::finding::{Finding, excerpt};
use crate::form::{Form, Reader, Some1, Text, object};
use crate::run::Run;
use belljar_contract::{Claim, ClaimScope, ClaimStand};
use serde_json::{Value, json};

pub(super) const KEYS: &[Key] = &[Semantic::KEY];

/// How many claims must hold.
#[derive(Debug, Clone, Copy)]
enum Least {
    All,
    Of(u64),
}

impl Form for Least {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match (value.as_str(), value.as_u64()) {
            (Some("all"), _) => Some(Self::All),
            (_, Some(count)) if count > 0 => Some(Self::Of(count)),
            _ => reader.expected("`all` or a number from 1", value),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]})
    }
}

object! {
    /// As written.
    Spec {
        /// The claims, each judged by itself.
        required rubric = "rubric": Some1<Text>,
        /// How many must hold; all where it is left out.
        optional least = "min_pass": Least,
        /// The model that reads.
        optional model = "judge_model": Text,
        /// Whether the reader is shown what sub-agents said too.
        optional sub_agents = "include_subagent_text": bool,
    }
}

check! {
    /// A model that reads the run finds that the claims hold. The answers are asked for beforehand and are part of the
    /// evidence; without an answer a claim is unknown.
    Semantic(Outcome, "semantic_matches"): Spec
}

impl Semantic {
    fn least(&self) -> u64 {
        let all = self.0.rubric.0.len() as u64;
        match self.0.least {
            None | Some(Least::All) => all,
            Some(Least::Of(count)) => count,
        }
    }
}

impl Check for Semantic {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let (mut holds, mut open) = (0, 0);
        let mut notes = Vec::new();
        for claim in self.claims() {
            let mut answers = run.evidence.claims.iter().filter(|answer| answer.claim == claim);
            // Two answers to one claim are none.
            let (stand, says) = match (answers.next(), answers.next()) {
                (Some(answer), None) => (answer.stand, format!("{}: {}", answer.by, answer.reason)),
                (None, _) => (ClaimStand::Unclear, "nobody was asked".to_owned()),
                (Some(_), Some(_)) => (ClaimStand::Unclear, "there are several answers".to_owned()),
            };
            let word = match stand {
                ClaimStand::Holds => {
                    holds += 1;
                    "holds"
                }
                ClaimStand::DoesNot => "does not hold",
                ClaimStand::Unclear => {
                    open += 1;
                    "is open"
                }
            };
            notes.push(format!("{:?} {word}; {says}", excerpt(&claim.text)));
        }
        let least = self.least();
        let message = format!("{holds} claims hold, {open} are open, at least {least} wanted");
        let finding = if holds >= least {
            Finding::pass(message)
        } else if holds + open >= least {
            Finding::unknown(message)
        } else {
            Finding::fail(message)
        };
        notes.iter().fold(finding, |finding, note| finding.shown(note))
    }

    fn claims(&self) -> Vec<Claim> {
        let Spec { rubric, least: _, model, sub_agents } = &self.0;
        let scope = if *sub_agents == Some(true) { ClaimScope::WithSubAgents } else { ClaimScope::Agent };
        let model = model.as_ref().map(|model| model.0.clone());
        let claim = |text: &Text| Claim { text: text.0.clone(), scope, model: model.clone() };
        rubric.0.iter().map(claim).collect()
    }

    fn misuse(&self) -> Option<String> {
        let all = self.0.rubric.0.len() as u64;
        let doubled =
            self.0.rubric.0.iter().enumerate().any(|(at, text)| self.0.rubric.0[..at].contains(text));
        if self.least() > all {
            return Some(format!("`min_pass` is more than the {all} claims there are"));
        }
        doubled.then(|| "a claim is written twice".to_owned())
    }
}
