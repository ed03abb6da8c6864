//! Error responses of the proxy itself. They are plain text that a person can act on, and end the connection.

use super::gate::Rejection;
use super::refusal::ProxyRefusal;
use belljar_contract::{AgentName, EgressRefusal};

/// An error response that the proxy sends instead of a host's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub text: String,
}

/// The response to CONNECT once the tunnel is open.
pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl ErrorResponse {
    pub fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), text: text.into() }
    }

    /// The response to a request that was stopped.
    pub fn for_rejection(rejection: &Rejection, agent: &AgentName) -> Self {
        match rejection {
            Rejection::Refused(refusal) => Self::for_refusal(refusal, agent),
            Rejection::Unlogged(error) => Self::new(
                "503 Service Unavailable",
                format!("belljar: egress is closed for the rest of the run: {error}.\n"),
            ),
        }
    }

    /// The response to a refusal, with the change that would allow it.
    fn for_refusal(refusal: &ProxyRefusal, agent: &AgentName) -> Self {
        let status = match refusal.reason {
            EgressRefusal::NotAllowed
            | EgressRefusal::Denied
            | EgressRefusal::Port { .. }
            | EgressRefusal::Address { .. }
            | EgressRefusal::HostMismatch
            | EgressRefusal::Upgrade
            | EgressRefusal::NotTls
            | EgressRefusal::Sni { .. }
            | EgressRefusal::Request { .. } => "403 Forbidden",
            EgressRefusal::Unresolved => "502 Bad Gateway",
            EgressRefusal::Malformed { .. } => "400 Bad Request",
            EgressRefusal::Token => "407 Proxy Authentication Required",
        };
        let mut text = format!("belljar: {}.\n", refusal.sentence());
        if let Some(advice) = refusal.advice(agent) {
            text.push_str(&format!("To allow it, {advice} in belljar.toml.\n"));
        }
        let mut headers = vec![("x-belljar-rule", refusal.rule_or_reason().to_owned())];
        if refusal.reason == EgressRefusal::Token {
            headers.push(("Proxy-Authenticate", "Basic realm=\"belljar\"".to_owned()));
        }
        Self { status, headers, text }
    }

    /// Encodes the response. `method` is the request's method, if it could be read: a HEAD request gets no body.
    pub fn bytes(&self, method: &str) -> Vec<u8> {
        let Self { status, headers, text } = self;
        let mut head = format!("HTTP/1.1 {status}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n");
        head.push_str(&format!("Content-Length: {}\r\n\r\n", text.len()));
        let body = if method == "HEAD" { "" } else { text };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}
