//! The session of a kept run: the one that its scenario named, or the one that its command line described.

use super::from_run::{flow, is_redacted};
use super::{beside, relative};
use crate::environment::HostEnvironment;
use crate::store::kept_run::KeptRun;
use crate::suite::judge_again::LONGEST;
use crate::suite::scope::Scope;
use belljar_contract::AbsPath;
use belljar_contract::decode::plain;
use belljar_plan::{DocumentText, parse_document};
use belljar_record::{RunReader, SESSION};
use serde_json::Value;

/// The session as the scenario in `out` names it, and its file where one has to be written. `written` is what the scenario
/// of the run says. A note says what keeps it from giving the agent the same.
pub(super) fn session_of_run(
    kept: &KeptRun,
    written: Option<&str>,
    (out, environment): (&AbsPath, &HostEnvironment),
    notes: &mut Vec<String>,
) -> (Option<String>, Option<(AbsPath, String)>) {
    let directory = out.parent().unwrap_or_else(|| out.clone());
    let Some(written) = written else {
        let file = beside(out, ".session.yaml");
        let scope = Scope::of_file(out, environment);
        return match described(&kept.directory, (&directory, &scope), notes) {
            Some(text) => (Some(from(&directory, &file)), Some((file, text))),
            None => (None, None),
        };
    };
    if written == "(inline)" {
        return (Some(written.to_owned()), None);
    }
    if let Some(path) = named(kept, written) {
        return (Some(relative(&directory, &path)), None);
    }
    notes.push(format!(
        "`session: {}` is relative to the scenario of the run, which is gone; name the file with --session",
        plain(written)
    ));
    (Some(written.to_owned()), None)
}

/// The session that the scenario of a run named, if it is still there.
fn named(kept: &KeptRun, written: &str) -> Option<AbsPath> {
    let scenario = AbsPath::new(kept.summary.as_ref()?.scenario.as_ref()?).ok()?;
    scenario.parent()?.join(written).ok().filter(|path| path.as_path().is_file())
}

/// The text of the session that the command line of the run in `run` described, to be written to `directory`; `None` if it
/// described none.
fn described(
    run: &AbsPath,
    (directory, scope): (&AbsPath, &Scope),
    notes: &mut Vec<String>,
) -> Option<String> {
    let bytes = RunReader::new(run.clone()).file(SESSION, LONGEST).ok().flatten()?;
    if is_redacted(&String::from_utf8_lossy(&bytes)) {
        notes.push("the session of the run contains a secret, so it is left out".to_owned());
        return None;
    }
    let text = DocumentText { name: SESSION.to_owned(), bytes: bytes.into_owned() };
    let mut session = parse_document(text).ok()?.root().to_value();
    let mut beyond = false;
    for path in paths(&mut session) {
        let Some(named) = path.as_str().and_then(|path| AbsPath::new(path).ok()) else { continue };
        if named.as_path().symlink_metadata().is_err() {
            notes.push(format!("`{named}`, which the run used, does not exist any more"));
        }
        beyond |= !scope.holds(&named);
        *path = Value::String(from(directory, &named));
    }
    if beyond {
        notes.push(
            "the session names files beyond the directory of the scenario, so `belljar test` asks for your agreement"
                .to_owned(),
        );
    }
    let members = session.as_object().filter(|members| !members.is_empty())?;
    let lines = members.iter().map(|(key, value)| format!("{}: {}\n", plain(key), flow(value)));
    let head = "# What the agent of the run got; paths are relative to this file.\n".to_owned();
    Some(std::iter::once(head).chain(lines).collect())
}

/// A path as a file in `directory` names it. The last part stays as it is: an upload has that name for the agent.
fn from(directory: &AbsPath, path: &AbsPath) -> String {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return relative(directory, path);
    };
    let (parent, name) = (relative(directory, &parent), name.to_string_lossy());
    if parent == "." { name.into_owned() } else { format!("{parent}/{name}") }
}

/// Every path of a session that a command line described.
fn paths(session: &mut Value) -> Vec<&mut Value> {
    let members = session.as_object_mut().into_iter().flatten();
    members
        .flat_map(|(key, value)| match key.as_str() {
            "uploads" => items(value),
            "folders" => items(value).into_iter().filter_map(|one| one.get_mut("from")).collect(),
            "skills" => value.get_mut("local").map(items).unwrap_or_default(),
            "plugins" => {
                let lists = value.as_object_mut().into_iter().flatten();
                lists.filter(|(key, _)| *key != "enabled").flat_map(|(_, list)| items(list)).collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

fn items(list: &mut Value) -> Vec<&mut Value> {
    list.as_array_mut().into_iter().flatten().collect()
}
