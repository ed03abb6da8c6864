//! Connections to the one address that was checked. They are kept as long as the client's connection.

use super::{InterceptTimeouts, PIECE, READ_AHEAD};
use crate::tls::{ChosenProtocol, Offer, TlsClient};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{COOKIE, HOST, HeaderValue};
use hyper::{Request, Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const HEAD_MAX: usize = PIECE;

/// Why the request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostClientError {
    #[error("{host} cannot be reached at {address}")]
    Dial {
        host: String,
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error("the TLS handshake with {host} failed, or this machine does not trust its certificate")]
    Tls {
        host: String,
        #[source]
        cause: io::Error,
    },
    #[error("{host} did not send a valid HTTP response")]
    Http {
        host: String,
        #[source]
        cause: hyper::Error,
    },
    #[error("{host} did not respond in time")]
    Timeout { host: String },
}

enum Idle {
    Http1(http1::SendRequest<Incoming>),
    Http2(http2::SendRequest<Incoming>),
}

/// Sends requests to one destination.
pub(super) struct HostClient {
    pub tls: TlsClient,
    pub address: SocketAddr,
    pub name: ServerName<'static>,
    /// The value of the Host header.
    pub authority: String,
    pub timeouts: InterceptTimeouts,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    idle: Vec<Idle>,
    /// The tasks that drive the connections; dropping the set aborts them.
    drivers: JoinSet<()>,
}

impl HostClient {
    pub fn new(
        tls: TlsClient,
        address: SocketAddr,
        name: ServerName<'static>,
        authority: String,
        timeouts: InterceptTimeouts,
    ) -> Self {
        Self { tls, address, name, authority, timeouts, connections: Mutex::default() }
    }

    /// Sends a request whose target is a path, and returns the head of the response.
    pub async fn send(&self, request: Request<Incoming>) -> Result<Response<Incoming>, HostClientError> {
        let late = || HostClientError::Timeout { host: self.authority.clone() };
        tokio::time::timeout(self.timeouts.answer, self.send_now(request)).await.map_err(|_elapsed| late())?
    }

    async fn send_now(&self, request: Request<Incoming>) -> Result<Response<Incoming>, HostClientError> {
        let mut request = request;
        loop {
            let (connection, age) = match self.take_idle() {
                Some(connection) => (connection, Age::Used),
                None => (self.dial().await?, Age::Fresh),
            };
            match self.try_send(connection, request).await {
                Ok(response) => return Ok(response),
                // The host may have closed the idle connection. Then nothing of the request was sent, and it is sent again.
                Err((_, Some(unsent))) if age == Age::Used => request = unsent,
                Err((cause, _)) => return Err(HostClientError::Http { host: self.authority.clone(), cause }),
            }
        }
    }

    async fn try_send(
        &self,
        connection: Idle,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Incoming>>)> {
        match connection {
            Idle::Http1(mut sender) => {
                let request = for_http1(request, &self.authority);
                let answer = sender.try_send_request(request).await;
                self.lock().idle.push(Idle::Http1(sender));
                answer
                    .map_err(|mut error| (error.take_message(), error))
                    .map_err(|(unsent, error)| (error.into_error(), unsent))
            }
            Idle::Http2(mut sender) => {
                let request = for_http2(request, &self.authority);
                self.lock().idle.push(Idle::Http2(sender.clone()));
                let answer = sender.try_send_request(request).await;
                answer
                    .map_err(|mut error| (error.take_message(), error))
                    .map_err(|(unsent, error)| (error.into_error(), unsent))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self) -> Option<Idle> {
        let mut connections = self.lock();
        connections.idle.retain(|idle| match idle {
            Idle::Http1(sender) => !sender.is_closed(),
            Idle::Http2(sender) => !sender.is_closed(),
        });
        while connections.drivers.try_join_next().is_some() {}
        let ready = connections.idle.iter().position(|idle| match idle {
            Idle::Http1(sender) => sender.is_ready(),
            Idle::Http2(sender) => sender.is_ready(),
        })?;
        Some(connections.idle.swap_remove(ready))
    }

    async fn dial(&self) -> Result<Idle, HostClientError> {
        let host = || self.authority.clone();
        let dialled = tokio::time::timeout(self.timeouts.dial, TcpStream::connect(self.address));
        let stream = dialled
            .await
            .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|cause| HostClientError::Dial { host: host(), address: self.address, cause })?;
        // A response may be a stream of small events, which should not be delayed. A failure only delays them.
        stream.set_nodelay(true).ok();
        let stream = BufReader::with_capacity(READ_AHEAD, stream);
        let handshake = self.tls.handshake(stream, self.name.clone(), Offer::Http2And1);
        let (stream, chosen) = tokio::time::timeout(self.timeouts.dial, handshake)
            .await
            .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|cause| HostClientError::Tls { host: host(), cause })?;
        let stream = TokioIo::new(stream);
        let refused = |cause| HostClientError::Http { host: host(), cause };
        match chosen {
            ChosenProtocol::Http1 => {
                let (sender, connection) =
                    http1::Builder::new().max_buf_size(HEAD_MAX).handshake(stream).await.map_err(refused)?;
                self.lock().drivers.spawn(async { connection.await.unwrap_or(()) });
                Ok(Idle::Http1(sender))
            }
            ChosenProtocol::Http2 => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .max_header_list_size(HEAD_MAX as u32)
                    .handshake(stream)
                    .await
                    .map_err(refused)?;
                self.lock().drivers.spawn(async { connection.await.unwrap_or(()) });
                Ok(Idle::Http2(sender))
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Fresh,
    Used,
}

fn for_http1(mut request: Request<Incoming>, authority: &str) -> Request<Incoming> {
    *request.version_mut() = Version::HTTP_11;
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = target.map_or_else(|| Uri::from_static("/"), Uri::from);
    // The authority is a host name and a port, which is always a valid header value.
    if let Ok(host) = HeaderValue::from_str(authority) {
        request.headers_mut().insert(HOST, host);
    }
    let cookies: Vec<&[u8]> = request.headers().get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(one) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        request.headers_mut().insert(COOKIE, one);
    }
    request
}

fn for_http2(mut request: Request<Incoming>, authority: &str) -> Request<Incoming> {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let uri = Uri::builder().scheme("https").authority(authority).path_and_query(target).build();
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    request
}
