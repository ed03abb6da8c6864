//! Exchanges on tape: a [`Recorder`] watches whoever answers and takes everything down; a [`Replay`] answers from what was
//! taken down.
//!
//! A request finds its answer by the digest of its body after the declared [`Normaliser`]s have made alike what differs
//! from run to run. It is never answered by its position. What finds none is a [`Drift`], told by what changed.

mod alike;
mod drift;
mod kept;
mod normal;
mod private;
mod recorder;
mod replay;
mod served;
mod stream;
mod words;

pub(crate) use alike::{Alike, without_agents_words};
pub use drift::{Difference, Drift, DriftKind, ToolCall};
pub use kept::{
    ChangedAnswer, answer_without, differences, first_message, kept_answer, kept_request, request_without,
    text_without, value_without,
};
pub use normal::{Normaliser, UnknownNormaliser};
pub use private::{Private, has_word};
pub use recorder::{KeepExchanges, Recorder, Taped};
pub use replay::{OnDrift, Pace, Replay, ReplayReport, ReplaySetup, TapeBodies, Unconsumed};

use std::sync::Arc;

/// Takes secrets out of bytes; nothing when there are none in them.
pub type Scrub = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// Mark of a sub-agent's requests.
const AGENT_ID_HEADER: &str = "x-claude-code-agent-id";

/// Whether a request belongs onto a tape.
fn is_taped(method: &hyper::Method, path: &str) -> bool {
    method == hyper::Method::POST && ["/v1/messages", "/v1/messages/count_tokens"].contains(&path)
}
