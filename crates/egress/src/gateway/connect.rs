//! Connects to the model's host: resolves its name once, checks the address, dials it, and speaks TLS and HTTP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use belljar_contract::{Destination, Host};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::upstream::{NotDialled, Scheme, Upstream};
use crate::resolve::Resolve;
use crate::tls::{ChosenProtocol, Offer, TlsClient};

/// Limit for the head of a response.
const MAX_HEAD_BYTES: usize = 128 * 1024;

/// An HTTP/2 connection that is silent for this long is checked with a ping.
const HTTP2_PING: Duration = Duration::from_secs(30);

/// Why connecting failed. The texts follow the name of the host.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("its name cannot be resolved ({0})")]
    Resolve(io::Error),
    #[error("its name has no address")]
    NoAddress,
    #[error(transparent)]
    NotDialled(#[from] NotDialled),
    #[error("the connection failed ({0})")]
    Dial(io::Error),
    #[error("TLS fails ({0})")]
    Tls(io::Error),
    #[error("its name is not a valid server name for TLS")]
    Name,
    #[error("it does not speak HTTP ({0})")]
    Http(hyper::Error),
    #[error("connecting took longer than {0:?}")]
    Late(Duration),
}

#[derive(Debug)]
pub(super) struct Link {
    sender: HttpSender,
    read: Arc<AtomicU64>,
    pub history: History,
}

/// Whether a connection has carried a request before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    New,
    Used,
}

#[derive(Debug)]
enum HttpSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Everything that is needed to connect.
pub(super) struct Dialler {
    pub upstream: Upstream,
    pub resolver: Arc<dyn Resolve>,
    pub tls: TlsClient,
    pub connect_within: Duration,
}

impl Dialler {
    pub async fn connect(&self) -> Result<Link, ConnectError> {
        let connecting = tokio::time::timeout(self.connect_within, self.dial_and_speak());
        connecting.await.map_err(|_late| ConnectError::Late(self.connect_within))?
    }

    async fn dial_and_speak(&self) -> Result<Link, ConnectError> {
        let stream = self.dial().await?;
        let read = Arc::new(AtomicU64::new(0));
        let (stream, chosen): (Box<dyn Duplex>, ChosenProtocol) = match self.upstream.scheme {
            Scheme::Http => (Box::new(stream), ChosenProtocol::Http1),
            Scheme::Https => {
                let name = self.server_name()?;
                let spoken = self.tls.handshake(stream, name, Offer::Http2And1).await;
                let (stream, chosen) = spoken.map_err(ConnectError::Tls)?;
                (Box::new(stream), chosen)
            }
        };
        let io = TokioIo::new(ReadCounter { stream, read: Arc::clone(&read) });
        let sender = match chosen {
            ChosenProtocol::Http1 => {
                let mut client = http1::Builder::new();
                client.max_buf_size(MAX_HEAD_BYTES);
                let (sender, connection) = client.handshake(io).await.map_err(ConnectError::Http)?;
                // An error also reaches the request that waits for a response.
                tokio::spawn(async move { connection.await.ok() });
                HttpSender::Http1(sender)
            }
            ChosenProtocol::Http2 => {
                let mut client = http2::Builder::new(TokioExecutor::new());
                client
                    .timer(TokioTimer::new())
                    .keep_alive_interval(HTTP2_PING)
                    .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX));
                let (sender, connection) = client.handshake(io).await.map_err(ConnectError::Http)?;
                tokio::spawn(async move { connection.await.ok() });
                HttpSender::Http2(sender)
            }
        };
        Ok(Link { sender, read, history: History::New })
    }

    async fn dial(&self) -> Result<TcpStream, ConnectError> {
        let Destination { host, port } = &self.upstream.destination;
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name).await.map_err(ConnectError::Resolve)?,
        };
        let mut failure = ConnectError::NoAddress;
        for address in addresses {
            if let Err(refused) = self.upstream.check(address) {
                failure = refused.into();
                continue;
            }
            match TcpStream::connect((address, port.get())).await {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(ConnectError::Dial)?;
                    return Ok(stream);
                }
                Err(error) => failure = ConnectError::Dial(error),
            }
        }
        Err(failure)
    }

    fn server_name(&self) -> Result<ServerName<'static>, ConnectError> {
        match &self.upstream.destination.host {
            Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
            Host::Name(name) => ServerName::try_from(name.to_string()).map_err(|_invalid| ConnectError::Name),
        }
    }
}

impl Link {
    /// Sends a request and returns the head of its response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        match &mut self.sender {
            HttpSender::Http1(sender) => sender.send_request(request).await,
            HttpSender::Http2(sender) => sender.send_request(request).await,
        }
    }

    pub fn protocol(&self) -> ChosenProtocol {
        match &self.sender {
            HttpSender::Http1(_) => ChosenProtocol::Http1,
            HttpSender::Http2(_) => ChosenProtocol::Http2,
        }
    }

    /// Bytes received on this connection so far, for all of its requests.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Another handle on a connection that carries several requests at once.
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            HttpSender::Http1(_) => None,
            HttpSender::Http2(sender) => {
                let sender = HttpSender::Http2(sender.clone());
                Some(Self { sender, read: Arc::clone(&self.read), history: History::Used })
            }
        }
    }

    pub fn is_closed(&self) -> bool {
        match &self.sender {
            HttpSender::Http1(sender) => sender.is_closed(),
            HttpSender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Waits until the connection can carry the next request.
    pub async fn ready(&mut self) -> Result<(), hyper::Error> {
        match &mut self.sender {
            HttpSender::Http1(sender) => sender.ready().await,
            HttpSender::Http2(sender) => sender.ready().await,
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A stream that counts the bytes read.
struct ReadCounter {
    stream: Box<dyn Duplex>,
    read: Arc<AtomicU64>,
}

impl AsyncRead for ReadCounter {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.read.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadCounter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
