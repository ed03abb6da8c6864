//! The log of the model, ordered for looking things up.

use belljar_contract::{Digest, ModelExchange, ModelItem, ServedBlock, ServedMessage};
use std::collections::{BTreeMap, BTreeSet};

/// Items of a request's history that are looked at before it counts as one that cannot be followed.
const FOLLOWED: usize = 20_000;

pub(super) struct Index<'a> {
    pub exchanges: &'a [ModelExchange],
    messages: BTreeMap<&'a str, Vec<usize>>,
    calls: BTreeMap<&'a str, usize>,
    results: BTreeMap<&'a str, Vec<Delivered<'a>>>,
}

/// A result as the model received it.
#[derive(Clone, Copy)]
pub(super) struct Delivered<'a> {
    session: Option<&'a str>,
    pub text: Digest,
    pub bare: Option<Digest>,
    pub is_error: bool,
}

impl<'a> Index<'a> {
    pub fn new(exchanges: &'a [ModelExchange]) -> Self {
        let mut index =
            Self { exchanges, messages: BTreeMap::new(), calls: BTreeMap::new(), results: BTreeMap::new() };
        for (at, exchange) in exchanges.iter().enumerate() {
            if let Some(message) = index.message(at) {
                index.messages.entry(message.id.as_str()).or_default().push(at);
                for block in &message.blocks {
                    if let ServedBlock::ToolUse { call, .. } = block {
                        index.calls.entry(call.as_str()).or_insert(at);
                    }
                }
            }
            for item in &exchange.request.items {
                if let ModelItem::Returned { call, text, bare, is_error } = item {
                    let session = exchange.request.session.as_deref();
                    let delivered = Delivered { session, text: *text, bare: *bare, is_error: *is_error };
                    index.results.entry(call.as_str()).or_default().push(delivered);
                }
            }
        }
        index
    }

    /// The message that an exchange served.
    pub fn message(&self, exchange: usize) -> Option<&'a ServedMessage> {
        self.exchanges.get(exchange)?.answer.as_ref()?.message.as_ref()
    }

    /// The exchanges that served a message of this id, in their order.
    pub fn with_message(&self, id: &str) -> &[usize] {
        self.messages.get(id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether an exchange belongs to the session that a frame names.
    pub fn is_in_session(&self, exchange: usize, framed: Option<&str>) -> bool {
        let asked = self.exchanges.get(exchange).and_then(|found| found.request.session.as_deref());
        match (asked, framed) {
            (Some(asked), Some(framed)) => asked == framed,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The exchange that served a call.
    pub fn served(&self, call: &str) -> Option<usize> {
        self.calls.get(call).copied()
    }

    /// The first result of a call that the model received, within a session.
    pub fn delivered(&self, call: &str, session: Option<&str>) -> Option<Delivered<'a>> {
        let received = self.results.get(call)?;
        let within = |delivered: &&Delivered<'_>| match (delivered.session, session) {
            (Some(received), Some(session)) => received == session,
            (None, _) | (_, None) => true,
        };
        received.iter().find(within).copied()
    }

    /// Whether the history of a request has an item; the latest are looked at first.
    pub fn has(&self, exchange: usize, wanted: impl Fn(&ModelItem) -> bool) -> bool {
        let mut at = exchange;
        let mut limit = usize::MAX;
        let mut left = FOLLOWED;
        loop {
            let Some(found) = self.exchanges.get(at) else { return false };
            let repeated =
                found.request.repeats.map_or(0, |repeats| usize::try_from(repeats.items).unwrap_or(0));
            let own = limit.saturating_sub(repeated).min(found.request.items.len());
            for item in found.request.items[..own].iter().rev() {
                if wanted(item) {
                    return true;
                }
                left -= 1;
                if left == 0 {
                    return false;
                }
            }
            match found.request.repeats {
                Some(repeats) if usize::try_from(repeats.exchange).is_ok_and(|earlier| earlier < at) => {
                    limit = limit.min(repeated);
                    at = usize::try_from(repeats.exchange).unwrap_or(0);
                }
                Some(_) | None => return false,
            }
        }
    }

    /// Calls that were served here and that a later request of the agent itself has in its history.
    pub fn continued(&self, sessions: &BTreeSet<&'a str>) -> impl Iterator<Item = &'a str> {
        let own = self.exchanges.iter().filter(|exchange| {
            let session = exchange.request.session.as_deref();
            exchange.request.agent.is_none() && session.is_some_and(|session| sessions.contains(session))
        });
        own.flat_map(|exchange| &exchange.request.items).filter_map(|item| match item {
            ModelItem::Called { call, .. } if self.is_of_the_agent_itself(call) => Some(call.as_str()),
            ModelItem::Called { .. }
            | ModelItem::Text { .. }
            | ModelItem::Said { .. }
            | ModelItem::Returned { .. } => None,
        })
    }

    fn is_of_the_agent_itself(&self, call: &str) -> bool {
        self.served(call).is_some_and(|exchange| self.exchanges[exchange].request.agent.is_none())
    }
}
