//! Whether the parts of a tape agree with each other: its record, logs, listing of files, artifacts, answers and requests.
//!
//! The digest of a part can be computed anew after a change. Then the part still has to agree with the others.

use super::judged::misjudged;
use super::protocol::ReadTape;
use super::usage::wrong_usage;
use super::{Normaliser, Private, Tape};
use crate::store::journal::MODEL_LOG;
use crate::suite::{Trial, kept_of_a_file};
use belljar_contract::{
    CallId, Completeness, EgressLogState, Event, Evidence, FileKind, FilesSeen, ModelEvidence, ModelExchange,
    ModelItem, Observation, Run, RunStatus, ServedBlock, TapeHead, holds_redaction,
};
use belljar_session::decider::{Decider, Decision, Scripted};
use belljar_session::{Answer, AnswerValue, By, Question};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why the parts of a tape cannot all be what was recorded, if that is so.
pub(super) fn disagreement(tape: &Arc<Tape>, read: &ReadTape) -> Option<String> {
    let ReadTape { evidence, flaw, misquoted, mismatch: _, decided, same_prices } = read;
    let quoted = |line| format!("frames.jsonl:{line}: the agent repeats otherwise what it was sent");
    flaw.clone()
        .or_else(|| without_inputs(&tape.head))
        .or_else(|| egress(evidence))
        .or_else(|| artifacts(tape, evidence.files.as_ref()))
        .or_else(|| requests(&evidence.model))
        .or_else(|| denied(evidence, decided))
        .or_else(|| misquoted.map(quoted))
        .or_else(|| misjudged(tape, &evidence.claims))
        .or_else(|| wrong_usage(tape, &evidence.metrics, *same_prices))
}

/// Tapes of the first format may be without the digests of what was given to the agent; later ones have them.
pub(super) fn without_inputs(head: &TapeHead) -> Option<String> {
    (head.format > 1 && head.scenario.inputs.is_none()).then(|| {
        "the tape has no digests of its uploads, directories and projects, which its format has".to_owned()
    })
}

/// Why the record is not complete, or the run did not end as its parts say.
pub(super) fn record_flaw(run: &Run) -> Option<String> {
    match &run.completeness {
        Completeness::Complete => {}
        Completeness::Tampered { line } => {
            return Some(format!("events.jsonl:{line}: the line was changed after it was written"));
        }
        Completeness::Incomplete { why } => return Some(format!("the record: {}", why.describe())),
    }
    let events = || run.events.iter().filter_map(|record| record.event.known());
    let last = events().find_map(|event| {
        let Event::RunEnded { status, duration_ms: _ } = event else { return None };
        Some(status)
    });
    let result = run.result.as_ref().map(|result| &result.status);
    if last.is_none() || last != result {
        return Some("the record does not end as result.json says".to_owned());
    }
    let has = |is_it: fn(&Event) -> bool| events().any(is_it);
    let exited = matches!(last, Some(RunStatus::Exited { code: _ }));
    let sealed = run.head.backend.isolates();
    let logged = run.head.versions.contains_key(MODEL_LOG);
    let expected = [
        (has(|event| matches!(event, Event::RunStarted { .. })), "the start of the run"),
        (has(|event| matches!(event, Event::CommandStarted { .. })), "the start of the agent"),
        (!exited || has(|event| matches!(event, Event::CommandEnded { .. })), "the end of the agent"),
        (!sealed || has(|event| matches!(event, Event::Sealed { .. })), "what was enforced on the agent"),
        (!logged || has(|event| matches!(event, Event::FramesLogged { .. })), "the end of the frames"),
        (!logged || has(|event| matches!(event, Event::ModelLogged { .. })), "the end of the model's log"),
        (!logged || has(|event| matches!(event, Event::EgressLogged { .. })), "the end of the egress log"),
    ];
    let missing = expected.into_iter().find(|(is_there, _)| !is_there);
    missing.map(|(_, what)| format!("the record does not have {what}"))
}

/// A gateway never runs without an egress log, and a run that ended closes it.
fn egress(evidence: &Evidence) -> Option<String> {
    match evidence.egress.as_ref().map(|log| &log.state) {
        Some(EgressLogState::Complete) => None,
        // No tape is made without a sandbox.
        Some(EgressLogState::Unenforced) => {
            Some("the egress log is that of a run without a sandbox".to_owned())
        }
        None | Some(EgressLogState::Absent) => Some("the tape has no egress log".to_owned()),
        Some(
            state
            @ (EgressLogState::Truncated | EgressLogState::Edited { .. } | EgressLogState::Newer { .. }),
        ) => Some(format!("the egress log: {}", state.describe())),
    }
}

