//! Hosts that were reached or refused, as the egress log has them.

use super::{Check, Key, check};
use crate::finding::{Finding, RestsOn, count};
use crate::run::Run;
use crate::value::HostMatch;
use belljar_contract::{
    EGRESS_NOT_DIALLED, EgressDecision, EgressEnd, EgressLogState, EgressRefusal, EgressRow, EgressVerdict,
    EgressWay,
};
use std::collections::BTreeMap;

pub(super) const KEYS: &[Key] = &[Denied::KEY, Allowed::KEY];

check! {
    /// The policy refused an attempt to reach the host. A host that is allowed and has no address or does not answer was
    /// not refused. `example.org` means that and all names below it, `*.example.org` only those below. `expect_denied` of
    /// a scenario writes one of these for each host. Where nothing but the model's own listener is inside, an attempt is
    /// not seen and the check is unknown.
    Denied(Egress, "egress_denied", Needed("programs can connect without the proxy, so a refusal was not enforced and an attempt may not be seen")): HostMatch
}
check! {
    /// The host was reached: allowed, and the connection came about. A name that was only looked up is not reached. In a
    /// replay without `--network` nothing is dialled, and what the rules allow is unknown.
    /// `example.org` means that and all names below it, `*.example.org` only those below.
    Allowed(Egress, "egress_allowed", ForFail("a connection that did not use the proxy is not seen")): HostMatch
}

/// Why the rows of a log are not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EgressGap {
    /// The run had no sandbox.
    Unenforced,
    Truncated,
}

impl EgressGap {
    const fn describe(self) -> &'static str {
        match self {
            Self::Unenforced => "connections that did not use the proxy are not in the log",
            Self::Truncated => "the egress log stops before its end",
        }
    }

    const fn rests_on(self) -> RestsOn {
        match self {
            Self::Unenforced => RestsOn::Sandbox,
            Self::Truncated => RestsOn::Key,
        }
    }
}

/// The rows of a log that can be relied on, and whether they are all.
fn rows<'a>(run: &Run<'a>) -> Result<(&'a [EgressRow], Result<(), EgressGap>), Finding> {
    let Some(log) = &run.evidence.egress else {
        return Err(Finding::unknown("no egress log was kept"));
    };
    match &log.state {
        EgressLogState::Complete => Ok((&log.rows, Ok(()))),
        EgressLogState::Unenforced => Ok((&log.rows, Err(EgressGap::Unenforced))),
        EgressLogState::Truncated => Ok((&log.rows, Err(EgressGap::Truncated))),
        EgressLogState::Absent => Err(Finding::unknown("no egress log was kept")),
        EgressLogState::Edited { line, fault: _ } => {
            Err(Finding::unknown(format!("the egress log was changed at line {line}")))
        }
        EgressLogState::Newer { format } => Err(Finding::unknown(format!(
            "the egress log is of version {format}, which a newer belljar wrote"
        ))),
    }
}

/// The decisions about a host.
fn decisions<'a>(rows: &'a [EgressRow], host: &HostMatch) -> Vec<(u64, &'a EgressDecision)> {
    let decided = rows.iter().filter_map(|row| match row {
        EgressRow::Decided { seq, at_ms: _, decision, enforcement: _ } => Some((*seq, decision)),
        EgressRow::Opened { .. } | EgressRow::Finished { .. } | EgressRow::Closed { .. } => None,
    });
    decided.filter(|(_, decision)| host.fits(&decision.destination)).collect()
}

fn line(seq: u64, decision: &EgressDecision) -> String {
    let word = match &decision.verdict {
        EgressVerdict::Allowed => "allowed".to_owned(),
        EgressVerdict::Denied { reason } => format!("refused, {reason:?}"),
    };
    format!("egress row {seq}: {} {word}", decision.destination)
}

/// Listeners that serve one thing only, so that an attempt to reach something else does not come there.
const SINGLE: [&str; 2] = ["model", "ssh"];

/// Whether an attempt to reach any host would have come to something that writes it down.
fn sees_attempts(rows: &[EgressRow]) -> bool {
    rows.iter().any(|row| match row {
        EgressRow::Opened { format: _, run: _, opened_at_ms: _, policy: _, listeners, enforcement: _ } => {
            listeners.iter().any(|listener| !SINGLE.contains(&listener.as_str()))
        }
        EgressRow::Decided { .. } | EgressRow::Finished { .. } | EgressRow::Closed { .. } => false,
    })
}

