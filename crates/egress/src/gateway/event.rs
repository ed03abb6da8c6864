//! Events of the gateway: each request, and the problems that only the user can solve.

use std::io;
use std::time::Duration;

use belljar_contract::EnvName;

use super::credential::{CredentialSource, ModelCredentialError};
use super::messages_api::TokenCount;
use super::money::Cost;

/// Receives the events. It is called from the gateway's own tasks, so it must be quick.
pub trait GatewaySink: Send + Sync {
    /// # Errors
    /// When the event could not be kept. A request whose start cannot be kept is refused.
    fn emit(&self, event: GatewayEvent) -> io::Result<()>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum GatewayEvent {
    /// A request is about to be sent. Nothing of it was sent yet.
    Started(RequestStarted),
    /// A request has ended, whether it was sent or not.
    Finished(RequestFinished),
    /// A problem that only the user can solve.
    Trouble(GatewayTrouble),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStarted {
    /// The request's number, from 0.
    pub request: u64,
    /// Host and port of the model's host.
    pub upstream: String,
    pub path: &'static str,
    /// The requested model.
    pub model: String,
    /// The sub-agent that sent the request, as the agent names it.
    pub agent: Option<String>,
    /// Provider tools that were removed from the request.
    pub stripped: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RequestFinished {
    pub request: u64,
    /// The model that responded, or the requested one.
    pub model: Option<String>,
    pub agent: Option<String>,
    /// The status that the agent got; `None` if it left before.
    pub status: Option<u16>,
    pub end: RequestEnd,
    /// The tokens, if they could be counted.
    pub tokens: Option<CountedTokens>,
    /// What was charged, if the model has a price.
    pub cost: Option<Cost>,
    /// From the request to its end.
    pub duration: Duration,
    /// From the request to the first byte of the response's body.
    pub first_byte: Option<Duration>,
    /// Bytes of the request's body.
    pub sent_bytes: u64,
    /// Bytes of the response's body.
    pub received_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedTokens {
    pub count: TokenCount,
    pub by: CountedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedBy {
    /// The final count of the response.
    Answer,
    /// An estimate for an incomplete response, from its first count and the text that arrived.
    ReceivedText,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEnd {
    Complete,
    /// The gateway refused the request, for this reason.
    Refused(String),
    /// The model's host failed before or during its response, for this reason.
    Failed(String),
    /// The agent closed the connection or stopped reading.
    ClientLeft,
}

/// A problem that only the user can solve. Its text names the cause; [`GatewayTrouble::fix`] the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayTrouble {
    #[error("{0}")]
    NoCredential(ModelCredentialError),
    #[error("{upstream} does not accept the credential from {source_name} (status {status}): {said}", source_name = .from)]
    CredentialRefused {
        from: Box<CredentialSource>,
        upstream: String,
        status: u16,
        /// The message of the host.
        said: String,
    },
    /// The cap leaves too little for the next request.
    #[error(
        "the budget of {cap} is used up: {spent} are spent, and a request to {model} may cost up to {at_most}"
    )]
    BudgetReached {
        cap: Cost,
        spent: Cost,
        at_most: Cost,
        model: String,
        /// The variable that limits the output of each response.
        output_tokens: EnvName,
    },
    /// There is a cap, and the maximum cost of the request is not known.
    #[error("there is a budget, but the price of {model} is not known")]
    Unpriced { model: String },
    #[error("the model's host {upstream} cannot be reached: {cause}")]
    Unreachable { upstream: String, cause: String },
}

impl GatewayTrouble {
    /// What the user can do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::NoCredential(error) => error.fix(),
            Self::CredentialRefused { from, .. } => from.fix_when_refused(),
            Self::BudgetReached { output_tokens, .. } => format!(
                "raise `limits.cost_usd` or `--max-cost-usd`, or lower {output_tokens}, which determines the maximum cost \
                 of the agent's requests"
            ),
            Self::Unpriced { .. } => {
                "choose a model from the price table, or remove `limits.cost_usd`".to_owned()
            }
            Self::Unreachable { .. } => "check the network, and the address of the model's host".to_owned(),
        }
    }
}
