//! Claims that only a reader can judge.

use super::{Check, Key, check};
use crate::finding::{Finding, excerpt};
use crate::material::Material;
use crate::run::Run;
use crate::value::{NonEmpty, Text};
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, table};
use belljar_contract::{Claim, ClaimAnswer, ClaimScope, ClaimStand, ClaimVote};
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

/// How many times a claim is judged: an odd number, so that one side has the majority.
#[derive(Debug, Clone, Copy)]
struct Votes(u8);

impl Votes {
    const MOST: i64 = 9;
}

impl Decode for Votes {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let expected = format!("an odd number from 1 to {}", Self::MOST);
        match &node.kind {
            Kind::Integer(count) if (1..=Self::MOST).contains(count) && count % 2 == 1 => {
                u8::try_from(*count).ok().map(Self)
            }
            Kind::Integer(count) => {
                faults.invalid(node, Fault::new(format!("expected {expected}, found {count}")))
            }
            Kind::Null
            | Kind::String(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, &expected),
        }
    }

    fn schema() -> Value {
        json!({"enum": (1..=Self::MOST).step_by(2).collect::<Vec<_>>()})
    }
}

table! {
    "`semantic_matches`"
    struct SemanticSpec {
        /// The claims, each judged by itself.
        rubric: NonEmpty<Text>,
        /// How many must hold; all when absent.
        least as "min_pass": Option<Least>,
        /// The model that judges.
        model as "judge_model": Option<Text>,
        /// Whether the judge is shown what sub-agents said too.
        sub_agents as "include_subagent_text": Option<bool>,
        /// How many times each claim is judged; the majority decides. 1 when absent.
        votes: Option<Votes>,
    }
}

check! {
    /// A model that is shown the run finds that the claims hold. It is asked once the agent has ended, through the same
    /// gateway, and quotes the passage that shows it: a quote that does not occur makes the claim unknown. A replay uses
    /// the recorded answers. Without an answer a claim is unknown; so is every claim if a limit left a part of the run out of
    /// what the judge was shown.
    Semantic(Outcome, "semantic_matches", NotNeeded): SemanticSpec
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
        let claims = self.claims();
        let seen = || run.evidence.seen.iter().map(|seen| &seen.what);
        let scope = claims.first().map_or(ClaimScope::Agent, |claim| claim.scope);
        let material = Material::of(seen(), run.evidence.files.as_ref(), scope);
        let (mut holds, mut open) = (0, 0);
        let mut notes = Vec::new();
        for claim in &claims {
            let mut answers = run.evidence.claims.iter().filter(|answer| answer.claim == *claim);
            // Two answers to one claim are none.
            let (stand, says) = match (answers.next(), answers.next()) {
                (Some(answer), None) => unless_left_out(decided(answer, &material), &material),
                (None, _) => (ClaimStand::Unclear, NOT_ASKED.to_owned()),
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
                    "is unknown"
                }
            };
            notes.push(format!("{:?} {word}; {says}", excerpt(&claim.text)));
        }
        let least = self.least();
        let message =
            format!("{holds} of {} claims hold, {open} unknown, at least {least} wanted", claims.len());
        let finding = if holds >= least {
            run.holds_if_whole(message)
        } else if holds + open >= least {
            Finding::unknown(message)
        } else {
            run.fails_if_whole(message)
        };
        notes.iter().fold(finding, |finding, note| finding.shown(note))
    }

    fn claims(&self) -> Vec<Claim> {
        let SemanticSpec { rubric, least: _, model, sub_agents, votes } = &self.0;
        let scope = if *sub_agents == Some(true) { ClaimScope::WithSubAgents } else { ClaimScope::Agent };
        let model = model.as_ref().map(|model| model.0.clone());
        let votes = votes.map_or(1, |votes| votes.0);
        let claim = |text: &Text| Claim { text: text.0.clone(), scope, model: model.clone(), votes };
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

const NOT_ASKED: &str = "no judge was asked, and no recording has an answer: run or record the scenario with a credential for \
                         the model";

/// What the majority of a claim's votes says, with the first reason for it.
fn decided(answer: &ClaimAnswer, material: &Material) -> (ClaimStand, String) {
    let votes: Vec<(ClaimStand, String)> = answer.votes.iter().map(|vote| verified(vote, material)).collect();
    let majority = |stand: ClaimStand| {
        let count = votes.iter().filter(|(found, _)| *found == stand).count();
        count * 2 > usize::from(answer.claim.votes) && votes.len() == usize::from(answer.claim.votes)
    };
    let stand = if majority(ClaimStand::Holds) {
        ClaimStand::Holds
    } else if majority(ClaimStand::DoesNot) {
        ClaimStand::DoesNot
    } else {
        ClaimStand::Unclear
    };
    let reason = votes.iter().find(|(found, _)| *found == stand).or(votes.first());
    let reason = reason.map_or("it has no votes", |(_, reason)| reason.as_str());
    let count = if votes.len() == 1 { String::new() } else { format!(" ({} votes)", votes.len()) };
    (stand, format!("{}{count}: {reason}", answer.by))
}

/// What was left out at a limit could say otherwise, whatever the judge found in the rest.
fn unless_left_out((stand, says): (ClaimStand, String), material: &Material) -> (ClaimStand, String) {
    match (stand, material.left_out.first()) {
        (ClaimStand::Holds | ClaimStand::DoesNot, Some(first)) => {
            let found = if stand == ClaimStand::Holds { "holds" } else { "does not hold" };
            let more = if material.left_out.len() > 1 { " (and more)" } else { "" };
            let why =
                format!("the judge did not see everything: {first}{more}; it {found} in the rest by {says}");
            (ClaimStand::Unclear, why)
        }
        (ClaimStand::Unclear, _) | (_, None) => (stand, says),
    }
}

/// A vote counts if its quote occurs in what the judge was shown. What does not hold may have nothing to quote.
fn verified(vote: &ClaimVote, material: &Material) -> (ClaimStand, String) {
    let ClaimVote { stand, reason, quote } = vote;
    let quote = quote.as_deref().filter(|quote| !quote.trim().is_empty());
    match (stand, quote) {
        (ClaimStand::Unclear, _) => (ClaimStand::Unclear, reason.clone()),
        (ClaimStand::Holds, None) => (ClaimStand::Unclear, format!("{reason} (it quotes nothing)")),
        (ClaimStand::DoesNot, None) => (ClaimStand::DoesNot, reason.clone()),
        (ClaimStand::Holds | ClaimStand::DoesNot, Some(quote)) if material.holds(quote) => {
            (*stand, format!("{reason} ({:?})", excerpt(quote)))
        }
        (ClaimStand::Holds | ClaimStand::DoesNot, Some(quote)) => {
            let why = format!("{reason} (the run does not contain the quote {:?})", excerpt(quote));
            (ClaimStand::Unclear, why)
        }
    }
}
