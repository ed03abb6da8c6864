//! The model provider: Anthropic's Messages API, as Claude Code speaks it.
//!
//! Everything that is particular to it is in this directory: its host, headers, paths and request members, where its
//! credential is found, its prices, and the form of its token counts. The rest of the gateway, the script and the tape
//! take the names from here, so that a second provider is a second directory.

mod credential;
pub(super) mod headers;
pub(super) mod members;
mod messages;
mod names;
mod own;
mod prices;
mod provider_tools;
mod routes;
mod usage;

#[cfg(target_os = "macos")]
pub use credential::KEYCHAIN_COMMAND;
pub use credential::{
    API_KEY_VARIABLE, CredentialFacts, CredentialSource, FoundCredential, LOGIN_FILE, ModelCredential,
    ModelCredentialError, TOKEN_VARIABLE, find_credential,
};
pub(super) use messages::{InvalidRequest, MessagesView};
pub(crate) use names::{
    AGENT_ID_HEADER, BETA_HEADER, BILLING_PREFIX, RATE_LIMIT_PREFIX, SESSION_ID_HEADER, VERSION_HEADER,
};
pub use names::{BASE_URL_VARIABLE, CHEAP_MODEL, JUDGE_MODEL, LOGIN_PROGRAM};
pub(super) use names::{DEFAULT_URL, MAX_OUTPUT_VARIABLE};
pub use own::{OwnReply, OwnRequestError, ask};
pub(super) use prices::Priced;
pub use prices::{PriceTable, PriceTableError, Speed};
pub use provider_tools::{ProviderTools, UnknownProviderTool};
pub(super) use provider_tools::{Screening, strip};
pub(super) use routes::{Route, route};
pub(super) use usage::{Meter, Reading};
pub use usage::{ModelTotals, TokenCount, UsageTotals};
