//! What is judged of a run without a sandbox.

use super::cases::all;
use super::made::*;
use super::{checks, read, result};
use crate::check::{Isolation, keys};
use belljar_contract::{
    Conclusion, EgressLogFault, EgressLogState, EgressWay, Evidence, Lane, Metrics, Outcome, RunIsolation,
    SignalWeight, Whole,
};
use serde_json::{Value, json};

fn unsealed(evidence: Evidence) -> Evidence {
    Evidence { isolation: RunIsolation::Missing { own: vec!["/home/run".to_owned()] }, ..evidence }
}

/// Every check with evidence for each outcome: what its key decided is what a run without a sandbox gets.
#[test]
fn each_check_says_without_a_sandbox_what_its_key_decided() {
    let mut deciding = 0;
    for case in all() {
        let name = case.check.as_object().unwrap().keys().next().unwrap().clone();
        let key = keys().find(|key| key.name == name).unwrap();
        let (pass, fail) = match key.isolation {
            Isolation::NotNeeded => (Outcome::Pass, Outcome::Fail),
            Isolation::ForPass(_) => (Outcome::Unknown, Outcome::Fail),
            Isolation::ForFail(_) => (Outcome::Pass, Outcome::Unknown),
            // Its case of a failure is a host that was reached, which was seen.
            Isolation::Needed(_) => (Outcome::Unknown, Outcome::Fail),
        };
        let found = |evidence: &Evidence| result(&case.check, &unsealed(evidence.clone()));
        let outcomes = [&case.pass, &case.fail, &case.unknown].map(|evidence| found(evidence).outcome);
        assert_eq!(outcomes, [pass, fail, Outcome::Unknown], "{name}");
        if let Some(why) = key.isolation.reason() {
            deciding += 1;
            let messages = [found(&case.pass).message, found(&case.fail).message].concat();
            assert!(
                messages.contains("needs a sandbox, and the run had none") && messages.contains(why),
                "{messages}"
            );
        }
    }
    assert!(deciding >= 5, "{deciding}");
}

#[test]
fn a_waived_check_is_never_passed_and_does_not_count() {
    let refused = || unsealed(went(&[("evil.example:443", EgressWay::Connect, false)]));
    let with = |more: Value| checks(&json!([{"egress_denied": "evil.example"}, more])).judge(&refused());
    let judgement = with(json!({"result": "success"}));
    assert_eq!(
        (judgement.conclusion, judgement.checks[0].outcome),
        (Conclusion::Unverified, Outcome::Unknown)
    );
    let judgement = with(json!({"allow_without_isolation": ["egress_denied"]}));
    assert_eq!((judgement.conclusion, judgement.checks[0].outcome), (Conclusion::Passed, Outcome::Waived));
    assert!(judgement.checks[0].message.starts_with("waived by `allow_without_isolation`"), "{judgement:?}");
    let judgement = with(json!({"allow_without_isolation": ["transcript_no_host_path"]}));
    assert_eq!(judgement.checks[0].outcome, Outcome::Unknown, "only what is named is waived");
    // An item with a part that is waived has not passed either, and one that failed has failed.
    let waiver = json!({"allow_without_isolation": ["egress_denied"]});
    let item = |key: &str| json!([{"egress_denied": "evil.example", key: "Bash"}, waiver]);
    assert_eq!(checks(&item("tool_not_called")).judge(&refused()).checks[0].outcome, Outcome::Waived);
    assert_eq!(checks(&item("tool_called")).judge(&refused()).checks[0].outcome, Outcome::Fail);
}

#[test]
fn a_waiver_does_nothing_in_a_sandbox() {
    let waiver = json!({"allow_without_isolation": ["egress_denied"]});
    let list = checks(&json!([{"egress_denied": "evil.example"}, waiver]));
    for (reached, outcome) in [(false, Outcome::Pass), (true, Outcome::Fail)] {
        let sealed = went(&[("evil.example:443", EgressWay::Connect, reached)]);
        assert_eq!(list.judge(&sealed).checks[0].outcome, outcome);
    }
}

#[test]
fn a_failure_that_was_seen_counts_although_it_is_waived() {
    let new = unsealed(left(&[], &[("outputs/a", b"")]));
    let judgement =
        checks(&json!([{"no_unexpected_files": []}, {"allow_without_isolation": ["no_unexpected_files"]}]))
            .judge(&new);
    assert_eq!((judgement.conclusion, judgement.checks[0].outcome), (Conclusion::Failed, Outcome::Fail));
}

