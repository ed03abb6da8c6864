//! Rewrites a tape without the parts that should not be shared.
//!
//! The names of what is removed from requests are added to the tape's normalisers, so that requests of a replay are
//! treated in the same way and still match.

use super::privacy::private_findings;
use super::{Normaliser, Tape, TapeFailure, TapeWriteError};
use belljar_contract::{BodyRef, ConversationKey, Digest, Exchange, Logged, Run};
use belljar_egress::tape::{
    ChangedAnswer, Private, answer_without, first_message, request_without, text_without, value_without,
};
use belljar_record::ReadError;
use belljar_record::tape::{EXCHANGES, ExchangeLog, REQUESTS, TEXT, TapeDraft, TapeLimits};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// Files that are copied unchanged, because their lines are chained, or a digest refers to them.
const AS_THEY_ARE: [&str; 2] = ["egress.jsonl", "files.json"];
const FRAMES: &str = "frames.jsonl";
const RECORD: [&str; 3] = ["run.json", "events.jsonl", "result.json"];

/// Why a tape was not rewritten. The original is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error("cannot read the tape")]
    Read(#[from] io::Error),
    #[error("cannot read the run on the tape")]
    Record(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] TapeWriteError),
    /// The rewritten tape is not valid.
    #[error(transparent)]
    Unusable(#[from] TapeFailure),
    /// A part is not valid after the removal.
    #[error("`{part}` is not valid after the removal")]
    Shape {
        part: &'static str,
        #[source]
        cause: serde_json::Error,
    },
}

/// The kinds of private data on a tape that can be removed.
///
/// # Errors
/// If it cannot be read.
pub fn replaceable(tape: &Tape) -> io::Result<Vec<Private>> {
    let found = private_findings(tape, &BTreeMap::new())?;
    Ok(Private::ALL.into_iter().filter(|kind| found.iter().any(|one| one.kind == kind.name())).collect())
}

/// Rewrites a tape without these kinds, atomically.
///
/// # Errors
/// If that fails.
pub fn scrub(tape: &Tape, kinds: &[Private]) -> Result<Tape, ScrubError> {
    let target = tape.directory();
    let scratch = tempfile::tempdir()?;
    let kept = belljar_contract::AbsPath::new(scratch.path().join("kept")).map_err(io::Error::other)?;
    let mut log = ExchangeLog::create(kept.clone(), TapeLimits::default())?;
    let mut known = BTreeMap::new();
    for exchange in &tape.exchanges {
        let fresh = rewritten(tape, exchange, kinds, (&mut log, &mut known))?;
        log.line(&fresh)?;
    }
    drop(log);
    if !shares_requests(tape) {
        [REQUESTS, TEXT].into_iter().try_for_each(|name| fs::remove_file(kept.child(name)))?;
    }
    let mut draft = TapeDraft::begin(target)?;
    draft.exchanges(&kept)?;
    draft.record(&record(tape, kinds)?)?;
    for name in tape.head.parts.keys() {
        if [EXCHANGES, REQUESTS, TEXT].contains(&name.as_str()) || RECORD.contains(&name.as_str()) {
            continue;
        }
        let bytes = tape.read(name)?;
        let fresh = match AS_THEY_ARE.contains(&name.as_str()) {
            true => None,
            false => std::str::from_utf8(&bytes).ok().and_then(|text| match name == FRAMES {
                true => Some(text.lines().map(|line| document_line(line, kinds)).collect()),
                false => text_without(text, kinds),
            }),
        };
        draft.part(name, fresh.as_deref().map_or(&bytes[..], str::as_bytes))?;
    }
    let mut head = tape.head.clone();
    head.normalisers = normalisers(&head.normalisers, kinds);
    draft.finish(head)?;
    Ok(Tape::open(target)?)
}

/// Whether requests are ranges of a text that they share. A tape of the first format keeps that format and its whole
/// requests: a later one has digests that it may lack, and would contradict itself without them.
fn shares_requests(tape: &Tape) -> bool {
    tape.head.format > 1
}

