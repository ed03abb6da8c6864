//! Writes the events of a run's services to its log, and collects the messages for the end of the run.

use belljar_contract::{AgentName, EgressDecision, EgressEnd, EgressRefusal, EgressVerdict, EgressWay};
use belljar_egress::gateway::{
    GatewayEvent, GatewaySink, GatewayTrouble, RequestEnd, RequestFinished, RequestStarted,
};
use belljar_egress::log::EgressLog;
use belljar_egress::proxy::ProxyRefusal;
use belljar_egress::ssh::{SshSink, SshUse, SshVerdict};
use belljar_record::Redact;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The most distinct refusals that are kept, so that a program that tries many hosts cannot fill the memory.
const REFUSALS_LIMIT: usize = 200;

/// A refused destination or request, and how often it was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The destination or request, and the reason.
    pub sentence: String,
    /// What to change in the manifest to allow it, if that is possible.
    pub advice: Option<String>,
    pub times: u64,
}

impl Denied {
    /// Redacts secrets: a program inside the sandbox chose the destination.
    pub(crate) fn redact(&mut self, redact: &Redact) {
        self.sentence = redact.scrub(&self.sentence);
        self.advice = self.advice.take().map(|advice| redact.scrub(&advice));
    }
}

/// Messages that are shown to the user at the end of a run.
#[derive(Debug, Default)]
pub(super) struct Notices {
    denied: Mutex<BTreeMap<String, Denied>>,
    gateway_errors: Mutex<Vec<GatewayTrouble>>,
}

impl Notices {
    pub fn refused(&self, refusal: &ProxyRefusal, agent: &AgentName) {
        let sentence = refusal.sentence();
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = denied.get_mut(&sentence) {
            known.times += 1;
        } else if denied.len() < REFUSALS_LIMIT {
            let advice = refusal.advice(agent);
            denied.insert(sentence.clone(), Denied { sentence, advice, times: 1 });
        }
    }

    pub fn take_denied(&self) -> Vec<Denied> {
        let denied = std::mem::take(&mut *self.denied.lock().unwrap_or_else(PoisonError::into_inner));
        denied.into_values().collect()
    }

    pub fn take_gateway_errors(&self) -> Vec<GatewayTrouble> {
        std::mem::take(&mut *self.gateway_errors.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Logs the requests to the model.
pub(super) struct ModelSink {
    pub log: Arc<EgressLog>,
    pub notices: Arc<Notices>,
    pub credential: String,
    /// The log entries of requests that have not ended.
    pub open: Mutex<BTreeMap<u64, u64>>,
}

impl GatewaySink for ModelSink {
    fn emit(&self, event: GatewayEvent) -> io::Result<()> {
        match event {
            GatewayEvent::Started(started) => self.started(started),
            GatewayEvent::Finished(finished) => self.finished(&finished),
            GatewayEvent::Trouble(error) => {
                self.notices.gateway_errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                Ok(())
            }
        }
    }
}

impl ModelSink {
    fn started(&self, started: RequestStarted) -> io::Result<()> {
        let RequestStarted { request, upstream, path, model: _, agent: _, stripped: _ } = started;
        let seq = self.log.decide(EgressDecision {
            way: EgressWay::Model,
            destination: upstream,
            addresses: Vec::new(),
            rule: Some("model".to_owned()),
            verdict: EgressVerdict::Allowed,
            method: Some("POST".to_owned()),
            path: Some(path.to_owned()),
            credential: Some(self.credential.clone()),
            within: None,
        });
        let seq = seq.map_err(io::Error::other)?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(request, seq);
        Ok(())
    }

    fn finished(&self, finished: &RequestFinished) -> io::Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&finished.request);
        // A request that was refused here was never sent.
        let Some(seq) = open else { return Ok(()) };
        let failure = match &finished.end {
            RequestEnd::Complete => None,
            RequestEnd::Refused(why) | RequestEnd::Failed(why) => Some(why.clone()),
            RequestEnd::ClientLeft => Some("the agent closed the connection".to_owned()),
        };
        let end = EgressEnd {
            address: None,
            sent: finished.sent_bytes,
            received: finished.received_bytes,
            duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
            failure,
        };
        self.log.finish(seq, end).map_err(io::Error::other)
    }
}

/// Logs the uses of ssh keys.
pub(super) struct KeySink(pub Arc<EgressLog>);

impl SshSink for KeySink {
    fn decided(&self, used: &SshUse) -> io::Result<()> {
        let SshUse { entry, key, act, verdict } = used;
        let verdict = match verdict {
            SshVerdict::Allowed => EgressVerdict::Allowed,
            SshVerdict::Refused(why) => {
                EgressVerdict::Denied { reason: EgressRefusal::Request { what: why.to_string() } }
            }
            SshVerdict::Failed(why) => EgressVerdict::Denied {
                reason: EgressRefusal::Request { what: format!("not signed: {why}") },
            },
        };
        let decision = EgressDecision {
            way: EgressWay::Ssh,
            destination: entry.clone().unwrap_or_else(|| "no declared host".to_owned()),
            addresses: Vec::new(),
            rule: None,
            verdict,
            method: Some(act.word().to_owned()),
            path: None,
            credential: key.clone(),
            within: None,
        };
        self.0.decide(decision).map(drop).map_err(io::Error::other)
    }
}
