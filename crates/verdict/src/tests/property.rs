//! Evidence that is taken away never makes anything green.

use super::cases::all;
use super::{checks, result};
use belljar_contract::{
    Conclusion, EgressLogState, Evidence, FilesSeen, Metrics, Observation, Outcome, Seen, Whole,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A piece of evidence that can be lost.
#[derive(Debug, Clone)]
enum Loss {
    /// An event; the record is then not whole, and says so.
    Event(usize),
    /// Everything after an event.
    Tail(usize),
    End,
    EgressLog,
    /// The log from a row on.
    EgressTail(usize),
    Files,
    /// A file before or after; what was not looked at is named.
    FileBefore(usize),
    FileAfter(usize),
    Body(usize),
    DigestOf(usize),
    Metrics,
    Tokens,
    Duration,
    Claims,
    Claim(usize),
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        8 => (0_usize..40).prop_map(Loss::Event),
        2 => (0_usize..40).prop_map(Loss::Tail),
        1 => Just(Loss::End),
        1 => Just(Loss::EgressLog),
        2 => (0_usize..6).prop_map(Loss::EgressTail),
        1 => Just(Loss::Files),
        2 => (0_usize..6).prop_map(Loss::FileBefore),
        2 => (0_usize..6).prop_map(Loss::FileAfter),
        1 => (0_usize..6).prop_map(Loss::Body),
        1 => (0_usize..6).prop_map(Loss::DigestOf),
        1 => Just(Loss::Metrics),
        1 => Just(Loss::Tokens),
        1 => Just(Loss::Duration),
        1 => Just(Loss::Claims),
        1 => (0_usize..3).prop_map(Loss::Claim),
    ]
}

fn not_whole() -> Whole {
    Whole::No { why: "something is lost".to_owned() }
}

fn without(mut evidence: Evidence, loss: &Loss) -> Evidence {
    let nth = |length: usize, at: usize| (length > 0).then(|| at % length);
    match loss {
        Loss::Event(at) => {
            if let Some(at) = nth(evidence.seen.len(), *at) {
                evidence.seen.remove(at);
                evidence.conversation = not_whole();
            }
        }
        Loss::Tail(at) => {
            evidence.seen.truncate(*at);
            evidence.conversation = not_whole();
            evidence.end = None;
        }
        Loss::End => evidence.end = None,
        Loss::EgressLog => evidence.egress = None,
        Loss::EgressTail(at) => {
            if let Some(log) = &mut evidence.egress {
                log.rows.truncate(*at);
                log.state = EgressLogState::Truncated;
            }
        }
        Loss::Files => evidence.files = None,
        Loss::FileBefore(at) => lose_file(&mut evidence, *at, |files| &mut files.before),
        Loss::FileAfter(at) => lose_file(&mut evidence, *at, |files| &mut files.after),
        Loss::Body(at) => {
            if let Some(file) = evidence.files.iter_mut().flat_map(|files| files.after.values_mut()).nth(*at)
            {
                file.body = None;
            }
        }
        Loss::DigestOf(at) => {
            if let Some(file) = evidence.files.iter_mut().flat_map(|files| files.after.values_mut()).nth(*at)
            {
                file.digest = None;
            }
        }
        Loss::Metrics => evidence.metrics = Metrics::default(),
        Loss::Tokens => evidence.metrics.input_tokens = None,
        Loss::Duration => evidence.duration_ms = None,
        Loss::Claims => evidence.claims.clear(),
        Loss::Claim(at) => {
            if let Some(at) = nth(evidence.claims.len(), *at) {
                evidence.claims.remove(at);
            }
        }
    }
    evidence
}

type Side = fn(&mut FilesSeen) -> &mut std::collections::BTreeMap<String, belljar_contract::FileSeen>;

fn lose_file(evidence: &mut Evidence, at: usize, side: Side) {
    let Some(files) = &mut evidence.files else { return };
    let Some(path) = side(files).keys().nth(at).cloned() else { return };
    side(files).remove(&path);
    files.unread.push(path);
}

/// Every piece of evidence that the cases are made of.
fn pool() -> Vec<Evidence> {
    all().into_iter().flat_map(|case| [case.pass, case.fail, case.unknown]).collect()
}

