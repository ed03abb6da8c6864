//! Which questions wait and which are settled. An id is used once in a run, so a settled one is never forgotten.

use crate::question::Question;
use belljar_contract::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of questions in a run, so that ids cannot fill the memory.
const MOST_QUESTIONS: usize = 100_000;

/// Questions of one run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pending: BTreeMap<RequestId, Question>,
    settled: BTreeSet<RequestId>,
}

/// The state of an id.
pub(super) enum Entry<'a> {
    Unknown,
    Pending(&'a Question),
    Settled,
}

impl Ledger {
    pub fn entry(&self, id: &RequestId) -> Entry<'_> {
        match self.pending.get(id) {
            Some(question) => Entry::Pending(question),
            None if self.settled.contains(id) => Entry::Settled,
            None => Entry::Unknown,
        }
    }

    pub fn is_full(&self) -> bool {
        self.pending.len() + self.settled.len() >= MOST_QUESTIONS
    }

    pub fn wait(&mut self, id: RequestId, question: Question) {
        self.pending.insert(id, question);
    }

    /// Settles a question. Returns whether it was waiting.
    pub fn settle(&mut self, id: &RequestId) -> bool {
        self.settled.insert(id.clone());
        self.pending.remove(id).is_some()
    }

    pub fn pending(&self) -> impl Iterator<Item = (&RequestId, &Question)> {
        self.pending.iter()
    }
}
