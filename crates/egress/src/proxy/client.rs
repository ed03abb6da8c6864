//! A client's connection and the bytes of it that were read and not yet used.

use super::answer::Answer;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How much is read at once.
const READ_SIZE: usize = 8 * 1024;

/// What is still read from a client that was sent away: enough to let the answer arrive, not more.
const FAREWELL_BYTES: usize = 256 * 1024;
const FAREWELL_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Client {
    pub stream: TcpStream,
    pub buffer: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Reads more; zero at the client's end.
    pub async fn fill(&mut self) -> io::Result<usize> {
        fill(&mut self.stream, &mut self.buffer).await
    }

    /// Takes a message from the front of what came, reading on until it is whole; `None` at the client's end.
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

    /// Sends an answer of ours and ends the connection.
    pub async fn send_away(mut self, answer: &Answer, method: &str) -> io::Result<()> {
        self.stream.write_all(&answer.bytes(method)).await?;
        self.leave().await
    }

    /// Ends the connection so that what was written arrives: a socket that is closed with unread bytes in it is reset,
    /// and takes the answer with it.
    pub async fn leave(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let drain = async {
            let mut seen = 0;
            let mut scrap = [0; 4096];
            while seen < FAREWELL_BYTES {
                match self.stream.read(&mut scrap).await? {
                    0 => break,
                    count => seen += count,
                }
            }
            Ok(())
        };
        tokio::time::timeout(FAREWELL_TIME, drain).await.unwrap_or(Ok(()))
    }
}

/// Reads more into a buffer; zero at the end.
pub(super) async fn fill(
    reader: &mut (impl tokio::io::AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    buffer.reserve(READ_SIZE);
    reader.read_buf(buffer).await
}
