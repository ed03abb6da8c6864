//! Evidence that is taken away never makes anything green.

use super::cases::all;
use super::made::*;
use super::{checks, result};
use crate::Checks;
use belljar_contract::{
    Conclusion, EgressLogState, Evidence, FilesSeen, Metrics, Observation, Outcome, SkillWay, Speaker, Whole,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

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

/// Every check of the cases, read, and every piece of evidence that they are made of.
struct Material {
    items: Vec<(Value, Checks)>,
    pool: Vec<Evidence>,
}

static MATERIAL: LazyLock<Material> = LazyLock::new(|| {
    let more = [
        json!({"transcript_matches": "^one$"}),
        json!({"transcript_contains": "one\ntwo"}),
        json!({"subagent_tool_used": "*"}),
        json!({"subagent_file_write": {"path": "x"}}),
        json!({"tool_calls_max": 2}),
        json!({"question_options": {"contains": ["A"]}}),
    ];
    let items = all().into_iter().map(|case| case.check).chain(more);
    let items = items.map(|item| (item.clone(), checks(&json!([item])))).collect();
    let pool = all().into_iter().flat_map(|case| [case.pass, case.fail, case.unknown]).collect();
    Material { items, pool }
});

/// A step of a conversation in which everything depends on what came before.
#[derive(Debug, Clone)]
enum Step {
    /// The conversation of a case.
    Case(usize),
    Said(&'static str),
    Skill(&'static str),
    /// A call, by the agent or below an earlier call; and whether it comes back, well or not.
    Call(&'static str, Option<usize>, Option<bool>),
}

fn step() -> impl Strategy<Value = Step> {
    let tool = prop::sample::select(vec!["Write", "Bash", "Skill", "Agent", "TaskCreate"]);
    let call = (tool, prop::option::of(0_usize..6), prop::option::of(any::<bool>()));
    prop_oneof![
        2 => (0_usize..400).prop_map(Step::Case),
        2 => prop::sample::select(vec!["one", "two", "Hello World", "bye", "why?"]).prop_map(Step::Said),
        2 => prop::sample::select(vec!["notes", "other"]).prop_map(Step::Skill),
        4 => call.prop_map(|(tool, parent, back)| Step::Call(tool, parent, back)),
    ]
}

/// A whole conversation of these steps, with the other parts of further runs. The ids of calls are distinct, as those
/// of a real run are.
fn mixed(steps: &[Step], parts: &[usize; 4]) -> Evidence {
    let pool = &MATERIAL.pool;
    let of = |at: usize| &pool[at % pool.len()];
    let mut what: Vec<Observation> = Vec::new();
    let mut calls: Vec<String> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Case(case) => what.extend(of(*case).seen.iter().map(|one| renamed(&one.what, at))),
            Step::Said(text) => what.push(said(text)),
            Step::Skill(name) => what.push(skill(name, SkillWay::Tool)),
            Step::Call(tool, parent, back) => {
                let id = format!("x{at}");
                let parent = parent.filter(|_| !calls.is_empty()).map(|parent| &calls[parent % calls.len()]);
                let by = parent.map_or(Speaker::Main, |parent| under(parent));
                what.push(called_by(by, &id, tool, json!({"file_path": "x", "subject": "write"})));
                match back {
                    Some(true) => what.push(returned(&id, tool, "Task #1 created successfully")),
                    Some(false) => what.push(broke(&id, tool, "no")),
                    None => {}
                }
                calls.push(id);
            }
        }
    }
    let mut evidence = talk(what);
    evidence.files = of(parts[0]).files.clone();
    evidence.egress = of(parts[1]).egress.clone();
    evidence.metrics = of(parts[2]).metrics.clone();
    evidence.claims = of(parts[3]).claims.clone();
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn losing_evidence_makes_nothing_green(
        steps in prop::collection::vec(step(), 0..8),
        parts in [0_usize..400, 0..400, 0..400, 0..400],
        losses in prop::collection::vec(loss(), 1..4),
    ) {
        let before = mixed(&steps, &parts);
        let after = losses.iter().fold(before.clone(), without);
        // Each by itself, so that contradictions between them do not matter.
        for (item, checks) in &MATERIAL.items {
            let (was, is) = (checks.judge(&before), checks.judge(&after));
            if was.checks[0].outcome != Outcome::Pass {
                prop_assert_ne!(is.checks[0].outcome, Outcome::Pass, "{}: {}", item, is.checks[0].message);
            }
            if was.conclusion != Conclusion::Passed {
                prop_assert_ne!(is.conclusion, Conclusion::Passed, "{}", item);
            }
        }
    }

    #[test]
    fn no_pass_outlives_the_events_it_names(
        steps in prop::collection::vec(step(), 1..8),
        parts in [0_usize..400, 0..400, 0..400, 0..400],
    ) {
        let whole = mixed(&steps, &parts);
        for (item, checks) in &MATERIAL.items {
            let mut evidence = whole.clone();
            loop {
                let found = checks.judge(&evidence).checks.remove(0);
                let named: Vec<u64> = found.evidence.iter().filter_map(|note| note.seq).collect();
                if found.outcome != Outcome::Pass || named.is_empty() {
                    break;
                }
                for seq in &named {
                    prop_assert!(evidence.seen.iter().any(|seen| seen.seq == *seq), "{} names {}", item, seq);
                }
                evidence.seen.retain(|seen| !named.contains(&seen.seq));
                evidence.conversation = not_whole();
            }
            // Whatever still holds rests on something else than events, and falls with that.
            let rest = [Loss::Tail(0), Loss::EgressLog, Loss::Files, Loss::Metrics, Loss::Claims];
            let bare = rest.iter().fold(evidence, without);
            prop_assert_ne!(checks.judge(&bare).checks[0].outcome, Outcome::Pass, "{}", item);
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

/// Every short conversation and the loss of every one of its events: for checks that look at the order of things.
#[test]
fn no_event_of_a_short_conversation_is_in_the_way_of_green() {
    let letters = [
        Step::Said("one"),
        Step::Said("two"),
        Step::Skill("notes"),
        Step::Skill("other"),
        Step::Call("Write", None, Some(true)),
        Step::Call("Skill", None, None),
        Step::Call("Bash", Some(0), Some(false)),
    ];
    let order = ["transcript", "skill", "subagent", "task", "question", "tool_calls", "gate"];
    let ordered = MATERIAL.items.iter().filter(|(item, _)| {
        let key = item.as_object().and_then(|item| item.keys().next()).map_or("", String::as_str);
        order.iter().any(|word| key.contains(word))
    });
    let ordered: Vec<&(Value, Checks)> = ordered.collect();
    let mut words: Vec<Vec<Step>> = vec![Vec::new()];
    for _ in 0..3 {
        let longer = words
            .iter()
            .flat_map(|word| letters.iter().map(|letter| [&word[..], std::slice::from_ref(letter)].concat()));
        words = longer.collect();
        for word in &words {
            let before = mixed(word, &[0; 4]);
            for at in 0..before.seen.len() {
                let after = without(before.clone(), &Loss::Event(at));
                for (item, checks) in &ordered {
                    let green = |evidence| checks.judge(evidence).checks[0].outcome == Outcome::Pass;
                    assert!(green(&before) || !green(&after), "{item}: {word:?} without event {at}");
                }
            }
        }
    }
}
