//! What a drift, a stale recording and a contradiction make of a judgement.

use super::checks;
use super::made::*;
use crate::{DriftedRun, StaleRule, judge_contradicting, judge_drifted, judge_stale};
use belljar_contract::{Conclusion, Outcome, SignalWeight};
use serde_json::json;

#[test]
fn a_stale_recording_is_not_green_unless_the_user_allows_it() {
    let passed = checks(&json!([])).judge(&nothing());
    let failed = checks(&json!([{"tool_called": "Bash"}])).judge(&nothing());
    let changed = || ["the session is not what was recorded".to_owned()];
    for (judgement, rule, wanted) in [
        (&passed, StaleRule::Unverified, Conclusion::Unverified),
        (&passed, StaleRule::Allowed, Conclusion::Passed),
        (&failed, StaleRule::Unverified, Conclusion::Failed),
        (&failed, StaleRule::Allowed, Conclusion::Failed),
    ] {
        let mut judged = judgement.clone();
        judge_stale(&mut judged, changed(), rule);
        assert_eq!(judged.conclusion, wanted, "{rule:?}");
        assert!(judged.signals.iter().any(|signal| signal.code == "stale_recording"), "it is always said");
    }
    let mut current = passed;
    judge_stale(&mut current, [], StaleRule::Unverified);
    assert_eq!((current.conclusion, current.signals.len()), (Conclusion::Passed, 0));
}

#[test]
fn a_drift_that_ended_the_run_is_neither_the_agents_nor_a_checks_failure() {
    let evidence = failed_turn("error_during_execution", "refused", None);
    let judgement = checks(&json!([{"result": "success"}])).judge(&evidence);
    assert_eq!(judgement.conclusion, Conclusion::AgentFailed);
    let mut ended = judgement.clone();
    judge_drifted(&mut ended, DriftedRun::Ended);
    assert_eq!(ended.conclusion, Conclusion::Drifted);
    assert!(ended.checks.iter().all(|check| check.outcome == Outcome::Unknown), "{ended:?}");
    assert!(ended.signals.iter().all(|signal| signal.weight != SignalWeight::Fail), "{ended:?}");
    let mut went_on = judgement.clone();
    judge_drifted(&mut went_on, DriftedRun::WentOn);
    assert_eq!((went_on.conclusion, went_on.checks), (Conclusion::Drifted, judgement.checks));
}

#[test]
fn a_recording_that_contradicts_itself_is_not_verified() {
    let mut judgement = checks(&json!([])).judge(&nothing());
    judge_contradicting(&mut judgement, None);
    assert_eq!(judgement.conclusion, Conclusion::Passed);
    judge_contradicting(&mut judgement, Some("the tape has no egress log".to_owned()));
    assert_eq!(judgement.conclusion, Conclusion::Unverified);
}