/// The conversations of several runs, one after the other, with the other parts of further ones. The ids of calls are
/// made distinct, as those of a real run are.
fn mixed(choice: &[usize], parts: &[usize; 4]) -> Evidence {
    let pool = pool();
    let of = |at: usize| &pool[at % pool.len()];
    let mut evidence = of(parts[0]).clone();
    evidence.files = of(parts[1]).files.clone();
    evidence.egress = of(parts[2]).egress.clone();
    evidence.metrics = of(parts[3]).metrics.clone();
    evidence.claims = of(parts[3]).claims.clone();
    let mut seen: Vec<Seen> = Vec::new();
    for (run, at) in choice.iter().enumerate() {
        for one in &of(*at).seen {
            let what = renamed(&one.what, run);
            seen.push(Seen { seq: seen.len() as u64, offset_ms: 0, what });
        }
    }
    evidence.seen = seen;
    evidence
}

/// The same observation with the ids of another run.
fn renamed(what: &Observation, run: usize) -> Observation {
    fn walk(value: &mut Value, run: usize) {
        match value {
            Value::Object(members) => {
                for (key, member) in members.iter_mut() {
                    match member {
                        Value::String(id) if matches!(key.as_str(), "call" | "request") => {
                            *id = format!("{id}-{run}")
                        }
                        other => walk(other, run),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, run)),
            _ => {}
        }
    }
    let mut value = json!(what);
    walk(&mut value, run);
    serde_json::from_value(value).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(120) })]

    #[test]
    fn losing_evidence_makes_nothing_green(
        choice in prop::collection::vec(0_usize..400, 0..5),
        parts in [0_usize..400, 0..400, 0..400, 0..400],
        losses in prop::collection::vec(loss(), 1..4),
    ) {
        let before = mixed(&choice, &parts);
        let after = losses.iter().fold(before.clone(), without);
        let items: Vec<Value> = all().into_iter().map(|case| case.check).collect();
        for item in &items {
            // Each by itself, so that contradictions between them do not matter.
            let checks = checks(&json!([item]));
            let (was, is) = (checks.judge(&before), checks.judge(&after));
            if was.checks[0].outcome != Outcome::Pass {
                prop_assert_ne!(is.checks[0].outcome, Outcome::Pass, "{} after {:?}: {}", item, losses, is.checks[0].message);
            }
            if was.conclusion != Conclusion::Passed {
                prop_assert_ne!(is.conclusion, Conclusion::Passed, "{} after {:?}", item, losses);
            }
        }
    }

    #[test]
    fn no_pass_outlives_the_events_it_names(
        choice in prop::collection::vec(0_usize..400, 1..5),
        parts in [0_usize..400, 0..400, 0..400, 0..400],
    ) {
        let whole = mixed(&choice, &parts);
        for case in all() {
            let mut evidence = whole.clone();
            loop {
                let found = result(&case.check, &evidence);
                let named: Vec<u64> = found.evidence.iter().filter_map(|note| note.seq).collect();
                if found.outcome != Outcome::Pass || named.is_empty() {
                    break;
                }
                for seq in &named {
                    prop_assert!(evidence.seen.iter().any(|seen| seen.seq == *seq), "{} names {}", case.check, seq);
                }
                let events = evidence.seen.len();
                evidence.seen.retain(|seen| !named.contains(&seen.seq));
                evidence.conversation = not_whole();
                prop_assert!(evidence.seen.len() < events);
            }
            // Whatever still holds now rests on something else than events, and falls with that.
            let rest = [Loss::Tail(0), Loss::End, Loss::EgressLog, Loss::Files, Loss::Metrics, Loss::Claims];
            let bare = rest.iter().fold(evidence, without);
            prop_assert_ne!(result(&case.check, &bare).outcome, Outcome::Pass, "{}", case.check);
        }
    }
}

/// The evidence that a pass names without an event is one of these parts, and the pass falls with it.
#[test]
fn every_pass_falls_with_a_part_of_the_evidence() {
    for case in all() {
        let parts = [Loss::Tail(0), Loss::End, Loss::EgressLog, Loss::Files, Loss::Metrics, Loss::Claims];
        let falls = parts
            .iter()
            .any(|part| result(&case.check, &without(case.pass.clone(), part)).outcome != Outcome::Pass);
        assert!(falls, "{}", case.check);
    }
}
