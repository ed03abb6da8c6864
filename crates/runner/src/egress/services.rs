//! The egress services of one run, on one thread. When they end, for any reason, the sockets inside the sandbox are
//! closed.

use super::sinks::{Denied, KeySink, ModelSink, Notices};
use super::sockets::Sockets;
use super::thread::Services;
use super::{EgressError, EgressServices};
use crate::launch::Model;
use crate::session::conversation::ModelCalls;
use belljar_contract::{Destination, Digest, Enforcement, Host, Plan, RunId, Usd};
use belljar_egress::gateway::{
    FoundCredential, GatewayTrouble, Live, LiveSetup, Observe, Observed, PriceTable, ProviderTools,
    Responder, Upstream, UpstreamTimes, UsageTally, UsageTotals,
};
use belljar_egress::log::{EgressLog, LogOpening};
use belljar_egress::model_log::ModelLog;
use belljar_egress::proxy::{self, ProxyConfig, ProxyLimits, ProxySummary, Reach};
use belljar_egress::resolve::SystemResolver;
use belljar_egress::script::{Playing, Transcript};
use belljar_egress::ssh::{HeldKeys, SshConfig, SshLimits};
use belljar_egress::tape::{Recorder, Replay, ReplayReport, Taped};
use belljar_egress::tls::TlsClient;
use belljar_record::Redact;
use belljar_sandbox::Running;
use rustix::process::{Resource, Rlimit};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The timeout for resolving a name.
const RESOLVE_TIME: Duration = Duration::from_secs(10);

/// The live model, as the user configured it.
pub(crate) struct LiveModel {
    pub upstream: Upstream,
    pub found: FoundCredential,
    pub cap: Option<Usd>,
    pub provider_tools: ProviderTools,
    pub tls: TlsClient,
}

/// What the services need once the sandbox exists.
pub(crate) struct ServingRequest<'a> {
    pub plan: &'a Plan,
    pub running: &'a mut Running,
    pub model: Model,
    /// Requests to the model that do not come from the agent.
    pub calls: Option<ModelCalls>,
    /// Requests of the judge.
    pub judge_calls: Option<ModelCalls>,
    pub recorder: Option<Recorder>,
    /// The log of a conversation's exchanges with the model.
    pub model_log: Option<ModelLog>,
    pub run: RunId,
    pub log: File,
    /// The largest size of the log.
    pub limit: u64,
    pub redact: Redact,
}

/// Running egress services.
pub(crate) struct Serving {
    /// Its other end is closed when the services have ended.
    alive: OwnedFd,
    shutdown: watch::Sender<bool>,
    thread: Option<JoinHandle<io::Result<Option<ProxySummary>>>>,
    script: Option<Playing>,
    live: Option<Live>,
    replay: Option<Replay>,
    tally: Option<UsageTally>,
    recorder: Option<Recorder>,
    model_log: Option<ModelLog>,
    /// What the agent had used when it ended, so that the judge is not counted as its own.
    agent_used: Option<(UsageTotals, u64)>,
    /// The same, as counted from scripted and replayed answers.
    agent_counted: Option<UsageTotals>,
    /// Problems with the model before the agent ended.
    agent_errors: Option<Vec<GatewayTrouble>>,
    log: Arc<EgressLog>,
    notices: Arc<Notices>,
    _keys: Option<HeldKeys>,
}

/// The result of the egress services.
#[derive(Debug, Default)]
pub(crate) struct EgressEnd {
    pub denied: Vec<Denied>,
    /// Problems with the agent's requests that only the user can solve.
    pub gateway_errors: Vec<GatewayTrouble>,
    /// Such problems with the judge's requests.
    pub judge_errors: Vec<GatewayTrouble>,
    /// Destinations that rules would have to allow, in learning mode.
    pub needed: BTreeSet<Destination>,
    pub usage: Option<UsageTotals>,
    /// The usage that the answers report: those of the provider, of a script or of a tape.
    pub counted: Option<UsageTotals>,
    /// The cost, in millionths of a US dollar.
    pub cost_micros: Option<u64>,
    /// The requests to the scripted model.
    pub transcript: Option<Transcript>,
    /// The number of exchanges that were recorded, or why the recording is incomplete.
    pub taped: Option<Result<Taped, String>>,
    /// The result of replaying a tape.
    pub replayed: Option<ReplayReport>,
    /// The chain digest of the model log's last line, if the log was closed properly.
    pub model_head: Option<Digest>,
    /// The chain digest of the egress log's last line, if the log was closed properly.
    pub egress_head: Option<Digest>,
    /// Why the log is incomplete, or why the services ended early.
    pub failures: Vec<String>,
}

