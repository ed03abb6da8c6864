//! Name resolution. A name is resolved once per connection, and only an address that was checked is dialled.

use belljar_contract::HostName;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// The future of a lookup.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves names.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, in the order in which to try them.
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a>;
}

/// Concurrent lookups. Each one occupies a thread until the system's resolver returns.
const LOOKUPS_AT_ONCE: usize = 32;

/// The resolver of this machine.
#[derive(Debug)]
pub struct SystemResolver {
    within: Duration,
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    /// Each lookup may take as long as `within`.
    #[must_use]
    pub fn new(within: Duration) -> Self {
        Self { within, lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        Box::pin(async move {
            let lookup = async {
                let turn = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
                let name = name.as_str().to_owned();
                // The lookup is a task of its own and keeps its permit until the system has answered, even if the caller gives up.
                let asking = tokio::spawn(async move {
                    let found = tokio::net::lookup_host((name, 0)).await;
                    drop(turn);
                    found.map(|addresses| addresses.map(|address| address.ip()).collect())
                });
                asking.await.map_err(io::Error::other)?
            };
            tokio::time::timeout(self.within, lookup).await.map_err(|_elapsed| io::ErrorKind::TimedOut)?
        })
    }
}

/// Resolves the given names only.
#[derive(Debug, Clone, Default)]
pub struct FixedNames(pub BTreeMap<HostName, Vec<IpAddr>>);

impl Resolve for FixedNames {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        let found = self.0.get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

/// Connects to the first of these addresses that accepts.
///
/// # Errors
/// The error of the last address tried.
pub async fn dial(addresses: &[SocketAddr], within: Duration) -> io::Result<(TcpStream, SocketAddr)> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match tokio::time::timeout(within, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A request is small and waits for its response, so that delaying it gains nothing.
                stream.set_nodelay(true)?;
                return Ok((stream, *address));
            }
            Ok(Err(error)) => failure = error,
            Err(_elapsed) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn localhost_resolves_to_loopback() {
        let resolver = SystemResolver::new(Duration::from_secs(30));
        let found = run(resolver.resolve(&HostName::new("localhost").unwrap())).unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn an_unknown_name_does_not_resolve() {
        let name = |text| HostName::new(text).unwrap();
        let names = FixedNames(BTreeMap::from([(name("a.test"), vec![IpAddr::from([192, 0, 2, 1])])]));
        assert_eq!(run(names.resolve(&name("a.test"))).unwrap(), [IpAddr::from([192, 0, 2, 1])]);
        assert!(run(names.resolve(&name("localhost"))).is_err());
    }

    #[test]
    fn the_next_address_is_tried() {
        run(async {
            let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let open = (open.local_addr().unwrap(), open);
            let (_, reached) = dial(&[closed, open.0], Duration::from_secs(5)).await.unwrap();
            assert_eq!(reached, open.0);
            let refused = dial(&[closed], Duration::from_secs(5)).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            assert!(dial(&[], Duration::from_secs(5)).await.is_err());
        });
    }
}
