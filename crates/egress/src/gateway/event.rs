//! What the gateway tells: each request, and the troubles that only the user can end.

use std::io;
use std::time::Duration;

use super::credential::{CredentialError, CredentialSource};
use super::money::Cost;
use super::usage::TokenCount;

/// Hears of what happens. Called from the gateway's own tasks, so it must be quick.
pub trait GatewaySink: Send + Sync {
    /// Takes an event.
    ///
    /// # Errors
    /// When it could not be kept. A request whose start cannot be kept is refused.
    fn emit(&self, event: GatewayEvent) -> io::Result<()>;
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum GatewayEvent {
    /// A request is about to go upstream. Nothing of it has.
    Started(RequestStarted),
    /// A request has ended, whether it went upstream or not.
    Finished(RequestFinished),
    /// Only the user can end this.
    Trouble(GatewayTrouble),
}

/// A request on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStarted {
    /// Its number, from 0.
    pub request: u64,
    /// Where it goes: host and port.
    pub upstream: String,
    /// The path.
    pub path: &'static str,
    /// The model that it asks for.
    pub model: String,
    /// The sub-agent that asks, as the agent names it.
    pub agent: Option<String>,
    /// Abilities of the provider that were taken out of it.
    pub stripped: Vec<String>,
}

/// A request that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFinished {
    /// Its number.
    pub request: u64,
    /// The model that answered, or was asked for.
    pub model: Option<String>,
    /// The sub-agent that asked.
    pub agent: Option<String>,
    /// The status that the agent got; none if it left before.
    pub status: Option<u16>,
    /// How it ended.
    pub end: RequestEnd,
    /// The tokens, if they could be counted.
    pub tokens: Option<CountedTokens>,
    /// What was charged, if the model has a price.
    pub cost: Option<Cost>,
    /// From the request to its end.
    pub duration: Duration,
    /// From the request to the first byte of the answer's body.
    pub first_byte: Option<Duration>,
    /// Bytes of the request's body.
    pub sent_bytes: u64,
    /// Bytes of the answer's body.
    pub received_bytes: u64,
}

/// Tokens, and how well they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedTokens {
    /// The tokens.
    pub count: TokenCount,
    /// How they were counted.
    pub by: CountedBy,
}

/// How tokens were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedBy {
    /// The answer said so at its end.
    Answer,
    /// The answer broke off: what it said at its start, and the text that came.
    TextThatCame,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEnd {
    /// The answer was delivered whole.
    Complete,
    /// It was refused here; why.
    Refused(String),
    /// Upstream failed before it answered, or in the middle; how.
    Failed(String),
    /// The agent left, or stopped reading.
    ClientLeft,
}

/// A state that only the user can end. Its text names the cause; [`GatewayTrouble::fix`] the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayTrouble {
    /// There is no credential.
    #[error("{0}")]
    NoCredential(CredentialError),
    /// The credential is not accepted.
    #[error("{upstream} does not accept the credential from {source_name} (status {status}): {said}", source_name = .from)]
    CredentialRefused {
        /// The source of the credential, by name.
        from: CredentialSource,
        /// Who refused it.
        upstream: String,
        /// With which status.
        status: u16,
        /// In which words.
        said: String,
    },
    /// The cap leaves too little for the next request.
    #[error(
        "the budget of {cap} is reached: {spent} are spent, and a request to {model} may cost up to {claim}"
    )]
    BudgetReached {
        /// The cap.
        cap: Cost,
        /// What was spent.
        spent: Cost,
        /// The most that the request can cost.
        claim: Cost,
        /// The model it asks for.
        model: String,
    },
    /// There is a cap, and the request cannot be reckoned.
    #[error("there is a budget, and {model} has no known price")]
    Unpriced {
        /// The model.
        model: String,
    },
    /// Upstream cannot be reached.
    #[error("the model's host {upstream} cannot be reached: {cause}")]
    Unreachable {
        /// Host and port.
        upstream: String,
        /// Why.
        cause: String,
    },
}

impl GatewayTrouble {
    /// What the user can do.
    pub fn fix(&self) -> String {
        match self {
            Self::NoCredential(_) => {
                "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, or log in with `claude`".to_owned()
            }
            Self::CredentialRefused { from, .. } => match from {
                CredentialSource::ApiKeyVariable => {
                    "check the key in ANTHROPIC_API_KEY, and what it may use".to_owned()
                }
                CredentialSource::TokenVariable => {
                    "make a new token for CLAUDE_CODE_OAUTH_TOKEN with `claude setup-token`".to_owned()
                }
                CredentialSource::LoginFile | CredentialSource::Keychain => {
                    "run `claude` and log in again; belljar uses a login, and never renews one".to_owned()
                }
            },
            Self::BudgetReached { .. } => {
                "raise `limits.cost_usd`, or lower CLAUDE_CODE_MAX_OUTPUT_TOKENS, which the claim is made of"
                    .to_owned()
            }
            Self::Unpriced { .. } => {
                "choose a model of the price table, or leave out `limits.cost_usd`".to_owned()
            }
            Self::Unreachable { .. } => "check the network, and the address of the model's host".to_owned(),
        }
    }
}
