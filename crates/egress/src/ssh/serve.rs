//! The broker at work: a socket that was opened inside, an agent outside, the gate between them.

use super::gate::{Approved, Gate, Purpose, shown};
use super::grant::SshGrant;
use super::message::{self, FRAME_MAX, Request, SignRequest};
use super::rate::PerMinute;
use super::report::{SshAct, SshRefusal, SshSink, SshSummary, SshUse, SshVerdict};
use super::upstream;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long a service without descriptors waits.
const BREATH: Duration = Duration::from_millis(50);

/// How much the inside may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshLimits {
    /// Connections at once; more wait.
    pub connections: usize,
    /// Signatures in a minute, over all connections.
    pub signatures_per_minute: usize,
    /// Refusals in a minute that are told; more are counted.
    pub told_refusals_per_minute: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long a request may take to arrive once it began, and its answer to be taken.
    pub frame: Duration,
}

impl Default for SshLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            signatures_per_minute: 60,
            told_refusals_per_minute: 600,
            idle: Duration::from_secs(300),
            frame: Duration::from_secs(10),
        }
    }
}

/// What the broker works with.
pub struct SshConfig {
    /// What is allowed. Nothing is, when it is empty.
    pub grants: Vec<SshGrant>,
    /// Who hears of it.
    pub sink: Arc<dyn SshSink>,
    /// How much.
    pub limits: SshLimits,
}

/// Serves what comes from inside until `shutdown` is over; connections end with it.
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

/// Takes connections for ever. Dropped, it takes them along.
async fn accept(broker: Arc<Broker>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(broker.limits.connections));
    let mut connections = JoinSet::new();
    // A place first: whoever opens more connections than there are places waits in the kernel's queue.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Descriptors have run out, and nothing tells when there are some again.
            tokio::time::sleep(BREATH).await;
            continue;
        };
        locked(&broker.summary).connections += 1;
        let broker = Arc::clone(&broker);
        connections.spawn(async move {
            // A connection that breaks off concerns nobody but its other end.
            broker.converse(stream).await.ok();
            drop(place);
        });
    }
}

/// What all connections share.
struct Broker {
    grants: Vec<SshGrant>,
    sink: Arc<dyn SshSink>,
    limits: SshLimits,
    signatures: Mutex<PerMinute>,
    told_refusals: Mutex<PerMinute>,
    summary: Mutex<SshSummary>,
}

/// Nothing that is locked here can be left half done.
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
            told_refusals: Mutex::new(PerMinute::new(limits.told_refusals_per_minute)),
            summary: Mutex::default(),
        }
    }

    async fn converse(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut gate = Gate::new(&self.grants);
        let mut frame = Vec::new();
        while let Some(length) = self.next_length(&mut stream).await? {
            if length > FRAME_MAX {
                // What follows cannot be told from the next request any more.
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

    /// The length of the next frame; `None` when there is none, at the end of the conversation or of patience.
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

    async fn respond(&self, gate: &mut Gate<'_>, frame: &[u8]) -> Vec<u8> {
        let refused = match Request::parse(frame) {
            Some(Request::Identities) => return message::identities(&gate.keys()),
            Some(Request::Sign(request)) => return self.sign(gate, &request).await,
            Some(Request::Bind(bind)) => match gate.bind(&bind) {
                Ok(()) => return message::success(),
                Err(refusal) => (SshAct::Bind, SshRefusal::Bind(refusal)),
            },
            Some(Request::Extension(name)) => {
                (SshAct::Other, SshRefusal::NotForInside(format!("the extension `{}`", shown(name))))
            }
            Some(Request::Other(number)) => {
                (SshAct::Other, SshRefusal::NotForInside(format!("the request {number} of an agent")))
            }
            None => (SshAct::Other, SshRefusal::Unreadable),
        };
        self.refuse(refused.0, None, refused.1);
        message::failure()
    }

    async fn sign(&self, gate: &Gate<'_>, request: &SignRequest<'_>) -> Vec<u8> {
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
        let told = SshUse { entry: Some(grant.host.clone()), key, act, verdict: SshVerdict::Allowed };
        if self.sink.decided(&told).is_err() {
            // What cannot be noted is not done.
            locked(&self.summary).failures += 1;
            return message::failure();
        }
        match upstream::sign(&grant.agent, gate.bind_frame(), request).await {
            Ok(answer) => {
                locked(&self.summary).signatures += 1;
                answer
            }
            Err(error) => {
                locked(&self.summary).failures += 1;
                let failed = SshUse { verdict: SshVerdict::Failed(error.to_string()), ..told };
                // The signature was not made, so nothing is lost when this cannot be noted.
                self.sink.decided(&failed).ok();
                message::failure()
            }
        }
    }

    fn refuse(&self, act: SshAct, key: Option<String>, refusal: SshRefusal) {
        let told = locked(&self.told_refusals).take(Instant::now());
        let noted = told && {
            let used = SshUse { entry: None, key, act, verdict: SshVerdict::Refused(refusal) };
            self.sink.decided(&used).is_ok()
        };
        let mut summary = locked(&self.summary);
        summary.refusals += 1;
        summary.unreported += u64::from(!noted);
    }
}
