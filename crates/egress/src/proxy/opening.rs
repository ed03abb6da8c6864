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
#[derive(Debug)]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> HostName {
        HostName::new("allowed.test").unwrap()
    }

    /// What becomes of a client that sends these bytes and ends.
    fn sent(mut bytes: &[u8], opening: Opening<'_>) -> Result<usize, NoOpening> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut buffer = Vec::new();
        let looked = look(&mut bytes, &mut buffer, opening, Duration::from_secs(30));
        runtime.block_on(looked).map(|()| buffer.len())
    }

    /// A ClientHello for this name.
    fn hello(name: &str) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        let extension = [&[0, 0, 0, length + 5, 0, length + 3, 0, 0, length][..], name.as_bytes()].concat();
        let extensions = [&[0, u8::try_from(extension.len()).unwrap()][..], &extension].concat();
        let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &extensions].concat();
        let message = [&[1, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat();
        [&[22, 3, 1, 0, u8::try_from(message.len()).unwrap()][..], &message].concat()
    }

    #[test]
    fn tls_for_the_name_passes_whole() {
        let name = name();
        for spelling in ["allowed.test", "ALLOWED.Test"] {
            let hello = hello(spelling);
            for opening in [Opening::Tls(&name), Opening::TlsOrElse(&name)] {
                assert!(matches!(sent(&hello, opening), Ok(length) if length == hello.len()));
            }
        }
    }

    #[test]
    fn tls_for_another_name_does_not() {
        let name = name();
        for other in ["evil.test", "allowed.test.", "x.allowed.test", "allowed.tes"] {
            for opening in [Opening::Tls(&name), Opening::TlsOrElse(&name)] {
                let refused = sent(&hello(other), opening);
                assert!(matches!(refused, Err(NoOpening::Refused(EgressRefusal::Sni { .. }))), "{other}");
            }
        }
    }

    #[test]
    fn what_is_not_tls_passes_only_where_it_may() {
        let name = name();
        let whole = hello("allowed.test");
        for bytes in [&b"SSH-2.0-x"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x02"] {
            assert!(matches!(
                sent(bytes, Opening::Tls(&name)),
                Err(NoOpening::Refused(EgressRefusal::NotTls))
            ));
            assert!(sent(bytes, Opening::TlsOrElse(&name)).is_ok());
        }
        for bytes in [&whole[..whole.len() - 1], b"\x16"] {
            for opening in [Opening::Tls(&name), Opening::TlsOrElse(&name)] {
                assert!(
                    matches!(sent(bytes, opening), Err(NoOpening::Refused(EgressRefusal::NotTls))),
                    "cut off"
                );
            }
        }
        assert!(matches!(sent(b"", Opening::Tls(&name)), Err(NoOpening::Ended)));
        assert!(matches!(sent(b"anything", Opening::Free), Ok(0)), "nothing is looked at");
    }

    #[test]
    fn a_handshake_that_does_not_go_on_is_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = name();
        runtime.block_on(async {
            let (mut client, mut server) = tokio::io::duplex(64);
            tokio::io::AsyncWriteExt::write_all(&mut client, b"\x16\x03\x01").await.unwrap();
            let mut buffer = Vec::new();
            let looked = look(&mut server, &mut buffer, Opening::Tls(&name), Duration::from_millis(50));
            assert!(matches!(looked.await, Err(NoOpening::Refused(EgressRefusal::NotTls))));
        });
    }
}
