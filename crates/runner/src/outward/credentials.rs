//! Credentials that stay outside: found now, added to requests on their way.

use super::OutwardError;
use super::serving::LiveModel;
use crate::agreed_files::AgreedFiles;
use crate::launching::Ask;
use crate::planning::Surroundings;
use crate::values;
use belljar_contract::{Credential, CredentialPart, Destination, Host, Plan, RuleEffect, Secret};
use belljar_egress::gateway::{AddressScope, CredentialFacts, ProviderTools, Upstream, find_credential};
use belljar_egress::intercept::{CredentialSpec, ValuePart};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

/// Names where the model is, when it is not where it usually is. The agent itself asks the same variable.
const UPSTREAM: &str = "ANTHROPIC_BASE_URL";

/// The plan's credentials with their values, each for one host and the ports that rules open on it.
pub(super) fn bound(
    plan: &Plan,
    surroundings: &Surroundings,
    ask: Ask<'_>,
    named: &mut Vec<(String, Arc<Secret>)>,
) -> Result<Vec<CredentialSpec>, OutwardError> {
    let mut out = Vec::new();
    for Credential { host, header, value } in &plan.credentials {
        let name = format!("{host} {header}");
        let mut parts = Vec::new();
        for part in value {
            parts.push(match part {
                CredentialPart::Text(text) => ValuePart::Text(text.clone()),
                CredentialPart::Secret(source) => {
                    let secret =
                        values::find(source, AgreedFiles::of(plan, &surroundings.state), surroundings, ask)
                            .map_err(|cause| OutwardError::Value {
                            host: host.to_string(),
                            what: source.describe(),
                            cause,
                        })?;
                    let secret = Arc::new(secret);
                    named.push((name.clone(), Arc::clone(&secret)));
                    ValuePart::Secret(secret)
                }
            });
        }
        let rules = plan.egress.rules.iter();
        let opening = rules.filter(|rule| rule.effect == RuleEffect::Allow && rule.host.covers(host));
        let mut ports: Vec<_> = opening.map(belljar_contract::EgressRule::port_when_allowing).collect();
        ports.sort_unstable();
        ports.dedup();
        out.extend(ports.into_iter().map(|port| CredentialSpec {
            name: name.clone(),
            destination: Destination { host: Host::Name(host.clone()), port },
            header: header.clone(),
            value: parts.clone(),
        }));
    }
    Ok(out)
}

/// Where the model is, for a reader, when it is not where it usually is.
pub(crate) fn upstream_shown(surroundings: &Surroundings) -> Option<String> {
    let named = surroundings.variables.get(std::ffi::OsStr::new(UPSTREAM)).filter(|url| !url.is_empty())?;
    // A URL may hold a password; what is shown of it is the host and the port.
    match Upstream::parse(&named.to_string_lossy(), AddressScope::Private) {
        Ok(upstream) if upstream.destination() == Upstream::default().destination() => None,
        Ok(upstream) => Some(format!("{} ({UPSTREAM})", upstream.destination())),
        Err(_) => Some(format!("what {UPSTREAM} names, which is not usable")),
    }
}

/// Where the live model is, and the credential for it. That there is none is told before anything is built.
pub(super) fn live_model(plan: &Plan, surroundings: &Surroundings) -> Result<LiveModel, OutwardError> {
    let variable = |name: &str| surroundings.variables.get(std::ffi::OsStr::new(name));
    let upstream = match variable(UPSTREAM).filter(|value| !value.is_empty()) {
        None => Upstream::default(),
        // Who names a host in their own shell may name one of their own network.
        Some(url) => Upstream::parse(&url.to_string_lossy(), AddressScope::Private)
            .map_err(|cause| OutwardError::Upstream { variable: UPSTREAM.to_owned(), cause })?,
    };
    let secret = |name: &str| variable(name).map(|value| Secret::new(value.as_bytes()));
    let login = surroundings.home.child(".claude").child(".credentials.json");
    let facts = CredentialFacts {
        api_key_variable: secret("ANTHROPIC_API_KEY"),
        token_variable: secret("CLAUDE_CODE_OAUTH_TOKEN"),
        // One that is not there is no login; one that cannot be read is not ours to use.
        login_file: values::read_file(&login).ok(),
        keychain: None,
    };
    let found = find_credential(facts, SystemTime::now()).map_err(OutwardError::ModelCredential)?;
    let provider_tools =
        ProviderTools::allowing(plan.provider_tools.iter().map(String::as_str)).unwrap_or_default();
    Ok(LiveModel {
        upstream,
        found,
        cap: plan.limits.cost_usd,
        provider_tools,
        tls: TlsClient::new(&ExtraRoots::default())?,
    })
}
