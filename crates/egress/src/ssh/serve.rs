//! Runs the broker: accepts connections from inside the sandbox, decides on requests, and asks the agent outside.

use super::gate::{Approved, Purpose, SigningGate, shown};
use super::grant::SshGrant;
use super::message::{self, FRAME_MAX, Request, SignRequest};
use super::outer_agent;
use super::rate::PerMinute;
use super::report::{SshAct, SshRefusal, SshSink, SshSummary, SshUse, SshVerdict};
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Pause after a failed accept, which usually means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limits for clients inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshLimits {
    /// Concurrent connections; further ones wait.
    pub connections: usize,
    /// Signatures in a minute, over all connections.
    pub signatures_per_minute: usize,
    /// Refusals in a minute that are reported; more are only counted.
    pub reported_refusals_per_minute: usize,
    /// How long a connection may be idle.
    pub idle: Duration,
    /// How long a request may take to arrive once it began, and its response to be read.
    pub frame: Duration,
}

impl Default for SshLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            signatures_per_minute: 60,
            reported_refusals_per_minute: 600,
            idle: Duration::from_secs(300),
            frame: Duration::from_secs(10),
        }
    }
}

/// Everything that [`serve`] needs.
pub struct SshConfig {
    /// What is allowed. If it is empty, nothing is.
    pub grants: Vec<SshGrant>,
    /// Receives the decisions.
    pub sink: Arc<dyn SshSink>,
    pub limits: SshLimits,
}

/// Serves clients until `shutdown` completes, then ends their connections.
pub async fn serve(
    config: SshConfig,
    listener: UnixListener,
    shutdown: impl Future<Output = ()>,
) -> SshSummary {
    let broker = Arc::new(Broker::new(config));
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(Arc::clone(&broker), listener));
    shutdown.await;
    accepting.shutdown().await;
    *locked(&broker.summary)
}

/// Accepts connections. Dropping the future also ends them.
async fn accept(broker: Arc<Broker>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(broker.limits.connections));
    let mut connections = JoinSet::new();
    // The permit comes first: further connections wait in the kernel's queue.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // File descriptors have run out, and no event announces new ones.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        locked(&broker.summary).connections += 1;
        let broker = Arc::clone(&broker);
        connections.spawn(async move {
            // A failed connection concerns only its client.
            broker.converse(stream).await.ok();
            drop(place);
        });
    }
}

/// State that all connections share.
struct Broker {
    grants: Vec<SshGrant>,
    sink: Arc<dyn SshSink>,
    limits: SshLimits,
    signatures: Mutex<PerMinute>,
    reported_refusals: Mutex<PerMinute>,
    summary: Mutex<SshSummary>,
}

/// No lock here can leave its value half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Broker {
    fn new(config: SshConfig) -> Self {
        let SshConfig { grants, sink, limits } = config;
        Self {
            grants,
            sink,
            limits,
            signatures: Mutex::new(PerMinute::new(limits.signatures_per_minute)),
            reported_refusals: Mutex::new(PerMinute::new(limits.reported_refusals_per_minute)),
            summary: Mutex::default(),
        }
    }

    async fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut gate = SigningGate::new(&self.grants);
        let mut frame = Vec::new();
        while let Some(length) = self.next_length(&mut stream).await? {
            if length > FRAME_MAX {
                // The next request can no longer be found.
                self.refuse(SshAct::Other, None, SshRefusal::Long(length));
                return self.answer(&mut stream, &message::failure()).await;
            }
            frame.resize(length, 0);
            timeout(self.limits.frame, stream.read_exact(&mut frame)).await??;
            let answer = self.respond(&mut gate, &frame).await;
            self.answer(&mut stream, &answer).await?;
        }
        Ok(())
    }

    /// The length of the next frame; `None` at the end of the connection.
    async fn next_length(&self, stream: &mut UnixStream) -> io::Result<Option<usize>> {
        let mut length = [0; 4];
        let first = timeout(self.limits.idle, stream.read(length.split_at_mut(1).0)).await??;
        if first == 0 {
            return Ok(None);
        }
        timeout(self.limits.frame, stream.read_exact(length.split_at_mut(1).1)).await??;
        Ok(Some(usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)))
    }

    async fn answer(&self, stream: &mut UnixStream, answer: &[u8]) -> io::Result<()> {
        timeout(self.limits.frame, stream.write_all(answer)).await?
    }

    async fn respond(&self, gate: &mut SigningGate<'_>, frame: &[u8]) -> Vec<u8> {
        let refused = match Request::parse(frame) {
            Some(Request::Identities) => return message::identities(&gate.keys()),
            Some(Request::Sign(request)) => return self.sign(gate, &request).await,
            Some(Request::Bind(bind)) => match gate.bind(&bind) {
                Ok(()) => return message::success(),
                Err(refusal) => (SshAct::Bind, SshRefusal::Bind(refusal)),
            },
            Some(Request::Extension(name)) => {
                (SshAct::Other, SshRefusal::NotAllowed(format!("the extension `{}`", shown(name))))
            }
            Some(Request::Other(number)) => {
                (SshAct::Other, SshRefusal::NotAllowed(format!("the agent request {number}")))
            }
            None => (SshAct::Other, SshRefusal::Unreadable),
        };
        self.refuse(refused.0, None, refused.1);
        message::failure()
    }

    async fn sign(&self, gate: &SigningGate<'_>, request: &SignRequest<'_>) -> Vec<u8> {
        let declared = self.grants.iter().find(|grant| grant.key.blob() == request.key);
        let key = declared.map(|grant| grant.key.fingerprint());
        let Approved { grant, purpose } = match gate.sign(request) {
            Ok(approved) => approved,
            Err(refusal) => {
                self.refuse(SshAct::Sign, key, SshRefusal::Sign(refusal));
                return message::failure();
            }
        };
        let act = match purpose {
            Purpose::Login => SshAct::Login,
            Purpose::Commit => SshAct::Commit,
        };
        if !locked(&self.signatures).take(Instant::now()) {
            self.refuse(act, key, SshRefusal::TooMany(self.limits.signatures_per_minute));
            return message::failure();
        }
        let allowed = SshUse { entry: Some(grant.host.clone()), key, act, verdict: SshVerdict::Allowed };
        if self.sink.decided(&allowed).is_err() {
            // A signature whose decision cannot be kept is not made.
            locked(&self.summary).failures += 1;
            return message::failure();
        }
        match outer_agent::sign(&grant.agent, gate.bind_frame(), request).await {
            Ok(answer) => {
                locked(&self.summary).signatures += 1;
                answer
            }
            Err(error) => {
                locked(&self.summary).failures += 1;
                let failed = SshUse { verdict: SshVerdict::Failed(error.to_string()), ..allowed };
                // Nothing was signed, so that nothing is lost if this cannot be kept.
                self.sink.decided(&failed).ok();
                message::failure()
            }
        }
    }

    fn refuse(&self, act: SshAct, key: Option<String>, refusal: SshRefusal) {
        let within_limit = locked(&self.reported_refusals).take(Instant::now());
        let reported = within_limit && {
            let used = SshUse { entry: None, key, act, verdict: SshVerdict::Refused(refusal) };
            self.sink.decided(&used).is_ok()
        };
        let mut summary = locked(&self.summary);
        summary.refusals += 1;
        summary.unreported += u64::from(!reported);
    }
}
