//! The judgement of a record that is not as it was written.

use crate::signal;
use belljar_contract::{Conclusion, Judgement, Outcome, Signal, SignalWeight};

/// Takes back a judgement that was made from a changed record: every check is unknown, whatever it found, because what
/// else was changed is not known. `changes` says what is wrong with the record, a line each; without any the judgement
/// stands.
#[must_use]
pub fn distrust(mut judgement: Judgement, changes: &[String]) -> Judgement {
    let Some(first) = changes.first() else { return judgement };
    for check in &mut judgement.checks {
        check.outcome = Outcome::Unknown;
        check.message = format!("not verified: {first}");
    }
    let signal = |message: &String| Signal {
        code: signal::RECORD.to_owned(),
        weight: SignalWeight::Unknown,
        message: message.clone(),
    };
    judgement.signals.extend(changes.iter().map(signal));
    judgement.conclusion = Conclusion::Unverified;
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::CheckResult;

    #[test]
    fn nothing_passes_and_nothing_fails_on_a_changed_record() {
        for conclusion in [Conclusion::Passed, Conclusion::Failed, Conclusion::AgentFailed] {
            let check = |outcome| CheckResult {
                place: "assert[0]".to_owned(),
                check: "result: success".to_owned(),
                outcome,
                message: "it did".to_owned(),
                evidence: Vec::new(),
            };
            let checks = vec![check(Outcome::Pass), check(Outcome::Fail)];
            let judgement = Judgement { conclusion, checks, signals: Vec::new() };
            assert_eq!(distrust(judgement.clone(), &[]), judgement);
            let found = distrust(judgement, &["`files.json` was changed".to_owned()]);
            assert_eq!(found.conclusion, Conclusion::Unverified);
            assert!(found.checks.iter().all(|check| check.outcome == Outcome::Unknown), "{found:?}");
            assert_eq!(found.signals[0].code, "record_changed");
        }
    }
}
