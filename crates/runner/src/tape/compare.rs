//! Compares two tapes.

use super::Tape;
use super::show::conversation_label;
use crate::suite::evidence_of;
use belljar_contract::{Exchange, Lane};
use belljar_egress::tape::{Difference, differences, kept_answer, kept_request};
use belljar_record::ReadError;
use belljar_report::Trace;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

/// Why two tapes cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A body cannot be read.
    #[error("cannot read a body of a tape")]
    Body(#[from] io::Error),
    /// The record of a run cannot be read.
    #[error("cannot read the run on a tape")]
    Record(#[from] ReadError),
}

/// The differences between two tapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TapeDifference {
    /// In the facts about the tapes: scenario, agent, plan, environment, normalisers.
    pub environment: Vec<Difference>,
    /// In the exchanges with the model.
    pub exchanges: Vec<ExchangeDifference>,
    /// In the files of the workspace.
    pub files: Vec<Difference>,
    /// In the destinations that were reached or refused.
    pub egress: Vec<Difference>,
}

/// The difference between two exchanges at the same position of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExchangeDifference {
    pub conversation: String,
    /// The position in the conversation, from 0.
    pub place: usize,
    /// Which of the tapes has an exchange: `both`, `left`, `right`.
    pub on: &'static str,
    pub request: Vec<Difference>,
    pub answer: Vec<Difference>,
}

impl TapeDifference {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { environment, exchanges, files, egress } = self;
        environment.is_empty() && exchanges.is_empty() && files.is_empty() && egress.is_empty()
    }
}

/// Compares two tapes.
///
/// # Errors
/// If a part of them cannot be read.
pub fn compare(left: &Tape, right: &Tape) -> Result<TapeDifference, CompareError> {
    let seen = |tape: &Tape| -> Result<Trace, ReadError> {
        let reader = tape.run();
        Ok(Trace::of(&evidence_of(&reader, reader.read()?, Lane::Local)))
    };
    let (old, new) = (seen(left)?, seen(right)?);
    Ok(TapeDifference {
        environment: differences(&portrait(left), &portrait(right)),
        exchanges: exchanges(left, right)?,
        files: differences(&json!(old.files), &json!(new.files)),
        egress: differences(&json!(old.egress), &json!(new.egress)),
    })
}

/// The facts about a tape, without those that differ between any two.
fn portrait(tape: &Tape) -> Value {
    let head = &tape.head;
    json!({
        "format": head.format,
        "belljar": head.belljar,
        "scenario": head.scenario,
        "agent": head.agent,
        "plan": head.plan,
        "environment": head.environment,
        "normalisers": head.normalisers,
    })
}

fn by_place(tape: &Tape) -> BTreeMap<(String, usize), &Exchange> {
    let mut out = BTreeMap::new();
    for exchange in &tape.exchanges {
        let label = conversation_label(&exchange.conversation);
        let place = out.keys().filter(|(conversation, _)| *conversation == label).count();
        out.insert((label, place), exchange);
    }
    out
}

fn exchanges(left: &Tape, right: &Tape) -> io::Result<Vec<ExchangeDifference>> {
    let (old, new) = (by_place(left), by_place(right));
    let mut places: Vec<&(String, usize)> = old.keys().chain(new.keys()).collect();
    places.sort();
    places.dedup();
    let mut out = Vec::new();
    for place in places {
        let (on, request, answer) = match (old.get(place), new.get(place)) {
            (Some(one), Some(two)) => {
                let request = differences(&request(left, one)?, &request(right, two)?);
                ("both", request, differences(&answer(left, one)?, &answer(right, two)?))
            }
            (Some(_), None) => ("left", Vec::new(), Vec::new()),
            (None, _) => ("right", Vec::new(), Vec::new()),
        };
        if on != "both" || !request.is_empty() || !answer.is_empty() {
            let (conversation, place) = place.clone();
            out.push(ExchangeDifference { conversation, place, on, request, answer });
        }
    }
    Ok(out)
}

fn request(tape: &Tape, exchange: &Exchange) -> io::Result<Value> {
    Ok(kept_request(&tape.body(exchange.request.body)?))
}

/// The answer without the times of its chunks.
fn answer(tape: &Tape, exchange: &Exchange) -> io::Result<Value> {
    let Some(answer) = &exchange.answer else { return Ok(Value::Null) };
    let bytes = tape.body(answer.body)?;
    let body = kept_answer(&bytes).unwrap_or_else(|| Value::from(String::from_utf8_lossy(&bytes)));
    Ok(json!({"status": answer.status, "end": answer.end, "body": body}))
}
