//! Recorded exchanges: a [`Recorder`] observes a backend and records its exchanges; a [`Replay`] answers requests from
//! them.
//!
//! A request finds its response by the digest of its body after the declared [`Normaliser`]s have removed the differences
//! between runs. It is never answered by its position. A request without a recorded response is a [`Drift`], which shows
//! what changed.

mod agent_differences;
mod agent_texts;
mod drift;
mod followed;
mod kept;
#[cfg(test)]
mod mutation_tests;
mod normaliser;
mod owned;
mod private;
mod recorder;
mod replay;
mod replay_body;
mod stream;
mod suite;
mod text_normaliser;
mod wrapping;

pub use agent_differences::AgentDifferences;
pub use drift::{Difference, Drift, DriftKind, ToolCall};
pub use followed::{Followed, RequestRest};
pub use kept::{
    ChangedAnswer, answer_without, differences, first_message, kept_answer, kept_request, request_without,
    text_without, value_without,
};
pub use normaliser::{Normaliser, UnknownNormaliser};
pub use owned::{ChosenParameters, Parameter};
pub use private::{Private, has_word};
pub use recorder::{KeepExchanges, Recorder, Taped};
pub use replay::{Matching, OnDrift, Pace, Replay, ReplayReport, ReplaySetup, TapeBodies, Unconsumed};
pub(crate) use suite::frame as suite_frame;
pub use suite::{Normalisers, SuiteChanges};
pub(crate) use text_normaliser::{TextNormaliser, without_agent_texts};

use std::sync::Arc;

/// Redacts secrets in bytes; `None` if there are none.
pub type Scrub = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Whether a request is recorded.
fn is_taped(method: &hyper::Method, path: &str) -> bool {
    method == hyper::Method::POST && ["/v1/messages", "/v1/messages/count_tokens"].contains(&path)
}
