//! The agent outside that holds the key: the user's own, or one that was started for the run.

use super::message::{self, FRAME_MAX, SignRequest};
use belljar_contract::SshPublicKey;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A person may have to touch a key, or to say yes.
const PATIENCE: Duration = Duration::from_secs(120);
/// To list keys nobody is asked.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// Why the agent outside did not sign.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("the agent that holds the key cannot be reached: {0}")]
    Reach(io::Error),
    #[error("the agent that holds the key did not answer in time")]
    Late,
    #[error("the agent that holds the key refused")]
    Refused,
}

/// Has something signed; `bind` tells the agent the host, for a key that it limits to hosts.
///
/// A connection for each signature: what one session said never counts for another.
pub(super) async fn sign(
    socket: &Path,
    bind: Option<&[u8]>,
    request: &SignRequest<'_>,
) -> Result<Vec<u8>, UpstreamError> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        if let Some(bind) = bind {
            // An agent that does not know of hosts fails this, and signs all the same.
            stream.write_all(bind).await?;
            read_frame(&mut stream).await?;
        }
        stream.write_all(&request.frame()).await?;
        read_frame(&mut stream).await
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_elapsed| UpstreamError::Late)?;
    message::pass_signature(&answer.map_err(UpstreamError::Reach)?).ok_or(UpstreamError::Refused)
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
    }
    Ok(length)
}

/// The keys that an agent offers. For the time before a run: it blocks.
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
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it did not answer with its keys"))
}