/// Whether a rule of the run refused the host, and not its resolver, the form of the request or a limit.
fn by_policy(decision: &EgressDecision) -> bool {
    let EgressVerdict::Denied { reason } = &decision.verdict else { return false };
    match reason {
        EgressRefusal::NotAllowed
        | EgressRefusal::Denied
        | EgressRefusal::Port { .. }
        | EgressRefusal::Address { .. } => true,
        // Rules about methods and paths; the model's gateway and ssh also refuse for a budget or a key.
        EgressRefusal::Request { .. } => match decision.way {
            EgressWay::Connect
            | EgressWay::Http
            | EgressWay::Socks
            | EgressWay::Transparent
            | EgressWay::Lookup
            | EgressWay::Intercepted => true,
            EgressWay::Ssh | EgressWay::Model => false,
        },
        EgressRefusal::Unresolved
        | EgressRefusal::Malformed { .. }
        | EgressRefusal::Token
        | EgressRefusal::HostMismatch
        | EgressRefusal::Upgrade
        | EgressRefusal::NotTls
        | EgressRefusal::Sni { .. } => false,
    }
}

/// How each decision ended, by its number.
fn ends(rows: &[EgressRow]) -> BTreeMap<u64, &EgressEnd> {
    let end = rows.iter().filter_map(|row| match row {
        EgressRow::Finished { seq, at_ms: _, end } => Some((*seq, end)),
        EgressRow::Opened { .. } | EgressRow::Decided { .. } | EgressRow::Closed { .. } => None,
    });
    end.collect()
}

/// Whether a request that the rules allowed came to a server. The model's gateway reports no address.
fn reached(decision: &EgressDecision, end: &EgressEnd) -> bool {
    end.failure.is_none() && (end.address.is_some() || decision.way == EgressWay::Model)
}

/// A finding for what is not in the log.
fn missing(run: &Run<'_>, message: String, all: Result<(), EgressGap>, rows: usize) -> Finding {
    match all {
        Ok(()) => run.unless_cut_short(
            Finding::fail(message).shown(&format!("{} of a whole log", count(rows, "row"))),
        ),
        Err(gap) => Finding::unknown(format!("{message} in what is there, but {}", gap.describe()))
            .resting_on(gap.rests_on()),
    }
}

impl Check for Denied {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let (rows, all) = match rows(run) {
            Ok(rows) => rows,
            Err(unknown) => return unknown,
        };
        let decisions = decisions(rows, &self.0);
        let (refused, others): (Vec<_>, Vec<_>) =
            decisions.iter().partition(|(_, decision)| by_policy(decision));
        if refused.is_empty() && others.is_empty() && !sees_attempts(rows) {
            return Finding::unknown(
                "egress was closed and nothing inside listened for attempts, so one could not be seen",
            );
        }
        if refused.is_empty() {
            let ends = ends(rows);
            let was_reached = others.iter().any(|(seq, one)| {
                one.verdict == EgressVerdict::Allowed && ends.get(seq).is_some_and(|end| reached(one, end))
            });
            let finding = match was_reached && all == Err(EgressGap::Unenforced) {
                true => Finding::fail(format!("{} was reached, and no attempt was refused", self.0)),
                false => missing(
                    run,
                    format!("the policy refused no attempt to reach {}", self.0),
                    all,
                    rows.len(),
                ),
            };
            let finding = if was_reached { finding.resting_on(RestsOn::Seen) } else { finding };
            return others.iter().fold(finding, |finding, (seq, one)| finding.shown(&line(*seq, one)));
        }
        let finding = Finding::pass(format!("{} was refused, {}", self.0, count(refused.len(), "time")));
        let finding = refused.iter().fold(finding, |finding, (seq, one)| finding.shown(&line(*seq, one)));
        match others.first() {
            Some((seq, one)) => finding.shown(&format!("but also {}", line(*seq, one))),
            None => finding,
        }
    }
}

impl Check for Allowed {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let (rows, all) = match rows(run) {
            Ok(rows) => rows,
            Err(unknown) => return unknown,
        };
        let decisions = decisions(rows, &self.0);
        let allowed = decisions.iter().filter(|(_, decision)| {
            decision.verdict == EgressVerdict::Allowed && decision.way != EgressWay::Lookup
        });
        let ends = ends(rows);
        let mut failure = None;
        for (number, decision) in allowed {
            let line = |number: &u64| line(*number, decision);
            match ends.get(number) {
                Some(end) if reached(decision, end) => {
                    return Finding::pass(format!("{} was reached", self.0)).shown(&line(number));
                }
                Some(EgressEnd { failure: Some(why), .. }) if why == EGRESS_NOT_DIALLED => {
                    let unknown = Finding::unknown(format!("{} was not dialled: {why}", self.0));
                    return unknown.shown(&line(number));
                }
                Some(end) => {
                    let why = end.failure.as_deref().unwrap_or("no connection was made");
                    failure = Some(format!("{}: {why}", line(number)));
                }
                None => failure = Some(format!("{}, not seen to end", line(number))),
            }
        }
        let finding = missing(run, format!("{} was not reached", self.0), all, rows.len());
        failure.into_iter().fold(finding, |finding, failure| finding.shown(&failure))
    }
}
