//! Where a front end is reached: an address to open, or a listener that someone else has bound.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::transport::Stream;

/// Where the model is reached.
#[derive(Debug)]
pub enum Listen {
    /// TCP on 127.0.0.1.
    Loopback {
        /// The port; 0 lets the system choose.
        port: u16,
    },
    /// A unix socket at a path that does not exist yet. Who may enter its directory may connect.
    Unix(PathBuf),
    /// A TCP listener that someone else has bound, perhaps in another network namespace.
    BoundTcp(std::net::TcpListener),
    /// A unix listener that someone else has bound, and will remove.
    BoundUnix(std::os::unix::net::UnixListener),
}

impl Listen {
    /// TCP on 127.0.0.1 at a port of the system's choice.
    pub fn loopback() -> Self {
        Self::Loopback { port: 0 }
    }

    /// A unix socket at this path.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix(path.into())
    }

    /// Opens the address. Clients that connect from now on wait until they are served.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn open(self) -> Result<(Bound, Address), ListenError> {
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
                Ok((Bound(Socket::Unix(listener)), address))
            }
            Self::BoundUnix(listener) => {
                listener.set_nonblocking(true).map_err(ListenError::Adopt)?;
                let address = listener.local_addr().map_err(ListenError::Adopt)?;
                let path = address.as_pathname().map(Path::to_owned);
                Ok((Bound(Socket::Unix(listener)), Address(AddressKind::Unix { path, _file: None })))
            }
        }
    }
}

fn adopt_tcp(listener: std::net::TcpListener) -> Result<(Bound, Address), ListenError> {
    listener.set_nonblocking(true).map_err(ListenError::Adopt)?;
    let address = listener.local_addr().map_err(ListenError::Adopt)?;
    Ok((Bound(Socket::Tcp(listener)), Address(AddressKind::Tcp(address))))
}

/// Why an address could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The port is taken or forbidden.
    #[error("cannot listen on 127.0.0.1:{port}")]
    BindLoopback {
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The path exists, is too long, or lies in a directory that is missing or closed.
    #[error("cannot listen on the unix socket {}", path.display())]
    BindUnix {
        /// The path that was asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A bound listener is not usable.
    #[error("cannot serve the bound listener")]
    Adopt(#[source] io::Error),
}

/// A listener that is bound and not yet served.
#[derive(Debug)]
pub struct Bound(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// The address of a bound listener; a socket file that was made for it goes with this value.
#[derive(Debug)]
pub struct Address(AddressKind);

#[derive(Debug)]
enum AddressKind {
    Tcp(SocketAddr),
    Unix { path: Option<PathBuf>, _file: Option<SocketFile> },
}

impl Address {
    /// What a client takes as its base URL. Over a unix socket the host is of no meaning, and is `localhost`.
    pub fn base_url(&self) -> String {
        match &self.0 {
            AddressKind::Tcp(address) => format!("http://{address}"),
            AddressKind::Unix { .. } => "http://localhost".to_owned(),
        }
    }

    /// The unix socket, if there is one and it has a path.
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.0 {
            AddressKind::Tcp(_) => None,
            AddressKind::Unix { path, .. } => path.as_deref(),
        }
    }

    /// The TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match &self.0 {
            AddressKind::Tcp(address) => Some(*address),
            AddressKind::Unix { .. } => None,
        }
    }
}

/// A listener that a runtime drives.
pub struct Listener(Driven);

enum Driven {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Bound {
    /// Hands the listener to the runtime in whose context this is called.
    ///
    /// # Errors
    /// When the runtime does not take it.
    ///
    /// # Panics
    /// Outside of a runtime, or in one without its I/O driver.
    pub fn listener(self) -> Result<Listener, ListenError> {
        let driven = match self.0 {
            Socket::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(Driven::Tcp),
            Socket::Unix(listener) => tokio::net::UnixListener::from_std(listener).map(Driven::Unix),
        };
        Ok(Listener(driven.map_err(ListenError::Adopt)?))
    }
}

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        Ok(match &self.0 {
            Driven::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Each event is to leave when it is written, not when the previous one is acknowledged.
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Driven::Unix(listener) => Stream::Unix(listener.accept().await?.0),
        })
    }
}

/// A socket's file, removed with its owner unless another one has taken its place.
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
            // A file that is already gone is what was wanted; one that cannot be removed has nobody to tell.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Device and inode of what is at a path.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}
