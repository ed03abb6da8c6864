//! Reads the evidence for a verdict from a run's directory. A run that has just ended is read in the same way as an old
//! one.

use super::Tried;
use crate::store::journal::MODEL_LOG;
use belljar_contract::{
    AbsPath, Completeness, Digest, Event, Evidence, FileSeen, FilesSeen, Lane, Metrics, ModelEvidence, Run,
    Seen, Whole, read_egress_log, read_frames, read_model_log,
};
use belljar_record::{ReadError, RunReader};
use std::fs::File;
use std::io::Read;
use std::path::Path;

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
    let run = RunReader::new(directory.clone()).read()?;
    let mut seen = Vec::new();
    let (mut end, mut listing, mut egress_head, mut stopped_by, mut unknown) =
        (None, None, None, None, 0_u64);
    let (mut frames_head, mut model_head) = (None, None);
    for record in &run.events {
        match record.event.known() {
            Some(Event::Seen { what }) => {
                seen.push(Seen { seq: record.seq, offset_ms: record.offset_ms, what: (**what).clone() });
            }
            Some(Event::ConversationEnded { end: found }) => end = Some((**found).clone()),
            Some(Event::FilesListed { listing: digest }) => listing = Some(*digest),
            Some(Event::EgressLogged { head }) => egress_head = Some(*head),
            Some(Event::FramesLogged { head }) => frames_head = Some(*head),
            Some(Event::ModelLogged { head }) => model_head = Some(*head),
            Some(Event::LimitReached { limit }) => stopped_by = Some(*limit),
            Some(_) => {}
            None => unknown += 1,
        }
    }
    let conversation = match (&run.completeness, &end) {
        (Completeness::Complete, _) if unknown > 0 => {
            Whole::No { why: format!("{unknown} events were written by a newer belljar") }
        }
        (Completeness::Complete, Some(end)) if end.unread > 0 => {
            Whole::No { why: format!("{} lines of the agent could not be read or kept", end.unread) }
        }
        (Completeness::Complete, Some(_)) => Whole::Yes,
        (Completeness::Complete, None) => Whole::No { why: "the conversation has no end".to_owned() },
        (Completeness::Incomplete { why }, _) => Whole::No { why: why.describe().to_owned() },
        (Completeness::Tampered { line }, _) => {
            Whole::No { why: format!("events.jsonl:{line}: the line was changed after it was written") }
        }
    };
    // If the events have the head of an egress log that is missing now, the log counts as changed.
    let egress = match (text(&directory.child("egress.jsonl"), EGRESS), egress_head) {
        (None, None) => None,
        (text, head) => Some(read_egress_log(&text.unwrap_or_default(), head)),
    };
    let model = match run.head.versions.contains_key(MODEL_LOG) {
        true => model_evidence(directory, frames_head, model_head),
        false => ModelEvidence::NotKept,
    };
    let files = listing.and_then(|digest| files(directory, digest));
    let (metrics, duration_ms) = match &run.result {
        Some(result) => (result.metrics.clone(), Some(result.duration_ms)),
        None => (Metrics::default(), None),
    };
    let evidence = Evidence {
        seen,
        conversation,
        end,
        egress,
        model,
        files,
        metrics,
        duration_ms,
        stopped_by,
        claims: Vec::new(),
        lane,
    };
    Ok((run, evidence))
}

/// The claims of the frames and what was served, if both files are unchanged.
fn model_evidence(
    directory: &AbsPath,
    frames_head: Option<Digest>,
    model_head: Option<Digest>,
) -> ModelEvidence {
    let (Some(frames_head), Some(model_head)) = (frames_head, model_head) else {
        let which = if frames_head.is_none() { "the frames" } else { "the model" };
        return ModelEvidence::Broken { why: format!("the record of {which} was not closed") };
    };
    let read = |name: &str| text(&directory.child(name), RECORD).ok_or_else(|| format!("cannot read {name}"));
    let frames = read("frames.jsonl").and_then(|text| read_frames(&text, frames_head));
    let exchanges = read("model.jsonl").and_then(|text| read_model_log(&text, model_head));
    match (frames, exchanges) {
        (Ok(frames), Ok(exchanges)) => ModelEvidence::Kept { frames, exchanges },
        (Err(why), _) | (_, Err(why)) => ModelEvidence::Broken { why },
    }
}

/// The listing, if its digest is the one in the log, with the contents that were kept.
fn files(directory: &AbsPath, digest: Digest) -> Option<FilesSeen> {
    let text = text(&directory.child("files.json"), LISTING)?;
    if Digest::of(text.as_bytes()) != digest {
        return None;
    }
    let mut files: FilesSeen = serde_json::from_str(&text).ok()?;
    let kept = directory.child("artifacts/files");
    for (path, file) in &mut files.after {
        file.body = body(kept.as_path(), path, file);
    }
    Some(files)
}

/// The kept content of a file, if it matches the listing. The path comes from the listing on disk, so it is checked.
fn body(kept: &Path, path: &str, file: &FileSeen) -> Option<Vec<u8>> {
    if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return None;
    }
    let path = kept.join(path);
    let plain = path.symlink_metadata().is_ok_and(|found| found.is_file());
    let mut bytes = Vec::new();
    File::open(path)
        .ok()
        .filter(|_| plain)?
        .take(file.bytes.saturating_mul(2) + 4096)
        .read_to_end(&mut bytes)
        .ok()?;
    (file.kept.or(file.digest) == Some(Digest::of(&bytes))).then_some(bytes)
}

fn text(path: &AbsPath, limit: u64) -> Option<String> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    if length > limit {
        return None;
    }
    let mut text = String::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    file.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}
