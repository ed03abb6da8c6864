//! The server of a scripted model: where it listens, how long it runs, and its result.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::check::ScriptFaults;
use super::format::Script;
use super::log::{Ledger, LoggedRequest, Transcript, WaitTimedOut};
use super::player::Player;
use super::service::Scripted;
use crate::gateway::{Address, BoundListener, FrontLimits, Listen, ListenError, Responder, serve};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the script cannot be played")]
    Script(#[source] ScriptFaults),
    #[error(transparent)]
    Listen(ListenError),
    #[error("cannot start the server's thread")]
    Thread(#[source] io::Error),
    /// [`ScriptedModel::start_here`] was called outside of a tokio runtime.
    #[error("no tokio runtime is running here")]
    NoRuntime,
}

/// A script that is being played, independent of the server.
#[derive(Debug)]
pub struct Playing {
    ledger: Arc<Ledger>,
}

impl Playing {
    /// Starts with the first turn.
    ///
    /// # Errors
    /// When the script has faults.
    pub fn new(script: Script) -> Result<Self, ScriptFaults> {
        script.check()?;
        Ok(Self { ledger: Arc::new(Ledger::new(Player::new(script))) })
    }

    /// The backend that answers from the script.
    pub fn answer(&self) -> Arc<dyn Responder> {
        Arc::new(Scripted { ledger: Arc::clone(&self.ledger) })
    }

    /// The requests received so far, and the turns not played.
    pub fn transcript(&self) -> Transcript {
        Transcript { requests: self.ledger.requests(), unplayed: self.ledger.unplayed() }
    }
}

/// A Messages API server that plays a script until it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    playing: Playing,
    // Stopped before the socket file is removed, so that no client finds a file without a server.
    _running: ServerHandle,
    address: Address,
}

#[derive(Debug)]
enum ServerHandle {
    Thread { stop: Option<oneshot::Sender<()>>, thread: Option<JoinHandle<()>> },
    Task(AbortHandle),
}

impl ScriptedModel {
    /// Starts a model on its own thread. The address is bound when this returns.
    ///
    /// # Errors
    /// When the script has faults or the address cannot be bound.
    pub fn start(script: Script, listen: Listen) -> Result<Self, StartError> {
        let playing = Playing::new(script).map_err(StartError::Script)?;
        let (bound, address) = listen.open().map_err(StartError::Listen)?;
        let (stop, stopped) = oneshot::channel();
        let (report, started) = mpsc::sync_channel(1);
        let served = playing.answer();
        let thread = std::thread::Builder::new()
            .name("scripted-model".to_owned())
            .spawn(move || run(bound, served, stopped, &report))
            .map_err(StartError::Thread)?;
        let running = ServerHandle::Thread { stop: Some(stop), thread: Some(thread) };
        let model = Self { playing, _running: running, address };
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
        let playing = Playing::new(script).map_err(StartError::Script)?;
        let (bound, address) = listen.open().map_err(StartError::Listen)?;
        let listener = bound.listener().map_err(StartError::Listen)?;
        let task = runtime.spawn(serve(listener, playing.answer(), FrontLimits::default()));
        Ok(Self { playing, _running: ServerHandle::Task(task.abort_handle()), address })
    }

    /// The base URL for clients. Over a unix socket the host has no meaning, and is `localhost`.
    pub fn base_url(&self) -> String {
        self.address.base_url()
    }

    /// The path of the unix socket, if the model listens on one.
    pub fn socket_path(&self) -> Option<&Path> {
        self.address.socket_path()
    }

    /// The TCP address, if the model listens on one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.address.tcp()
    }

    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Arc<LoggedRequest>> {
        self.playing.ledger.requests()
    }

    /// Waits until this many requests of any kind have arrived. Blocks the thread.
    ///
    /// # Errors
    /// When they do not arrive in time.
    pub fn wait_for_requests(
        &self,
        count: usize,
        within: Duration,
    ) -> Result<Vec<Arc<LoggedRequest>>, WaitTimedOut> {
        self.wait_until(within, |requests| requests.len() >= count)
    }

    /// Waits until the log satisfies a condition, which is checked after each request. Blocks the thread.
    ///
    /// # Errors
    /// When it is not satisfied in time.
    pub fn wait_until(
        &self,
        within: Duration,
        enough: impl FnMut(&[Arc<LoggedRequest>]) -> bool,
    ) -> Result<Vec<Arc<LoggedRequest>>, WaitTimedOut> {
        self.playing.ledger.wait(within, enough)
    }

    /// Positions of the turns that were not played yet.
    pub fn unplayed(&self) -> Vec<usize> {
        self.playing.ledger.unplayed()
    }

    /// Stops the model and returns the requests it received and the turns not played.
    pub fn finish(self) -> Transcript {
        let Self { playing, _running: running, address } = self;
        drop(running);
        drop(address);
        playing.transcript()
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        match self {
            Self::Thread { stop, thread } => {
                drop(stop.take());
                // The thread waits for this signal only. Its panic, if any, was printed when it happened.
                if let Some(thread) = thread.take() {
                    thread.join().ok();
                }
            }
            Self::Task(task) => task.abort(),
        }
    }
}

/// The model's own thread: serves until the other end of `stopped` is dropped.
fn run(
    bound: BoundListener,
    answer: Arc<dyn Responder>,
    stopped: oneshot::Receiver<()>,
    report: &mpsc::SyncSender<Result<(), StartError>>,
) {
    let start = || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let entered = runtime.enter();
        let listener = bound.listener().map_err(StartError::Listen)?;
        drop(entered);
        Ok((runtime, listener))
    };
    // If the report cannot be sent, the model was dropped, and the wait below ends at once.
    match start() {
        Err(error) => {
            report.send(Err(error)).ok();
        }
        Ok((runtime, listener)) => {
            runtime.spawn(serve(listener, answer, FrontLimits::default()));
            report.send(Ok(())).ok();
            // Dropping the runtime afterwards drops every connection.
            runtime.block_on(stopped).ok();
        }
    }
}
