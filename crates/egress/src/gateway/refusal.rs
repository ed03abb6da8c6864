//! Errors that the gateway sends instead of forwarding a request. They have the format of the API, and tell the agent not
//! to retry what would fail again.
//!
//! The agent, as observed with 2.1.197, retries 401 ten times over three minutes and takes 404 for a wrong model name;
//! on 400 and 403 it stops at once and shows the message. `x-should-retry: false` makes it stop for the others.

use std::io;
use std::time::Duration;

use hyper::{Method, Response, StatusCode};

use belljar_contract::OWN_REFUSAL;

use super::answer::{AnswerBody, BodyFault, Retry, error_answer};
use super::connect::ConnectError;
use super::event::GatewayTrouble;
use super::messages_api::InvalidRequest;

/// Why a request is not forwarded, or its response not relayed. The text is for the agent, and so for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayRefusal {
    #[error("{method} {path} is not served")]
    Unknown { method: Method, path: String },
    #[error("{path} supports {allowed} only")]
    OtherMethod { path: String, allowed: &'static str },
    #[error(transparent)]
    Body(BodyFault),
    #[error(transparent)]
    InvalidRequest(InvalidRequest),
    #[error("max_tokens is missing: with a budget, the maximum cost of a request has to be known")]
    NoMaxTokens,
    #[error("the request uses the provider's `{name}`, which this run does not allow")]
    ProviderTool { name: String },
    #[error("{0}; {fix}", fix = .0.fix())]
    Trouble(GatewayTrouble),
    #[error("{trouble}")]
    Unreachable { trouble: GatewayTrouble, retry: Retry },
    #[error("the connection to the model's host failed before it responded: {0}")]
    Broken(String),
    #[error("the model's host did not respond within {0:?}")]
    Late(Duration),
    #[error("the model's host sent a redirect ({0}); configure the address that it leads to")]
    Redirect(StatusCode),
    #[error("the model's host sent an error ({0}) that contains the credential; it is withheld")]
    Repeats(StatusCode),
    #[error(
        "{upstream} sent the encoding `{coding}` although none was accepted; a response that cannot be searched for the credential is withheld"
    )]
    Coded { upstream: String, coding: String },
    #[error("the request could not be logged, so it was not sent: {0}")]
    NotLogged(String),
}

impl GatewayRefusal {
    pub fn status(&self) -> StatusCode {
        self.shape().0
    }

    pub fn answer(&self) -> Response<AnswerBody> {
        let (status, kind, retry) = self.shape();
        error_answer(status, kind, &format!("{OWN_REFUSAL}{self}"), retry)
    }

    fn shape(&self) -> (StatusCode, &'static str, Retry) {
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Unknown { .. } => (StatusCode::NOT_FOUND, "not_found_error", Retry::Never),
            Self::OtherMethod { .. } => (StatusCode::METHOD_NOT_ALLOWED, INVALID, Retry::Never),
            Self::Body(BodyFault::TooLarge { .. }) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", Retry::Never)
            }
            Self::Body(BodyFault::Broken) => (StatusCode::BAD_REQUEST, INVALID, Retry::Never),
            Self::Body(BodyFault::Late) => (StatusCode::REQUEST_TIMEOUT, "timeout_error", Retry::AsUsual),
            Self::Body(BodyFault::NoRoom) => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", Retry::AsUsual)
            }
            Self::InvalidRequest(_) | Self::NoMaxTokens | Self::ProviderTool { .. } => {
                (StatusCode::BAD_REQUEST, INVALID, Retry::Never)
            }
            Self::Trouble(GatewayTrouble::NoCredential(_) | GatewayTrouble::CredentialRefused { .. }) => {
                (StatusCode::FORBIDDEN, "permission_error", Retry::Never)
            }
            Self::Trouble(
                GatewayTrouble::BudgetReached { .. }
                | GatewayTrouble::Unpriced { .. }
                | GatewayTrouble::Unreachable { .. },
            ) => (StatusCode::BAD_REQUEST, INVALID, Retry::Never),
            Self::Unreachable { trouble: _, retry } => (StatusCode::BAD_GATEWAY, "api_error", *retry),
            Self::Broken(_) => (StatusCode::BAD_GATEWAY, "api_error", Retry::AsUsual),
            Self::Late(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout_error", Retry::AsUsual),
            Self::Redirect(_) | Self::Repeats(_) | Self::Coded { .. } | Self::NotLogged(_) => {
                (StatusCode::BAD_GATEWAY, "api_error", Retry::Never)
            }
        }
    }
}

/// Whether a failed connection may succeed the next time.
pub(super) fn retry_after(error: &ConnectError) -> Retry {
    match error {
        ConnectError::NotDialled(_) | ConnectError::Name => Retry::Never,
        // The certificate is for another host, or not trusted.
        ConnectError::Tls(cause) if cause.kind() == io::ErrorKind::InvalidData => Retry::Never,
        ConnectError::Tls(_)
        | ConnectError::Resolve(_)
        | ConnectError::NoAddress
        | ConnectError::Dial(_)
        | ConnectError::Http(_)
        | ConnectError::Late(_) => Retry::AsUsual,
    }
}
