//! Digests of a scenario's own files: what a tape records of them, and how they differ from it now.

use super::facts::{Changed, ChangedCause};
use crate::suite::Trial;
use belljar_contract::{Digest, PathUse, SuiteNormaliser, TapeNormaliser, TapeScenario, canonical_json};
use belljar_plan::{DocumentText, parse_document};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Digests of the scenario, its session and its declaration of servers, as they were read when the trial was loaded. `None`
/// for a file that it does not have, and for the session and the servers of a trial that was loaded without them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScenarioFiles {
    pub text: Option<Digest>,
    pub keys: BTreeMap<String, Digest>,
    pub session: Option<Digest>,
    pub servers: Option<Digest>,
    /// The normalisers of the session, by name.
    pub normalise: BTreeMap<String, Digest>,
}

impl ScenarioFiles {
    pub fn of(trial: &Trial) -> Self {
        if trial.file.is_none() {
            return Self::default();
        }
        // What the run is made of, whatever the files contain by now.
        let parsed = |wanted: PathUse| {
            let found = trial.parsed.iter().find(|(used_as, _)| *used_as == wanted);
            found.map(|(_, digest)| *digest)
        };
        Self {
            text: Some(Digest::of(&trial.text)),
            keys: keys(trial.text.clone()),
            session: parsed(PathUse::Session),
            servers: parsed(PathUse::McpConfig),
            normalise: by_name(trial.session.normalise.iter().map(SuiteNormaliser::kept)),
        }
    }

    /// The differences from what a tape recorded.
    pub fn changed_since(&self, recorded: &TapeScenario) -> Vec<Changed> {
        let mut out = Vec::new();
        let mut compare = |cause, what: String, recorded: Option<Digest>, present: Option<Digest>| {
            let text =
                |digest: Option<Digest>| digest.map_or("nothing".to_owned(), |digest| digest.to_string());
            if recorded != present {
                out.push(Changed { cause, what, recorded: text(recorded), present: text(present) });
            }
        };
        let scenario = ChangedCause::Scenario;
        if recorded.keys.is_empty() || self.keys.is_empty() {
            compare(scenario, "the scenario".to_owned(), Some(recorded.digest), self.text);
        } else if self.text != Some(recorded.digest) {
            // Only the values matter: a comment is not a change.
            let names: BTreeSet<&String> = recorded.keys.keys().chain(self.keys.keys()).collect();
            for name in names {
                let (before, now) = (recorded.keys.get(name).copied(), self.keys.get(name).copied());
                compare(scenario, format!("`{name}` of the scenario"), before, now);
            }
        }
        compare(ChangedCause::Session, "the session".to_owned(), recorded.session, self.session);
        let before = by_name(&recorded.normalise);
        for name in before.keys().chain(self.normalise.keys()).collect::<BTreeSet<_>>() {
            let what = format!("the normaliser `{name}` of the session");
            let (before, now) = (before.get(name).copied(), self.normalise.get(name).copied());
            compare(ChangedCause::Normaliser, what, before, now);
        }
        if !recorded.keys.is_empty() {
            let what = "the file that declares the MCP servers".to_owned();
            compare(ChangedCause::Servers, what, recorded.servers, self.servers);
        }
        out
    }
}

fn by_name<'a>(list: impl IntoIterator<Item = &'a TapeNormaliser>) -> BTreeMap<String, Digest> {
    list.into_iter().map(|one| (one.name.clone(), one.digest)).collect()
}

/// The digest of each value of a scenario's text.
fn keys(bytes: Vec<u8>) -> BTreeMap<String, Digest> {
    let document = parse_document(DocumentText { name: String::new(), bytes });
    let Ok(Value::Object(members)) = document.map(|document| document.root().to_value()) else {
        return BTreeMap::new();
    };
    members.into_iter().map(|(key, value)| (key, Digest::of(canonical_json(&value).as_bytes()))).collect()
}