#[test]
fn a_waiver_names_checks_that_need_isolation() {
    let faults = |names: Value| {
        let list = json!([{"allow_without_isolation": names}]);
        let fault = read(&list, &[], Lane::Local).unwrap_err().remove(0).1;
        format!("{}; {}", fault.message, fault.label.unwrap().text)
    };
    let misspelt = faults(json!(["egress_denid"]));
    assert!(
        misspelt.contains("unknown check") && misspelt.contains("did you mean `egress_denied`?"),
        "{misspelt}"
    );
    let other = faults(json!(["file_exists"]));
    assert!(other.contains("`file_exists` does not need isolation"), "{other}");
    assert!(read(&json!([{"allow_without_isolation": []}]), &[], Lane::Local).is_err(), "an empty list");
}

#[test]
fn a_run_without_a_sandbox_is_reported_as_one() {
    let code = |evidence: &Evidence| {
        let signals = checks(&json!([])).judge(evidence).signals.into_iter();
        signals.map(|signal| (signal.code, signal.weight)).collect::<Vec<_>>()
    };
    assert_eq!(code(&nothing()), []);
    assert_eq!(code(&unsealed(nothing())), [("not_isolated".to_owned(), SignalWeight::Warn)]);
}

/// Whatever the head of the record says: a log that is not enforced proves no absence.
#[test]
fn a_log_that_is_not_enforced_proves_no_absence() {
    let log = logged(went(&[]), EgressLogState::Unenforced);
    for check in [json!({"egress_denied": "evil.example"}), json!({"egress_allowed": "good.example"})] {
        assert_eq!(result(&check, &log).outcome, Outcome::Unknown, "{check}");
    }
}

/// What is unknown for another reason than the sandbox is not waived with it.
#[test]
fn only_what_a_sandbox_would_have_shown_is_waived() {
    let waived = |check: &Value, evidence: Evidence| {
        let name = check.as_object().unwrap().keys().next().unwrap();
        let list = json!([check, {"allow_without_isolation": [name]}]);
        checks(&list).judge(&unsealed(evidence)).checks[0].outcome
    };
    let log = |hosts: &[(&str, EgressWay, bool)], state| logged(went(hosts), state);
    let (denied, allowed) = (json!({"egress_denied": "a.example"}), json!({"egress_allowed": "a.example"}));
    let reached = [("a.example:443", EgressWay::Connect, true)];
    let refused = [("a.example:443", EgressWay::Connect, false)];
    for (check, evidence, outcome) in [
        (&denied, log(&[], EgressLogState::Unenforced), Outcome::Waived),
        (&denied, log(&refused, EgressLogState::Unenforced), Outcome::Waived),
        (&denied, log(&reached, EgressLogState::Unenforced), Outcome::Fail),
        (&denied, log(&refused[..0], EgressLogState::Truncated), Outcome::Unknown),
        (
            &denied,
            log(&[], EgressLogState::Edited { line: 1, fault: EgressLogFault::Chain }),
            Outcome::Unknown,
        ),
        (&denied, Evidence { egress: None, ..nothing() }, Outcome::Unknown),
        (&allowed, log(&[], EgressLogState::Unenforced), Outcome::Waived),
        (&allowed, log(&reached, EgressLogState::Unenforced), Outcome::Pass),
        (&allowed, Evidence { egress: None, ..nothing() }, Outcome::Unknown),
    ] {
        assert_eq!(waived(check, evidence), outcome, "{check}");
    }
    let path = json!({"transcript_no_host_path": true});
    for (said_text, outcome) in [
        ("nothing", Outcome::Waived),
        ("in /home/run/outputs.", Outcome::Waived),
        ("in /home/run, and in /home/ann/x", Outcome::Fail),
        ("in /home/runner", Outcome::Fail),
        ("in /home/run/../ann", Outcome::Fail),
    ] {
        assert_eq!(waived(&path, talk(vec![said(said_text)])), outcome, "{said_text}");
    }
    let cut = Whole::No { why: "it is cut off".to_owned() };
    let cut = Evidence { conversation: cut, ..talk(vec![said("in /home/run")]) };
    assert_eq!(waived(&path, cut), Outcome::Unknown);
    let unmeasured = Evidence { metrics: Metrics::default(), ..nothing() };
    assert_eq!(waived(&json!({"max_tokens": 1}), unmeasured), Outcome::Unknown);
}
