//! Where it is decided: the one place that asks the policy, resolves, and writes the decision down.

use super::refusal::{Asked, Refusal};
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

/// Addresses of one name that are looked at.
const ADDRESSES_LIMIT: usize = 16;

/// Destinations that are remembered in [`Mode::Learn`].
const NEEDED_LIMIT: usize = 4096;

/// Whether what is refused is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Refuse.
    Enforce,
    /// Refuse, and remember what a rule would have to name, so that rules can be proposed.
    Learn,
}

/// Whether what the rules allow is dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is.
    AsRuled,
    /// No: decisions are made and logged, no name is resolved and no connection opened.
    Nowhere,
}

/// Is told of every refusal.
pub type OnRefusal = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub way: EgressWay,
    pub destination: Destination,
    pub method: Option<String>,
    pub path: Option<String>,
    /// What in it lets another request be meant, in words.
    pub meant: Option<String>,
}

/// Why something does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was refused, and that is in the log.
    Refused(Refusal),
    /// It could not be written down.
    Unlogged(LogError),
}

/// Something that may go on, and only to these addresses.
#[derive(Debug)]
pub(super) struct Passage {
    pub destination: Destination,
    pub addresses: Vec<SocketAddr>,
    pub rule: String,
    pub watch: Watch,
}

pub(super) struct Gate {
    pub policy: Arc<EgressPolicy>,
    pub resolver: Arc<dyn Resolve>,
    pub log: Arc<EgressLog>,
    pub agent: AgentName,
    pub mode: Mode,
    pub reach: Reach,
    pub on_refusal: OnRefusal,
    pub tally: Tally,
}

/// What is told at the end.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub connections: AtomicU64,
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    pub needed: Mutex<BTreeSet<Destination>>,
}

impl Gate {
    /// Decides. The decision is in the log when this returns, and no name that is refused has been resolved.
    pub async fn pass(&self, ask: Ask) -> Result<Passage, Stop> {
        // Before a name goes to a resolver: a log that is broken must let nothing out at all.
        if let Some(failure) = self.log.failure() {
            return Err(Stop::Unlogged(failure));
        }
        let admission = match self.policy.admit(&ask.destination) {
            Ok(admission) => admission,
            Err(denial) => return Err(self.deny(&ask, None, denial)),
        };
        self.look_into(&ask)?;
        if let (Reach::Nowhere, Host::Name(_)) = (self.reach, &ask.destination.host) {
            let rule = admission.rule.id.clone();
            return Err(self.not_dialled(ask, Vec::new(), rule));
        }
        let Ok(found) = self.addresses_of(&ask.destination.host).await else {
            return Err(self.refuse(&ask, None, None, EgressRefusal::Unresolved));
        };
        let mut first_denial = None;
        let mut checked = Vec::new();
        let mut rule = None;
        for address in found.into_iter().take(ADDRESSES_LIMIT) {
            let address = address.to_canonical();
            match self.policy.check(&admission, address) {
                Ok(opener) => {
                    rule.get_or_insert_with(|| opener.id.clone());
                    checked.push(SocketAddr::new(address, ask.destination.port.get()));
                }
                Err(denial) => {
                    first_denial.get_or_insert((address, denial));
                }
            }
        }
        match (rule, first_denial) {
            (Some(rule), _) => match self.reach {
                Reach::AsRuled => self.allow(ask, checked, rule),
                Reach::Nowhere => Err(self.not_dialled(ask, checked, rule)),
            },
            (None, Some((address, denial))) => Err(self.deny(&ask, Some(address), denial)),
            (None, None) => Err(self.refuse(&ask, None, None, EgressRefusal::Unresolved)),
        }
    }

    /// Decides on one more request to a destination that was reached before at this address.
    pub fn pass_again(&self, ask: Ask, address: SocketAddr) -> Result<Passage, Stop> {
        let admission = match self.policy.admit(&ask.destination) {
            Ok(admission) => admission,
            Err(denial) => return Err(self.deny(&ask, None, denial)),
        };
        self.look_into(&ask)?;
        match self.policy.check(&admission, address.ip()) {
            Ok(opener) => {
                let rule = opener.id.clone();
                match self.reach {
                    Reach::AsRuled => self.allow(ask, vec![address], rule),
                    Reach::Nowhere => Err(self.not_dialled(ask, vec![address], rule)),
                }
            }
            Err(denial) => Err(self.deny(&ask, Some(address.ip()), denial)),
        }
    }

    /// A request that can be read is held to the rules about requests.
    fn look_into(&self, ask: &Ask) -> Result<(), Stop> {
        let (Some(method), Some(path)) = (&ask.method, &ask.path) else { return Ok(()) };
        if !requests_matter(self.policy.rules(), &ask.destination) {
            return Ok(());
        }
        match request_allowed(self.policy.rules(), &ask.destination, method, path.as_bytes()) {
            Ok(admission) => match &ask.meant {
                None => Ok(()),
                Some(what) => {
                    let reason = EgressRefusal::Request { what: what.clone() };
                    Err(self.refuse(ask, None, Some(admission.rule.id.clone()), reason))
                }
            },
            Err(denial) => {
                let rule = denial.rule().map(str::to_owned);
                let what = denial.to_string();
                Err(self.refuse(ask, None, rule, EgressRefusal::Request { what }))
            }
        }
    }

