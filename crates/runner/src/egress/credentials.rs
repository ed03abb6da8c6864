//! Credentials that stay outside the sandbox: looked up before the run, added to requests by the proxy.

use super::EgressError;
use super::services::LiveModel;
use crate::environment::HostEnvironment;
use crate::launch::Ask;
use crate::launch::values;
use crate::plan::agreed_files::AgreedFiles;
use belljar_contract::{
    Credential, CredentialPart, CredentialPlace, Destination, Host, ModelAccess, Plan, RuleEffect, Secret,
};
use belljar_egress::gateway::{AddressScope, ProviderTools, Upstream, find_credential};
use belljar_egress::intercept::{HostCredential, ValuePart};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use belljar_session::Harnesses;
use std::sync::Arc;
use std::time::SystemTime;

/// The plan's credentials with their values, each for one host and the ports that rules allow on it.
pub(super) fn bound(
    plan: &Plan,
    environment: &HostEnvironment,
    ask: Ask<'_>,
    named: &mut Vec<(String, Arc<Secret>)>,
) -> Result<Vec<HostCredential>, EgressError> {
    let mut out = Vec::new();
    for Credential { host, header, value } in &plan.credentials {
        let name = format!("{host} {header}");
        let mut parts = Vec::new();
        for part in value {
            parts.push(match part {
                CredentialPart::Text(text) => ValuePart::Text(text.clone()),
                CredentialPart::Secret(source) => {
                    let secret =
                        values::find(source, AgreedFiles::of(plan, &environment.state), environment, ask)
                            .map_err(|cause| EgressError::Value {
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
        out.extend(ports.into_iter().map(|port| HostCredential {
            name: name.clone(),
            destination: Destination { host: Host::Name(host.clone()), port },
            header: header.clone(),
            value: parts.clone(),
        }));
    }
    Ok(out)
}

/// The address of the model's provider as it is shown, if it is not the default.
pub(crate) fn upstream_shown(access: &ModelAccess, environment: &HostEnvironment) -> Option<String> {
    let named = environment.address(access.base_url.as_str())?;
    // A URL may contain a password, so only the host and the port are shown.
    match Upstream::parse(&named, AddressScope::Private) {
        Ok(upstream) if upstream.destination() == Upstream::default().destination() => None,
        Ok(upstream) => Some(format!("{} ({})", upstream.destination(), access.base_url)),
        Err(_) => Some(format!("the URL in {}, which is not valid", access.base_url)),
    }
}

/// The first place that holds a credential for the model, as it is shown. Its value is not read.
pub(crate) fn first_place(access: &ModelAccess, environment: &HostEnvironment) -> Option<String> {
    let here = |place: &&CredentialPlace| match place {
        CredentialPlace::ApiKey { variable } | CredentialPlace::Token { variable, .. } => {
            environment.is_set(variable.as_str())
        }
        CredentialPlace::Login(file) => environment.home.child(&file.path).as_path().is_file(),
    };
    let place = access.credentials.iter().find(here)?;
    let file = match place {
        CredentialPlace::ApiKey { variable } | CredentialPlace::Token { variable, .. } => {
            environment.file_of(variable.as_str())
        }
        CredentialPlace::Login(_) => None,
    };
    Some(match file {
        Some(file) => format!("{place} in {}", environment.shown_from_home(file)),
        None => place.to_string(),
    })
}

/// The address of the live model and the credential for it. A missing credential is reported before anything is built.
pub(super) fn live_model(plan: &Plan, environment: &HostEnvironment) -> Result<LiveModel, EgressError> {
    let harness = Harnesses::built_in().named(&plan.harness);
    let harness = harness.ok_or_else(|| EgressError::Harness(plan.harness.clone()))?;
    let access = Arc::new(harness.profile().model.clone());
    let upstream = match environment.address(access.base_url.as_str()) {
        None => Upstream::default(),
        // A user who names a host in their own shell may name one in their own network.
        Some(url) => Upstream::parse(&url, AddressScope::Private)
            .map_err(|cause| EgressError::Upstream { variable: access.base_url.to_string(), cause })?,
    };
    let value = |place: &CredentialPlace| match place {
        CredentialPlace::ApiKey { variable } | CredentialPlace::Token { variable, .. } => {
            environment.secret(variable.as_str()).filter(|value| !value.is_empty())
        }
        // A missing file means that there is no login; an unreadable one must not be used.
        CredentialPlace::Login(file) => values::read_file(&environment.home.child(&file.path)).ok(),
    };
    let found = find_credential(&access, value, SystemTime::now()).map_err(EgressError::ModelCredential)?;
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
