//! The way out: an HTTP proxy and a SOCKS 5 server on one port, closed unless a rule opens it.
//!
//! A request becomes one [`Destination`], the policy decides on that, its name is resolved once, each address is
//! decided on, and only such an address is dialled. The decision is in the log before the first byte moves.

mod answer;
mod body;
mod client;
mod client_hello;
mod connection;
mod copy;
mod doors;
mod forward;
mod gate;
mod head;
mod intercept;
mod opening;
mod refusal;
mod respond;
mod socks;
mod token;
mod tunnel;
mod upstream;

pub use doors::OpenDoors;
pub use gate::{Mode, OnRefusal, Reach};
pub use intercept::{Intercept, InterceptedRequest, RequestSink, Stream, Tunnel, TunnelEnd};
pub use refusal::{Asked, Refusal};
pub use token::USER;

use crate::log::{EgressLog, LogError};
use crate::resolve::Resolve;
use belljar_contract::{AgentName, Destination, EgressPolicy, Secret};
use gate::{Gate, Tally};
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

/// Rest after a failed accept. The usual cause is a lack of descriptors, which an immediate retry would meet again.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// What a proxy is made of.
pub struct ProxyConfig {
    /// Where it is reached; bound already, perhaps in another network namespace.
    pub listeners: Vec<std::net::TcpListener>,
    /// Where programs are let out that know nothing of proxies.
    pub doors: Option<OpenDoors>,
    /// The rules.
    pub policy: Arc<EgressPolicy>,
    /// Who knows names.
    pub resolver: Arc<dyn Resolve>,
    /// Where decisions are written. Whoever opened it closes it, after every service of the run has ended.
    pub log: Arc<EgressLog>,
    /// The run's token, which clients send with the user [`USER`].
    pub token: Arc<Secret>,
    /// The agent, whose table a refusal tells to change.
    pub agent: AgentName,
    /// Whether what is refused is remembered.
    pub mode: Mode,
    /// Whether what is allowed is dialled.
    pub reach: Reach,
    /// Who takes tunnels over.
    pub intercept: Option<Arc<dyn Intercept>>,
    /// Names whose tunnels need not begin with TLS though their port is 443, such as a forge's ssh.
    pub raw: BTreeSet<Destination>,
    /// Is told of every refusal.
    pub on_refusal: OnRefusal,
    /// Times and numbers.
    pub limits: ProxyLimits,
}

/// Times and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections at once; further ones wait to be accepted.
    pub connections: usize,
    /// For a request's head, and for the rest of a tunnel's first message.
    pub head: Duration,
    /// For a connection to one address.
    pub dial: Duration,
    /// Without a byte in either direction of a tunnel or an answer.
    pub idle_tunnel: Duration,
    /// Between two requests of plain HTTP.
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

/// What a proxy did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySummary {
    /// Connections that were accepted.
    pub connections: u64,
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that refused.
    pub denied: u64,
    /// In [`Mode::Learn`], what rules would have to name; a proposal, never a permission.
    pub needed: BTreeSet<Destination>,
    /// Why nothing more was let through, where the log failed.
    pub log_failure: Option<LogError>,
}

/// Why a proxy cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A listener is not usable.
    #[error("cannot serve the bound listener")]
    Adopt(#[source] io::Error),
    /// There is no token, so that everyone would have it.
    #[error("the proxy's token is empty")]
    NoToken,
}

/// What all connections share.
pub(crate) struct Shared {
    gate: Gate,
    token: Token,
    intercept: Option<Arc<dyn Intercept>>,
    raw: BTreeSet<Destination>,
    limits: ProxyLimits,
}

/// Serves until `shutdown` ends, and ends every connection then. Dropping the future does so as well.
///
/// # Errors
/// When a listener is not usable or there is no token; nothing has been served then.
pub async fn serve(
    config: ProxyConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<ProxySummary, ProxyError> {
    let ProxyConfig {
        listeners,
        doors,
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
    let doors = doors.map(doors::Served::new).transpose()?;
    let token = Token::new(&token).ok_or(ProxyError::NoToken)?;
    let gate = Gate { policy, resolver, log, agent, mode, reach, on_refusal, tally: Tally::default() };
    let shared = Arc::new(Shared { gate, token, intercept, raw, limits });
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shutdown => {}
        () = accept(&listeners, doors.as_ref(), &shared, &mut connections) => {}
        () = doors::answer_lookups(doors.as_ref(), &shared) => {}
    }
    // Each one writes its end down as it goes.
    connections.shutdown().await;
    Ok(summary(&shared.gate))
}

fn summary(gate: &Gate) -> ProxySummary {
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

/// Accepts until it is dropped.
async fn accept(
    listeners: &[TcpListener],
    doors: Option<&doors::Served>,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
) {
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match next(listeners, doors.map_or(&[], |doors| doors.listeners.as_slice())).await {
            Ok(Came::ToProxy(stream)) => {
                let shared = Arc::clone(shared);
                connections.spawn(async move {
                    // How a connection ended is in the log as far as it concerns anyone.
                    connection::serve(&shared, stream).await.ok();
                    drop(place);
                });
            }
            Ok(Came::ToDoor(stream)) => {
                let destination = doors.and_then(|doors| doors.destination(&stream));
                let shared = Arc::clone(shared);
                connections.spawn(async move {
                    doors::serve(&shared, stream, destination).await.ok();
                    drop(place);
                });
            }
            Err(_) => {
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            }
        }
        shared.gate.tally.connections.fetch_add(1, Ordering::Relaxed);
        while connections.try_join_next().is_some() {}
    }
}

/// Where a connection came to.
enum Came {
    ToProxy(TcpStream),
    ToDoor(TcpStream),
}

/// The next connection on any of the listeners.
async fn next(listeners: &[TcpListener], doors: &[TcpListener]) -> io::Result<Came> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| Came::ToProxy(stream)));
            }
        }
        for door in doors {
            if let Poll::Ready(accepted) = door.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| Came::ToDoor(stream)));
            }
        }
        Poll::Pending
    })
    .await
}
