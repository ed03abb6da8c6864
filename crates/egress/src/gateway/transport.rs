//! A client's socket that can be cut on purpose, with a timeout for clients that stop reading.
//!
//! hyper drops its buffer when a body fails, so that a body cannot cut a stream *after* a given event. Instead the body
//! requests the cut here and stays pending. hyper then flushes, and the connection is cut at the end of that flush, when
//! everything before the cut was sent.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;

use super::answer::Broken;

/// A request to cut a connection, shared by the body and the socket.
#[derive(Debug, Default)]
pub(super) struct CutSignal(AtomicU8);

const INTACT: u8 = 0;
const CLOSE: u8 = 1;
const RESET: u8 = 2;

impl CutSignal {
    /// Requests that the connection be cut at the next flush.
    pub fn request(&self, end: Broken) {
        let end = match end {
            Broken::Close => CLOSE,
            Broken::Reset => RESET,
        };
        self.0.store(end, Ordering::Release);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(crate) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that can be cut.
#[derive(Debug)]
pub(super) struct Transport {
    stream: ClientStream,
    cut: std::sync::Arc<CutSignal>,
    patience: Duration,
    /// Runs while the client reads nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Transport {
    /// A connection whose client may read nothing for as long as `patience`.
    pub fn new(stream: ClientStream, cut: std::sync::Arc<CutSignal>, patience: Duration) -> Self {
        Self { stream, cut, patience, stall: None }
    }

    fn reader(&mut self) -> Pin<&mut (dyn AsyncRead + Unpin + '_)> {
        match &mut self.stream {
            ClientStream::Tcp(stream) => Pin::new(stream),
            ClientStream::Unix(stream) => Pin::new(stream),
        }
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin + '_)> {
        match &mut self.stream {
            ClientStream::Tcp(stream) => Pin::new(stream),
            ClientStream::Unix(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().reader().poll_read(context, buffer)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(written) = this.writer().poll_write(context, bytes) {
            this.stall = None;
            return Poll::Ready(written);
        }
        let patience = this.patience;
        let stall = this.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.writer().poll_flush(context))?;
        match this.cut.get() {
            INTACT => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer().poll_shutdown(context)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let ClientStream::Tcp(stream) = &self.stream
            && self.cut.get() == RESET
        {
            // With a linger time of zero, closing the socket sends a reset. If the option fails, the client sees an orderly
            // close.
            stream.set_zero_linger().ok();
        }
    }
}
