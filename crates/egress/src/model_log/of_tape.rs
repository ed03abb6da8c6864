//! The log of the model that a tape stands for: what was asked and served, read from the kept exchanges.

use super::message::read;
use super::remembered::Remembered;
use super::request::items;
use super::{AGENT_HEADER, MOST_ITEMS, SESSION_HEADER};
use crate::tape::{Alike, Normaliser, TapeBodies, without_agents_words};
use belljar_contract::{
    ConversationKey, Exchange, ExchangeRequest, ModelAnswer, ModelExchange, ModelRequest,
};
use serde_json::Value;

/// Brings frames into the form in which they are compared with a tape's exchanges.
pub struct Settled(Alike);

impl Settled {
    /// For a tape with these normalisers and exchanges.
    #[must_use]
    pub fn new(normalisers: &[Normaliser], exchanges: &[Exchange]) -> Self {
        Self(Alike::new(normalisers, exchanges))
    }

    /// A frame changed as the requests on the tape were changed; none where that leaves it as it is.
    #[must_use]
    pub fn frame(&self, frame: &Value) -> Option<Value> {
        let session = frame.get("session_id").and_then(Value::as_str);
        if !self.0.changes(frame, session) {
            return None;
        }
        let mut settled = frame.clone();
        self.0.texts(&mut settled, session);
        // Which conversation it is stays comparable.
        if let (Some(session), Some(members)) = (session, settled.as_object_mut()) {
            members.insert("session_id".to_owned(), Value::from(session));
        }
        Some(settled)
    }
}

/// What a tape's model was asked and served, in the order of the requests. Times count from the first one.
///
/// # Errors
/// When a body cannot be read or compared, in a line for people.
pub fn exchanges_of_tape(
    exchanges: &[Exchange],
    bodies: &dyn TapeBodies,
    settled: &Settled,
) -> Result<Vec<ModelExchange>, String> {
    let mut known = Remembered::default();
    let mut out: Vec<ModelExchange> = Vec::new();
    for exchange in exchanges.iter().filter(|exchange| is_message(&exchange.request)) {
        let failed = |error| format!("cannot read a body of exchange {}: {error}", exchange.seq);
        let session = session(&exchange.request);
        let put_back = Alike::request(&exchange.request);
        let body = bodies.body(exchange.request.body).map_err(failed)?;
        let items = items(&body, &put_back, without_agents_words);
        if items.len() > MOST_ITEMS {
            return Err(format!("exchange {} has more than {MOST_ITEMS} items", exchange.seq));
        }
        let (repeats, items) = known.compact(out.len() as u64, items);
        let answer = match &exchange.answer {
            None => None,
            Some(answer) => {
                let settle = |value: &mut Value| settled.0.texts(value, session.as_deref());
                let body = bodies.body(answer.body).map_err(failed)?;
                let served = (200..300).contains(&answer.status);
                let message = served.then(|| read(&body, &settle)).flatten();
                Some(ModelAnswer { status: Some(answer.status), end: answer.end, message })
            }
        };
        let request = ModelRequest { session, agent: agent(exchange), repeats, items };
        out.push(ModelExchange { at_ms: exchange.at_ms, request, answer });
    }
    Ok(out)
}

fn is_message(request: &ExchangeRequest) -> bool {
    let path = request.path.split('?').next().unwrap_or_default();
    request.method == "POST" && path.ends_with("/v1/messages")
}

fn header(request: &ExchangeRequest, name: &str) -> Option<String> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

/// The session that the request named; older tapes have it among the ids alone.
fn session(request: &ExchangeRequest) -> Option<String> {
    let of_ids = || {
        let known = Normaliser::SessionId.name();
        request.ids.iter().find(|id| id.normaliser == known).map(|id| id.id.clone())
    };
    header(request, SESSION_HEADER).or_else(of_ids)
}

fn agent(exchange: &Exchange) -> Option<String> {
    header(&exchange.request, AGENT_HEADER).or_else(|| match exchange.conversation {
        ConversationKey::Main => None,
        ConversationKey::SubAgent { number, .. } => Some(format!("sub-agent {number}")),
    })
}
