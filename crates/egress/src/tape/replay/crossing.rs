//! Matching on another version of the agent than the recorded one.

use super::super::drift::{self, DIFFERENCES_SHOWN, Difference, DriftKind};
use super::super::normaliser::{Canonical, Normaliser, read_kept};
use super::super::owned::{OwnedPart, OwnedParts, Parameter};
use super::{Matching, ReplayInner, ReplayReport, ReplayState};
use belljar_contract::ConversationKey;
use serde_json::Value;
use std::collections::BTreeSet;

impl ReplayInner {
    /// The exchange of a conversation whose request is the same on the user's side, in the order of
    /// [`ReplayInner::recorded`]. The next one is looked at first, because each has to be read.
    pub(super) fn crossed(&self, state: &ReplayState, own: &[usize], canonical: &Canonical) -> Option<usize> {
        let first = own.first()?;
        let chosen = self.chosen(&self.setup.exchanges[*first].conversation);
        let present = OwnedParts::of_present((&canonical.value, &canonical.readable), chosen);
        let as_wanted = |at: usize| self.setup.exchanges[at].request.delivery == canonical.delivery;
        let first_of = |all: &mut dyn Iterator<Item = usize>| {
            let mut other = None;
            for at in all.filter(|at| self.is_like(*at, &present)) {
                if as_wanted(at) {
                    return Some(at);
                }
                other = other.or(Some(at));
            }
            other
        };
        let own = || own.iter().copied();
        let is_given = |at: &usize| state.given.contains(at);
        first_of(&mut own().filter(|at| !is_given(at)))
            .or_else(|| first_of(&mut own().filter(is_given).rev()))
    }

    /// Whether the user's side of a recorded request is the present one. The number of its parts is remembered, so that
    /// most are read once.
    fn is_like(&self, at: usize, present: &OwnedParts) -> bool {
        let count = &self.parts[at];
        if count.get().is_some_and(|count| *count != present.parts.len()) {
            return false;
        }
        let chosen = self.chosen(&self.setup.exchanges[at].conversation);
        let Some(recorded) = self.request(at).map(|request| OwnedParts::of(&request, chosen)) else {
            return false;
        };
        count.get_or_init(|| recorded.parts.len());
        recorded.matches(present)
    }

    /// The parameters that the user's side chose for a conversation.
    fn chosen(&self, conversation: &ConversationKey) -> &BTreeSet<Parameter> {
        match conversation {
            ConversationKey::Main => &self.setup.chosen.main,
            ConversationKey::SubAgent { .. } => &self.setup.chosen.sub_agents,
        }
    }

    fn request(&self, at: usize) -> Option<Value> {
        let body = self.setup.bodies.body(self.setup.exchanges[at].request.body).ok()?;
        Some(read_kept(&body))
    }

    /// Whether a recorded sub-agent began with the first message of this request.
    pub(super) fn opens_like(&self, canonical: &Canonical) -> impl Fn(&ConversationKey) -> bool {
        let opening = OwnedParts::first_message(&canonical.value);
        let digest = canonical.first_message;
        move |key| match (key, self.setup.matching) {
            (ConversationKey::Main, _) => false,
            (ConversationKey::SubAgent { first, .. }, _) if *first == digest => true,
            (ConversationKey::SubAgent { .. }, Matching::Whole) => false,
            (ConversationKey::SubAgent { .. }, Matching::UserSide) => {
                let at = self.setup.exchanges.iter().position(|exchange| exchange.conversation == *key);
                let request = at.and_then(|at| self.request(at));
                request.is_some_and(|request| OwnedParts::first_message(&request).matches(&opening))
            }
        }
    }

    /// Notes what the agent sent otherwise in a request that matched.
    pub(super) fn cross(&self, report: &mut ReplayReport, at: usize, canonical: &Canonical) {
        if self.setup.exchanges[at].request.body.digest == canonical.digest {
            return;
        }
        report.crossed += 1;
        if let Some(recorded) = self.request(at) {
            report.agent.add(&recorded, &canonical.value);
        }
    }

