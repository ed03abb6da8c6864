//! The egress proxy: an HTTP proxy and a SOCKS 5 server on one port. Everything is refused unless a rule allows it.
//!
//! A request is reduced to one [`Destination`]. The policy decides on the destination, its name is resolved once, the
//! policy decides on each address, and only an allowed address is dialled. The decision is logged before the first byte
//! is sent.

mod body;
mod client;
mod client_hello;
mod connection;
mod copy;
mod error_response;
mod first_bytes;
mod forward;
mod gate;
mod head;
mod host_connection;
mod intercept;
mod refusal;
mod respond;
mod socks;
mod token;
mod transparent;
mod tunnel;

pub use gate::{EgressMode, OnRefusal, Reach};
pub use intercept::{ByteStream, Intercept, InterceptedRequest, RequestSink, Tunnel, TunnelEnd};
pub use refusal::{ProxyRefusal, RefusedTarget};
pub use token::USER;
pub use transparent::TransparentListeners;

use crate::log::{EgressLog, LogError};
use crate::resolve::Resolve;
use belljar_contract::{AgentName, Destination, EgressPolicy, Secret};
use gate::{EgressGate, Tally};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;
use token::Token;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use transparent::TransparentProxy;

/// Pause after a failed accept. The usual cause is a lack of file descriptors, which an immediate retry would hit again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Everything that [`serve`] needs.
pub struct ProxyConfig {
    /// Sockets that clients connect to. They are already bound, perhaps in another network namespace.
    pub listeners: Vec<std::net::TcpListener>,
    /// Listeners for programs that do not know about proxies.
    pub transparent: Option<TransparentListeners>,
    pub policy: Arc<EgressPolicy>,
    pub resolver: Arc<dyn Resolve>,
    /// The log of decisions. The caller closes it after every service of the run has ended.
    pub log: Arc<EgressLog>,
    /// The run's token, which clients send as the password of the user [`USER`].
    pub token: Arc<Secret>,
    /// The agent whose table in the manifest a refusal proposes to change.
    pub agent: AgentName,
    /// Whether refused destinations are collected.
    pub mode: EgressMode,
    /// Whether allowed destinations are dialled.
    pub reach: Reach,
    /// Takes over the tunnels whose TLS is intercepted.
    pub intercept: Option<Arc<dyn Intercept>>,
    /// Destinations on port 443 that need not speak TLS, such as a forge's SSH over port 443.
    pub raw: BTreeSet<Destination>,
    /// Called for every refusal.
    pub on_refusal: OnRefusal,
    pub limits: ProxyLimits,
}

/// Timeouts and limits of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Concurrent connections; further ones wait to be accepted.
    pub connections: usize,
    /// Time for a request's head, and for the rest of a tunnel's first message.
    pub head: Duration,
    /// Time to connect to one address.
    pub dial: Duration,
    /// Time without a byte in either direction of a tunnel or a response.
    pub idle_tunnel: Duration,
    /// Time between two requests of plain HTTP.
    pub idle_keep_alive: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head: Duration::from_secs(10),
            dial: Duration::from_secs(10),
            idle_tunnel: Duration::from_secs(30 * 60),
            idle_keep_alive: Duration::from_secs(60),
        }
    }
}

/// Counts of a proxy that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySummary {
    /// Accepted connections.
    pub connections: u64,
    /// Decisions to allow.
    pub allowed: u64,
    /// Decisions to refuse.
    pub denied: u64,
    /// In [`EgressMode::Learn`], the destinations that rules would have to name; a proposal, never a permission.
    pub needed: BTreeSet<Destination>,
    /// Why the proxy stopped allowing anything, if the log failed.
    pub log_failure: Option<LogError>,
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A bound listener cannot be registered with the runtime.
    #[error("cannot serve the bound listener")]
    Adopt(#[source] io::Error),
    /// An empty token would let every client in.
    #[error("the proxy's token is empty")]
    NoToken,
}

/// State that all connections share.
pub(crate) struct ProxyState {
    gate: EgressGate,
    token: Token,
    intercept: Option<Arc<dyn Intercept>>,
    raw: BTreeSet<Destination>,
    limits: ProxyLimits,
}

/// Serves until `shutdown` completes, then ends every connection. Dropping the future also ends them.
///
/// # Errors
/// When a listener is unusable or the token is empty; nothing has been served then.
pub async fn serve(
    config: ProxyConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<ProxySummary, ProxyError> {
    let ProxyConfig {
        listeners,
        transparent,
        policy,
        resolver,
        log,
        token,
        agent,
        mode,
        reach,
        intercept,
        raw,
        on_refusal,
        limits,
    } = config;
    let listeners = adopt(listeners)?;
    let transparent = transparent.map(TransparentProxy::new).transpose()?;
    let token = Token::new(&token).ok_or(ProxyError::NoToken)?;
    let gate = EgressGate { policy, resolver, log, agent, mode, reach, on_refusal, tally: Tally::default() };
    let shared = Arc::new(ProxyState { gate, token, intercept, raw, limits });
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shutdown => {}
        () = accept(&listeners, transparent.as_ref(), &shared, &mut connections) => {}
        () = transparent::answer_lookups(transparent.as_ref(), &shared) => {}
    }
    // Each connection logs its end while it is dropped.
    connections.shutdown().await;
    Ok(summary(&shared.gate))
}

fn summary(gate: &EgressGate) -> ProxySummary {
    let Tally { connections, allowed, denied, needed } = &gate.tally;
    ProxySummary {
        connections: connections.load(Ordering::Relaxed),
        allowed: allowed.load(Ordering::Relaxed),
        denied: denied.load(Ordering::Relaxed),
        needed: needed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        log_failure: gate.log.failure(),
    }
}

fn adopt(listeners: Vec<std::net::TcpListener>) -> Result<Vec<TcpListener>, ProxyError> {
    let adopt = |listener: std::net::TcpListener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    listeners.into_iter().map(adopt).collect::<io::Result<_>>().map_err(ProxyError::Adopt)
}

async fn accept(
    listeners: &[TcpListener],
    transparent: Option<&TransparentProxy>,
    shared: &Arc<ProxyState>,
    connections: &mut JoinSet<()>,
) {
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match next(listeners, transparent.map_or(&[], |proxy| proxy.listeners.as_slice())).await {
            Ok(Accepted::ByProxy(stream)) => {
                let shared = Arc::clone(shared);
                connections.spawn(async move {
                    // Everything worth reporting about the end of a connection is in the log.
                    connection::serve(&shared, stream).await.ok();
                    drop(place);
                });
            }
            Ok(Accepted::Transparent(stream)) => {
                let destination = transparent.and_then(|proxy| proxy.destination(&stream));
                let shared = Arc::clone(shared);
                connections.spawn(async move {
                    transparent::serve(&shared, stream, destination).await.ok();
                    drop(place);
                });
            }
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        }
        shared.gate.tally.connections.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
    }
}

/// Which listener a connection arrived at.
enum Accepted {
    ByProxy(TcpStream),
    Transparent(TcpStream),
}

/// Accepts the next connection on any of the listeners.
async fn next(listeners: &[TcpListener], transparent: &[TcpListener]) -> io::Result<Accepted> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| Accepted::ByProxy(stream)));
            }
        }
        for listener in transparent {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| Accepted::Transparent(stream)));
            }
        }
        Poll::Pending
    })
    .await
}
