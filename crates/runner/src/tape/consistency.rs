//! Checks a tape against itself: the frames against the exchanges, the record against the frames.
//!
//! The digests of a tape can be recomputed after a change. But then the frames of the agent still have to agree with
//! the exchanges with the model, as those of a real run do.

use super::agreement::{disagreement, misattributed};
use super::protocol::{self, Line, ProtocolError, Said};
use super::scenario_files::ScenarioFiles;
use super::{Bodies, Changed, ChangedCause, Tape, normalisers};
use crate::suite::Trial;
use belljar_contract::{
    Evidence, Frame, FrameClaim, FrameSeen, Lane, ModelEvidence, ModelExchange, ServedBlock, claim_of_agent,
    claim_of_belljar, session_of, with_causes,
};
use belljar_egress::model_log::{FrameNormaliser, exchanges_of_tape};
use belljar_session::{Answer, Question};
use belljar_verdict::unvouched;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The evidence on a tape as it is judged, and why its parts do not agree, if that is so.
pub(crate) fn read_recording(
    tape: &Arc<Tape>,
    lane: Lane,
) -> Result<(Evidence, Option<String>), ProtocolError> {
    let read = protocol::read(tape, lane)?;
    let disagreement = disagreement(tape, &read);
    let contradiction = disagreement.or_else(|| read.mismatch.as_ref().map(differs));
    Ok((read.evidence, contradiction))
}

pub(super) fn differs(mismatch: &protocol::Mismatch) -> String {
    format!("observation {} of the record is not what the frames show", mismatch.at)
}

/// Why the conversation on a tape cannot be trusted, if that is so.
///
/// # Errors
/// If evidence is missing.
pub fn contradiction(tape: &Arc<Tape>, trial: &Trial) -> Result<Option<String>, ProtocolError> {
    let read = protocol::read(tape, Lane::default())?;
    let disagreement = disagreement(tape, &read).or_else(|| wrongly_answered(tape, trial, &read.decided));
    Ok(unvouched(&read.evidence).or_else(|| read.mismatch.as_ref().map(differs)).or(disagreement))
}

/// An answer that the scenario's rules contradict, if they are those of the recording.
pub(super) fn wrongly_answered(tape: &Tape, trial: &Trial, decided: &[(Question, Answer)]) -> Option<String> {
    misattributed_unless(&ScenarioFiles::of(trial).changed_since(&tape.head.scenario), trial, decided)
}

/// The same, if it is known what changed since the recording.
pub(super) fn misattributed_unless(
    changed: &[Changed],
    trial: &Trial,
    decided: &[(Question, Answer)],
) -> Option<String> {
    let is_stale = changed.iter().any(|one| one.cause == ChangedCause::Scenario);
    if is_stale { None } else { misattributed(trial, decided) }
}

/// The claims of a tape's frames, and what was served according to its exchanges.
pub(super) fn model_evidence(tape: &Arc<Tape>, lines: &[Line]) -> ModelEvidence {
    match compared(tape, lines) {
        Ok((frames, exchanges)) => ModelEvidence::Kept { frames, exchanges },
        Err(why) => ModelEvidence::Broken { why },
    }
}

fn compared(tape: &Arc<Tape>, lines: &[Line]) -> Result<(Vec<FrameSeen>, Vec<ModelExchange>), String> {
    let normalisers = normalisers(tape).map_err(|error| with_causes(&error))?;
    let normaliser = FrameNormaliser::new(&normalisers, &tape.exchanges);
    let frames: Vec<FrameSeen> =
        lines.iter().zip(1..).filter_map(|(line, number)| claimed(line, number, &normaliser)).collect();
    let mut exchanges = exchanges_of_tape(&tape.exchanges, &Bodies(Arc::clone(tape)), &normaliser)?;
    if exchanges.is_empty() {
        return Err("the tape has no exchanges with the model to compare the frames with".to_owned());
    }
    let began = began_ms(&frames, &exchanges);
    exchanges.iter_mut().for_each(|exchange| exchange.at_ms = exchange.at_ms.saturating_add(began));
    Ok((frames, exchanges))
}

/// The claim of a frame, in the form of the tape's requests. `None` for a frame that claims nothing; the state machine
/// ignores it as well.
fn claimed(line: &Line, number: u64, normaliser: &FrameNormaliser) -> Option<FrameSeen> {
    let Line { offset_ms, said } = line;
    let (frame, as_it_stands) = match said {
        Said::Agent(Ok(frame)) => (&frame.raw, claim_of_agent(frame)?),
        Said::Agent(Err(_)) => return None,
        Said::Belljar(frame) => (frame, claim_of_belljar(frame)?),
    };
    let settled = normaliser.frame(frame).and_then(|settled| match said {
        Said::Agent(_) => claim_of_agent(&Frame::from_value(settled).ok()?),
        Said::Belljar(_) => claim_of_belljar(&settled),
    });
    // A changed id can be longer than an id may be. Such a frame is compared as it stands: the machine reads it.
    let claim = settled.unwrap_or(as_it_stands);
    Some(FrameSeen { line: number, offset_ms: *offset_ms, session: session_of(frame), claim })
}

/// The latest possible time of the first exchange: times on a tape count from it, those of frames from the start of the
/// run. A frame cannot show a message before it was requested.
fn began_ms(frames: &[FrameSeen], exchanges: &[ModelExchange]) -> u64 {
    let (mut messages, mut calls) = (BTreeMap::new(), BTreeMap::new());
    for exchange in exchanges {
        let Some(message) = exchange.answer.as_ref().and_then(|answer| answer.message.as_ref()) else {
            continue;
        };
        messages.entry(message.id.as_str()).or_insert(exchange.at_ms);
        for block in &message.blocks {
            if let ServedBlock::ToolUse { call, .. } = block {
                calls.entry(call.as_str()).or_insert(exchange.at_ms);
            }
        }
    }
    let latest = frames.iter().filter_map(|frame| {
        let asked = match &frame.claim {
            FrameClaim::Spoken { message: Some(id), .. } => messages.get(id.as_str()),
            FrameClaim::About { call } => calls.get(call.as_str()),
            FrameClaim::Spoken { .. }
            | FrameClaim::Sent { .. }
            | FrameClaim::Interrupted
            | FrameClaim::User { .. }
            | FrameClaim::Ended { .. }
            | FrameClaim::Compacted => None,
        };
        Some(frame.offset_ms.saturating_sub(*asked?))
    });
    latest.min().unwrap_or(0)
}
