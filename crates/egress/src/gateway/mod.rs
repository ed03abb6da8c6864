//! The model gateway: the server that the agent inside the sandbox takes for the model's API.
//!
//! One HTTP front end ([`serve`]) accepts on a listener, usually one that was bound inside the sandbox, and hands each
//! request to a [`Responder`]: a script, a tape, the live model ([`Live`]), or one of them with an observer
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
mod credential;
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
mod tally;
mod transport;
mod upstream;

pub use answer::{AnswerBody, AnswerFuture, BodyFault, Broken, GatewayRequest, HangUp, Responder};
pub(crate) use answer::{Retry, document_answer, error_answer};
pub use credential::{CredentialSource, FoundCredential, ModelCredentialError, find_credential};
pub use event::{
    CountedBy, CountedTokens, GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished,
    RequestStarted,
};
pub use front::{FrontLimits, serve};
pub use listen::{Address, BoundListener, Listen, ListenError, Listener};
pub use live::{Live, LiveSetup, UpstreamTimes};
pub(crate) use messages_api::{
    AGENT_ID_HEADER, BETA_HEADER, BILLING_PREFIX, RATE_LIMIT_PREFIX, SESSION_ID_HEADER, VERSION_HEADER,
};
pub use messages_api::{
    CHEAP_MODEL, JUDGE_MODEL, ModelCredential, ModelTotals, OwnReply, OwnRequestError, PriceTable,
    PriceTableError, ProviderTools, Speed, TokenCount, UnknownProviderTool, UsageTotals, ask,
};
pub use money::Cost;
pub(crate) use observe::Unobserved;
pub use observe::{AnswerEnd, Observe, ObserveAnswer, Observed};
pub use tally::UsageTally;
pub use upstream::{AddressScope, Upstream, UpstreamError};
