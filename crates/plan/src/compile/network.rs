//! The environment variables and files that lead programs inside to the run's proxy without any setup by the user.

use super::Reasons;
use crate::explain::Origin;
use belljar_contract::{
    AbsPath, Access, BackendKind, Credential, Egress, EnvEntry, EnvGiver, EnvName, EnvSource, FileContent,
    PlannedFile, Purpose, RunValue, TrustFile, trust_variables,
};

/// Hosts inside the sandbox, which are reached without the proxy.
const OWN_HOSTS: &str = "localhost,127.0.0.1,::1";

/// Directory of the trusted CA certificates, below the home inside.
const TRUST_DIRECTORY: &str = ".belljar";

/// The variables, their values, and which programs read them.
const VARIABLES: [(&str, ProxyValue, &str); 11] = [
    ("HTTP_PROXY", ProxyValue::Run(RunValue::ProxyUrl), "python, npm, cargo and many others ask it"),
    (
        "HTTPS_PROXY",
        ProxyValue::Run(RunValue::ProxyUrl),
        "curl, git, python, npm, cargo and many others ask it",
    ),
    // Not a SOCKS address: several python libraries fail on one before they make any connection.
    ("ALL_PROXY", ProxyValue::Run(RunValue::ProxyUrl), "curl asks it for other protocols than HTTP"),
    ("http_proxy", ProxyValue::Run(RunValue::ProxyUrl), "curl and git ask for HTTP in lower case only"),
    ("https_proxy", ProxyValue::Run(RunValue::ProxyUrl), "some programs ask in lower case only"),
    ("all_proxy", ProxyValue::Run(RunValue::ProxyUrl), "some programs ask in lower case only"),
    ("NO_PROXY", ProxyValue::Constant(OWN_HOSTS), "what runs inside is reached directly"),
    ("no_proxy", ProxyValue::Constant(OWN_HOSTS), "what runs inside is reached directly"),
    (
        "NODE_USE_ENV_PROXY",
        ProxyValue::Constant("1"),
        "newer versions of Node let `fetch` ask the variables above",
    ),
    ("BELLJAR_PROXY", ProxyValue::Run(RunValue::ProxyAddress), "belljar's ssh proxy command uses it"),
    ("BELLJAR_PROXY_TOKEN", ProxyValue::Run(RunValue::ProxyToken), "belljar's ssh proxy command uses it"),
];

#[derive(Clone, Copy)]
enum ProxyValue {
    Constant(&'static str),
    Run(RunValue),
}

/// Adds the proxy variables where there is a proxy. A variable that the manifest sets keeps its value.
pub(super) fn add_proxy_variables(
    egress: &Egress,
    (backend, purpose): (BackendKind, Purpose),
    env: &mut Vec<EnvEntry>,
    reasons: &mut Reasons,
) {
    if !egress.has_proxy(backend, purpose) {
        return;
    }
    for (name, value, why) in VARIABLES {
        let source = match value {
            ProxyValue::Constant(text) => EnvSource::Constant(text.to_owned()),
            ProxyValue::Run(of_run) => EnvSource::Run(of_run),
        };
        // Every name above is valid; a test checks that.
        let Ok(name) = EnvName::new(name) else { continue };
        if env.iter().any(|entry| entry.name == name) {
            continue;
        }
        let reason =
            Origin::Default("the proxy of the run reaches what is allowed, and says what is refused");
        reasons.add(format!("env.{name}"), source.describe(), reason);
        env.push(EnvEntry { name, source, giver: EnvGiver::Harness(why.to_owned()) });
    }
}

/// Adds the variables that make programs trust the run's CA, and returns the files that they name; none without TLS
/// interception. The files contain no secret.
pub(super) fn trust(
    egress: &Egress,
    credentials: &[Credential],
    home: &AbsPath,
    env: &mut Vec<EnvEntry>,
    reasons: &mut Reasons,
) -> Vec<PlannedFile> {
    if credentials.is_empty() && egress.rules.iter().all(|rule| rule.request.is_none()) {
        return Vec::new();
    }
    let at = |file: TrustFile| home.child(TRUST_DIRECTORY).child(file.name());
    for variable in trust_variables() {
        let Ok(name) = EnvName::new(variable.name) else { continue };
        if env.iter().any(|entry| entry.name == name) {
            continue;
        }
        let value = variable.value(&at(variable.file).as_path().to_string_lossy());
        let reason =
            Origin::Default("TLS of hosts with a credential or rules about requests is opened outside");
        reasons.add(format!("env.{name}"), value.clone(), reason);
        let giver = EnvGiver::Harness(format!("trusted authorities, for {}", variable.why));
        env.push(EnvEntry { name, source: EnvSource::Constant(value), giver });
    }
    let file = |file: TrustFile| PlannedFile {
        target: at(file),
        content: FileContent::Trust(file),
        access: Access::ReadOnly,
        why: "authorities that programs trust, the run's own among them".to_owned(),
    };
    [TrustFile::Bundle, TrustFile::Authority, TrustFile::Keystore].map(file).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_name_is_valid() {
        for (name, _, _) in VARIABLES {
            assert!(EnvName::new(name).is_ok(), "{name}");
        }
    }
}
