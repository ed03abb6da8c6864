//! The interface between the proxy and TLS interception.

use belljar_contract::Destination;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Takes over tunnels instead of relaying their bytes.
pub trait Intercept: Send + Sync {
    /// Whether tunnels to this destination are taken over.
    fn wants(&self, destination: &Destination) -> bool;

    /// Serves the client's side of an accepted tunnel until it ends.
    fn serve(&self, tunnel: Tunnel) -> Pin<Box<dyn Future<Output = TunnelEnd> + Send>>;
}

/// An accepted tunnel. The client was sent the acceptance and nothing else.
pub struct Tunnel {
    pub client: Box<dyn ByteStream>,
    pub destination: Destination,
    /// The address that was checked. No other address may be dialled.
    pub address: SocketAddr,
    pub rule: String,
    /// Logs each request before its first byte is sent.
    pub log: Arc<dyn RequestSink>,
}

/// The result of a tunnel that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// Bytes from the client.
    pub sent: u64,
    /// Bytes to the client.
    pub received: u64,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
}

/// Logs the requests inside a tunnel.
pub trait RequestSink: Send + Sync {
    /// Called once for each request before its first byte is sent, and once more if its response is withheld.
    ///
    /// # Errors
    /// When the row could not be written; the request has to be refused then.
    fn decided(&self, request: &InterceptedRequest) -> io::Result<()>;
}

/// A request inside an intercepted tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterceptedRequest {
    pub method: String,
    /// The path with secrets redacted.
    pub path: String,
    /// The rule that decided, if there is one.
    pub rule: Option<String>,
    pub allowed: bool,
    /// Why the request was refused.
    pub reason: Option<String>,
    /// The names of the credentials that were added.
    pub credential: Option<String>,
}
