//! The checks of a scenario, and what follows from them.

use crate::check::{Check, Effect, Key, Softened};
use crate::finding::Finding;
use crate::run::Run;
use crate::signal::{self, Leniency, Signals};
use belljar_contract::{
    CheckResult, Claim, Conclusion, Evidence, Judgement, Lane, Outcome, RunIsolation, Signal, SignalWeight,
};

/// The parsed checks of a scenario.
#[derive(Debug)]
pub struct Checks {
    items: Vec<Item>,
    lane: Lane,
    /// Capabilities that the image must have.
    capabilities: Vec<String>,
}

/// An item of the list: all of its parts must hold.
#[derive(Debug)]
pub(crate) struct Item {
    pub place: String,
    pub written: String,
    pub parts: Vec<Part>,
}

/// A key of an item.
#[derive(Debug)]
pub(crate) struct Part {
    pub key: &'static Key,
    pub check: Box<dyn Check>,
}

/// What a check means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Where it is written, as in `assert[2]`.
    pub place: String,
    pub key: &'static str,
    /// What it says, in a sentence.
    pub says: String,
}

impl Checks {
    pub(crate) fn new(items: Vec<Item>, lane: Lane) -> Self {
        Self { items, lane, capabilities: Vec::new() }
    }

    /// The same checks of a run whose image must have these capabilities.
    #[must_use]
    pub fn requiring(self, capabilities: Vec<String>) -> Self {
        Self { capabilities, ..self }
    }

    /// No checks at all: a run is judged by its ending and the signals.
    #[must_use]
    pub fn none(lane: Lane) -> Self {
        Self::new(Vec::new(), lane)
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is asked for. A run is then judged by its ending and the signals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn parts(&self) -> impl Iterator<Item = (&Item, &Part)> {
        self.items.iter().flat_map(|item| item.parts.iter().map(move |part| (item, part)))
    }

    /// Describes each check.
    #[must_use]
    pub fn explain(&self) -> Vec<Explained> {
        let explained = self.parts().map(|(item, part)| Explained {
            place: item.place.clone(),
            key: part.key.name,
            says: first_sentence(part.key.doc),
        });
        explained.collect()
    }

    /// What a reader must be asked before the run can be judged, each claim once.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for claim in self.parts().flat_map(|(_, part)| part.check.claims()) {
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
        claims
    }

    #[must_use]
    pub fn judge(&self, evidence: &Evidence) -> Judgement {
        self.judge_redacted(evidence, &|_| None)
    }

    /// The same for evidence from which values were redacted. A check whose own text holds such a value is unknown: the
    /// value is nowhere in the evidence, whether the agent used it or not. `redact` returns the text without the values
    /// that it holds, if it holds any.
    #[must_use]
    pub fn judge_redacted(&self, evidence: &Evidence, redact: &dyn Fn(&str) -> Option<String>) -> Judgement {
        let run = Run::new(evidence);
        let waived = self.waived();
        let judged = |item: &Item| match redact(&item.written) {
            None => judge_item(item, &run, &waived),
            Some(written) => CheckResult {
                place: item.place.clone(),
                check: written,
                outcome: Outcome::Unknown,
                message: "not known: the text of the check holds a value that the record redacts".to_owned(),
                evidence: Vec::new(),
            },
        };
        let checks: Vec<CheckResult> = self.items.iter().map(judged).collect();
        let leniency = self.leniency();
        let mut signals = Signals(signal::signals(&run, &leniency));
        if !self.capabilities.is_empty() && !leniency.softens(&Softened::MissingCapability) {
            let names = self.capabilities.join(", ");
            signals.add("missing_capability", format!("whether the image has {names} is not known"));
        }
        if evidence.lane != self.lane {
            signals.add(
                "lane_differs",
                format!("the run is {:?}, the checks are {:?}", evidence.lane, self.lane),
            );
        }
        let signals = signals.0;
        Judgement { conclusion: conclude(&checks, &signals), checks, signals }
    }

    fn leniency(&self) -> Leniency {
        let mut leniency = Leniency::default();
        for (_, part) in self.parts() {
            match part.check.effect() {
                Effect::None | Effect::WaivesIsolation(_) => {}
                Effect::ExpectsError => leniency.expects_error = true,
                Effect::Softens(softened) => leniency.softened.push(softened),
            }
        }
        leniency
    }

