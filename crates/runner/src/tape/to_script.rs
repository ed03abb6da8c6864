//! A tape as a script that a person can edit: the recorded answers of the model as turns.
//!
//! A turn is for the next request of its conversation. Of several sub-agents each is recognised by a line of what it was
//! sent.

use super::Tape;
use super::show::conversation_label;
use crate::suite::script_text;
use belljar_contract::{
    ConversationKey, Event, Exchange, ExchangeAnswer, ExchangeEnd, Observation, holds_redaction,
};
use belljar_egress::script::{
    ErrorReply, FromRecorded, MAX_FILE_BYTES, RequestConditions, Script, ScriptReply, Sender, Tools, Turn,
    last_message,
};
use belljar_egress::tape::{kept_answer, kept_request};
use belljar_session::By;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Characters of a text by which a request is recognised.
const TELLING: usize = 80;

/// Lines of a message that are tried for that.
const TRIED: usize = 50;

/// A script that was made from a tape.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptOfTape {
    pub script: Script,
    /// As it is written to a file.
    pub text: String,
    /// Parts of the recording that the script does not have, each a sentence.
    pub warnings: Vec<String>,
}

/// An exchange that becomes a turn.
struct RecordedExchange<'a> {
    exchange: &'a Exchange,
    request: Value,
    /// The text that conditions look at.
    last: String,
    body: Vec<u8>,
}

/// Makes a script of the model's recorded answers.
///
/// # Errors
/// If the tape cannot be read.
pub fn to_script(tape: &Tape) -> io::Result<ScriptOfTape> {
    let all = tape.exchanges.iter().filter(|exchange| !exchange.request.path.contains("/count_tokens"));
    let all: Vec<RecordedExchange<'_>> =
        all.map(|exchange| recorded(tape, exchange)).collect::<io::Result<_>>()?;
    let conversations: BTreeSet<&ConversationKey> =
        all.iter().map(|one| &one.exchange.conversation).collect();
    let mut warnings = Vec::new();
    let mut script = Script::new();
    for (at, one) in all.iter().enumerate() {
        let (turn, mut lost) = turn(one);
        let (when, unsure) = condition(at, &all, &conversations);
        lost.extend(unsure);
        let label = (conversations.len() > 1).then(|| conversation_label(&one.exchange.conversation));
        let notes: Vec<String> = label.into_iter().chain(lost.iter().cloned()).collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        script.turns.push(Turn { note, ..turn.when(when) });
        warnings.extend(lost.into_iter().map(|why| format!("exchange {}: {why}", one.exchange.seq)));
    }
    warnings.extend(others(tape)?);
    let text = script_text(&script);
    if text.len() as u64 > MAX_FILE_BYTES {
        warnings.push(format!("the script is larger than {MAX_FILE_BYTES} bytes, so it cannot be played"));
    }
    if let Err(faults) = script.check() {
        warnings.push(format!("the script cannot be played: {faults}"));
    }
    Ok(ScriptOfTape { script, text, warnings })
}

fn recorded<'a>(tape: &Tape, exchange: &'a Exchange) -> io::Result<RecordedExchange<'a>> {
    let request = kept_request(&tape.body(exchange.request.body)?);
    let body = exchange.answer.as_ref().map(|answer| tape.body(answer.body)).transpose()?;
    let body = body.map(|body| body.into_owned()).unwrap_or_default();
    Ok(RecordedExchange { exchange, last: last_message(&request), request, body })
}

fn is_side_request(request: &Value) -> bool {
    request["tools"].as_array().is_none_or(Vec::is_empty)
}