/// Rewrites the bodies of an exchange, and the exchange's references to them.
fn rewritten(
    tape: &Tape,
    exchange: &Exchange,
    kinds: &[Private],
    (log, known): (&mut ExchangeLog, &mut BTreeMap<u32, Digest>),
) -> Result<Exchange, ScrubError> {
    let mut fresh = exchange.clone();
    let request = request_without(&tape.body(exchange.request.body)?, kinds);
    fresh.request.body = if shares_requests(tape) { log.request(&request)? } else { log.answer(&request)? };
    if let ConversationKey::SubAgent { number, first } = &mut fresh.conversation {
        *first = *known.entry(*number).or_insert_with(|| first_message(&request));
    }
    if let Some(answer) = &mut fresh.answer {
        let body = tape.body(answer.body)?;
        let (body, chunks) = match answer_without(&body, &answer.chunks, kinds) {
            Some(ChangedAnswer { body, chunks }) => (Cow::Owned(body), chunks),
            None => (body, answer.chunks.clone()),
        };
        let kept: BodyRef = log.answer(&body)?;
        (answer.body, answer.chunks) = (kept, chunks);
    }
    Ok(fresh)
}

fn record(tape: &Tape, kinds: &[Private]) -> Result<Run, ScrubError> {
    let mut run = tape.run().read()?;
    run.head = without(&run.head, "run.json", kinds)?;
    run.result = run.result.map(|result| without(&result, "result.json", kinds)).transpose()?;
    for record in &mut run.events {
        let mut value = match &record.event {
            Logged::Known(event) => json!(event),
            Logged::Unread(value) => value.clone(),
        };
        value_without(&mut value, kinds);
        record.event = Logged::from_json(value);
    }
    Ok(run)
}

fn without<T: serde::Serialize + DeserializeOwned>(
    of: &T,
    part: &'static str,
    kinds: &[Private],
) -> Result<T, ScrubError> {
    let mut value = json!(of);
    value_without(&mut value, kinds);
    serde_json::from_value(value).map_err(|cause| ScrubError::Shape { part, cause })
}

fn document_line(line: &str, kinds: &[Private]) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            value_without(&mut value, kinds);
            format!("{value}\n")
        }
        Err(_) => format!("{}\n", text_without(line, kinds).unwrap_or_else(|| line.to_owned())),
    }
}

/// The normalisers of the tape and those for these kinds, in the order in which they apply.
fn normalisers(names: &[String], kinds: &[Private]) -> Vec<String> {
    let more = |one: &Normaliser| kinds.iter().any(|kind| kind.normaliser() == *one);
    let wanted = |one: &Normaliser| more(one) || names.iter().any(|name| name == one.name());
    Normaliser::ALL.into_iter().filter(wanted).map(|one| one.name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::agreement::without_inputs;
    use super::*;
    use belljar_contract::AbsPath;
    use std::path::Path;

    #[test]
    fn a_tape_of_the_first_format_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let target = AbsPath::new(directory.path()).unwrap().child("hello.tape");
        let museum = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/fixtures/tape-v1/hello.tape");
        fs::create_dir_all(target.child("bodies")).unwrap();
        for below in ["", "bodies"] {
            for entry in fs::read_dir(museum.join(below)).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    fs::copy(entry.path(), target.child(below).as_path().join(entry.file_name())).unwrap();
                }
            }
        }
        let before = Tape::open(&target).unwrap();
        let after = scrub(&before, &[Private::Email]).unwrap();
        assert_eq!((after.head.format, without_inputs(&after.head)), (1, None));
        let kept = |tape: &Tape| -> Vec<_> {
            tape.exchanges.iter().map(|one| (one.request.clone(), one.answer.clone())).collect()
        };
        assert_eq!(kept(&after), kept(&before));
        assert!(!target.child("requests.jsonl").as_path().exists());
    }
}
