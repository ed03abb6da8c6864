//! What a drift or a stale recording changes in the judgement of a replay.

use crate::checks::conclude;
use crate::signal::{AGENT, CONTRADICTING, DENIED, STALE, Signals, TRANSPORT, UNANSWERED, USAGE};
use belljar_contract::{Conclusion, ExitCode, Judgement, Outcome, RunVerdict, SignalWeight};

/// What a check says of a run that a drift ended.
const UNJUDGED: &str = "the drift ended the run, so this was not judged";

/// Whether a recording may be green although its scenario or skills changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleRule {
    /// It is not verified.
    Unverified,
    /// The user allowed it: the changes are reported and have no other effect.
    Allowed,
}

/// Adds the things that changed since the recording, each a sentence.
pub fn judge_stale(judgement: &mut Judgement, changed: impl IntoIterator<Item = String>, rule: StaleRule) {
    let mut signals = Signals(std::mem::take(&mut judgement.signals));
    for what in changed {
        signals.add(STALE, what);
    }
    judgement.signals = signals.0;
    match rule {
        StaleRule::Unverified => judgement.conclusion = conclude(&judgement.checks, &judgement.signals),
        StaleRule::Allowed => {
            let stale = judgement.signals.iter_mut().filter(|signal| signal.code == STALE);
            stale.for_each(|signal| signal.weight = SignalWeight::Warn);
        }
    }
}

/// Adds why the parts of a recording cannot all be what was recorded, if that is so.
pub fn judge_contradicting(judgement: &mut Judgement, why: Option<String>) {
    add(judgement, CONTRADICTING, why);
}

/// Adds which tool ran unasked although a rule denies it, if one did.
pub fn judge_denied(judgement: &mut Judgement, why: Option<String>) {
    add(judgement, DENIED, why);
}

fn add(judgement: &mut Judgement, code: &str, why: Option<String>) {
    let Some(why) = why else { return };
    let mut signals = Signals(std::mem::take(&mut judgement.signals));
    signals.add(code, why);
    judgement.signals = signals.0;
    judgement.conclusion = conclude(&judgement.checks, &judgement.signals);
}

/// Takes back what rests on a file that is not listed, for a recording in which nothing shows that the listing is whole.
pub fn judge_unlisted(judgement: &mut Judgement) {
    const ABSENCES: [&str; 2] = ["file_absent", "no_unexpected_files"];
    for check in judgement.checks.iter_mut().filter(|check| check.outcome == Outcome::Pass) {
        if ABSENCES.iter().any(|key| check.check.contains(key)) {
            check.outcome = Outcome::Unknown;
            check.message =
                format!("{}, but nothing shows that every file is on the cassette", check.message);
        }
    }
    judgement.conclusion = conclude(&judgement.checks, &judgement.signals);
}

/// How far a run got that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftedRun {
    /// The drift ended it, so that nothing it left can be judged.
    Ended,
    /// It went on to its end.
    WentOn,
}

/// Turns the judgement of a run into that of a run that drifted.
pub fn judge_drifted(judgement: &mut Judgement, run: DriftedRun) {
    judgement.conclusion = Conclusion::Drifted;
    match run {
        DriftedRun::WentOn => {}
        DriftedRun::Ended => {
            // The refused request ended the conversation. The agent did not fail.
            let own = [AGENT, TRANSPORT, USAGE, UNANSWERED, "stalled", "ended_with_question"];
            judgement.signals.retain(|signal| !own.contains(&signal.code.as_str()));
            for check in &mut judgement.checks {
                check.outcome = Outcome::Unknown;
                UNJUDGED.clone_into(&mut check.message);
                check.evidence.clear();
            }
        }
    }
}

/// Adds to a new judgement of a replay what its verdict says about the tape: that it is stale, that it contradicts itself,
/// that the run drifted from it. None of that is in the record of the run.
pub fn judge_as_replayed(judgement: &mut Judgement, before: &RunVerdict) {
    let of_the_tape =
        before.signals.iter().filter(|signal| [STALE, CONTRADICTING].contains(&signal.code.as_str()));
    judgement.signals.extend(of_the_tape.cloned());
    judgement.conclusion = conclude(&judgement.checks, &judgement.signals);
    if before.exit_code == ExitCode::Drifted.code() {
        let ended = before.checks.iter().all(|check| check.message == UNJUDGED);
        judge_drifted(judgement, if ended { DriftedRun::Ended } else { DriftedRun::WentOn });
    }
}
