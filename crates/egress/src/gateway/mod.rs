//! Where the agent believes the model is.
//!
//! One front end ([`serve`]) accepts on a listener, mostly one that was bound inside the sandbox, and hands each request
//! to an [`Answer`]: a script, the live model ([`Live`]), or either of them with someone watching ([`Observed`]), which
//! is how an exchange gets onto a tape.
//!
//! The live model's way is: look at the request ([`ProviderTools`]), set money aside for it, tell that it starts
//! ([`GatewaySink`]), give it the credential, send it, pass the answer on piece by piece while its tokens are counted,
//! and settle what it cost. What only the user can end becomes one clear [`GatewayTrouble`].

mod account;
mod answer;
mod budget;
mod connect;
mod credential;
mod event;
mod front;
mod headers;
mod listen;
mod live;
mod members;
mod messages;
mod money;
mod observe;
mod own;
mod pool;
mod prices;
mod provider_tools;
mod refusal;
mod relay;
mod routes;
mod transport;
mod upstream;
mod usage;

pub(crate) use answer::{Again, document_answer, error_answer};
pub use answer::{Answer, AnswerBody, Answering, Asked, BodyFault, Broken, HangUp};
#[cfg(target_os = "macos")]
pub use credential::KEYCHAIN_COMMAND;
pub use credential::{
    CredentialError, CredentialFacts, CredentialSource, FoundCredential, ModelCredential, find_credential,
};
pub use event::{
    CountedBy, CountedTokens, GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished,
    RequestStarted,
};
pub use front::{FrontLimits, serve};
pub use listen::{Address, Bound, Listen, ListenError, Listener};
pub use live::{Live, LiveSetup, UpstreamTimes};
pub use money::Cost;
pub(crate) use observe::Unwatched;
pub use observe::{AnswerEnd, Observe, ObserveAnswer, Observed};
pub use own::{OwnRequestError, ask};
pub use prices::{PriceTable, PriceTableError, Speed};
pub use provider_tools::{ProviderTools, UnknownProviderTool};
pub use upstream::{Reach, Upstream, UpstreamError};
pub use usage::{ModelTotals, TokenCount, UsageTotals};
