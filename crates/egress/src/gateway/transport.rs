//! A client's socket that can be broken on purpose, and that does not wait for a client that has stopped reading.
//!
//! hyper drops what it has buffered when a body fails, so a body cannot break a stream *after* a given event. Instead
//! the body asks for the break here and falls silent; hyper then flushes, and the break happens at the end of that
//! flush, when everything before it is on its way.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;

use super::answer::Broken;

/// The wish to break a connection, shared by the body that has it and the socket that grants it.
#[derive(Debug, Default)]
pub(super) struct Severance(AtomicU8);

const INTACT: u8 = 0;
const CLOSE: u8 = 1;
const RESET: u8 = 2;

impl Severance {
    /// Asks for the connection to end at the next flush.
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

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection together with the wish to break it.
#[derive(Debug)]
pub(super) struct Transport {
    stream: Stream,
    severance: std::sync::Arc<Severance>,
    patience: Duration,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Transport {
    /// A connection whose client may take nothing for as long as `patience`.
    pub fn new(stream: Stream, severance: std::sync::Arc<Severance>, patience: Duration) -> Self {
        Self { stream, severance, patience, stall: None }
    }

    fn reader(&mut self) -> Pin<&mut (dyn AsyncRead + Unpin + '_)> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream),
            Stream::Unix(stream) => Pin::new(stream),
        }
    }

    fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin + '_)> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream),
            Stream::Unix(stream) => Pin::new(stream),
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
        match this.severance.get() {
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
        if let Stream::Tcp(stream) = &self.stream
            && self.severance.get() == RESET
        {
            // With no time to linger the close that follows sends a reset. If the option is refused the client sees
            // an orderly close, which is as near as can be.
            stream.set_zero_linger().ok();
        }
    }
}
