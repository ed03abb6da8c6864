//! A plain HTTP connection to a host, and the request body that is forwarded to it.

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

const ANSWER_HEAD_LIMIT: usize = 64 * 1024;

/// A connection to one host. Dropping the value closes it.
pub(super) struct HostConnection {
    pub destination: Destination,
    pub address: SocketAddr,
    sender: SendRequest<ForwardedBody>,
    _driver: JoinSet<()>,
}

impl HostConnection {
    pub async fn new(stream: TcpStream, destination: Destination, address: SocketAddr) -> io::Result<Self> {
        let handshake = http1::Builder::new().max_buf_size(ANSWER_HEAD_LIMIT).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // An error also reaches the request that waits for its response.
            connection.await.ok();
        });
        Ok(Self { destination, address, sender, _driver: driver })
    }

    /// Whether the connection can take another request.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and waits for the head of its response.
    pub async fn send(&mut self, request: Request<ForwardedBody>) -> Result<Response<Incoming>, Unsent> {
        self.sender.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(request) => Unsent::Whole(Box::new(request)),
            None => Unsent::Lost(error.into_error()),
        })
    }
}

/// A request without a response.
pub(super) enum Unsent {
    /// Nothing was sent, because the host had closed the connection.
    Whole(Box<Request<ForwardedBody>>),
    /// At least a part of the request was sent.
    Lost(hyper::Error),
}

/// A request body on its way to a host. The sending half of its channel is fed from the client.
pub(super) struct ForwardedBody {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left: Option<u64>,
}

/// Pieces in the channel. While it is full, nothing is read from the client.
const PIECES: usize = 2;

impl ForwardedBody {
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

impl Body for ForwardedBody {
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
