//! Protocol replay: the recorded frames are fed to the same state machine and judged by the same code. No agent runs.
//!
//! The frames in both directions are taken from the tape: messages are sent when the machine is idle, answers are given
//! where they were given. The observations must be the same as in the recorded run.

mod again;
mod frames;

pub(super) use again::{Again, AgainEnded, Answered};
pub(super) use frames::{Line, Said};

use super::Tape;
use super::agreement::{disagreement, record_flaw};
use super::consistency::model_evidence;
use crate::suite::{Trial, evidence_of};
use belljar_contract::{
    ConversationEnd, Deadline, Event, Evidence, Inbound, Judgement, Lane, LimitKind, Observation, Seen,
};
use belljar_record::ReadError;
use belljar_session::{Answer, Harnesses, MachineConfig, Question, SkillPlace};
use belljar_verdict::judge_contradicting;
use frames::{frames, misquoted};
use serde::Serialize;
use serde_json::json;
use std::io;
use std::sync::Arc;

/// Why a tape cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("cannot read the run on the tape")]
    Record(#[from] ReadError),
    #[error("cannot read the frames on the tape")]
    Frames(#[source] io::Error),
    #[error("the tape has no {what}: it cannot be verified")]
    Missing { what: &'static str },
    #[error("frames.jsonl:{line}: not a valid frame: {why}")]
    Line { line: usize, why: String },
    /// A recorded answer does not match its question.
    #[error("the recorded answer to `{request}` does not match the question: {why}")]
    Answer { request: String, why: String },
    #[error("the recorded answer to `{request}` names the decider `{by}`, which this belljar does not know")]
    Decider { request: String, by: String },
}

/// The result of replaying a tape.
#[derive(Debug)]
pub struct ReadAgain {
    /// The judgement by the present scenario.
    pub judgement: Judgement,
    /// The evidence for it.
    pub evidence: Evidence,
    /// The number of observations.
    pub observations: usize,
    /// The first difference from the recorded observations.
    pub mismatch: Option<Mismatch>,
    /// The questions, with their recorded answers.
    pub decided: Vec<(Question, Answer)>,
}

/// An observation that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The index of the observation; the end of the conversation follows the last one.
    pub at: usize,
    /// As it was recorded.
    pub recorded: Option<String>,
    pub present: Option<String>,
}

/// A recorded conversation that was replayed but not judged.
pub(super) struct ReadTape {
    pub evidence: Evidence,
    /// Why the record is not complete, or does not end as its parts say.
    pub flaw: Option<String>,
    /// The line of a frame in which the agent repeats a message or an answer otherwise than it was sent.
    pub misquoted: Option<usize>,
    pub mismatch: Option<Mismatch>,
    /// The questions, with their recorded answers.
    pub decided: Vec<(Question, Answer)>,
    /// Whether the present belljar recorded it, with the same prices.
    pub same_prices: bool,
}

/// Replays a tape and judges it by the scenario as it is now.
///
/// # Errors
/// If evidence is missing, or a recorded answer does not match its question.
pub fn replay(tape: &Arc<Tape>, trial: &Trial) -> Result<ReadAgain, ProtocolError> {
    let read = read(tape, trial.scenario.lane)?;
    let disagreement = disagreement(tape, &read);
    let ReadTape { evidence, flaw: _, misquoted: _, mismatch, decided, same_prices: _ } = read;
    let mut judgement = trial.judge(&evidence);
    judge_contradicting(&mut judgement, disagreement);
    Ok(ReadAgain { judgement, observations: evidence.seen.len(), evidence, mismatch, decided })
}

/// Reads a tape again.
pub(super) fn read(tape: &Arc<Tape>, lane: Lane) -> Result<ReadTape, ProtocolError> {
    let reader = tape.run();
    let run = reader.read()?;
    let out_of_time = run
        .events
        .iter()
        .any(|record| matches!(record.event.known(), Some(Event::LimitReached { limit: LimitKind::Time })));
    let flaw = record_flaw(&run);
    let same_prices =
        run.head.versions.get("belljar").is_some_and(|version| version == env!("CARGO_PKG_VERSION"));
    let mut found = evidence_of(&reader, run, lane);
    found.seen.retain(|seen| !was_unknown(&seen.what));
    let recorded_end = found.end.clone().ok_or(ProtocolError::Missing { what: "end of the conversation" })?;
    let lines = frames(tape)?;
    found.model = model_evidence(tape, &lines);
    let misquoted = misquoted(&lines);
    let lines = lines.into_iter().map(|line| line.said).collect();
    let place = |place: &belljar_contract::TapeSkillPlace| SkillPlace {
        name: place.name.clone(),
        directories: place.directories.clone(),
    };
    let skills = tape.head.scenario.places.iter().map(place).collect();
    let hooks = Harnesses::built_in().background_hooks();
    let config = MachineConfig { hooks, skills, ..MachineConfig::default() };
    let mut again = Again::new(config, lines, Answered::recorded(&found.seen)?);
    again.begin();
    while let Some(said) = again.lines.pop_front() {
        again.take(said);
    }
    if out_of_time {
        let outputs = again.machine.on_deadline(Deadline::Run);
        again.carry_out(outputs);
    }
    let outputs = again.machine.on_exit(recorded_end.exit);
    again.carry_out(outputs);
    let AgainEnded { seen, end, decided } = again.finish()?;
    let mismatch = mismatch(&found.seen, &recorded_end, &seen, end.as_ref());
    // The numbers and times of the record are kept, because evidence refers to them.
    let place = |at: usize| found.seen.get(at).map_or((0, 0), |seen| (seen.seq, seen.offset_ms));
    let fresh = seen.into_iter().enumerate().map(|(at, what)| {
        let (seq, offset_ms) = place(at);
        Seen { seq, offset_ms, what }
    });
    found.seen = fresh.collect();
    found.end = end;
    Ok(ReadTape { evidence: found, flaw, misquoted, mismatch, decided, same_prices })
}

/// Whether it says that a frame is unknown which this version knows: the recording was made by an earlier one.
fn was_unknown(seen: &Observation) -> bool {
    let Observation::UnknownFrame { frame } = seen else { return false };
    !matches!(Inbound::of(&json!({"type": frame})), Ok(Inbound::Unknown { .. }))
}

fn mismatch(
    recorded: &[Seen],
    recorded_end: &ConversationEnd,
    present: &[Observation],
    present_end: Option<&ConversationEnd>,
) -> Option<Mismatch> {
    fn text<T: Serialize>(value: Option<&T>) -> Option<String> {
        value.and_then(|value| serde_json::to_string(value).ok())
    }
    let before = |at: usize| recorded.get(at).map(|seen| &seen.what);
    let at = (0..recorded.len().max(present.len())).find(|at| before(*at) != present.get(*at));
    if let Some(at) = at {
        return Some(Mismatch { at, recorded: text(before(at)), present: text(present.get(at)) });
    }
    (Some(recorded_end) != present_end).then(|| Mismatch {
        at: recorded.len(),
        recorded: text(Some(recorded_end)),
        present: text(present_end),
    })
}
