//! Where the front end listens: on a new address, or on a listener that the caller has bound.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::transport::ClientStream;

/// Where the front end listens.
#[derive(Debug)]
pub enum Listen {
    Loopback {
        /// The port; 0 lets the system choose.
        port: u16,
    },
    /// A unix socket at a path that does not exist yet. Access to its directory is access to the socket.
    Unix(PathBuf),
    /// A TCP listener that is already bound, perhaps in another network namespace.
    BoundTcp(std::net::TcpListener),
    /// A unix listener that is already bound. The caller removes its file.
    BoundUnix(std::os::unix::net::UnixListener),
}

impl Listen {
    /// TCP on 127.0.0.1 with a port that the system chooses.
    pub fn loopback() -> Self {
        Self::Loopback { port: 0 }
    }

    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix(path.into())
    }

    /// Binds the address. Clients that connect from now on wait until they are served.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn open(self) -> Result<(BoundListener, Address), ListenError> {
        match self {
            Self::Loopback { port } => {
                let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                    .map_err(|cause| ListenError::BindLoopback { port, cause })?;
                adopt_tcp(listener)
            }
            Self::BoundTcp(listener) => adopt_tcp(listener),
            Self::Unix(path) => {
                let failed = |cause| ListenError::BindUnix { path: path.clone(), cause };
                let listener = std::os::unix::net::UnixListener::bind(&path).map_err(failed)?;
                let file = SocketFile::of(path.clone()).map_err(failed)?;
                listener.set_nonblocking(true).map_err(ListenError::Adopt)?;
                let address = Address(AddressKind::Unix { path: Some(path), _file: Some(file) });
                Ok((BoundListener(Socket::Unix(listener)), address))
            }
            Self::BoundUnix(listener) => {
                listener.set_nonblocking(true).map_err(ListenError::Adopt)?;
                let address = listener.local_addr().map_err(ListenError::Adopt)?;
                let path = address.as_pathname().map(Path::to_owned);
                Ok((BoundListener(Socket::Unix(listener)), Address(AddressKind::Unix { path, _file: None })))
            }
        }
    }
}

fn adopt_tcp(listener: std::net::TcpListener) -> Result<(BoundListener, Address), ListenError> {
    listener.set_nonblocking(true).map_err(ListenError::Adopt)?;
    let address = listener.local_addr().map_err(ListenError::Adopt)?;
    Ok((BoundListener(Socket::Tcp(listener)), Address(AddressKind::Tcp(address))))
}

/// Why an address cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The port is taken or not permitted.
    #[error("cannot listen on 127.0.0.1:{port}")]
    BindLoopback {
        port: u16,
        #[source]
        cause: io::Error,
    },
    /// The path exists or is too long, or its directory is missing or not accessible.
    #[error("cannot listen on the unix socket {}", path.display())]
    BindUnix {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot serve the bound listener")]
    Adopt(#[source] io::Error),
}

/// A bound listener that is not served yet.
#[derive(Debug)]
pub struct BoundListener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// The address of a bound listener. Dropping the value removes the socket file that was created for it.
#[derive(Debug)]
pub struct Address(AddressKind);

#[derive(Debug)]
enum AddressKind {
    Tcp(SocketAddr),
    Unix { path: Option<PathBuf>, _file: Option<SocketFile> },
}

impl Address {
    /// The base URL for clients. Over a unix socket the host has no meaning, and is `localhost`.
    pub fn base_url(&self) -> String {
        match &self.0 {
            AddressKind::Tcp(address) => format!("http://{address}"),
            AddressKind::Unix { .. } => "http://localhost".to_owned(),
        }
    }

    /// The path of the unix socket, if there is one.
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.0 {
            AddressKind::Tcp(_) => None,
            AddressKind::Unix { path, .. } => path.as_deref(),
        }
    }

    pub fn tcp(&self) -> Option<SocketAddr> {
        match &self.0 {
            AddressKind::Tcp(address) => Some(*address),
            AddressKind::Unix { .. } => None,
        }
    }
}

/// A listener that is registered with a runtime.
pub struct Listener(Driven);

enum Driven {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl BoundListener {
    /// Registers the listener with the current runtime.
    ///
    /// # Errors
    /// When the runtime refuses the listener.
    ///
    /// # Panics
    /// Outside of a runtime, or in a runtime without I/O driver.
    pub fn listener(self) -> Result<Listener, ListenError> {
        let driven = match self.0 {
            Socket::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(Driven::Tcp),
            Socket::Unix(listener) => tokio::net::UnixListener::from_std(listener).map(Driven::Unix),
        };
        Ok(Listener(driven.map_err(ListenError::Adopt)?))
    }
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<ClientStream> {
        Ok(match &self.0 {
            Driven::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Each event should leave at once, not when the previous one is acknowledged.
                stream.set_nodelay(true)?;
                ClientStream::Tcp(stream)
            }
            Driven::Unix(listener) => ClientStream::Unix(listener.accept().await?.0),
        })
    }
}

/// A socket's file. It is removed with its owner, unless another file has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&path)?;
        Ok(Self { path, identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // The file may be gone already. A failure to remove it cannot be reported here.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Device and inode of the file at a path.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}
