//! Credentials that stay outside the sandbox: looked up before the run, added to requests by the proxy.

use super::EgressError;
use super::services::LiveModel;
use crate::environment::HostEnvironment;
use crate::launch::Ask;
use crate::launch::values;
use crate::plan::agreed_files::AgreedFiles;
use belljar_contract::{Credential, CredentialPart, Destination, Host, Plan, RuleEffect, Secret};
use belljar_egress::gateway::{
    API_KEY_VARIABLE, AddressScope, BASE_URL_VARIABLE, CredentialFacts, LOGIN_FILE, ProviderTools,
    TOKEN_VARIABLE, Upstream, find_credential,
};
use belljar_egress::intercept::{HostCredential, ValuePart};
use belljar_egress::tls::{ExtraRoots, TlsClient};
use std::os::unix::ffi::OsStrExt;
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
pub(crate) fn upstream_shown(environment: &HostEnvironment) -> Option<String> {
    let named =
        environment.variables.get(std::ffi::OsStr::new(BASE_URL_VARIABLE)).filter(|url| !url.is_empty())?;
    // A URL may contain a password, so only the host and the port are shown.
    match Upstream::parse(&named.to_string_lossy(), AddressScope::Private) {
        Ok(upstream) if upstream.destination() == Upstream::default().destination() => None,
        Ok(upstream) => Some(format!("{} ({BASE_URL_VARIABLE})", upstream.destination())),
        Err(_) => Some(format!("the URL in {BASE_URL_VARIABLE}, which is not valid")),
    }
}

/// The address of the live model and the credential for it. A missing credential is reported before anything is built.
pub(super) fn live_model(plan: &Plan, environment: &HostEnvironment) -> Result<LiveModel, EgressError> {
    let variable = |name: &str| environment.variables.get(std::ffi::OsStr::new(name));
    let upstream = match variable(BASE_URL_VARIABLE).filter(|value| !value.is_empty()) {
        None => Upstream::default(),
        // A user who names a host in their own shell may name one in their own network.
        Some(url) => Upstream::parse(&url.to_string_lossy(), AddressScope::Private)
            .map_err(|cause| EgressError::Upstream { variable: BASE_URL_VARIABLE.to_owned(), cause })?,
    };
    let secret = |name: &str| variable(name).map(|value| Secret::new(value.as_bytes()));
    let login = environment.home.child(LOGIN_FILE);
    let facts = CredentialFacts {
        api_key_variable: secret(API_KEY_VARIABLE),
        token_variable: secret(TOKEN_VARIABLE),
        // A missing file means that there is no login; an unreadable one must not be used.
        login_file: values::read_file(&login).ok(),
        keychain: None,
    };
    let found = find_credential(facts, SystemTime::now()).map_err(EgressError::ModelCredential)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_egress::gateway::{CredentialSource, LOGIN_PROGRAM};
    use belljar_session::Harnesses;

    /// The plan shows where the credential is looked for; the gateway decides it.
    #[test]
    fn the_agent_and_the_gateway_agree_on_where_the_credential_is() {
        let profile = Harnesses::built_in().usual().profile();
        let sources =
            [CredentialSource::ApiKeyVariable, CredentialSource::TokenVariable, CredentialSource::LoginFile];
        assert_eq!(profile.credentials[..3], sources.map(|source| source.to_string()));
        assert_eq!(profile.login_file, LOGIN_FILE);
        assert_eq!(profile.program, LOGIN_PROGRAM);
        assert!(profile.env.iter().any(|entry| entry.name.as_str() == BASE_URL_VARIABLE));
    }
}
