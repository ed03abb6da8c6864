//! The one place that asks the policy, resolves names and logs decisions.

use super::refusal::{ProxyRefusal, RefusedTarget};
use crate::log::{EgressLog, LogError, milliseconds};
use crate::resolve::Resolve;
use belljar_contract::{
    AgentName, Denial, Destination, EGRESS_NOT_DIALLED, EgressDecision, EgressEnd, EgressPolicy,
    EgressRefusal, EgressVerdict, EgressWay, Host, request_allowed, requests_matter,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many addresses of one name are considered.
const ADDRESSES_LIMIT: usize = 16;

/// How many destinations [`EgressMode::Learn`] collects.
const NEEDED_LIMIT: usize = 4096;

/// Whether refused destinations are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressMode {
    Enforce,
    /// Refuse, and collect what a rule would have to name, so that rules can be proposed.
    Learn,
}

/// Whether allowed destinations are dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Dial what the rules allow.
    AsRuled,
    /// Decide and log only: resolve no name and open no connection.
    Nowhere,
}

/// Called for every refusal.
pub type OnRefusal = Arc<dyn Fn(&ProxyRefusal) + Send + Sync>;

/// A request for a destination, before it is decided on.
#[derive(Debug, Clone)]
pub(super) struct EgressRequest {
    pub way: EgressWay,
    pub destination: Destination,
    pub method: Option<String>,
    pub path: Option<String>,
    /// Why the request may mean another method or path than the ones given here.
    pub overridden: Option<String>,
}

/// Why a request is not allowed to continue.
#[derive(Debug)]
pub(super) enum Rejection {
    /// The request was refused, and the refusal is logged.
    Refused(ProxyRefusal),
    /// The decision could not be logged.
    Unlogged(LogError),
}

/// Permission to connect to these addresses, and to no others.
#[derive(Debug)]
pub(super) struct Permit {
    pub destination: Destination,
    pub addresses: Vec<SocketAddr>,
    pub rule: String,
    pub finish: FinishGuard,
}

pub(super) struct EgressGate {
    pub policy: Arc<EgressPolicy>,
    pub resolver: Arc<dyn Resolve>,
    pub log: Arc<EgressLog>,
    pub agent: AgentName,
    pub mode: EgressMode,
    pub reach: Reach,
    pub on_refusal: OnRefusal,
    pub tally: Tally,
}

/// Counts that are returned when the proxy ends.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub connections: AtomicU64,
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    pub needed: Mutex<BTreeSet<Destination>>,
}

impl EgressGate {
    /// Decides on a request. The decision is logged when this returns, and a refused name has not been resolved.
    pub async fn decide(&self, request: EgressRequest) -> Result<Permit, Rejection> {
        // Checked before a name is sent to a resolver: with a broken log nothing may leave at all.
        if let Some(failure) = self.log.failure() {
            return Err(Rejection::Unlogged(failure));
        }
        let admission = match self.policy.admit(&request.destination) {
            Ok(admission) => admission,
            Err(denial) => return Err(self.deny(&request, None, denial)),
        };
        self.check_request(&request)?;
        if let (Reach::Nowhere, Host::Name(_)) = (self.reach, &request.destination.host) {
            let rule = admission.rule.id.clone();
            return Err(self.not_dialled(request, Vec::new(), rule));
        }
        let Ok(found) = self.addresses_of(&request.destination.host).await else {
            return Err(self.refuse(&request, None, None, EgressRefusal::Unresolved));
        };
        let mut first_denial = None;
        let mut checked = Vec::new();
        let mut rule = None;
        for address in found.into_iter().take(ADDRESSES_LIMIT) {
            let address = address.to_canonical();
            match self.policy.check(&admission, address) {
                Ok(opener) => {
                    rule.get_or_insert_with(|| opener.id.clone());
                    checked.push(SocketAddr::new(address, request.destination.port.get()));
                }
                Err(denial) => {
                    first_denial.get_or_insert((address, denial));
                }
            }
        }
        match (rule, first_denial) {
            (Some(rule), _) => match self.reach {
                Reach::AsRuled => self.allow(request, checked, rule),
                Reach::Nowhere => Err(self.not_dialled(request, checked, rule)),
            },
            (None, Some((address, denial))) => Err(self.deny(&request, Some(address), denial)),
            (None, None) => Err(self.refuse(&request, None, None, EgressRefusal::Unresolved)),
        }
    }

    /// Decides on one more request to a destination that was already reached at this address.
    pub fn decide_again(&self, request: EgressRequest, address: SocketAddr) -> Result<Permit, Rejection> {
        let admission = match self.policy.admit(&request.destination) {
            Ok(admission) => admission,
            Err(denial) => return Err(self.deny(&request, None, denial)),
        };
        self.check_request(&request)?;
        match self.policy.check(&admission, address.ip()) {
            Ok(opener) => {
                let rule = opener.id.clone();
                match self.reach {
                    Reach::AsRuled => self.allow(request, vec![address], rule),
                    Reach::Nowhere => Err(self.not_dialled(request, vec![address], rule)),
                }
            }
            Err(denial) => Err(self.deny(&request, Some(address.ip()), denial)),
        }
    }

    /// Applies the rules about methods and paths to a request that can be read.
    fn check_request(&self, request: &EgressRequest) -> Result<(), Rejection> {
        let (Some(method), Some(path)) = (&request.method, &request.path) else { return Ok(()) };
        if !requests_matter(self.policy.rules(), &request.destination) {
            return Ok(());
        }
        match request_allowed(self.policy.rules(), &request.destination, method, path.as_bytes()) {
            Ok(admission) => match &request.overridden {
                None => Ok(()),
                Some(what) => {
                    let reason = EgressRefusal::Request { what: what.clone() };
                    Err(self.refuse(request, None, Some(admission.rule.id.clone()), reason))
                }
            },
            Err(denial) => {
                let rule = denial.rule().map(str::to_owned);
                let what = denial.to_string();
                Err(self.refuse(request, None, rule, EgressRefusal::Request { what }))
            }
        }
    }

