//! The listening side: where the model is reached, how long it lives, and what is left of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::check::ScriptFaults;
use super::format::Script;
use super::log::{Ledger, LoggedRequest, Transcript, WaitTimedOut};
use super::player::Player;
use super::service::Service;
use super::transport::{Severance, Stream, Transport};

/// Connections served at once; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;

/// Rest after a failed accept. The usual cause is a lack of descriptors, which an immediate retry would meet again.
const ACCEPT_REST: Duration = Duration::from_millis(20);

/// Where a scripted model is reached.
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
}

/// Why a scripted model could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The script has faults.
    #[error("the script cannot be played")]
    Script(#[source] ScriptFaults),
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
    /// The server's own thread or event loop could not be made.
    #[error("cannot start the server's thread")]
    Thread(#[source] io::Error),
    /// [`ScriptedModel::start_here`] was called outside of a tokio runtime.
    #[error("no tokio runtime is running here")]
    NoRuntime,
}

/// A Messages API server that plays a script until it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    ledger: Arc<Ledger>,
    // Stopped before the socket file goes, so that no client finds the file and nobody behind it.
    _running: Running,
    address: Address,
}

#[derive(Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix { path: Option<PathBuf>, _file: Option<SocketFile> },
}

#[derive(Debug)]
enum Running {
    Thread { stop: Option<oneshot::Sender<()>>, thread: Option<JoinHandle<()>> },
    Task(AbortHandle),
}

/// A listener that is bound and not yet served.
#[derive(Debug)]
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl ScriptedModel {
    /// Starts a model on a thread of its own. The address is open when this returns.
    ///
    /// # Errors
    /// When the script has faults or the address cannot be had.
    pub fn start(script: Script, listen: Listen) -> Result<Self, StartError> {
        let (bound, address) = open(&script, listen)?;
        let ledger = Arc::new(Ledger::new(Player::new(script)));
        let (stop, stopped) = oneshot::channel();
        let (report, started) = mpsc::sync_channel(1);
        let served = Arc::clone(&ledger);
        let thread = std::thread::Builder::new()
            .name("scripted-model".to_owned())
            .spawn(move || run(bound, served, stopped, &report))
            .map_err(StartError::Thread)?;
        let running = Running::Thread { stop: Some(stop), thread: Some(thread) };
        let model = Self { ledger, _running: running, address };
        match started.recv() {
            Ok(Ok(())) => Ok(model),
            Ok(Err(error)) => Err(error),
            Err(gone) => Err(StartError::Thread(io::Error::other(gone))),
        }
    }

    /// Starts a model on the runtime of the caller, which must have its I/O and time drivers enabled.
    ///
    /// # Errors
    /// As [`ScriptedModel::start`], and when the caller has no runtime.
    ///
    /// # Panics
    /// When the runtime was built without its I/O driver.
    pub async fn start_here(script: Script, listen: Listen) -> Result<Self, StartError> {
        let Ok(runtime) = Handle::try_current() else { return Err(StartError::NoRuntime) };
        let (bound, address) = open(&script, listen)?;
        let ledger = Arc::new(Ledger::new(Player::new(script)));
        let listener = bound.listener().map_err(StartError::Adopt)?;
        let task = runtime.spawn(accept(listener, Arc::clone(&ledger)));
        Ok(Self { ledger, _running: Running::Task(task.abort_handle()), address })
    }

    /// What a client takes as its base URL. Over a unix socket the host is of no meaning, and is `localhost`.
    pub fn base_url(&self) -> String {
        match &self.address {
            Address::Tcp(address) => format!("http://{address}"),
            Address::Unix { .. } => "http://localhost".to_owned(),
        }
    }

    /// The unix socket, if the model listens on one that has a path.
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.address {
            Address::Tcp(_) => None,
            Address::Unix { path, .. } => path.as_deref(),
        }
    }

    /// The TCP address, if the model listens on one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.address {
            Address::Tcp(address) => Some(*address),
            Address::Unix { .. } => None,
        }
    }

    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Arc<LoggedRequest>> {
        self.ledger.requests()
    }

    /// Waits until this many requests of any kind have come. Blocks the thread.
    ///
    /// # Errors
    /// When they have not come in time.
    pub fn wait_for_requests(
        &self,
        count: usize,
        within: Duration,
    ) -> Result<Vec<Arc<LoggedRequest>>, WaitTimedOut> {
        self.wait_until(within, |requests| requests.len() >= count)
    }

    /// Waits until the log is as wanted; looked at anew after each request. Blocks the thread.
    ///
    /// # Errors
    /// When it is not so in time.
    pub fn wait_until(
        &self,
        within: Duration,
        enough: impl FnMut(&[Arc<LoggedRequest>]) -> bool,
    ) -> Result<Vec<Arc<LoggedRequest>>, WaitTimedOut> {
        self.ledger.wait(within, enough)
    }

    /// Positions of the turns that no request has taken yet.
    pub fn unplayed(&self) -> Vec<usize> {
        self.ledger.unplayed()
    }

    /// Stops the model and tells what it saw and what it did not get to say.
    pub fn finish(self) -> Transcript {
        let ledger = Arc::clone(&self.ledger);
        drop(self);
        Transcript { requests: ledger.requests(), unplayed: ledger.unplayed() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Thread { stop, thread } => {
                drop(stop.take());
                // The thread waits for nothing but this signal. Its panic, if any, was printed when it happened.
                if let Some(thread) = thread.take() {
                    thread.join().ok();
                }
            }
            Self::Task(task) => task.abort(),
        }
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

/// Checks the script and opens the address.
fn open(script: &Script, listen: Listen) -> Result<(Bound, Address), StartError> {
    script.check().map_err(StartError::Script)?;
    match listen {
        Listen::Loopback { port } => {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .map_err(|cause| StartError::BindLoopback { port, cause })?;
            adopt_tcp(listener)
        }
        Listen::BoundTcp(listener) => adopt_tcp(listener),
        Listen::Unix(path) => {
            let failed = |cause| StartError::BindUnix { path: path.clone(), cause };
            let listener = std::os::unix::net::UnixListener::bind(&path).map_err(failed)?;
            let file = SocketFile::of(path.clone()).map_err(failed)?;
            listener.set_nonblocking(true).map_err(StartError::Adopt)?;
            Ok((Bound::Unix(listener), Address::Unix { path: Some(path), _file: Some(file) }))
        }
        Listen::BoundUnix(listener) => {
            listener.set_nonblocking(true).map_err(StartError::Adopt)?;
            let address = listener.local_addr().map_err(StartError::Adopt)?;
            let path = address.as_pathname().map(Path::to_owned);
            Ok((Bound::Unix(listener), Address::Unix { path, _file: None }))
        }
    }
}

fn adopt_tcp(listener: std::net::TcpListener) -> Result<(Bound, Address), StartError> {
    listener.set_nonblocking(true).map_err(StartError::Adopt)?;
    let address = listener.local_addr().map_err(StartError::Adopt)?;
    Ok((Bound::Tcp(listener), Address::Tcp(address)))
}

impl Bound {
    /// Hands the listener to the runtime in whose context this is called.
    fn listener(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Self::Unix(listener) => Listener::Unix(tokio::net::UnixListener::from_std(listener)?),
        })
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Each event is to leave when it is written, not when the previous one is acknowledged.
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Self::Unix(listener) => Stream::Unix(listener.accept().await?.0),
        })
    }
}