/// Raises the soft limit of open files, because every connection of the agent takes two. The sandbox exists already and
/// keeps the limit that it was started with.
fn raise_open_files() {
    const ENOUGH: u64 = 1 << 16;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit { current: Some(most), maximum: limit.maximum };
        // Without it fewer connections are served at once.
        rustix::process::setrlimit(Resource::Nofile, raised).ok();
    }
}

impl Serving {
    /// Takes over the sandbox's sockets, opens the log and serves. The command has not been started yet.
    pub fn start(services: EgressServices, request: ServingRequest<'_>) -> Result<Self, EgressError> {
        raise_open_files();
        let EgressServices { mode, reach, policy, token, interceptor, live, keys, .. } = services;
        let ServingRequest {
            plan,
            running,
            model,
            recorder,
            model_log,
            calls,
            judge_calls,
            run,
            log,
            limit,
            redact,
        } = request;
        let sockets = Sockets::take(plan, running);
        let opened_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let opening = LogOpening {
            run,
            opened_at_ms: u64::try_from(opened_at.as_millis()).unwrap_or(u64::MAX),
            policy: policy.digest(),
            listeners: sockets.names.clone(),
            enforcement: match plan.backend.isolates() {
                true => Enforcement::Enforced,
                false => Enforcement::NotEnforced,
            },
            limit,
        };
        let bytes = crate::tape::scrub_secrets(Arc::clone(&redact));
        let scrub = Arc::new(move |text: &str| redact.scrub(text));
        let log = EgressLog::open(log, opening, scrub).map_err(EgressError::Log)?;
        let notices = Arc::new(Notices::default());
        let live = live.map(|live| live_answer(live, &log, &notices));
        let recording = recorder.clone().map(|recorder| Arc::new(recorder) as Arc<dyn Observe>);
        let logging = model_log.clone().map(|log| Arc::new(log) as Arc<dyn Observe>);
        let tally = match &model {
            Model::Script(_) | Model::Replay(_) => Some(UsageTally::new(PriceTable::built_in())),
            Model::Live | Model::Absent => None,
        };
        let counting = tally.clone().map(|tally| Arc::new(tally) as Arc<dyn Observe>);
        let observers: Vec<Arc<dyn Observe>> = recording.into_iter().chain(logging).chain(counting).collect();
        let mut replay = None;
        let (script, answer) = match (model, sockets.model) {
            (Model::Script(script), Some(socket)) => {
                let playing =
                    Playing::new(script).map_err(|faults| EgressError::Start(io::Error::other(faults)))?;
                let answer = observed(playing.answer(), observers);
                (Some(playing), Some((socket, answer)))
            }
            (Model::Replay(model), socket) => {
                let live = live.clone().map(|live| Arc::new(live) as Arc<dyn Responder>);
                let served = replay.insert(model.replay(bytes, live));
                (None, socket.map(|socket| (socket, observed(Arc::new(served.clone()), observers))))
            }
            (Model::Live | Model::Absent, socket) => {
                let answer = live.clone().map(|live| observed(Arc::new(live), observers));
                (None, socket.zip(answer))
            }
            (Model::Script(_), None) => (None, None),
        };
        let proxy = sockets.proxy.map(|listener| ProxyConfig {
            listeners: vec![listener.into()],
            transparent: sockets.addresses,
            policy,
            resolver: Arc::new(SystemResolver::new(RESOLVE_TIME)),
            log: Arc::clone(&log),
            token,
            agent: plan.agent.clone(),
            mode,
            reach,
            intercept: interceptor.map(|one| one as Arc<dyn proxy::Intercept>),
            raw: raw_destinations(plan),
            on_refusal: {
                let (notices, agent) = (Arc::clone(&notices), plan.agent.clone());
                Arc::new(move |refusal| notices.refused(refusal, &agent))
            },
            limits: ProxyLimits::default(),
        });
        // Without a network, no signature that could log in anywhere is made.
        let signing = sockets.ssh.filter(|_| reach == Reach::AsRuled);
        let broker = signing.zip(keys.as_ref()).map(|(listener, keys)| {
            let sink = Arc::new(KeySink(Arc::clone(&log)));
            (listener, SshConfig { grants: keys.grants.clone(), sink, limits: SshLimits::default() })
        });
        // The agent's model also answers the deciders, from a tape as well.
        let beside = match &script {
            Some(script) => Some(script.answer()),
            None => answer.as_ref().map(|(_, answer)| Arc::clone(answer)),
        };
        // The judge's exchange is recorded with every model: live, scripted or replayed.
        let recorded = answer.as_ref().map(|(_, answer)| Arc::clone(answer));
        let calls = [calls.zip(beside), judge_calls.zip(recorded)];
        let services = Services { proxy, broker, model: answer, calls };
        let (alive, held) = io::pipe().map_err(EgressError::Start)?;
        let (shutdown, stop) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("egress".to_owned())
            .spawn(move || {
                let _held = held;
                services.run(stop)
            })
            .map_err(EgressError::Start)?;
        Ok(Self {
            alive: alive.into(),
            shutdown,
            thread: Some(thread),
            script,
            live,
            replay,
            tally,
            recorder,
            model_log,
            agent_used: None,
            agent_counted: None,
            agent_errors: None,
            log,
            notices,
            _keys: keys,
        })
    }

