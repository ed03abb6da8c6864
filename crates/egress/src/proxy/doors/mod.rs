//! The way out for programs that know nothing of proxies: a resolver that knows allowed names alone, and sockets inside
//! that stand for them. What comes through a door is decided on like everything else.

mod directory;
mod dns;

use super::client::Client;
use super::gate::Circumstances;
use super::refusal::{Asked, Refusal};
use super::tunnel::{self, Dialect};
use super::{ProxyError, Shared, adopt};
use belljar_contract::{Destination, Doors, EgressRefusal, EgressWay, Host, HostName, Port};
use directory::Directory;
use dns::Found;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The longest question that is answered; what the name of a host needs is far less.
const QUESTION_LIMIT: usize = 1500;
/// Names that were looked up in vain and are told of; a program that tries names all day fills no log.
const VAIN_LIMIT: usize = 256;

/// Doors whose sockets are bound, perhaps in another network namespace.
pub struct OpenDoors {
    /// Which address stands for whom.
    pub doors: Doors,
    /// Their sockets.
    pub listeners: Vec<std::net::TcpListener>,
    /// Where names are looked up.
    pub resolver: std::net::UdpSocket,
}

/// Doors that are being served.
pub(super) struct Served {
    pub listeners: Vec<TcpListener>,
    resolver: UdpSocket,
    directory: Mutex<Directory>,
}

impl Served {
    pub fn new(open: OpenDoors) -> Result<Self, ProxyError> {
        let OpenDoors { doors, listeners, resolver } = open;
        resolver.set_nonblocking(true).map_err(ProxyError::Adopt)?;
        let resolver = UdpSocket::from_std(resolver).map_err(ProxyError::Adopt)?;
        let directory = Mutex::new(Directory::new(&doors));
        Ok(Self { listeners: adopt(listeners)?, resolver, directory })
    }

    /// Whom a connection to a door is for.
    pub fn destination(&self, stream: &TcpStream) -> Option<Destination> {
        let local = stream.local_addr().ok()?;
        let IpAddr::V4(address) = local.ip() else { return None };
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        let name = directory.name(address)?.clone();
        Some(Destination { host: Host::Name(name), port: Port::new(local.port())? })
    }
}

/// Leads a connection to whom its door stands for. A door that stands for nobody yet leads nowhere.
pub(super) async fn serve(
    shared: &Shared,
    stream: TcpStream,
    destination: Option<Destination>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match destination {
        Some(destination) => tunnel::open(shared, Client::new(stream), destination, Dialect::Door).await,
        None => stream.set_zero_linger(),
    }
}

/// Answers questions about names until it is dropped; without doors there is nobody to ask.
pub(super) async fn answer_lookups(doors: Option<&Served>, shared: &Shared) {
    let Some(doors) = doors else { return std::future::pending().await };
    let mut told = HashSet::new();
    let mut buffer = [0; QUESTION_LIMIT];
    loop {
        // An error is that of an earlier answer which nobody received.
        let Ok((length, from)) = doors.resolver.recv_from(&mut buffer).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let mut vain = None;
        let answer = dns::answer(buffer.get(..length).unwrap_or_default(), |name| {
            let mut directory = doors.directory.lock().unwrap_or_else(PoisonError::into_inner);
            let found = directory.find(name, &shared.gate.policy);
            if found == Found::Nothing {
                vain = Some(name.clone());
            }
            found
        });
        if let Some(name) = vain.filter(|name| told.len() < VAIN_LIMIT && told.insert(name.clone())) {
            in_vain(shared, name);
        }
        if let Some(answer) = answer {
            // Who asked may be gone.
            doors.resolver.send_to(&answer, from).await.ok();
        }
    }
}

/// Writes down that a name was looked up which no rule allows. The port that was meant is not known.
fn in_vain(shared: &Shared, name: HostName) {
    let destination = Destination { host: Host::Name(name), port: Port::HTTPS };
    let denial = match shared.gate.policy.admit(&destination) {
        // The host is allowed on other ports than a door has, or there are no doors left for it: no refusal.
        Ok(_) => return,
        Err(denial) => denial,
    };
    let (asked, reason) = (Asked::Destination(destination), EgressRefusal::from(denial.reason));
    let refusal = Refusal { way: EgressWay::Lookup, asked, address: None, rule: denial.rule, reason };
    shared.gate.refused(refusal, Circumstances::default());
}