/// The requests that the turn of an exchange is for, and why others may fit as well.
fn condition(
    at: usize,
    all: &[RecordedExchange<'_>],
    conversations: &BTreeSet<&ConversationKey>,
) -> (RequestConditions, Option<String>) {
    let any = RequestConditions::any();
    if is_side_request(&all[at].request) {
        return (any.tools(Tools::Absent), None);
    }
    let sub_agents = conversations.iter().filter(|key| ***key != ConversationKey::Main).count();
    match (&all[at].exchange.conversation, sub_agents) {
        (ConversationKey::Main, 0) => (any, None),
        (ConversationKey::Main, _) => (any.sender(Sender::Main), None),
        (ConversationKey::SubAgent { .. }, 0 | 1) => (any.sender(Sender::SubAgent), None),
        (ConversationKey::SubAgent { .. }, _) => {
            let of_it = any.sender(Sender::SubAgent);
            match telling(at, all) {
                Some(text) => (of_it.last_message_contains(text), None),
                None => {
                    let why = "nothing that it was sent tells this sub-agent from the others, so its turn may answer another";
                    (of_it, Some(why.to_owned()))
                }
            }
        }
    }
}

/// The turn of an exchange, and what it does not have of it.
fn turn(one: &RecordedExchange<'_>) -> (Turn, Vec<String>) {
    let Some(answer) = &one.exchange.answer else {
        let why = "the connection ended without an answer; the script closes it";
        return (Turn::hang_up(), vec![why.to_owned()]);
    };
    let ExchangeAnswer { status, headers, chunks: _, end, ended_ms: _, body: _ } = answer;
    let document = kept_answer(&one.body);
    if !(200..300).contains(status) {
        let FromRecorded { part, mut lost } = ErrorReply::recorded(*status, headers, document.as_ref());
        lost.extend(of_the_run(one));
        return (Turn::error(part), lost);
    }
    let Some(message) = document.filter(|document| document["content"].is_array()) else {
        let (turn, why) = incomplete(one, *end);
        return (turn, vec![why]);
    };
    let asked_for = one.request["model"].as_str().unwrap_or_default();
    let FromRecorded { part, mut lost } = ScriptReply::recorded(&message, asked_for);
    lost.extend(of_the_run(one));
    (Turn::reply(part), lost)
}

/// An answer without its end. An error in the midst of a stream is one of the model; everything else closes the connection.
fn incomplete(one: &RecordedExchange<'_>, end: ExchangeEnd) -> (Turn, String) {
    let text = String::from_utf8_lossy(&one.body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut events = data.filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
    if let Some(error) = events.find(|event| event["type"] == "error") {
        let part = ErrorReply::recorded(529, &[], Some(&error)).part;
        return (
            Turn::error(part),
            "the model failed in the midst of its answer; the script fails at once".to_owned(),
        );
    }
    let how = match end {
        ExchangeEnd::Complete => "has no end",
        ExchangeEnd::Broken => "was broken off",
        ExchangeEnd::Left => "was not waited for",
    };
    (Turn::hang_up(), format!("the answer {how}; the script closes the connection before the first byte"))
}

/// Values of the recorded run in an answer: redacted ones, and ids that another run does not have.
fn of_the_run(one: &RecordedExchange<'_>) -> Vec<String> {
    let mut out = Vec::new();
    if holds_redaction(&one.body) {
        out.push("a value was redacted; the script has the mark in its place".to_owned());
    }
    for id in one.exchange.request.ids.iter().filter(|id| holds(&one.body, &id.id)) {
        out.push(format!("it names `{}`, which the recorded run made; another run has another", id.id));
    }
    out
}

fn holds(body: &[u8], text: &str) -> bool {
    !text.is_empty() && body.windows(text.len()).any(|at| at == text.as_bytes())
}

/// A line of the last message that no other sub-agent was sent.
fn telling(at: usize, all: &[RecordedExchange<'_>]) -> Option<String> {
    let one = &all[at];
    let others: Vec<&str> = all
        .iter()
        .filter(|other| other.exchange.conversation != one.exchange.conversation)
        .filter(|other| other.exchange.conversation != ConversationKey::Main)
        .map(|other| other.last.as_str())
        .collect();
    let short = |line: &str| line.trim().chars().take(TELLING).collect::<String>();
    // What stands in angle brackets or is a mark was another text when it was sent.
    let lines =
        one.last.lines().filter(|line| !line.contains(['<', '>']) && !holds_redaction(line.as_bytes()));
    let fit = lines
        .take(TRIED)
        .map(short)
        .filter(|line| !line.is_empty() && !others.iter().any(|other| other.contains(line)));
    fit.max_by_key(|line| line.chars().count())
}

/// The answers of others than the model and the scenario: a script stands for the model alone.
fn others(tape: &Tape) -> io::Result<Vec<String>> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let run = tape.run().read().map_err(io::Error::other)?;
    for record in &run.events {
        let Some(Event::Seen { what }) = record.event.known() else { continue };
        let Observation::Answered { by, .. } = &**what else { continue };
        if let Some(by) = By::ALL.into_iter().find(|one| one.name() == by && !one.is_decided_again()) {
            *counts.entry(by.name()).or_default() += 1;
        }
    }
    let one = |(by, count): (&str, u64)| {
        format!("{count} answered by `{by}`; a script stands for the model alone, so `test` asks again")
    };
    Ok(counts.into_iter().map(one).collect())
}
