//! Recent requests, so that a later one is logged without the part that it repeats.

use belljar_contract::{Digest, ModelItem, Repeated};
use std::collections::VecDeque;

/// How many requests are remembered.
const MOST: usize = 64;

/// Limit in bytes: the agent chooses how many items there are, and how long their ids and names are.
pub(super) const MOST_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Remembered {
    pub requests: VecDeque<(u64, Vec<ModelItem>)>,
    bytes: usize,
}

impl Remembered {
    /// The items of a request without the beginning that it shares with an earlier one.
    pub fn compact(&mut self, exchange: u64, items: Vec<ModelItem>) -> (Option<Repeated>, Vec<ModelItem>) {
        let shared = |known: &[ModelItem]| known.iter().zip(&items).take_while(|(a, b)| a == b).count();
        let best = self.requests.iter().map(|(exchange, known)| (shared(known), *exchange)).max();
        let repeats = best.filter(|(count, _)| *count > 0);
        let fresh = items[repeats.map_or(0, |(count, _)| count)..].to_vec();
        self.remember(exchange, items);
        (repeats.map(|(count, exchange)| Repeated { exchange, items: count as u64 }), fresh)
    }

    /// Remembers the items of a request in place of the oldest ones.
    fn remember(&mut self, exchange: u64, items: Vec<ModelItem>) {
        let bytes = bytes_of(&items);
        if bytes > MOST_BYTES {
            return;
        }
        while self.requests.len() >= MOST || self.bytes + bytes > MOST_BYTES {
            let Some((_, oldest)) = self.requests.pop_front() else { break };
            self.bytes -= bytes_of(&oldest);
        }
        self.bytes += bytes;
        self.requests.push_back((exchange, items));
    }
}

/// Approximate memory of items.
fn bytes_of(items: &[ModelItem]) -> usize {
    let beyond = |item: &ModelItem| match item {
        ModelItem::Text { .. } | ModelItem::Said { .. } => 0,
        ModelItem::Returned { call, .. } => call.len(),
        ModelItem::Called { call, input } => {
            let members = input.keys().map(|name| name.len() + size_of::<(String, Digest)>());
            call.len() + members.sum::<usize>()
        }
    };
    items.iter().map(|item| size_of::<ModelItem>() + beyond(item)).sum()
}
