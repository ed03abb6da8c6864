//! Checks how a tunnel to a name starts. It has to be TLS for that name: otherwise the tunnel could reach every other
//! service of the host.

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

/// What the first bytes of a tunnel have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstBytes<'d> {
    /// Not checked.
    Any,
    /// A TLS handshake for this name.
    Tls(&'d HostName),
    /// Any protocol; a TLS handshake has to be for this name.
    TlsOrOther(&'d HostName),
}

/// Why a tunnel did not start.
#[derive(Debug)]
pub(super) enum NotStarted {
    Refused(EgressRefusal),
    Ended,
    Failed(io::Error),
}

/// Reads until the first bytes are known to be acceptable or not.
pub(super) async fn check(
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    start: FirstBytes<'_>,
    within: Duration,
) -> Result<(), NotStarted> {
    let (name, must) = match start {
        FirstBytes::Any => return Ok(()),
        FirstBytes::Tls(name) => (name, true),
        FirstBytes::TlsOrOther(name) => (name, false),
    };
    // A client may open a tunnel long before it uses it. Once the handshake has started it has to finish in time.
    if buffer.is_empty() && fill(reader, buffer).await.map_err(NotStarted::Failed)? == 0 {
        return Err(NotStarted::Ended);
    }
    let reading = async {
        loop {
            match client_hello::read(buffer) {
                Hello::Whole { server_name } => return check_name(name, server_name),
                Hello::NotTls if must => return Err(NotStarted::Refused(EgressRefusal::NotTls)),
                Hello::NotTls => return Ok(()),
                Hello::Malformed => return Err(NotStarted::Refused(EgressRefusal::NotTls)),
                Hello::Partial => {}
            }
            if fill(reader, buffer).await.map_err(NotStarted::Failed)? == 0 {
                return Err(NotStarted::Refused(EgressRefusal::NotTls));
            }
        }
    };
    timeout(within, reading).await.unwrap_or(Err(NotStarted::Refused(EgressRefusal::NotTls)))
}

/// Checks that the name in the handshake is the one that was asked for.
fn check_name(name: &HostName, found: Option<Vec<u8>>) -> Result<(), NotStarted> {
    match found {
        Some(found) if found.eq_ignore_ascii_case(name.as_str().as_bytes()) => Ok(()),
        found => {
            let found = found.map(|found| found.escape_ascii().to_string());
            Err(NotStarted::Refused(EgressRefusal::Sni { found }))
        }
    }
}

/// Reads from a socket through a shared reference, while another future writes to it.
pub(super) struct SharedReader<'s>(pub &'s TcpStream);

impl AsyncRead for SharedReader<'_> {
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

    /// The result for a client that sends these bytes and then ends.
    fn sent(mut bytes: &[u8], start: FirstBytes<'_>) -> Result<usize, NotStarted> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut buffer = Vec::new();
        let checked = check(&mut bytes, &mut buffer, start, Duration::from_secs(30));
        runtime.block_on(checked).map(|()| buffer.len())
    }

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
            for start in [FirstBytes::Tls(&name), FirstBytes::TlsOrOther(&name)] {
                assert!(matches!(sent(&hello, start), Ok(length) if length == hello.len()));
            }
        }
    }

    #[test]
    fn tls_for_another_name_is_refused() {
        let name = name();
        for other in ["evil.test", "allowed.test.", "x.allowed.test", "allowed.tes"] {
            for start in [FirstBytes::Tls(&name), FirstBytes::TlsOrOther(&name)] {
                let refused = sent(&hello(other), start);
                assert!(matches!(refused, Err(NotStarted::Refused(EgressRefusal::Sni { .. }))), "{other}");
            }
        }
    }

    #[test]
    fn other_protocols_pass_only_where_they_may() {
        let name = name();
        let whole = hello("allowed.test");
        for bytes in [&b"SSH-2.0-x"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x02"] {
            assert!(matches!(
                sent(bytes, FirstBytes::Tls(&name)),
                Err(NotStarted::Refused(EgressRefusal::NotTls))
            ));
            assert!(sent(bytes, FirstBytes::TlsOrOther(&name)).is_ok());
        }
        for bytes in [&whole[..whole.len() - 1], b"\x16"] {
            for start in [FirstBytes::Tls(&name), FirstBytes::TlsOrOther(&name)] {
                assert!(
                    matches!(sent(bytes, start), Err(NotStarted::Refused(EgressRefusal::NotTls))),
                    "cut off"
                );
            }
        }
        assert!(matches!(sent(b"", FirstBytes::Tls(&name)), Err(NotStarted::Ended)));
        assert!(matches!(sent(b"anything", FirstBytes::Any), Ok(0)), "nothing is read");
    }

    #[test]
    fn a_handshake_that_stalls_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = name();
        runtime.block_on(async {
            let (mut client, mut server) = tokio::io::duplex(64);
            tokio::io::AsyncWriteExt::write_all(&mut client, b"\x16\x03\x01").await.unwrap();
            let mut buffer = Vec::new();
            let checked = check(&mut server, &mut buffer, FirstBytes::Tls(&name), Duration::from_millis(50));
            assert!(matches!(checked.await, Err(NotStarted::Refused(EgressRefusal::NotTls))));
        });
    }
}
