//! A connection to a host that speaks plain HTTP, and the body that goes there.

use super::head::Framing;
use belljar_contract::Destination;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The most that the head of an answer takes.
const ANSWER_HEAD_LIMIT: usize = 64 * 1024;

/// A connection to one host. It ends with this value.
pub(super) struct Upstream {
    pub destination: Destination,
    pub address: SocketAddr,
    sender: SendRequest<Outgoing>,
    _driver: JoinSet<()>,
}

impl Upstream {
    pub async fn new(stream: TcpStream, destination: Destination, address: SocketAddr) -> io::Result<Self> {
        let handshake = http1::Builder::new().max_buf_size(ANSWER_HEAD_LIMIT).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // What goes wrong on it is told to the request that waits for its answer.
            connection.await.ok();
        });
        Ok(Self { destination, address, sender, _driver: driver })
    }

    /// Whether it can take one more request.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and waits for its answer.
    pub async fn send(&mut self, request: Request<Outgoing>) -> Result<Response<Incoming>, Unsent> {
        self.sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(request) => Unsent::Whole(Box::new(request)),
            None => Unsent::Lost(error.into_error()),
        })
    }
}

/// A request without an answer.
pub(super) enum Unsent {
    /// No byte of it was sent: the host had ended the connection before.
    Whole(Box<Request<Outgoing>>),
    /// Some of it was.
    Lost(hyper::Error),
}

/// A body on its way to a host, fed by whoever reads it from the client.
pub(super) struct Outgoing {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left: Option<u64>,
}

/// Pieces that wait to be sent; the client is not read any further while they do.
const PIECES: usize = 2;

impl Outgoing {
    pub fn new(framing: Framing) -> (Self, mpsc::Sender<io::Result<Bytes>>) {
        let (feed, pieces) = mpsc::channel(PIECES);
        let left = match framing {
            Framing::Nothing => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        (Self { pieces, left }, feed)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.pieces.poll_recv(context).map(|piece| {
            let piece = piece?;
            if let (Ok(bytes), Some(left)) = (&piece, &mut self.left) {
                *left = left.saturating_sub(bytes.len() as u64);
            }
            Some(piece.map(Frame::data))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