    /// Becomes readable when the services have ended; before the end of the command this is a failure.
    pub fn alive(&self) -> BorrowedFd<'_> {
        self.alive.as_fd()
    }

    /// Notes what the agent used, and the problems that it had. What follows is the judge's.
    pub fn agent_ended(&mut self) {
        self.agent_used = self.live.as_ref().map(|live| (live.totals(), live.spent().micros()));
        self.agent_counted = self.tally.as_ref().map(UsageTally::totals);
        self.agent_errors = Some(self.notices.take_gateway_errors());
    }

    /// Ends the services and returns their result.
    pub fn finish(mut self) -> EgressEnd {
        let mut end = EgressEnd::default();
        // They may have ended already.
        self.shutdown.send(true).ok();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(summary))) => {
                let summary = summary.into_iter();
                end.needed = summary.flat_map(|summary| summary.needed).collect();
            }
            Some(Ok(Err(error))) => end.failures.push(format!("the egress services failed: {error}")),
            Some(Err(_panic)) => {
                end.failures.push("the egress services panicked; this is a bug in belljar".to_owned())
            }
            None => {}
        }
        end.transcript = self.script.as_ref().map(Playing::transcript);
        end.taped = self.recorder.take().map(|recorder| recorder.finish());
        end.replayed = self.replay.take().map(|replay| replay.report());
        match self.model_log.take().map(|log| log.close()) {
            Some(Ok(head)) => end.model_head = Some(head),
            Some(Err(error)) => end.failures.push(error),
            None => {}
        }
        match self.log.close() {
            Ok(summary) => end.egress_head = summary.head,
            Err(error) => end.failures.push(error.to_string()),
        }
        end.counted = self.agent_counted.take().or_else(|| self.tally.as_ref().map(UsageTally::totals));
        if let Some(live) = &self.live {
            let now = || (live.totals(), live.spent().micros());
            let (usage, cost_micros) = self.agent_used.take().unwrap_or_else(now);
            // A replay may let the provider answer a drift; its tally has that answer as well.
            end.counted = end.counted.or_else(|| Some(usage.clone()));
            (end.usage, end.cost_micros) = (Some(usage), Some(cost_micros));
        }
        end.denied = self.notices.take_denied();
        let errors = self.notices.take_gateway_errors();
        (end.gateway_errors, end.judge_errors) = match self.agent_errors.take() {
            Some(agent_errors) => (agent_errors, errors),
            None => (errors, Vec::new()),
        };
        end
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // After a failed launch: the thread ends by itself once it receives this.
        self.shutdown.send(true).ok();
    }
}

/// Wraps an answering service with observers.
fn observed(answer: Arc<dyn Responder>, observers: Vec<Arc<dyn Observe>>) -> Arc<dyn Responder> {
    observers.into_iter().fold(answer, |answer, observer| Arc::new(Observed::new(answer, observer)))
}

fn live_answer(live: LiveModel, log: &Arc<EgressLog>, notices: &Arc<Notices>) -> Live {
    let LiveModel { upstream, found, cap, provider_tools, tls } = live;
    let sink = ModelSink {
        log: Arc::clone(log),
        notices: Arc::clone(notices),
        credential: found.source.to_string(),
        open: Mutex::default(),
    };
    Live::new(LiveSetup {
        upstream,
        resolver: Arc::new(SystemResolver::new(RESOLVE_TIME)),
        tls,
        credential: Ok(found),
        cap,
        prices: PriceTable::built_in(),
        provider_tools,
        times: UpstreamTimes::default(),
        sink: Arc::new(sink),
    })
}

/// Destinations of ssh: their tunnels do not begin with TLS, on any port.
fn raw_destinations(plan: &Plan) -> BTreeSet<Destination> {
    let entries = plan.ssh.iter().filter(|entry| matches!(entry.hostname, Host::Name(_)));
    entries.map(|entry| Destination { host: entry.hostname.clone(), port: entry.port }).collect()
}
