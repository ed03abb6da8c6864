//! The seam to whoever takes a tunnel over instead of letting its bytes pass.

use belljar_contract::Destination;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Takes over a tunnel instead of moving its bytes.
pub trait Intercept: Send + Sync {
    /// Whether this destination is taken over.
    fn wants(&self, destination: &Destination) -> bool;

    /// Serves the client's side of an accepted tunnel until it ends.
    fn serve(&self, tunnel: Tunnel) -> Pin<Box<dyn Future<Output = TunnelEnd> + Send>>;
}

/// An accepted tunnel; the client has been told so and nothing else.
pub struct Tunnel {
    /// The client.
    pub client: Box<dyn Stream>,
    /// What it asked for.
    pub destination: Destination,
    /// The address that was checked, and the only one that may be dialled.
    pub address: SocketAddr,
    /// The rule that allows it.
    pub rule: String,
    /// Where each request is told of, before its first byte moves.
    pub log: Arc<dyn RequestSink>,
}

/// What became of a tunnel that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// Bytes to the world.
    pub sent: u64,
    /// Bytes from the world.
    pub received: u64,
    /// What went wrong, where something did.
    pub failure: Option<String>,
}

/// Takes down the requests inside a tunnel.
pub trait RequestSink: Send + Sync {
    /// One call per request, before its first byte moves; one more where its answer is not passed on.
    ///
    /// # Errors
    /// When it could not be written down; the request is to be refused then.
    fn decided(&self, request: &InterceptedRequest) -> io::Result<()>;
}

/// A request inside a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterceptedRequest {
    /// Its method.
    pub method: String,
    /// Its path, without secrets.
    pub path: String,
    /// The rule that decided, where one did.
    pub rule: Option<String>,
    /// Whether it goes on.
    pub allowed: bool,
    /// Why not, where it does not.
    pub reason: Option<String>,
    /// The credential that was added, by name.
    pub credential: Option<String>,
}
