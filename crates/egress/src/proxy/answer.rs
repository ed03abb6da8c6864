//! The proxy's own answers in HTTP. They are plain text that a person can act on, and end the connection.

use super::gate::Stop;
use super::refusal::Refusal;
use belljar_contract::{AgentName, EgressRefusal};

/// An answer of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub text: String,
}

/// What a tunnel's client is told when the tunnel stands.
pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl Answer {
    pub fn new(status: &'static str, text: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), text: text.into() }
    }

    /// What a client is told that does not go on.
    pub fn to(stop: &Stop, agent: &AgentName) -> Self {
        match stop {
            Stop::Refused(refusal) => Self::of(refusal, agent),
            Stop::Unlogged(error) => Self::new(
                "503 Service Unavailable",
                format!("belljar: nothing may leave any more: {error}.\n"),
            ),
        }
    }

    /// A refusal, with the line that would change it.
    fn of(refusal: &Refusal, agent: &AgentName) -> Self {
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

    /// As it is sent. `method` is that of the request, where it could be read: HEAD is answered without a body.
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
