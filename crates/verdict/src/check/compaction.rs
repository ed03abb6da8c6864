//! Whether the conversation was compacted.

use super::{Check, Key, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::Yes;
use belljar_contract::Observation;

pub(super) const KEYS: &[Key] = &[Compacted::KEY];

check! {
    /// The agent compacted the conversation at least once.
    Compacted(Outcome, "compaction_occurred", NotNeeded): Yes
}

impl Check for Compacted {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let Yes = self.0;
        match run.evidence.seen.iter().find(|seen| seen.what == Observation::Compacted) {
            Some(seen) => Finding::pass("the conversation was compacted").seen(seen.seq, "compacted"),
            None => run.fails_if_whole("the conversation was not compacted"),
        }
    }
}