    /// How far a recorded request is from the present one: in turns, which outweigh the rest, and in differences.
    pub(super) fn distance(
        &self,
        (recorded, conversation): (&Value, &ConversationKey),
        present: &Canonical,
    ) -> (usize, usize) {
        match self.setup.matching {
            Matching::UserSide => {
                let chosen = self.chosen(conversation);
                let owned = OwnedParts::of(recorded, chosen);
                let now = OwnedParts::of_present((&present.value, &present.readable), chosen);
                (owned.parts.len().abs_diff(now.parts.len()), owned.differing(&now).len())
            }
            Matching::Whole => {
                let turns = |of: &Value| of["messages"].as_array().map_or(0, Vec::len);
                let distance = turns(recorded).abs_diff(turns(&present.value));
                (distance, drift::pointers(recorded, &present.value).len())
            }
        }
    }
}

impl ReplayInner {
    /// Describes what differs on the user's side.
    pub(super) fn describe_crossed(
        &self,
        (recorded, conversation): (&Value, &ConversationKey),
        canonical: &Canonical,
    ) -> Described {
        let present = (&canonical.value, &canonical.readable);
        let chosen = self.chosen(conversation);
        let (before, now) = (OwnedParts::of(recorded, chosen), OwnedParts::of_present(present, chosen));
        describe((recorded, &canonical.value), (&before, &now), &self.setup.normalisers.built_in)
    }
}

type Described = (DriftKind, Vec<&'static str>, Vec<Difference>, usize);

fn describe(
    (recorded, present): (&Value, &Value),
    (before, now): (&OwnedParts, &OwnedParts),
    used: &[Normaliser],
) -> Described {
    let places = before.differing(now);
    let covered = drift::covered(&before.document(), &now.document(), used);
    let is_result = |part: &OwnedPart| part.value.get("result").is_some();
    let in_result = places.iter().all(|(left, right)| left.or(*right).is_some_and(is_result));
    let differences: Vec<Difference> = places
        .iter()
        .take(DIFFERENCES_SHOWN)
        .flat_map(|(left, right)| differences(*left, *right, (recorded, present)))
        .collect();
    let kind = match (covered.is_empty(), is_gone(&differences, present), before.course() == now.course()) {
        (false, _, _) => DriftKind::Cosmetic,
        (true, true, _) => DriftKind::ToolGone,
        (true, false, false) => DriftKind::Course,
        (true, false, true) if in_result => DriftKind::ToolResult,
        (true, false, true) => DriftKind::Prompt,
    };
    (kind, covered, differences, places.len().saturating_sub(DIFFERENCES_SHOWN))
}

/// Whether the first difference is the failure of a tool that the present request does not offer. A tool that was looked
/// up is not offered, and works.
fn is_gone(differences: &[Difference], present: &Value) -> bool {
    let offered: BTreeSet<&str> = present["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.get("name")?.as_str())
        .collect();
    let call = differences.first().and_then(|difference| difference.call.as_ref());
    let failed = differences.iter().any(|difference| difference.present.as_deref() == Some("true"));
    call.is_some_and(|call| failed && !offered.contains(call.name.as_str()))
}

/// The places where two parts differ, in the present request if it has them.
fn differences(
    before: Option<&OwnedPart>,
    now: Option<&OwnedPart>,
    (recorded, present): (&Value, &Value),
) -> Vec<Difference> {
    let value = |part: Option<&OwnedPart>| part.map(|part| part.value.clone());
    let pointer = now.or(before).map(|part| part.pointer.clone()).unwrap_or_default();
    let id = now.or(before).and_then(|part| part.value.get("result")?.as_str());
    let call = id.and_then(|id| drift::call(present, id).or_else(|| drift::call(recorded, id)));
    let (Some(left), Some(right)) = (value(before), value(now)) else {
        let shown = |part: Option<&OwnedPart>| part.map(|part| drift::shortened(&part.value.to_string(), 0));
        return vec![Difference {
            pointer,
            recorded: shown(before),
            present: shown(now),
            agent_texts: false,
            call,
        }];
    };
    let inner = drift::pointers(&left, &right).into_iter().map(|inside| {
        let text = |of: &Value| {
            of.pointer(&inside).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let (old, new) = match (text(&left), text(&right)) {
            (Some(old), Some(new)) => {
                let (old, new) = drift::windows(&old, &new);
                (Some(old), Some(new))
            }
            (old, new) => {
                (old.map(|old| drift::shortened(&old, 0)), new.map(|new| drift::shortened(&new, 0)))
            }
        };
        Difference {
            pointer: pointer.clone(),
            recorded: old,
            present: new,
            agent_texts: false,
            call: call.clone(),
        }
    });
    inner.collect()
}
