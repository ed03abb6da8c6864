//! Reads the evidence for a verdict from a run's directory. A run that has just ended is read in the same way as an old
//! one.

use super::Tried;
use crate::store::journal::MODEL_LOG;
use belljar_contract::{
    AbsPath, Completeness, Digest, Event, EventRecord, Evidence, FileSeen, FilesSeen, Lane, Logged, Metrics,
    ModelEvidence, Run, RunHead, RunIsolation, Seen, Whole, read_egress_log, read_frames, read_model_log,
};
use belljar_record::{ReadError, RunReader};
use serde_json::Value;
use std::borrow::Cow;

/// The largest listing of a workspace, in bytes.
const LISTING: u64 = 128 << 20;
/// The largest egress log.
const EGRESS: u64 = 256 << 20;

/// The largest record of frames, or log of the model.
const RECORD: u64 = 256 << 20;

impl Tried {
    /// Why the conversation cannot be trusted, if that is so.
    #[must_use]
    pub fn unvouched(&self) -> Option<&str> {
        let mut signals = self.judgement.signals.iter();
        let found = signals.find(|signal| belljar_verdict::UNVOUCHED.contains(&signal.code.as_str()));
        found.map(|signal| signal.message.as_str())
    }
}

/// Reads a run's directory.
///
/// # Errors
/// If it is not a run, or cannot be read. Missing parts are reported by the evidence.
pub fn evidence(directory: &AbsPath, lane: Lane) -> Result<(Run, Evidence), ReadError> {
    let reader = RunReader::new(directory.clone());
    let run = reader.read()?;
    let mut found = evidence_of(&reader, run.clone(), lane);
    if run.head.versions.contains_key(MODEL_LOG) {
        found.model = model_evidence(&reader, &run);
    }
    Ok((run, found))
}

/// What a verdict is made from, without the frames and the log of the model.
pub(crate) fn evidence_of(reader: &RunReader<'_>, run: Run, lane: Lane) -> Evidence {
    let Run { head, events, result, completeness } = run;
    let (mut seen, mut claims) = (Vec::new(), Vec::new());
    let (mut end, mut listing, mut egress_head, mut stopped_by, mut unknown) =
        (None, None, None, None, 0_u64);
    let (mut interrupted, mut agent_ended) = (false, false);
    let mut judge_interrupted = false;
    for EventRecord { seq, offset_ms, event } in events {
        match event {
            Logged::Known(Event::Seen { what }) => seen.push(Seen { seq, offset_ms, what: *what }),
            Logged::Known(Event::ConversationEnded { end: found }) => end = Some(*found),
            Logged::Known(Event::FilesListed { listing: digest }) => listing = Some(digest),
            Logged::Known(Event::EgressLogged { head }) => egress_head = Some(head),
            Logged::Known(Event::LimitReached { limit }) => stopped_by = Some(limit),
            Logged::Known(Event::Judged { answers, usage: _ }) => claims.extend(answers),
            // The agent's end is on record before a judge is asked.
            Logged::Known(Event::Interrupted { signal: _ }) if agent_ended => judge_interrupted = true,
            Logged::Known(Event::Interrupted { signal: _ }) => interrupted = true,
            Logged::Known(Event::CommandEnded { end: _ }) => agent_ended = true,
            Logged::Known(
                // The frames and the log of the model are read by their own functions.
                Event::FramesLogged { .. }
                | Event::ModelLogged { .. }
                // No assertion is about these.
                | Event::RunStarted { .. }
                | Event::Sealed { .. }
                // The head says which backend it was.
                | Event::Unsealed { .. }
                | Event::CommandStarted { .. }
                | Event::LimitSet { .. }
                | Event::SignalForwarded { .. }
                | Event::HostExecutedCreated { .. }
                | Event::HostExecutedHeld { .. }
                | Event::HostExecutedAsked { .. }
                | Event::HostExecutedAnswered { .. }
                | Event::WorkspaceChanged { .. }
                | Event::Notice { .. }
                | Event::CleanupFailed { .. }
                | Event::RunEnded { .. },
            ) => {}
            Logged::Unread(_) => unknown += 1,
        }
    }
    let conversation = match (&completeness, &end) {
        (Completeness::Complete, _) if unknown > 0 => {
            Whole::No { why: format!("{unknown} events were written by a newer belljar") }
        }
        (Completeness::Complete, _) if interrupted => Whole::Interrupted,
        (Completeness::Complete, Some(end)) if end.unread > 0 => {
            Whole::No { why: format!("{} lines of the agent could not be read or kept", end.unread) }
        }
        (Completeness::Complete, Some(_)) if judge_interrupted => Whole::JudgeInterrupted,
        (Completeness::Complete, Some(_)) => Whole::Yes,
        (Completeness::Complete, None) => Whole::No { why: "the conversation has no end".to_owned() },
        (Completeness::Incomplete { why }, _) => Whole::No { why: why.describe().to_owned() },
        (Completeness::Tampered { line }, _) => {
            Whole::No { why: format!("events.jsonl:{line}: the line was changed after it was written") }
        }
    };
    // If the log mentions one that is missing now, it is not what was written.
    let egress = match (text(reader, "egress.jsonl", EGRESS), egress_head) {
        (None, None) => None,
        (text, head) => Some(read_egress_log(&text.unwrap_or_default(), head)),
    };
    let files = listing.and_then(|digest| files(reader, digest));
    let (metrics, duration_ms) = match result {
        Some(result) => (result.metrics, Some(result.duration_ms)),
        None => (Metrics::default(), None),
    };
    Evidence {
        seen,
        conversation,
        end,
        egress,
        model: ModelEvidence::NotKept,
        files,
        metrics,
        duration_ms,
        stopped_by,
        isolation: isolation(&head),
        claims,
        lane,
    }
}

