//! The model gateway: the server that the agent inside the sandbox takes for the model's API.
//!
//! One HTTP front end ([`serve`]) accepts on a listener, usually one that was bound inside the sandbox, and hands each
//! request to an [`Answer`]: a script, a tape, the live model ([`Live`]), or one of them with an observer
//! ([`Observed`]), which is how exchanges are recorded.
//!
//! For the live model each request is checked ([`ProviderTools`]), its maximum cost is reserved, its start is reported
//! ([`GatewaySink`]), and it is sent with the credential. The response is relayed piece by piece while its tokens are
//! counted; then the real cost replaces the reservation. A problem that only the user can solve is reported as a
//! [`GatewayTrouble`].

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

pub use answer::{Answer, AnswerBody, AnswerFuture, BodyFault, Broken, GatewayRequest, HangUp};
pub(crate) use answer::{Retry, document_answer, error_answer};
#[cfg(target_os = "macos")]
pub use credential::KEYCHAIN_COMMAND;
pub use credential::{
    CredentialFacts, CredentialSource, FoundCredential, ModelCredential, ModelCredentialError,
    find_credential,
};
pub use event::{
    CountedBy, CountedTokens, GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished,
    RequestStarted,
};
pub use front::{FrontLimits, serve};
pub use listen::{Address, Bound, Listen, ListenError, Listener};
pub use live::{Live, LiveSetup, UpstreamTimes};
pub use money::Cost;
pub(crate) use observe::Unobserved;
pub use observe::{AnswerEnd, Observe, ObserveAnswer, Observed};
pub use own::{OwnRequestError, ask};
pub use prices::{PriceTable, PriceTableError, Speed};
pub use provider_tools::{ProviderTools, UnknownProviderTool};
pub use upstream::{AddressScope, Upstream, UpstreamError};
pub use usage::{ModelTotals, TokenCount, UsageTotals};
