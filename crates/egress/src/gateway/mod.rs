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
//!
//! What is particular to the provider of the model is in `messages_api/`.

mod account;
mod answer;
mod budget;
mod connect;
mod event;
mod front;
mod listen;
mod live;
mod messages_api;
mod money;
mod observe;
mod pool;
mod refusal;
mod relay;
mod transport;
mod upstream;

pub use answer::{Answer, AnswerBody, AnswerFuture, BodyFault, Broken, GatewayRequest, HangUp};
pub(crate) use answer::{Retry, document_answer, error_answer};
pub use event::{
    CountedBy, CountedTokens, GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished,
    RequestStarted,
};
pub use front::{FrontLimits, serve};
pub use listen::{Address, Bound, Listen, ListenError, Listener};
pub use live::{Live, LiveSetup, UpstreamTimes};
#[cfg(target_os = "macos")]
pub use messages_api::KEYCHAIN_COMMAND;
pub(crate) use messages_api::{
    AGENT_ID_HEADER, BETA_HEADER, BILLING_PREFIX, RATE_LIMIT_PREFIX, SESSION_ID_HEADER, VERSION_HEADER,
};
pub use messages_api::{
    API_KEY_VARIABLE, BASE_URL_VARIABLE, CHEAP_MODEL, CredentialFacts, CredentialSource, FoundCredential,
    JUDGE_MODEL, LOGIN_FILE, LOGIN_PROGRAM, ModelCredential, ModelCredentialError, ModelTotals, OwnReply,
    OwnRequestError, PriceTable, PriceTableError, ProviderTools, Speed, TOKEN_VARIABLE, TokenCount,
    UnknownProviderTool, UsageTotals, ask, find_credential,
};
pub use money::Cost;
pub(crate) use observe::Unobserved;
pub use observe::{AnswerEnd, Observe, ObserveAnswer, Observed};
pub use upstream::{AddressScope, Upstream, UpstreamError};