fn isolation(head: &RunHead) -> RunIsolation {
    if head.backend.isolates() {
        return RunIsolation::Sealed;
    }
    let text = |pointer: &str| head.plan.pointer(pointer).and_then(Value::as_str);
    // The workspace lies in the directory that was made for the run.
    let stage = text("/workspace/source").and_then(|source| source.rsplit_once('/')).map(|(stage, _)| stage);
    let own = [stage, text("/instance/directory"), text("/home_directory")];
    RunIsolation::Missing { own: own.into_iter().flatten().map(str::to_owned).collect() }
}

/// The claims of the frames and what was served, if both files are unchanged.
fn model_evidence(reader: &RunReader<'_>, run: &Run) -> ModelEvidence {
    let (mut frames_head, mut model_head) = (None, None);
    for event in run.events.iter().filter_map(|record| record.event.known()) {
        if let Event::FramesLogged { head } = event {
            frames_head = Some(*head);
        } else if let Event::ModelLogged { head } = event {
            model_head = Some(*head);
        }
    }
    let (Some(frames_head), Some(model_head)) = (frames_head, model_head) else {
        let which = if frames_head.is_none() { "the frames" } else { "the model" };
        return ModelEvidence::Broken { why: format!("the record of {which} was not closed") };
    };
    let read = |name: &str| text(reader, name, RECORD).ok_or_else(|| format!("cannot read {name}"));
    let frames = read("frames.jsonl").and_then(|text| read_frames(&text, frames_head));
    let exchanges = read("model.jsonl").and_then(|text| read_model_log(&text, model_head));
    match (frames, exchanges) {
        (Ok(frames), Ok(exchanges)) => ModelEvidence::Kept { frames, exchanges },
        (Err(why), _) | (_, Err(why)) => ModelEvidence::Broken { why },
    }
}

/// The listing, if its digest is the one in the log, with the contents that were kept.
fn files(reader: &RunReader<'_>, digest: Digest) -> Option<FilesSeen> {
    let text = text(reader, "files.json", LISTING)?;
    if Digest::of(text.as_bytes()) != digest {
        return None;
    }
    let mut files: FilesSeen = serde_json::from_str(&text).ok()?;
    for (path, file) in &mut files.after {
        file.body = body(reader, path, file);
    }
    Some(files)
}

/// The kept content of a file, if it matches the listing. The path comes from the listing on disk, so it is checked.
fn body(reader: &RunReader<'_>, path: &str, file: &FileSeen) -> Option<Vec<u8>> {
    if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return None;
    }
    let limit = file.bytes.saturating_mul(2).saturating_add(4096);
    let bytes = reader.file(&format!("artifacts/files/{path}"), limit).ok()??;
    (file.kept.or(file.digest) == Some(Digest::of(&bytes))).then(|| bytes.into_owned())
}

fn text<'a>(reader: &RunReader<'a>, name: &str, limit: u64) -> Option<Cow<'a, str>> {
    Some(match reader.file(name, limit).ok()?? {
        Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).ok()?),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).ok()?),
    })
}
