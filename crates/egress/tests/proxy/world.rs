//! A proxy on threads of its own, with its decisions and its log in reach.

use belljar_contract::{
    AgentName, Destination, Digest, Egress, EgressLogReading, EgressPolicy, EgressRow, EgressRule, HostName,
    HostPattern, RequestRule, RuleEffect, RunId, Secret, read_egress_log,
};
use belljar_egress::log::{EgressLog, LOG_LIMIT, LogOpening, LogSummary};
use belljar_egress::proxy::{
    EgressMode, Intercept, ProxyConfig, ProxyLimits, ProxyRefusal, ProxySummary, Reach, serve,
};
use belljar_egress::resolve::{Resolve, Resolving};
use belljar_testkit::wait::DEADLINE;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

pub const TOKEN: &str = "t0ken";

/// Names and the addresses they resolve to, one result after the other; the last is repeated. Every lookup is recorded.
#[derive(Default)]
pub struct Names {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub fn add(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers.iter().map(|one| one.iter().map(|text| text.parse().unwrap()).collect());
        self.answers.lock().unwrap().insert(name.to_owned(), answers.collect());
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub fn look_up(&self, name: &str) -> Option<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let queue = answers.get_mut(name)?;
        if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() }
    }
}

pub struct Shared(pub Arc<Names>);

impl Resolve for Shared {
    fn resolve<'a>(&'a self, name: &'a HostName) -> Resolving<'a> {
        let found = self.0.look_up(name.as_str());
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

/// A disk that can be filled.
#[derive(Clone, Default)]
pub struct Disk {
    pub written: Arc<Mutex<Vec<u8>>>,
    pub grew: Arc<Condvar>,
    pub full: Arc<Mutex<bool>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.lock().unwrap().extend_from_slice(bytes);
        self.grew.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The future of a whole proxy.
pub type Life = Pin<Box<dyn Future<Output = Option<ProxySummary>>>>;

/// The configuration of a test's proxy.
pub struct Setup {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    /// The requests that the rules allow; without it, all.
    pub request: Option<RequestRule>,
    pub names: Arc<Names>,
    pub mode: EgressMode,
    pub reach: Reach,
    pub limits: ProxyLimits,
    pub raw: BTreeSet<Destination>,
    pub intercept: Option<Arc<dyn Intercept>>,
    pub log_limit: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            allow: vec![],
            deny: vec![],
            request: None,
            names: Arc::default(),
            mode: EgressMode::Enforce,
            reach: Reach::AsRuled,
            limits: ProxyLimits::default(),
            raw: BTreeSet::new(),
            intercept: None,
            log_limit: LOG_LIMIT,
        }
    }
}

impl Setup {
    pub fn allowing(rules: &[&str]) -> Self {
        Self { allow: rules.iter().map(|rule| (*rule).to_owned()).collect(), ..Self::default() }
    }

    /// A name with one result.
    pub fn name(self, name: &str, address: &str) -> Self {
        self.names.add(name, &[&[address]]);
        self
    }

    fn policy(&self) -> EgressPolicy {
        let rules = |effect: RuleEffect, word: &'static str, texts: &[String]| {
            let request = self.request.clone().filter(|_| effect == RuleEffect::Allow);
            let rule = move |(index, text): (usize, &String)| EgressRule {
                id: format!("{word}-{}", index + 1),
                effect,
                host: HostPattern::parse(text).unwrap(),
                request: request.clone(),
            };
            texts.iter().enumerate().map(rule).collect::<Vec<_>>()
        };
        let rules =
            [rules(RuleEffect::Deny, "deny", &self.deny), rules(RuleEffect::Allow, "allow", &self.allow)];
        EgressPolicy::new(&Egress { model: false, rules: rules.concat() })
    }

    /// A proxy that shuts down in order when it is stopped.
    pub fn start(self) -> Proxy {
        self.start_with(|config, stopped| {
            Box::pin(async move { serve(config, async { stopped.await.unwrap_or(()) }).await.ok() })
        })
    }

    /// A proxy whose future is dropped when it is stopped.
    pub fn start_to_drop(self) -> Proxy {
        self.start_with(|config, stopped| {
            Box::pin(async move {
                tokio::select! {
                    ended = serve(config, std::future::pending()) => ended.ok(),
                    _ = stopped => None,
                }
            })
        })
    }

    fn start_with(
        self,
        life: impl FnOnce(ProxyConfig, oneshot::Receiver<()>) -> Life + Send + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let policy = self.policy();
        let disk = Disk::default();
        let opening = LogOpening {
            run: RunId::new(7),
            opened_at_ms: 1,
            policy: policy.digest(),
            listeners: vec![address.to_string()],
            enforcement: belljar_contract::Enforcement::Enforced,
            limit: self.log_limit,
        };
        let log =
            EgressLog::open(disk.clone(), opening, Arc::new(|text: &str| text.replace("hush", "[redacted]")))
                .unwrap();
        let refusals: Arc<Mutex<Vec<ProxyRefusal>>> = Arc::default();
        let reported = Arc::clone(&refusals);
        let config = ProxyConfig {
            transparent: None,
            listeners: vec![listener],
            policy: Arc::new(policy),
            resolver: Arc::new(Shared(Arc::clone(&self.names))),
            log: Arc::clone(&log),
            token: Arc::new(Secret::new(TOKEN)),
            agent: AgentName::new("reviewer").unwrap(),
            mode: self.mode,
            reach: self.reach,
            intercept: self.intercept,
            raw: self.raw,
            on_refusal: Arc::new(move |refusal| reported.lock().unwrap().push(refusal.clone())),
            limits: self.limits,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(life(config, stopped))
        });
        Proxy { address, names: self.names, disk, log, refusals, stop: Some(stop), thread: Some(thread) }
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    pub names: Arc<Names>,
    pub disk: Disk,
    pub log: Arc<EgressLog>,
    pub refusals: Arc<Mutex<Vec<ProxyRefusal>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Option<ProxySummary>>>,
}

impl Proxy {
    pub fn stop(&mut self) -> ProxySummary {
        self.end().unwrap()
    }

    /// Its summary, unless it was dropped.
    pub fn end(&mut self) -> Option<ProxySummary> {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap()
    }

    /// Stops, closes the log and reads it.
    pub fn finish(mut self) -> (ProxySummary, LogSummary, EgressLogReading) {
        let summary = self.stop();
        let closed = self.log.close().unwrap();
        let reading = read_egress_log(&self.text(), closed.head);
        (summary, closed, reading)
    }

    /// What is written to the log so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.disk.written.lock().unwrap().clone()).unwrap()
    }

    /// The rows of the log so far.
    pub fn rows(&self) -> Vec<EgressRow> {
        read_egress_log(&self.text(), None::<Digest>).rows
    }

    /// Waits until the rows that another thread writes are as wanted.
    pub fn wait_for_rows(&self, wanted: impl Fn(&[EgressRow]) -> bool) -> Vec<EgressRow> {
        let until = Instant::now() + DEADLINE;
        let mut written = self.disk.written.lock().unwrap();
        loop {
            let rows = read_egress_log(&String::from_utf8_lossy(&written), None::<Digest>).rows;
            if wanted(&rows) {
                return rows;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{rows:#?}");
            written = self.disk.grew.wait_timeout(written, left).unwrap().0;
        }
    }
}

pub fn is_end(row: &EgressRow) -> bool {
    matches!(row, EgressRow::Finished { .. })
}
