//! The model provider: Anthropic's Messages API, as Claude Code speaks it.
//!
//! Everything that is particular to it is in this directory: its host, headers, paths and request members, the form of
//! its credentials, its prices and model names, and the form of its token counts. The rest of the gateway, the script
//! and the tape take the names from here. Where the credential is found is up to the agent, so that the harness says it.

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

pub use credential::ModelCredential;
pub(super) use messages::{InvalidRequest, MessagesView};
pub(super) use names::DEFAULT_URL;
pub(crate) use names::{
    AGENT_ID_HEADER, BETA_HEADER, BILLING_PREFIX, RATE_LIMIT_PREFIX, SESSION_ID_HEADER, VERSION_HEADER,
};
pub use names::{CHEAP_MODEL, JUDGE_MODEL};
pub use own::{OwnReply, OwnRequestError, ask};
pub(super) use prices::Priced;
pub use prices::{PriceTable, PriceTableError, Speed};
pub use provider_tools::{ProviderTools, UnknownProviderTool};
pub(super) use provider_tools::{Screening, strip};
pub(super) use routes::{Route, route};
pub(super) use usage::{Meter, Reading};
pub use usage::{ModelTotals, TokenCount, UsageTotals};