    async fn addresses_of(&self, host: &Host) -> std::io::Result<Vec<IpAddr>> {
        match host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => self.resolver.resolve(name).await,
        }
    }

    /// Logs that the rules allow a request, and that it ended before anything was dialled.
    fn not_dialled(&self, request: EgressRequest, addresses: Vec<SocketAddr>, rule: String) -> Rejection {
        let reason = EgressRefusal::Request { what: EGRESS_NOT_DIALLED.to_owned() };
        let target = RefusedTarget::Destination(request.destination.clone());
        let refusal =
            ProxyRefusal { way: request.way, target, address: None, rule: Some(rule.clone()), reason };
        match self.allow(request, addresses, rule) {
            Err(stop) => stop,
            Ok(mut permit) => {
                permit.finish.failure = Some(EGRESS_NOT_DIALLED.to_owned());
                drop(permit);
                (self.on_refusal)(&refusal);
                Rejection::Refused(refusal)
            }
        }
    }

    fn allow(
        &self,
        request: EgressRequest,
        addresses: Vec<SocketAddr>,
        rule: String,
    ) -> Result<Permit, Rejection> {
        let decision = EgressDecision {
            way: request.way,
            destination: request.destination.to_string(),
            addresses: addresses.iter().map(SocketAddr::ip).collect(),
            rule: Some(rule.clone()),
            verdict: EgressVerdict::Allowed,
            method: request.method,
            path: request.path,
            credential: None,
            within: None,
        };
        let seq = self.log.decide(decision).map_err(Rejection::Unlogged)?;
        self.tally.allowed.fetch_add(1, Ordering::Relaxed);
        let finish = FinishGuard::new(Arc::clone(&self.log), seq);
        Ok(Permit { destination: request.destination, addresses, rule, finish })
    }

    fn deny(&self, request: &EgressRequest, address: Option<IpAddr>, denial: Denial) -> Rejection {
        self.refuse(request, address, denial.rule, denial.reason.into())
    }

    /// Logs the refusal of a destination.
    pub fn refuse(
        &self,
        request: &EgressRequest,
        address: Option<IpAddr>,
        rule: Option<String>,
        reason: EgressRefusal,
    ) -> Rejection {
        let target = RefusedTarget::Destination(request.destination.clone());
        let refusal = ProxyRefusal { way: request.way, target, address, rule, reason };
        self.refused(
            refusal,
            RequestDetails { method: request.method.clone(), path: request.path.clone(), within: None },
        )
    }

    /// Logs a refusal, reports it and returns it.
    pub fn refused(&self, refusal: ProxyRefusal, details: RequestDetails) -> Rejection {
        let RequestDetails { method, path, within } = details;
        let decision = EgressDecision {
            way: refusal.way,
            destination: refusal.target.to_string(),
            addresses: refusal.address.into_iter().collect(),
            rule: refusal.rule.clone(),
            verdict: EgressVerdict::Denied { reason: refusal.reason.clone() },
            method,
            path,
            credential: None,
            within,
        };
        if let Err(error) = self.log.decide(decision) {
            return Rejection::Unlogged(error);
        }
        self.tally.denied.fetch_add(1, Ordering::Relaxed);
        if self.mode == EgressMode::Learn
            && let Some(needed) = refusal.needed()
        {
            let mut all = self.tally.needed.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() < NEEDED_LIMIT {
                all.insert(needed);
            }
        }
        (self.on_refusal)(&refusal);
        Rejection::Refused(refusal)
    }
}

/// Details of the refused request for the log.
#[derive(Debug, Default)]
pub(super) struct RequestDetails {
    pub method: Option<String>,
    pub path: Option<String>,
    pub within: Option<u64>,
}

/// Bytes sent and received so far.
#[derive(Debug, Default)]
pub(super) struct ByteCounts {
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

impl ByteCounts {
    /// Completes when nothing was sent or received for at least `idle`, and less than twice as long.
    pub async fn idle_for(&self, idle: Duration) {
        let total = || {
            let sent = self.sent.load(Ordering::Relaxed);
            sent.wrapping_add(self.received.load(Ordering::Relaxed))
        };
        let mut before = total();
        loop {
            tokio::time::sleep(idle).await;
            let now = total();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

/// An allowed request that has not ended. Dropping this value logs the end, whatever the cause.
pub(super) struct FinishGuard {
    log: Arc<EgressLog>,
    pub seq: u64,
    began: Instant,
    pub bytes: Arc<ByteCounts>,
    pub address: Option<SocketAddr>,
    pub failure: Option<String>,
}

impl FinishGuard {
    fn new(log: Arc<EgressLog>, seq: u64) -> Self {
        let began = Instant::now();
        Self { log, seq, began, bytes: Arc::default(), address: None, failure: None }
    }
}

impl std::fmt::Debug for FinishGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishGuard")
            .field("seq", &self.seq)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for FinishGuard {
    fn drop(&mut self) {
        let end = EgressEnd {
            address: self.address,
            sent: self.bytes.sent.load(Ordering::Relaxed),
            received: self.bytes.received.load(Ordering::Relaxed),
            duration_ms: milliseconds(self.began.elapsed()),
            failure: self.failure.take(),
        };
        // A log that cannot take the row keeps the failure and refuses every further decision.
        self.log.finish(self.seq, end).ok();
    }
}