    async fn addresses_of(&self, host: &Host) -> std::io::Result<Vec<IpAddr>> {
        match host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => self.resolver.resolve(name).await,
        }
    }

    /// Writes down that the rules allow something, and that it ended before it was dialled.
    fn not_dialled(&self, ask: Ask, addresses: Vec<SocketAddr>, rule: String) -> Stop {
        let reason = EgressRefusal::Request { what: EGRESS_NOT_DIALLED.to_owned() };
        let asked = Asked::Destination(ask.destination.clone());
        let refusal = Refusal { way: ask.way, asked, address: None, rule: Some(rule.clone()), reason };
        match self.allow(ask, addresses, rule) {
            Err(stop) => stop,
            Ok(mut passage) => {
                passage.watch.failure = Some(EGRESS_NOT_DIALLED.to_owned());
                drop(passage);
                (self.on_refusal)(&refusal);
                Stop::Refused(refusal)
            }
        }
    }

    fn allow(&self, ask: Ask, addresses: Vec<SocketAddr>, rule: String) -> Result<Passage, Stop> {
        let decision = EgressDecision {
            way: ask.way,
            destination: ask.destination.to_string(),
            addresses: addresses.iter().map(SocketAddr::ip).collect(),
            rule: Some(rule.clone()),
            verdict: EgressVerdict::Allowed,
            method: ask.method,
            path: ask.path,
            credential: None,
            within: None,
        };
        let seq = self.log.decide(decision).map_err(Stop::Unlogged)?;
        self.tally.allowed.fetch_add(1, Ordering::Relaxed);
        let watch = Watch::new(Arc::clone(&self.log), seq);
        Ok(Passage { destination: ask.destination, addresses, rule, watch })
    }

    fn deny(&self, ask: &Ask, address: Option<IpAddr>, denial: Denial) -> Stop {
        self.refuse(ask, address, denial.rule, denial.reason.into())
    }

    /// Writes a refusal of a destination down.
    pub fn refuse(
        &self,
        ask: &Ask,
        address: Option<IpAddr>,
        rule: Option<String>,
        reason: EgressRefusal,
    ) -> Stop {
        let asked = Asked::Destination(ask.destination.clone());
        let refusal = Refusal { way: ask.way, asked, address, rule, reason };
        self.refused(
            refusal,
            Circumstances { method: ask.method.clone(), path: ask.path.clone(), within: None },
        )
    }

    /// Writes a refusal down, tells of it and gives it back.
    pub fn refused(&self, refusal: Refusal, circumstances: Circumstances) -> Stop {
        let Circumstances { method, path, within } = circumstances;
        let decision = EgressDecision {
            way: refusal.way,
            destination: refusal.asked.to_string(),
            addresses: refusal.address.into_iter().collect(),
            rule: refusal.rule.clone(),
            verdict: EgressVerdict::Denied { reason: refusal.reason.clone() },
            method,
            path,
            credential: None,
            within,
        };
        if let Err(error) = self.log.decide(decision) {
            return Stop::Unlogged(error);
        }
        self.tally.denied.fetch_add(1, Ordering::Relaxed);
        if self.mode == Mode::Learn
            && let Some(needed) = refusal.needed()
        {
            let mut all = self.tally.needed.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() < NEEDED_LIMIT {
                all.insert(needed);
            }
        }
        (self.on_refusal)(&refusal);
        Stop::Refused(refusal)
    }
}

/// What surrounds a refusal.
#[derive(Debug, Default)]
pub(super) struct Circumstances {
    pub method: Option<String>,
    pub path: Option<String>,
    pub within: Option<u64>,
}

/// Bytes that moved.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

impl Moved {
    /// Ends when nothing has moved for at least this long, and less than twice as long.
    pub async fn quiet(&self, idle: Duration) {
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

/// Something that was allowed and has not ended. Its end is written down when this goes, however that happens.
pub(super) struct Watch {
    log: Arc<EgressLog>,
    pub seq: u64,
    began: Instant,
    pub moved: Arc<Moved>,
    pub address: Option<SocketAddr>,
    pub failure: Option<String>,
}

impl Watch {
    fn new(log: Arc<EgressLog>, seq: u64) -> Self {
        let began = Instant::now();
        Self { log, seq, began, moved: Arc::default(), address: None, failure: None }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("seq", &self.seq)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let end = EgressEnd {
            address: self.address,
            sent: self.moved.sent.load(Ordering::Relaxed),
            received: self.moved.received.load(Ordering::Relaxed),
            duration_ms: milliseconds(self.began.elapsed()),
            failure: self.failure.take(),
        };
        // A log that cannot take the row remembers that itself and lets nothing more through.
        self.log.finish(self.seq, end).ok();
    }
}