/// The files that the agent made or changed are those in the listing.
fn artifacts(tape: &Tape, files: Option<&FilesSeen>) -> Option<String> {
    let Some(files) = files else {
        return Some("files.json is missing, or is not the listing that the record names".to_owned());
    };
    let scrubbed = Private::ALL.iter().any(|kind| {
        let name = Normaliser::name(kind.normaliser());
        tape.head.normalisers.iter().any(|known| known == name)
    });
    for (path, file) in &files.after {
        let fresh = files.before.get(path).is_none_or(|before| before.digest != file.digest);
        let expected = fresh && file.kind == FileKind::File && kept_of_a_file(file.bytes);
        let part = tape.head.parts.contains_key(&format!("artifacts/files/{path}"));
        // Scrubbing a tape changes the artifacts, not the listing.
        if (expected && !part) || (part && file.body.is_none() && !scrubbed) {
            return Some(format!("the artifact `{path}` is missing, or is not the one in files.json"));
        }
    }
    let mut parts = tape.head.parts.keys().filter_map(|name| name.strip_prefix("artifacts/files/"));
    let stray = parts.find(|path| !files.after.contains_key(*path));
    stray.map(|path| format!("the artifact `{path}` is not in files.json"))
}

/// Each request repeats calls as the model made them, and results as other requests have them.
fn requests(model: &ModelEvidence) -> Option<String> {
    let ModelEvidence::Kept { frames: _, exchanges } = model else { return None };
    let (mut served, mut results) = (BTreeMap::new(), BTreeMap::new());
    for (at, ModelExchange { at_ms: _, request, answer }) in exchanges.iter().enumerate() {
        for item in &request.items {
            match item {
                ModelItem::Called { call, input } => {
                    let forms: Option<&&BTreeMap<String, Vec<_>>> = served.get(call);
                    let same = |(name, digest): (&String, _)| {
                        forms.is_none_or(|forms| forms.get(name).is_some_and(|forms| forms.contains(digest)))
                    };
                    if !input.iter().all(same) {
                        return Some(format!("exchange {at}: the call {call} is not as the model made it"));
                    }
                }
                ModelItem::Returned { call, text, bare, is_error } => {
                    let found = (bare.unwrap_or(*text), *is_error);
                    if *results.entry(call).or_insert(found) != found {
                        return Some(format!("exchange {at}: another result of the call {call} than before"));
                    }
                }
                ModelItem::Text { .. } | ModelItem::Said { .. } => {}
            }
        }
        let message = answer.as_ref().and_then(|answer| answer.message.as_ref());
        for block in message.into_iter().flat_map(|message| &message.blocks) {
            if let ServedBlock::ToolUse { call, tool: _, input } = block {
                served.insert(call, input);
            }
        }
    }
    None
}

/// A tool that was not allowed to run has no result but an error.
fn denied(evidence: &Evidence, decided: &[(Question, Answer)]) -> Option<String> {
    let denials = decided.iter().filter(|(_, answer)| matches!(answer.value, AnswerValue::Deny { .. }));
    let calls: Vec<&CallId> = denials.filter_map(|(question, _)| call_of(question)).collect();
    evidence.seen.iter().find_map(|seen| {
        let Observation::ToolReturned { by: _, call, tool: _, text: _, is_error } = &seen.what else {
            return None;
        };
        let contradicts = !is_error && calls.contains(&call);
        contradicts.then(|| format!("the call {call} was denied, and has a result"))
    })
}

const fn call_of(question: &Question) -> Option<&CallId> {
    match question {
        Question::Permission(request)
        | Question::Choice { request, .. }
        | Question::Unreadable { request, .. } => request.call.as_ref(),
        Question::Hook(_) | Question::Mcp(_) | Question::Elicitation(_) | Question::Dialog(_) => None,
    }
}

/// Whether each answer came from where the record says, if the scenario's rules are those of the recording.
pub(super) fn misattributed(trial: &Trial, decided: &[(Question, Answer)]) -> Option<String> {
    let rules = Scripted::default().with(trial.rules.clone(), By::Scenario);
    decided.iter().find_map(|(question, answer)| {
        // A rule may look at what was redacted.
        if holds_redaction(format!("{question:?}").as_bytes()) {
            return None;
        }
        let ruled = rules.decide(question);
        let agrees = match answer.by {
            By::Scenario => {
                matches!(&ruled, Decision::Answered(given) if given.value == answer.value)
            }
            By::CommandLine | By::Belljar => true,
            By::Policy | By::Parity | By::First | By::External | By::Model | By::Person => {
                matches!(ruled, Decision::NoOpinion { .. })
            }
        };
        let (about, by) = (question.about(), answer.by.name());
        (!agrees).then(|| format!("an answer to {about} by `{by}` is not what the scenario's rules give"))
    })
}
