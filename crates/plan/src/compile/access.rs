//! Egress rules, credentials and limits.

use super::{Compiler, Reasons, defaults};
use crate::explain::Origin;
use crate::manifest::{AllowText, Bound, CredentialSpec, CredentialText, EgressSpec, LimitsSpec, Positive};
use belljar_contract::decode::At;
use belljar_contract::{
    Credential, CredentialPart, Egress, EgressRule, HostPattern, LimitKind, Limits, RuleEffect,
};
use std::collections::BTreeSet;

/// The rules, numbered in the order they are written.
pub(super) fn egress(written: Option<&At<EgressSpec>>, reasons: &mut Reasons) -> Egress {
    let mut rules = Vec::new();
    if let Some(spec) = written {
        let EgressSpec { allow, deny } = &spec.value;
        for (number, host) in (1..).zip(deny) {
            let id = format!("deny-{number}");
            reasons.add(format!("egress.{id}"), host.to_string(), Origin::Written(host.place.clone()));
            let (effect, host) = (RuleEffect::Deny, host.value.clone());
            rules.push(EgressRule { id, effect, host, request: None });
        }
        for (number, allow) in (1..).zip(allow) {
            let id = format!("allow-{number}");
            reasons.add(format!("egress.{id}"), allow.to_string(), Origin::Written(allow.place.clone()));
            let AllowText { host, request } = allow.value.clone();
            rules.push(EgressRule { id, effect: RuleEffect::Allow, host, request });
        }
    }
    if rules.is_empty() {
        let why = Origin::Default("what is not declared cannot be reached");
        reasons.add("egress", "nothing but the model", why);
    }
    Egress { model: true, rules }
}

/// The limits as written. Defaults depend on the machine and on whether there is a terminal, and are added at launch.
pub(super) fn limits(written: Option<&At<LimitsSpec>>, reasons: &mut Reasons) -> Limits {
    let Some(spec) = written else { return Limits::default() };
    let LimitsSpec { memory, pids, cpu, time, cost_usd, tmpfs } = &spec.value;
    fn take<T: Copy + ToString>(name: &str, at: Option<&At<T>>, reasons: &mut Reasons) -> Option<T> {
        let at = at?;
        reasons.add(format!("limits.{name}"), at.value.to_string(), Origin::Written(at.place.clone()));
        Some(at.value)
    }
    let mut unlimited = Vec::new();
    let mut bound = |kind: LimitKind, none: bool| unlimited.extend(none.then_some(kind));
    bound(LimitKind::Pids, is_none(pids.as_ref()));
    bound(LimitKind::Time, is_none(time.as_ref()));
    bound(LimitKind::Tmpfs, is_none(tmpfs.as_ref()));
    Limits {
        memory: take("memory", memory.as_ref(), reasons),
        pids: take("pids", pids.as_ref(), reasons).and_then(at_most).map(|Positive(most)| most),
        cpu: take("cpu", cpu.as_ref(), reasons),
        time: take("time", time.as_ref(), reasons).and_then(at_most),
        cost_usd: take("cost_usd", cost_usd.as_ref(), reasons),
        tmpfs: take("tmpfs", tmpfs.as_ref(), reasons).and_then(at_most),
        unlimited,
    }
}

fn is_none<T>(at: Option<&At<Bound<T>>>) -> bool {
    at.is_some_and(|at| matches!(at.value, Bound::Unlimited))
}

fn at_most<T>(bound: Bound<T>) -> Option<T> {
    match bound {
        Bound::Unlimited => None,
        Bound::AtMost(value) => Some(value),
    }
}

impl Compiler<'_> {
    /// Reports a host that is allowed by hand although the manifest denies it: the option would do nothing.
    pub(super) fn allowed_in_vain(&mut self, written: Option<&At<EgressSpec>>, egress: &Egress) {
        let Some(spec) = written else { return };
        let EgressSpec { allow, deny } = &spec.value;
        let rules = |effect| egress.rules.iter().filter(move |rule| rule.effect == effect);
        let denied: Vec<(&EgressRule, &At<HostPattern>)> = rules(RuleEffect::Deny).zip(deny).collect();
        for (rule, host) in rules(RuleEffect::Allow).zip(allow) {
            let Some(option) = self.request.manifest.given_with(&host.place) else { continue };
            let in_vain = denied.iter().find(|(deny, _)| deny.denies_all_of(rule));
            let Some((_, by)) = in_vain else { continue };
            let message = format!("`{option} {}` does nothing: the manifest denies that host", rule.host);
            let label = by.place.label("denied here");
            let found = self.report("contradiction", message, &host.place, "given by hand");
            found.related.push(label);
            found.help = Some("take the host out of `egress.deny`, or leave the option out".to_owned());
        }
    }

    /// Credentials, each for one host and header.
    pub(super) fn credentials(
        &mut self,
        written: &[At<CredentialSpec>],
        egress: &Egress,
        reasons: &mut Reasons,
    ) -> Vec<Credential> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for spec in written {
            let CredentialSpec { host, header, value } = &spec.value;
            let header = header.as_ref().map_or(defaults::HEADER.to_owned(), |header| header.value.0.clone());
            if !seen.insert((host.value.clone(), header.to_ascii_lowercase())) {
                let message =
                    format!("a credential for `{}` and the header `{header}` is declared twice", host.value);
                self.report("duplicate-credential", message, &host.place, "the second");
                continue;
            }
            if !reaches(egress, &host.value) {
                let message = format!(
                    "the credential for `{}` can never be used: no egress rule allows that host",
                    host.value
                );
                self.report("unreachable-credential", message, &host.place, "not allowed").help = Some(
                    format!("add `\"{}\"` to `egress.allow`, and see that no `deny` covers it", host.value),
                );
            }
            let CredentialText { prefix, secret, suffix } = &value.value;
            let Some(source) = self.source(secret, &value.place) else { continue };
            reasons.add(
                format!("credentials.{}", host.value),
                format!("{header}, {}", source.describe()),
                Origin::Written(host.place.clone()),
            );
            let text = |text: &String| (!text.is_empty()).then(|| CredentialPart::Text(text.clone()));
            let parts = [text(prefix), Some(CredentialPart::Secret(source)), text(suffix)];
            out.push(Credential {
                host: host.value.clone(),
                header,
                value: parts.into_iter().flatten().collect(),
            });
        }
        out
    }
}

/// Whether some port of the host is allowed and not denied.
fn reaches(egress: &Egress, host: &belljar_contract::HostName) -> bool {
    let rules =
        |effect| egress.rules.iter().filter(move |rule| rule.effect == effect && rule.host.covers(host));
    rules(RuleEffect::Allow)
        .any(|allow| !rules(RuleEffect::Deny).any(|deny| deny.covers_port(allow.port_when_allowing())))
}
