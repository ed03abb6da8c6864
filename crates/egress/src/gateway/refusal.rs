//! What the agent is told when a request goes no further: in the API's own shape, and so that it does not come again
//! with what would be refused again.
//!
//! Version 2.1.197 of Claude Code repeats 401 ten times over three minutes and takes 404 for a matter of the model's
//! name; with 400 and 403 it stops at once and shows the words. `x-should-retry: false` makes it stop for the others.

use std::io;
use std::time::Duration;

use hyper::{Method, Response, StatusCode};

use super::answer::{Again, AnswerBody, BodyFault, error_answer};
use super::connect::ConnectError;
use super::event::GatewayTrouble;
use super::messages::NotMessages;

/// Why a request goes no further. The text is for the agent, and so for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("nothing is served at {method} {path}")]
    Unknown { method: Method, path: String },
    #[error("{path} is served for {allowed} only")]
    OtherMethod { path: String, allowed: &'static str },
    #[error(transparent)]
    Body(BodyFault),
    #[error(transparent)]
    NotMessages(NotMessages),
    #[error("max_tokens: without it a request cannot be reckoned, and there is a budget")]
    NoMaxTokens,
    #[error(
        "this run may not make the provider act on its own; the request wants `{name}`, which has to be allowed by name"
    )]
    ProviderTool { name: String },
    #[error("{0}; {fix}", fix = .0.fix())]
    Trouble(GatewayTrouble),
    #[error("{trouble}")]
    Unreachable { trouble: GatewayTrouble, again: Again },
    #[error("the model's host broke off before it answered: {0}")]
    Broken(String),
    #[error("the model's host did not begin to answer within {0:?}")]
    Late(Duration),
    #[error("the model's host answers {0}, which leads elsewhere; declare the address that it leads to")]
    Redirect(StatusCode),
    #[error("the model's host answers {0} with words that repeat the credential; they are withheld")]
    Repeats(StatusCode),
    #[error(
        "{upstream} answered in the coding `{coding}` though it was asked for none; what cannot be searched for the credential does not pass"
    )]
    Coded { upstream: String, coding: String },
    #[error("the request could not be logged, so it was not sent: {0}")]
    NotKept(String),
}

impl Refusal {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.shape().0
    }

    /// The answer.
    pub fn answer(&self) -> Response<AnswerBody> {
        let (status, kind, again) = self.shape();
        error_answer(status, kind, &format!("belljar: {self}"), again)
    }

    fn shape(&self) -> (StatusCode, &'static str, Again) {
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Unknown { .. } => (StatusCode::NOT_FOUND, "not_found_error", Again::Never),
            Self::OtherMethod { .. } => (StatusCode::METHOD_NOT_ALLOWED, INVALID, Again::Never),
            Self::Body(BodyFault::TooLarge { .. }) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", Again::Never)
            }
            Self::Body(BodyFault::Broken) => (StatusCode::BAD_REQUEST, INVALID, Again::Never),
            Self::Body(BodyFault::Late) => (StatusCode::REQUEST_TIMEOUT, "timeout_error", Again::AsUsual),
            Self::Body(BodyFault::NoRoom) => {
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", Again::AsUsual)
            }
            Self::NotMessages(_) | Self::NoMaxTokens | Self::ProviderTool { .. } => {
                (StatusCode::BAD_REQUEST, INVALID, Again::Never)
            }
            Self::Trouble(GatewayTrouble::NoCredential(_) | GatewayTrouble::CredentialRefused { .. }) => {
                (StatusCode::FORBIDDEN, "permission_error", Again::Never)
            }
            Self::Trouble(
                GatewayTrouble::BudgetReached { .. }
                | GatewayTrouble::Unpriced { .. }
                | GatewayTrouble::Unreachable { .. },
            ) => (StatusCode::BAD_REQUEST, INVALID, Again::Never),
            Self::Unreachable { trouble: _, again } => (StatusCode::BAD_GATEWAY, "api_error", *again),
            Self::Broken(_) => (StatusCode::BAD_GATEWAY, "api_error", Again::AsUsual),
            Self::Late(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout_error", Again::AsUsual),
            Self::Redirect(_) | Self::Repeats(_) | Self::Coded { .. } | Self::NotKept(_) => {
                (StatusCode::BAD_GATEWAY, "api_error", Again::Never)
            }
        }
    }
}

/// Whether a connection that failed may succeed the next time.
pub(super) fn again_after(error: &ConnectError) -> Again {
    match error {
        ConnectError::NotDialled(_) | ConnectError::Name => Again::Never,
        // A certificate that is not the host's, or not trusted.
        ConnectError::Tls(cause) if cause.kind() == io::ErrorKind::InvalidData => Again::Never,
        ConnectError::Tls(_)
        | ConnectError::Resolve(_)
        | ConnectError::NoAddress
        | ConnectError::Dial(_)
        | ConnectError::Http(_)
        | ConnectError::Late(_) => Again::AsUsual,
    }
}
