//! A made-up internet, in a network namespace of its own: hosts that are allowed, hosts that are not, a resolver, and a
//! proxy without rules. Everything must be seen to pass through that proxy before a refusal counts as evidence.
//!
//! The network of this machine is not used: all addresses lead back to the namespace itself, and names are resolved
//! from files that only processes in it see.

mod naive;
mod peers;

use super::ProveError;
use belljar_contract::HostName;
use belljar_egress::intercept::CertificateAuthority;
use belljar_sys::apart::{Apart, ApartError, ApartSpec, Enter};
use peers::Peers;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

/// The address of the proxy without rules.
pub(super) const NAIVE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3999);
/// Its token, which it does not require.
pub(super) const NAIVE_TOKEN: &str = "open-to-everyone";
/// The host that gets the credential.
const BOUND: &str = "bound.test";
/// A host with TLS that does not get the credential.
const OTHER: &str = "other.test";

/// Host names and their addresses. `flip.allowed.test` is left to the resolver, which returns another host each time.
const NAMES: &str = "127.0.0.1 localhost\n::1 localhost\n\
    10.99.0.2 allowed.test\n10.99.0.3 evil.test evilallowed.test rebind.allowed.test\n10.99.0.4 other.test\n\
    10.99.0.5 bound.test\n10.99.0.6 paths.test\n127.0.0.1 local.allowed.test\n192.168.77.7 private.allowed.test\n\
    169.254.7.7 link.allowed.test\n";

/// The rules of the made-up user: a host, its subdomains, one with rules for requests, two with TLS.
pub(super) const RULES: &str = "allow = [\n\
    \"allowed.test:80\", \"*.allowed.test:80\", \"allowed.test\", \"10.99.0.2:80\", \"10.99.0.2\",\n\
    \"bound.test\", \"10.99.0.5\", \"other.test\", \"10.99.0.4\", \"10.99.0.6:80\",\n\
    { host = \"paths.test:80\", methods = [\"GET\"], paths = [\"/ok/**\"] },\n]\n";

/// The addresses other than loopback.
const RANGES: [(Ipv4Addr, u8); 3] = [
    (Ipv4Addr::new(10, 99, 0, 0), 24),
    (Ipv4Addr::new(192, 168, 77, 0), 24),
    (Ipv4Addr::new(169, 254, 7, 0), 24),
];

/// The listeners, with the names that identify them.
const TCP: [(&str, &str); 13] = [
    ("allowed", "10.99.0.2:80"),
    ("allowed-tls", "10.99.0.2:443"),
    ("allowed", "10.99.0.2:22"),
    ("allowed", "10.99.0.2:25"),
    ("evil", "10.99.0.3:80"),
    ("evil", "10.99.0.3:443"),
    ("evil", "10.99.0.3:3128"),
    (OTHER, "10.99.0.4:443"),
    (BOUND, "10.99.0.5:443"),
    ("paths", "10.99.0.6:80"),
    ("private", "192.168.77.7:80"),
    ("link", "169.254.7.7:80"),
    ("machine", "127.0.0.1:80"),
];

const UDP: [(&str, &str); 3] =
    [("resolver", "10.99.0.53:53"), ("evil", "10.99.0.3:9999"), ("evil", "10.99.0.3:443")];

/// The namespace, and what was received in it.
pub(super) struct HostServices {
    place: Apart,
    peers: Peers,
    authority: Arc<CertificateAuthority>,
    /// The certificate that the made-up machine trusts.
    pub trusted: PathBuf,
}

impl HostServices {
    /// Creates it, with its files in `directory`. No host listens yet: this process must have no threads while the
    /// namespaces are created. The inner error is that of a machine that does not permit them.
    pub fn make(directory: &Path) -> Result<Result<Self, ApartError>, ProveError> {
        let failed = |cause| ProveError::Scene { path: directory.to_owned(), cause };
        let over = seen_there(directory).map_err(failed)?;
        let parse = |at: &&str| at.parse().ok();
        let tcp: Vec<SocketAddr> = TCP.iter().filter_map(|(_, at)| parse(at)).collect();
        let udp: Vec<SocketAddr> = UDP.iter().filter_map(|(_, at)| parse(at)).collect();
        let spec = ApartSpec { ranges: RANGES.to_vec(), over, tcp, udp };
        let place = match Apart::make(&spec, || naive::serve(NAIVE)) {
            Ok(place) => place,
            Err(error) => return Ok(Err(error)),
        };
        let authority = CertificateAuthority::new(&speakers(), SystemTime::now());
        let authority = Arc::new(authority.map_err(|error| failed(std::io::Error::other(error)))?);
        let trusted = directory.join("trusted/authority.pem");
        std::fs::create_dir_all(directory.join("trusted")).map_err(failed)?;
        std::fs::write(&trusted, authority.pem()).map_err(failed)?;
        Ok(Ok(Self { place, peers: Peers::default(), authority, trusted }))
    }

    pub fn open(&mut self) -> Result<(), ProveError> {
        let failed = |cause| ProveError::Scene { path: self.trusted.clone(), cause };
        let names = TCP.iter().map(|(name, _)| *name);
        for (name, listener) in names.zip(self.place.tcp.drain(..)) {
            let host = speakers().into_iter().find(|host| host.as_str() == name);
            let speaker = host.map(|host| (host, Arc::clone(&self.authority)));
            self.peers.listen(name, listener, speaker).map_err(failed)?;
        }
        for ((name, _), socket) in UDP.iter().zip(self.place.udp.drain(..)) {
            self.peers.take_datagrams(name, socket).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes a command run there, in this directory.
    pub fn enter(&self, command: &mut Command, directory: &Path) -> Result<(), ProveError> {
        let failed = |cause| ProveError::Scene { path: directory.to_owned(), cause };
        command.enters(&self.place, directory).map(drop).map_err(failed)
    }

    /// Whether a host received the text; with a prefix `NAME|`, whether that host did.
    pub fn heard(&self, text: &str) -> bool {
        let (name, text) = text.split_once('|').map_or((None, text), |(name, text)| (Some(name), text));
        self.peers.heard(name, text)
    }
}

/// The hosts with TLS.
fn speakers() -> Vec<HostName> {
    [BOUND, OTHER].iter().filter_map(|name| HostName::new(name).ok()).collect()
}

/// The files that decide how names are resolved, with their replacements. Files that this machine lacks are skipped.
fn seen_there(directory: &Path) -> std::io::Result<Vec<(PathBuf, PathBuf)>> {
    let empty = directory.join("empty");
    std::fs::create_dir_all(&empty)?;
    let mut over = Vec::new();
    for (text, at) in [
        (NAMES, "/etc/hosts"),
        ("nameserver 10.99.0.53\noptions timeout:1 attempts:1\n", "/etc/resolv.conf"),
        ("hosts: files dns\n", "/etc/nsswitch.conf"),
    ] {
        let file = directory.join(at.trim_start_matches("/etc/"));
        std::fs::write(&file, text)?;
        if Path::new(at).exists() {
            over.push((file, PathBuf::from(at)));
        }
    }
    // A name service daemon would ask the network of this machine.
    over.extend(Path::new("/run/nscd").is_dir().then(|| (empty, PathBuf::from("/run/nscd"))));
    Ok(over)
}
