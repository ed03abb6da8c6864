//! Directories that the user's own plugins come from and that lie outside the agent's directory.
//!
//! Any program may have written such a record. A directory that it names is mounted only if it is what the record says
//! and nothing that the sandbox must keep out; anything else is an error that names it.

use super::Compiler;
use super::mounts::{OF_THE_USER, Parts, RESERVED, kept_out, mount};
use crate::facts::{HostFacts, PathFact, Questions, TextFact};
use belljar_contract::{AbsPath, Access, Harness, Mount, MountSource, RecordedDirectory};

/// Most directories followed; far more than a user has.
const DIRECTORY_LIMIT: usize = 64;

/// Directories of a home that hold secrets, whatever else is in them.
const SECRET: [&str; 9] =
    [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".password-store", ".mozilla"];

/// Parts of the system that are shown in any case.
const SHOWN: [&str; 2] = ["/usr", "/nix"];

/// The facts needed about the directories that the records name; asked once the records have been read.
#[must_use]
pub fn further_questions(harnesses: &[&dyn Harness], facts: &HostFacts) -> Questions {
    let mut out = Questions::default();
    for harness in harnesses {
        for recorded in recorded(*harness, facts) {
            if let Ok(path) = AbsPath::new(&recorded.path) {
                out.paths.insert(path.child(&recorded.mark));
                out.paths.insert(path);
            }
        }
    }
    out
}

/// What the records say, without repetition, in the order of the records.
fn recorded(harness: &dyn Harness, facts: &HostFacts) -> Vec<RecordedDirectory> {
    let profile = harness.profile();
    let directory = facts.user.home.child(&profile.config_directory);
    let mut out: Vec<RecordedDirectory> = Vec::new();
    for record in &profile.plugin_records {
        // A record that is not there, or that the agent could not read either, names nothing.
        let TextFact::Text(text) = facts.text(&directory.child(record)) else { continue };
        for recorded in harness.recorded_directories(record, &text) {
            if out.len() < DIRECTORY_LIMIT && !out.iter().any(|known| known.path == recorded.path) {
                out.push(recorded);
            }
        }
    }
    out
}

impl Compiler<'_> {
    /// Mounts the directories that the records name, each at its own path.
    pub(super) fn recorded(&mut self, parts: &Parts<'_>) -> Vec<Mount> {
        // Without a sandbox every directory is at its own path already.
        if parts.inside.home.is_within(&parts.instance.directory) {
            return Vec::new();
        }
        let mut out = Vec::new();
        for recorded in recorded(parts.harness, self.request.facts) {
            match self.shown_directory(&recorded, parts) {
                Ok(None) => {}
                Ok(Some((target, real))) => {
                    let why = format!("{OF_THE_USER}{}", belljar_contract::decode::shown(&recorded.what));
                    out.push(mount(&target, MountSource::Host(real), Access::ReadOnly, why));
                }
                Err(why) => {
                    let Some(place) = parts.shared_by else { continue };
                    let RecordedDirectory { path, what, .. } = &recorded;
                    let message =
                        format!("{what}: `{}` cannot be shown: {why}", belljar_contract::decode::shown(path));
                    self.report(
                        "forbidden-mount",
                        message,
                        place,
                        "your own configuration is shared by this",
                    )
                    .help = Some(
                        "remove it with the agent's own command, or use `home = \"project\"`".to_owned(),
                    );
                }
            }
        }
        out
    }

    /// Where a directory appears, and the directory itself; `None` if it is missing or already visible.
    fn shown_directory(
        &self,
        recorded: &RecordedDirectory,
        parts: &Parts<'_>,
    ) -> Result<Option<(AbsPath, AbsPath)>, String> {
        let facts = self.request.facts;
        let path = AbsPath::new(&recorded.path).map_err(|error| error.to_string())?;
        let real = match facts.path(&path) {
            PathFact::Directory(real) => real,
            // The agent says itself that it is gone.
            PathFact::Missing => return Ok(None),
            PathFact::File(_) | PathFact::Special | PathFact::Loop => {
                return Err("it is not a directory".to_owned());
            }
            PathFact::Unreadable(why) => return Err(why),
        };
        let own = facts.user.home.child(&parts.harness.profile().config_directory);
        let seen = |path: &AbsPath| {
            path.is_within(&parts.workspace.target)
                || SHOWN.iter().any(|shown| path.as_path().starts_with(shown))
                || parts.harness.profile().shared.iter().any(|entry| path.is_within(&own.child(&entry.name)))
        };
        if seen(&path) && seen(&real) {
            return Ok(None);
        }
        for place in [&path, &real] {
            if let Some(why) = kept_out(place, &facts.user) {
                return Err(why.to_owned());
            }
            if parts.inside.home.is_within(place) {
                return Err("it would hide the agent's home".to_owned());
            }
            if parts.inside.kit.is_within(place) || place.is_within(&parts.inside.kit) {
                return Err("that directory belongs to belljar".to_owned());
            }
            if own.is_within(place) || place.is_within(&own) {
                return Err("it holds the agent's own state".to_owned());
            }
            let secret = SECRET.iter().map(|name| facts.user.home.child(name));
            if secret.into_iter().any(|secret| secret.is_within(place) || place.is_within(&secret)) {
                return Err("it holds secrets".to_owned());
            }
            // The project may lie below `/tmp`, and so may this; the whole of it may not.
            let reserved = |(path, _): &&(&str, &str)| *path != "/tmp" && place.as_path().starts_with(path);
            if let Some((path, why)) = RESERVED.iter().find(reserved) {
                return Err(format!("`{path}` belongs to the sandbox: {why}"));
            }
            if place.as_path() == std::path::Path::new("/tmp") {
                return Err("it is everyone's".to_owned());
            }
        }
        match facts.path(&path.child(&recorded.mark)) {
            PathFact::File(mark) if mark.is_within(&real) => Ok(Some((path, real))),
            PathFact::File(_)
            | PathFact::Directory(_)
            | PathFact::Missing
            | PathFact::Special
            | PathFact::Loop
            | PathFact::Unreadable(_) => Err(format!("it has no `{}`", recorded.mark)),
        }
    }
}
