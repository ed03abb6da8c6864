//! The client of the agent outside that holds the key: the user's own, or one that was started for the run.

use super::message::{self, FRAME_MAX, SignRequest};
use belljar_contract::SshPublicKey;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The user may have to touch a security key, or to confirm.
const PATIENCE: Duration = Duration::from_secs(120);
/// Listing keys needs no user.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// Why the agent outside did not sign.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error("the agent that holds the key cannot be reached: {0}")]
    Reach(io::Error),
    #[error("the agent that holds the key did not respond in time")]
    Timeout,
    #[error("the agent that holds the key refused to sign")]
    Refused,
}

/// Asks the agent for a signature; `bind` names the host, for a key that the agent restricts to hosts.
///
/// Each signature uses its own connection, so that the binding of one session never applies to another.
pub(super) async fn sign(
    socket: &Path,
    bind: Option<&[u8]>,
    request: &SignRequest<'_>,
) -> Result<Vec<u8>, AgentError> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        if let Some(bind) = bind {
            // An agent without support for bindings rejects this, and signs all the same.
            stream.write_all(bind).await?;
            read_frame(&mut stream).await?;
        }
        stream.write_all(&request.frame()).await?;
        read_frame(&mut stream).await
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_elapsed| AgentError::Timeout)?;
    message::pass_signature(&answer.map_err(AgentError::Reach)?).ok_or(AgentError::Refused)
}

async fn read_frame(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = checked(stream.read_u32().await?)?;
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

fn checked(length: u32) -> io::Result<usize> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the response is too long"));
    }
    Ok(length)
}

/// The keys that an agent has. It blocks, and is used before a run only.
pub(super) fn offered(socket: &Path) -> io::Result<Vec<SshPublicKey>> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIST_PATIENCE))?;
    stream.set_write_timeout(Some(LIST_PATIENCE))?;
    stream.write_all(&message::request_identities())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; checked(u32::from_be_bytes(length))?];
    stream.read_exact(&mut frame)?;
    message::parse_identities(&frame)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it did not respond with its keys"))
}