/// Body of the model's own thread: serves until the other end of `stopped` is dropped.
fn run(
    bound: Bound,
    ledger: Arc<Ledger>,
    stopped: oneshot::Receiver<()>,
    report: &mpsc::SyncSender<Result<(), StartError>>,
) {
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let entered = runtime.enter();
        let listener = bound.listener().map_err(StartError::Adopt)?;
        drop(entered);
        Ok((runtime, listener))
    };
    // A report that nobody awaits means that the model is gone already; the stop below ends at once then.
    match start() {
        Err(error) => {
            report.send(Err(error)).ok();
        }
        Ok((runtime, listener)) => {
            runtime.spawn(accept(listener, ledger));
            report.send(Ok(())).ok();
            // Dropping the runtime afterwards drops every connection.
            runtime.block_on(stopped).ok();
        }
    }
}

/// Accepts connections until it is dropped, and drops them with itself.
async fn accept(listener: Listener, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                connections.spawn(serve(stream, Arc::clone(&ledger)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_REST).await,
        }
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
    }
}

/// Serves one connection to its end. How it ended is the client's affair or the script's wish; neither is a fault here.
async fn serve(stream: Stream, ledger: Arc<Ledger>) {
    let severance = Arc::new(Severance::default());
    let transport = TokioIo::new(Transport::new(stream, Arc::clone(&severance)));
    let service = Service { ledger, severance };
    let answer = service_fn(move |request| service.clone().answer(request));
    http1::Builder::new().serve_connection(transport, answer).await.ok();
}
