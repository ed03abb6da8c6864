//! What programs inside are told, so that their connections find the run's proxy without the user doing anything.

use super::Reasons;
use crate::explain::Origin;
use belljar_contract::{
    AbsPath, Access, Credential, Egress, EnvEntry, EnvGiver, EnvName, EnvSource, FileContent, PlannedFile,
    Purpose, RunValue, TrustFile, trust_variables,
};

/// What is reached inside never goes through the proxy.
const OWN_HOSTS: &str = "localhost,127.0.0.1,::1";

/// Where the trusted authorities lie, below the home inside.
const TRUST_FOLDER: &str = ".belljar";

/// Variables, by what reads them.
const VARIABLES: [(&str, Told, &str); 11] = [
    ("HTTP_PROXY", Told::Run(RunValue::ProxyUrl), "python, npm, cargo and many others ask it"),
    ("HTTPS_PROXY", Told::Run(RunValue::ProxyUrl), "curl, git, python, npm, cargo and many others ask it"),
    // Not a SOCKS address: several python libraries fail on one before they make any connection.
    ("ALL_PROXY", Told::Run(RunValue::ProxyUrl), "curl asks it for other protocols than HTTP"),
    ("http_proxy", Told::Run(RunValue::ProxyUrl), "curl and git ask for HTTP in lower case only"),
    ("https_proxy", Told::Run(RunValue::ProxyUrl), "some programs ask in lower case only"),
    ("all_proxy", Told::Run(RunValue::ProxyUrl), "some programs ask in lower case only"),
    ("NO_PROXY", Told::Constant(OWN_HOSTS), "what runs inside is reached directly"),
    ("no_proxy", Told::Constant(OWN_HOSTS), "what runs inside is reached directly"),
    ("NODE_USE_ENV_PROXY", Told::Constant("1"), "newer versions of Node let `fetch` ask the variables above"),
    ("BELLJAR_PROXY", Told::Run(RunValue::ProxyAddress), "belljar's own way out for ssh asks it"),
    ("BELLJAR_PROXY_TOKEN", Told::Run(RunValue::ProxyToken), "belljar's own way out for ssh asks it"),
];

#[derive(Clone, Copy)]
enum Told {
    Constant(&'static str),
    Run(RunValue),
}

/// Adds the variables of the way out, where there is one. What the manifest says of a variable stands.
pub(super) fn tell(egress: &Egress, purpose: Purpose, env: &mut Vec<EnvEntry>, reasons: &mut Reasons) {
    if !egress.opens() && purpose != Purpose::Test {
        return;
    }
    for (name, told, why) in VARIABLES {
        let source = match told {
            Told::Constant(value) => EnvSource::Constant(value.to_owned()),
            Told::Run(value) => EnvSource::Run(value),
        };
        // All names above are names of variables; a test holds that.
        let Ok(name) = EnvName::new(name) else { continue };
        if env.iter().any(|entry| entry.name == name) {
            continue;
        }
        let reason = Origin::Default("what is allowed is reached through the proxy of the run");
        reasons.add(format!("env.{name}"), source.describe(), reason);
        env.push(EnvEntry { name, source, giver: EnvGiver::Harness(why.to_owned()) });
    }
}

/// The files that make programs trust the authority of the run, and the variables that name them; none where no TLS
/// is opened. They hold no secret.
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
    let at = |file: TrustFile| home.child(TRUST_FOLDER).child(file.name());
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
    fn every_name_is_one() {
        for (name, _, _) in VARIABLES {
            assert!(EnvName::new(name).is_ok(), "{name}");
        }
    }
}
