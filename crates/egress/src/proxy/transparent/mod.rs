//! Transparent proxying, for programs that do not know about proxies: a DNS server inside the sandbox maps allowed names
//! to synthetic addresses in 198.18.0.0/16, and listeners on those addresses accept the connections. Each connection is
//! decided on like any other request.

mod addresses;
mod dns;

use super::client::Client;
use super::gate::RequestDetails;
use super::refusal::{ProxyRefusal, RefusedTarget};
use super::tunnel::{self, TunnelProtocol};
use super::{ProxyError, ProxyState, adopt};
use addresses::AddressMap;
use belljar_contract::{Destination, EgressRefusal, EgressWay, Host, HostName, Port, SyntheticAddresses};
use dns::Found;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The longest DNS query that is answered; a query for a host name is far shorter.
const QUERY_LIMIT: usize = 1500;
/// How many refused names are logged, so that a program that tries one name after another cannot fill the log.
const LOGGED_LOOKUPS_LIMIT: usize = 256;

/// Sockets for transparent proxying. They are bound already, perhaps in another network namespace.
pub struct TransparentListeners {
    /// Which synthetic address belongs to which name.
    pub addresses: SyntheticAddresses,
    /// Listeners on the synthetic addresses.
    pub listeners: Vec<std::net::TcpListener>,
    /// The socket of the DNS server.
    pub resolver: std::net::UdpSocket,
}

/// Transparent proxying at work.
pub(super) struct TransparentProxy {
    pub listeners: Vec<TcpListener>,
    resolver: UdpSocket,
    addresses: Mutex<AddressMap>,
}

impl TransparentProxy {
    pub fn new(bound: TransparentListeners) -> Result<Self, ProxyError> {
        let TransparentListeners { addresses, listeners, resolver } = bound;
        resolver.set_nonblocking(true).map_err(ProxyError::Adopt)?;
        let resolver = UdpSocket::from_std(resolver).map_err(ProxyError::Adopt)?;
        let addresses = Mutex::new(AddressMap::new(&addresses));
        Ok(Self { listeners: adopt(listeners)?, resolver, addresses })
    }

    /// The destination of a connection to a synthetic address.
    pub fn destination(&self, stream: &TcpStream) -> Option<Destination> {
        let local = stream.local_addr().ok()?;
        let IpAddr::V4(address) = local.ip() else { return None };
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let name = addresses.name(address)?.clone();
        Some(Destination { host: Host::Name(name), port: Port::new(local.port())? })
    }
}

/// Proxies a connection to a synthetic address. A connection to an address without a name is reset.
pub(super) async fn serve(
    shared: &ProxyState,
    stream: TcpStream,
    destination: Option<Destination>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match destination {
        Some(destination) => {
            tunnel::open(shared, Client::new(stream), destination, TunnelProtocol::Transparent).await
        }
        None => stream.set_zero_linger(),
    }
}

/// Answers DNS queries until it is dropped. Without transparent proxying it waits for ever.
pub(super) async fn answer_lookups(proxy: Option<&TransparentProxy>, shared: &ProxyState) {
    let Some(proxy) = proxy else { return std::future::pending().await };
    let mut logged = HashSet::new();
    let mut buffer = [0; QUERY_LIMIT];
    loop {
        // The error belongs to an earlier reply that could not be delivered.
        let Ok((length, from)) = proxy.resolver.recv_from(&mut buffer).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let mut refused = None;
        let answer = dns::answer(buffer.get(..length).unwrap_or_default(), |name| {
            let mut addresses = proxy.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let found = addresses.find(name, &shared.gate.policy);
            if found == Found::NotAllowed {
                refused = Some(name.clone());
            }
            found
        });
        if let Some(name) =
            refused.filter(|name| logged.len() < LOGGED_LOOKUPS_LIMIT && logged.insert(name.clone()))
        {
            log_refused_lookup(shared, name);
        }
        if let Some(answer) = answer {
            // The client may be gone.
            proxy.resolver.send_to(&answer, from).await.ok();
        }
    }
}

/// Logs the lookup of a name that no rule allows. The port that the program wants is not known.
fn log_refused_lookup(shared: &ProxyState, name: HostName) {
    let destination = Destination { host: Host::Name(name), port: Port::HTTPS };
    let denial = match shared.gate.policy.admit(&destination) {
        // The host is allowed on ports without a listener, or no spare address is left: the policy refuses nothing.
        Ok(_) => return,
        Err(denial) => denial,
    };
    let (target, reason) = (RefusedTarget::Destination(destination), EgressRefusal::from(denial.reason));
    let refusal = ProxyRefusal { way: EgressWay::Lookup, target, address: None, rule: denial.rule, reason };
    shared.gate.refused(refusal, RequestDetails::default());
}
