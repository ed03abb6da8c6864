//! Connects to a server of files, directly or through the user's proxy.

use std::io;
use std::net::IpAddr;

use belljar_contract::{AddressClass, Destination, Host};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::proxied::UserProxy;
use super::{FetchError, FetchScheme, FetchUrl, Fetcher};
use crate::resolve::Resolve;
use crate::tls::Offer;

/// The longest answer of a proxy to CONNECT.
const PROXY_HEAD_MAX: usize = 16 << 10;
const PROXY_HEADERS: usize = 64;

pub(super) trait CarryingStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> CarryingStream for S {}

/// A connection, and whether a credential may be sent on it.
pub(super) struct Connected {
    pub stream: Box<dyn CarryingStream>,
    pub credentials: Credentials,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credentials {
    MaySend,
    /// Others on the network could read them.
    Withhold,
}

impl Fetcher {
    pub(super) async fn connect(&self, url: &FetchUrl) -> Result<Connected, FetchError> {
        let within = self.times.connect;
        let connecting = tokio::time::timeout(within, self.dial_and_secure(url));
        connecting.await.map_err(|_late| FetchError::Late { host: url.destination.clone(), within })?
    }

    async fn dial_and_secure(&self, url: &FetchUrl) -> Result<Connected, FetchError> {
        let host = &url.destination;
        match url.scheme {
            // Without TLS only this machine and private networks are reached, for which a proxy is of no use.
            FetchScheme::Http => {
                let (stream, address) = self.dial(host, in_the_clear).await?;
                let credentials = match AddressClass::of(address) {
                    AddressClass::Loopback => Credentials::MaySend,
                    AddressClass::Public
                    | AddressClass::Private
                    | AddressClass::SharedByProviders
                    | AddressClass::LinkLocal
                    | AddressClass::Metadata
                    | AddressClass::Multicast
                    | AddressClass::Special => Credentials::Withhold,
                };
                Ok(Connected { stream: Box::new(stream), credentials })
            }
            FetchScheme::Https => {
                let stream: Box<dyn CarryingStream> = match self.proxy_for(host) {
                    Some(proxy) => self.tunnel(proxy, host).await?,
                    None => Box::new(self.dial(host, secured).await?.0),
                };
                let stream = self.secure(stream, host).await?;
                Ok(Connected { stream, credentials: Credentials::MaySend })
            }
        }
    }

    fn proxy_for(&self, host: &Destination) -> Option<&UserProxy> {
        self.proxy.as_ref().filter(|_| !self.exceptions.contain(host))
    }

    async fn secure(
        &self,
        stream: Box<dyn CarryingStream>,
        host: &Destination,
    ) -> Result<Box<dyn CarryingStream>, FetchError> {
        let name = match &host.host {
            Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
            Host::Name(name) => ServerName::try_from(name.to_string()),
        };
        let name = name.map_err(|_invalid| FetchError::Name { host: host.clone() })?;
        let spoken = self.tls.handshake(stream, name, Offer::Http1).await;
        let (stream, _http1) = spoken.map_err(|cause| FetchError::Tls { host: host.clone(), cause })?;
        Ok(Box::new(stream))
    }

    async fn dial(&self, host: &Destination, check: AddressCheck) -> Result<(TcpStream, IpAddr), FetchError> {
        let addresses = match &host.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = self.resolver.resolve(name).await;
                found.map_err(|cause| FetchError::Resolve { host: host.clone(), cause })?
            }
        };
        let mut failure = FetchError::NoAddress { host: host.clone() };
        for address in addresses {
            if let Err(refused) = check(host, address) {
                failure = refused;
                continue;
            }
            match TcpStream::connect((address, host.port.get())).await {
                Ok(stream) => return Ok((stream, address)),
                Err(cause) => failure = FetchError::Connect { host: host.clone(), cause },
            }
        }
        Err(failure)
    }

    /// A connection to `host` that the proxy makes.
    async fn tunnel(
        &self,
        proxy: &UserProxy,
        host: &Destination,
    ) -> Result<Box<dyn CarryingStream>, FetchError> {
        let at = &proxy.destination;
        let (stream, _address) = self.dial(at, secured).await?;
        let mut stream: Box<dyn CarryingStream> = match proxy.scheme {
            FetchScheme::Http => Box::new(stream),
            FetchScheme::Https => self.secure(Box::new(stream), at).await?,
        };
        let mut head = zeroize::Zeroizing::new(Vec::with_capacity(PROXY_HEAD_MAX));
        head.extend_from_slice(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").as_bytes());
        if let Some(credential) = &proxy.credential {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(credential.expose());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let failed = |cause| FetchError::Connect { host: at.clone(), cause };
        stream.write_all(&head).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let status = proxy_status(&mut stream).await.map_err(failed)?;
        match status {
            Some(200..=299) => Ok(stream),
            Some(status) => Err(FetchError::Refused { proxy: at.clone(), host: host.clone(), status }),
            None => Err(FetchError::Proxy { proxy: at.clone() }),
        }
    }
}

/// Reads the head of the proxy's answer and no byte beyond it. `None` if it is not one.
async fn proxy_status(stream: &mut Box<dyn CarryingStream>) -> io::Result<Option<u16>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == PROXY_HEAD_MAX {
            return Ok(None);
        }
        head.push(stream.read_u8().await?);
    }
    let mut headers = [httparse::EMPTY_HEADER; PROXY_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    Ok(response.parse(&head).ok().and(response.code))
}

type AddressCheck = fn(&Destination, IpAddr) -> Result<(), FetchError>;

/// With TLS, the name of the server is verified wherever it is. Networks that reach the registry through a mirror or a
/// tunnel may give it a special address, as those for tests and documentation. The addresses of the local link are refused:
/// services of a cloud are there, and no server of files.
fn secured(host: &Destination, address: IpAddr) -> Result<(), FetchError> {
    let class = AddressClass::of(address);
    match class {
        AddressClass::Public
        | AddressClass::Loopback
        | AddressClass::Private
        | AddressClass::SharedByProviders
        | AddressClass::Special => Ok(()),
        AddressClass::LinkLocal | AddressClass::Metadata | AddressClass::Multicast => {
            Err(FetchError::Address { host: host.clone(), address, class })
        }
    }
}

fn in_the_clear(host: &Destination, address: IpAddr) -> Result<(), FetchError> {
    let class = AddressClass::of(address);
    match class {
        AddressClass::Loopback | AddressClass::Private | AddressClass::SharedByProviders => Ok(()),
        AddressClass::Public => Err(FetchError::Clear { host: host.clone(), address }),
        AddressClass::LinkLocal
        | AddressClass::Metadata
        | AddressClass::Multicast
        | AddressClass::Special => Err(FetchError::Address { host: host.clone(), address, class }),
    }
}
