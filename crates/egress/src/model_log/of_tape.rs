//! Reads the model log of a recorded run from the exchanges of its tape.

use super::MOST_ITEMS;
use super::message::read;
use super::remembered::Remembered;
use super::request::{message_items, messages};
use crate::gateway::{AGENT_ID_HEADER, SESSION_ID_HEADER};
use crate::tape::{
    Followed, Normaliser, Normalisers, TapeBodies, TextNormaliser, suite_frame, without_agent_texts,
};
use belljar_contract::{
    ConversationKey, Exchange, ExchangeRequest, ModelAnswer, ModelExchange, ModelItem, ModelRequest,
    Repeated, SuiteNormaliser, TapeId,
};
use serde_json::Value;
use std::io;

/// Normalises frames so that they can be compared with the exchanges of a tape.
pub struct FrameNormaliser(TextNormaliser, Vec<SuiteNormaliser>);

impl FrameNormaliser {
    #[must_use]
    pub fn new(Normalisers { built_in, suite }: &Normalisers, exchanges: &[Exchange]) -> Self {
        Self(TextNormaliser::new(built_in, exchanges), suite.clone())
    }

    /// The frame, normalised as the requests on the tape were; `None` if nothing changes.
    #[must_use]
    pub fn frame(&self, frame: &Value) -> Option<Value> {
        let session = frame.get("session_id").and_then(Value::as_str);
        // Those of the suite come first, as in a request.
        let fresh = suite_frame(&self.1, frame);
        if !self.0.changes(fresh.as_ref().unwrap_or(frame), session) {
            return fresh;
        }
        let mut normalised = fresh.unwrap_or_else(|| frame.clone());
        self.0.texts(&mut normalised, session);
        // The session id is kept, because it identifies the conversation.
        if let (Some(session), Some(members)) = (session, normalised.as_object_mut()) {
            members.insert("session_id".to_owned(), Value::from(session));
        }
        Some(normalised)
    }
}

/// The requests and responses of a tape, in the order of the requests. Times count from the first one.
///
/// # Errors
/// When a body cannot be read or compared, with the reason.
pub fn exchanges_of_tape(
    exchanges: &[Exchange],
    bodies: &dyn TapeBodies,
    normaliser: &FrameNormaliser,
) -> Result<Vec<ModelExchange>, String> {
    let mut known = ItemHistory::default();
    let mut out: Vec<ModelExchange> = Vec::new();
    for exchange in exchanges.iter().filter(|exchange| is_message(&exchange.request)) {
        let failed = |error| format!("cannot read a body of exchange {}: {error}", exchange.seq);
        let session = session(&exchange.request);
        let (repeats, items) = known.items(out.len() as u64, &exchange.request, bodies).map_err(failed)?;
        if items.len() > MOST_ITEMS {
            return Err(format!("exchange {} has more than {MOST_ITEMS} items", exchange.seq));
        }
        let answer = match &exchange.answer {
            None => None,
            Some(answer) => {
                let normalise = |value: &mut Value| normaliser.0.texts(value, session.as_deref());
                let body = bodies.body(answer.body).map_err(failed)?;
                let served = (200..300).contains(&answer.status);
                let message = served.then(|| read(&body, &normalise)).flatten();
                Some(ModelAnswer { status: Some(answer.status), end: answer.end, message })
            }
        };
        let request = ModelRequest { session, agent: agent(exchange), repeats, items };
        out.push(ModelExchange { at_ms: exchange.at_ms, request, answer });
    }
    Ok(out)
}

/// The requests so far. What a request repeats of an earlier one is not read again where the tape shows that it does;
/// other requests are read whole and compared by their items.
#[derive(Default)]
struct ItemHistory {
    followed: Followed<ReadBefore>,
    compared: Remembered,
}

/// A request that was read.
struct ReadBefore {
    exchange: u64,
    /// The number of items up to each message, with that.
    counts: Vec<u64>,
    ids: Vec<TapeId>,
}

impl ItemHistory {
    /// The items of a request without those that it repeats.
    fn items(
        &mut self,
        exchange: u64,
        request: &ExchangeRequest,
        bodies: &dyn TapeBodies,
    ) -> io::Result<(Option<Repeated>, Vec<ModelItem>)> {
        let put_back = TextNormaliser::request(request);
        // Other ids would be put back in the messages, too.
        let rest = self.followed.read(bodies, request.body, &|before| before.ids == request.ids)?;
        let Some((messages, lists)) = messages(&rest.document) else { return Ok((None, Vec::new())) };
        // Which of them counts would depend on what was read before.
        if lists > 1 {
            return Err(io::Error::other("it has several lists of messages"));
        }
        let before = self.followed.of(&rest);
        let mut counts = before.map_or(Vec::new(), |before| before.counts[..rest.left_out].to_vec());
        let repeated = counts.last().copied().unwrap_or(0);
        let repeats = before.map(|before| Repeated { exchange: before.exchange, items: repeated });
        let mut fresh = Vec::new();
        for message in messages {
            if fresh.len() > MOST_ITEMS {
                break;
            }
            fresh.extend(message_items(message, &put_back, without_agent_texts));
            counts.push(repeated + fresh.len() as u64);
        }
        self.followed.keep(request.body, rest, ReadBefore { exchange, counts, ids: request.ids.clone() });
        Ok(match repeats {
            Some(repeats) => (Some(repeats).filter(|repeats| repeats.items > 0), fresh),
            None => self.compared.compact(exchange, fresh),
        })
    }
}

fn is_message(request: &ExchangeRequest) -> bool {
    let path = request.path.split('?').next().unwrap_or_default();
    request.method == "POST" && path.ends_with("/v1/messages")
}

fn header(request: &ExchangeRequest, name: &str) -> Option<String> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// The session of a request; older tapes only have it among the ids.
fn session(request: &ExchangeRequest) -> Option<String> {
    let of_ids = || {
        let known = Normaliser::SessionId.name();
        request.ids.iter().find(|id| id.normaliser == known).map(|id| id.id.clone())
    };
    header(request, SESSION_ID_HEADER).or_else(of_ids)
}

fn agent(exchange: &Exchange) -> Option<String> {
    header(&exchange.request, AGENT_ID_HEADER).or_else(|| match exchange.conversation {
        ConversationKey::Main => None,
        ConversationKey::SubAgent { number, .. } => Some(format!("sub-agent {number}")),
    })
}
