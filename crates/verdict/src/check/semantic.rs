//! Claims that only a reader can judge.

use super::{Check, Key, check};
use crate::finding::{Finding, excerpt};
use crate::run::Run;
use crate::value::{NonEmpty, Text};
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, table};
use belljar_contract::{Claim, ClaimScope, ClaimStand};
use serde_json::{Value, json};

pub(super) const KEYS: &[Key] = &[Semantic::KEY];

/// How many claims must hold.
#[derive(Debug, Clone, Copy)]
enum Least {
    All,
    Of(u64),
}

impl Decode for Least {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let expected = "`all` or a whole number from 1";
        match &node.kind {
            Kind::String(text) if text == "all" => Some(Self::All),
            Kind::Integer(count @ 1..) => Some(Self::Of(count.unsigned_abs())),
            Kind::Integer(count) => {
                faults.invalid(node, Fault::new(format!("expected {expected}, found {count}")))
            }
            Kind::Null
            | Kind::String(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, expected),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [{"const": "all"}, {"type": "integer", "minimum": 1}]})
    }
}

table! {
    "`semantic_matches`"
    struct SemanticSpec {
        /// The claims, each judged by itself.
        rubric: NonEmpty<Text>,
        /// How many must hold; all when absent.
        least as "min_pass": Option<Least>,
        /// The model that reads.
        model as "judge_model": Option<Text>,
        /// Whether the reader is shown what sub-agents said too.
        sub_agents as "include_subagent_text": Option<bool>,
    }
}

check! {
    /// A model that reads the run finds that the claims hold. The answers are asked for beforehand and are part of the
    /// evidence; without an answer a claim is unknown.
    Semantic(Outcome, "semantic_matches"): SemanticSpec
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
                (None, _) => (ClaimStand::Unclear, "it was not asked".to_owned()),
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
        let SemanticSpec { rubric, least: _, model, sub_agents } = &self.0;
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
