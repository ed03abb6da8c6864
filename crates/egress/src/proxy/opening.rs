//! How a tunnel to a name has to begin: with TLS for that name, or else it could lead to whatever else its host serves.

use super::client::fill;
use super::client_hello::{self, Hello};
use belljar_contract::{EgressRefusal, HostName};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a tunnel's first bytes have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening<'d> {
    /// Anything.
    Free,
    /// TLS for this name.
    Tls(&'d HostName),
    /// Anything; if TLS, then for this name.
    TlsOrElse(&'d HostName),
}

/// Why a tunnel did not begin.
pub(super) enum NoOpening {
    Refused(EgressRefusal),
    Ended,
    Failed(io::Error),
}

/// Reads until it is known whether the first bytes are what they have to be.
pub(super) async fn look(
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    opening: Opening<'_>,
    within: Duration,
) -> Result<(), NoOpening> {
    let (name, must) = match opening {
        Opening::Free => return Ok(()),
        Opening::Tls(name) => (name, true),
        Opening::TlsOrElse(name) => (name, false),
    };
    // A client may open a tunnel long before it uses it; once it has begun it has to go on.
    if buffer.is_empty() && fill(reader, buffer).await.map_err(NoOpening::Failed)? == 0 {
        return Err(NoOpening::Ended);
    }
    let reading = async {
        loop {
            match client_hello::read(buffer) {
                Hello::Whole { server_name } => return fits(name, server_name),
                Hello::NotTls if must => return Err(NoOpening::Refused(EgressRefusal::NotTls)),
                Hello::NotTls => return Ok(()),
                Hello::Malformed => return Err(NoOpening::Refused(EgressRefusal::NotTls)),
                Hello::Partial => {}
            }
            if fill(reader, buffer).await.map_err(NoOpening::Failed)? == 0 {
                return Err(NoOpening::Refused(EgressRefusal::NotTls));
            }
        }
    };
    timeout(within, reading).await.unwrap_or(Err(NoOpening::Refused(EgressRefusal::NotTls)))
}

/// Whether the name in the handshake is the one that was asked for.
fn fits(name: &HostName, found: Option<Vec<u8>>) -> Result<(), NoOpening> {
    match found {
        Some(found) if found.eq_ignore_ascii_case(name.as_str().as_bytes()) => Ok(()),
        found => {
            let found = found.map(|found| found.escape_ascii().to_string());
            Err(NoOpening::Refused(EgressRefusal::Sni { found }))
        }
    }
}

/// Reads from a socket that somebody else writes to.
pub(super) struct Shy<'s>(pub &'s TcpStream);

impl AsyncRead for Shy<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