    /// The keys that do not count without a sandbox.
    fn waived(&self) -> Vec<&'static str> {
        let effects = self.parts().map(|(_, part)| part.check.effect());
        let keys = effects.filter_map(|effect| match effect {
            Effect::WaivesIsolation(keys) => Some(keys),
            Effect::None | Effect::ExpectsError | Effect::Softens(_) => None,
        });
        keys.flatten().collect()
    }
}

/// The finding of a part, or what is left of it where it rests on a sandbox and the run had none.
fn judge_part(part: &Part, run: &Run<'_>, waived: &[&'static str]) -> Finding {
    let finding = judge_check(part, run);
    let why = match run.evidence.isolation {
        RunIsolation::Sealed => return finding,
        RunIsolation::Missing { own: _ } => part.key.isolation.missing(&finding),
    };
    let Some(why) = why else { return finding };
    let key = part.key.name;
    let (outcome, message) = match waived.contains(&key) {
        true => (
            Outcome::Waived,
            format!("waived by `allow_without_isolation`: the run had no sandbox, and {why}"),
        ),
        false => (Outcome::Unknown, format!("`{key}` needs a sandbox, and the run had none: {why}")),
    };
    Finding { outcome, message, ..finding }
}

/// All parts hold, or the first that does not speaks for the item.
fn judge_item(item: &Item, run: &Run<'_>, waived: &[&'static str]) -> CheckResult {
    let mut findings: Vec<Finding> = item.parts.iter().map(|part| judge_part(part, run, waived)).collect();
    let worst = |outcome: Outcome| findings.iter().position(|finding| finding.outcome == outcome);
    let worst = worst(Outcome::Fail).or_else(|| worst(Outcome::Unknown)).or_else(|| worst(Outcome::Waived));
    let finding = match worst {
        Some(at) => findings.swap_remove(at),
        None => {
            let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
            let message = messages.join("; ");
            let notes = findings.into_iter().flat_map(|finding| finding.notes).collect();
            Finding { notes, ..Finding::pass(message) }
        }
    };
    let Finding { mut outcome, mut message, notes, rests_on: _ } = finding;
    if let Some(difference) = run.differences.first() {
        outcome = Outcome::Unknown;
        message = format!("not verified: {difference}");
    }
    CheckResult { place: item.place.clone(), check: item.written.clone(), outcome, message, evidence: notes }
}

/// What a check says, as far as redacted texts let it.
fn judge_check(part: &Part, run: &Run<'_>) -> Finding {
    let finding = part.check.judge(run);
    match part.check.search(run) {
        Some(search) => search.unless_redacted(finding),
        None => finding,
    }
}

/// Distinguishes an interrupt or a limit that ended the run from a failure of the agent, and all from a failed check. Unknown is not a
/// pass.
pub(crate) fn conclude(checks: &[CheckResult], signals: &[Signal]) -> Conclusion {
    let has = |code: &str| signals.iter().any(|signal| signal.code == code);
    let weighs = |weight: SignalWeight| signals.iter().any(|signal| signal.weight == weight);
    let says = |outcome: Outcome| checks.iter().any(|check| check.outcome == outcome);
    if has(signal::INTERRUPTED) {
        Conclusion::Interrupted
    } else if has(signal::BUDGET) {
        Conclusion::BudgetReached
    } else if has(signal::FORGED) {
        // How the agent ended is its own claim, too.
        Conclusion::Unverified
    } else if has(signal::AGENT) || has(signal::TRANSPORT) || has(signal::USAGE) {
        Conclusion::AgentFailed
    } else if says(Outcome::Fail) || weighs(SignalWeight::Fail) {
        Conclusion::Failed
    } else if says(Outcome::Unknown) || weighs(SignalWeight::Unknown) {
        Conclusion::Unverified
    } else {
        Conclusion::Passed
    }
}

/// The first sentence of a documentation.
pub(crate) fn first_sentence(doc: &[&str]) -> String {
    let text: Vec<&str> = doc.iter().map(|line| line.trim()).take_while(|line| !line.is_empty()).collect();
    let text = text.join(" ");
    match text.find(". ") {
        Some(at) => text[..=at].to_owned(),
        None => text,
    }
}
