//! Lists the values that enter a sandbox as secrets, for a plan.

use crate::environment::HostEnvironment;
use crate::plan::shared_values::{self, SharedFile};
use belljar_contract::{Entering, EnvEntry, EnvSource, Plan, Secret};

/// All values that enter as secrets, by name. Variables and shared files are read to find out which of their values
/// cannot be redacted; files, commands and questions of the manifest are not.
pub(crate) fn entering(plan: &Plan, shared: &[SharedFile], environment: &HostEnvironment) -> Vec<Entering> {
    let entries = plan.env.iter().filter(|entry| entry.enters_as_secret());
    let own = entries.map(|entry| Entering {
        name: entry.name.to_string(),
        source: source(entry, environment),
        not_redacted: present(entry, environment).and_then(|value| entry.not_redacted(&value)),
    });
    let shared = shared_values::values(shared, &environment.home);
    let mut out: Vec<Entering> = own.chain(shared.iter().map(shared_values::SharedValue::entering)).collect();
    // Several parts of one text have the same name.
    out.dedup();
    out
}

fn source(entry: &EnvEntry, environment: &HostEnvironment) -> String {
    let described = entry.describe();
    let EnvSource::Variable(name) = &entry.source else { return described };
    let Some(file) = environment.file_of(name.as_str()) else { return described };
    let own = entry.source.describe();
    let file = format!("{own} in {}", environment.shown_from_home(file));
    described.replacen(&own, &file, 1)
}

/// The value, if it is available without reading a file, running a command or asking the user.
fn present(entry: &EnvEntry, environment: &HostEnvironment) -> Option<Secret> {
    match &entry.source {
        EnvSource::Variable(name) => environment.secret(name.as_str()).filter(|value| !value.is_empty()),
        EnvSource::Literal(text) => (!text.is_empty()).then(|| Secret::new(text.as_bytes())),
        EnvSource::Constant(_)
        | EnvSource::Prompt(_)
        | EnvSource::File(_)
        | EnvSource::Command(_)
        | EnvSource::Run(_) => None,
    }
}
