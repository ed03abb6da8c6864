//! A client's connection, and the bytes that were read from it and are not used yet.

use super::error_response::ErrorResponse;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_SIZE: usize = 8 * 1024;

/// How much is still read from a client after the last response: enough to let the response arrive, not more.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Client {
    pub stream: TcpStream,
    pub buffer: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Reads more bytes; returns zero at the end of the stream.
    pub async fn fill(&mut self) -> io::Result<usize> {
        fill(&mut self.stream, &mut self.buffer).await
    }

    /// Takes one message from the front of the buffer, reading until it is complete; `None` at the end of the stream.
    pub async fn message<T, E>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> io::Result<Option<Result<T, E>>> {
        loop {
            match read(&self.buffer) {
                Ok(Some((message, length))) => {
                    self.buffer.drain(..length.min(self.buffer.len()));
                    return Ok(Some(Ok(message)));
                }
                Ok(None) => {}
                Err(fault) => return Ok(Some(Err(fault))),
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Sends a response of the proxy itself and ends the connection.
    pub async fn reject(mut self, answer: &ErrorResponse, method: &str) -> io::Result<()> {
        self.stream.write_all(&answer.bytes(method)).await?;
        self.leave().await
    }

    /// Ends the connection so that the response arrives: closing a socket with unread bytes resets the connection, and the
    /// client could lose the response.
    pub async fn leave(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let drain = async {
            let mut seen = 0;
            let mut scrap = [0; 4096];
            while seen < DRAIN_BYTES {
                match self.stream.read(&mut scrap).await? {
                    0 => break,
                    count => seen += count,
                }
            }
            Ok(())
        };
        tokio::time::timeout(DRAIN_TIME, drain).await.unwrap_or(Ok(()))
    }
}

/// Reads more bytes into a buffer; returns zero at the end of the stream.
pub(super) async fn fill(
    reader: &mut (impl tokio::io::AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    buffer.reserve(READ_SIZE);
    reader.read_buf(buffer).await
}
