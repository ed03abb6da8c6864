//! Which tape belongs to which scenario.

use crate::environment::HostEnvironment;
use crate::suite::Scope;
use belljar_contract::{AbsPath, TapeHead, visible};
use belljar_record::tape::{HEAD, SUFFIX};
use std::path::{Component, Path, PathBuf};

/// Folders below a folder in which tapes are looked for.
const DEEPEST: u32 = 8;

/// Why there is no tape, or no scenario for one.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is nothing.
    #[error("there is no tape at `{path}`")]
    NoTape {
        /// Where it was looked for.
        path: AbsPath,
    },
    /// The scenario lies beyond the suite that the tape belongs to. It was not opened.
    #[error("the scenario `{file}` of the tape `{tape}` lies beyond {suite}, where the tape belongs")]
    Beyond {
        /// The tape.
        tape: AbsPath,
        /// What it names, escaped.
        file: String,
        /// The suite's directory, in words.
        suite: String,
    },
    /// The scenario is not where the tape says.
    #[error("the scenario `{file}` of the tape `{tape}` is not there")]
    NoScenario {
        /// The tape.
        tape: AbsPath,
        /// What it names.
        file: String,
    },
}

/// The tape's place for a scenario: beside it, or in another folder.
#[must_use]
pub fn tape_beside(scenario: &AbsPath, folder: Option<&AbsPath>) -> AbsPath {
    let name = scenario.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(&name);
    let beside = || scenario.parent().unwrap_or_else(|| scenario.clone());
    folder.cloned().unwrap_or_else(beside).child(&format!("{stem}{SUFFIX}"))
}

/// The tapes that a path means: one itself, or those in a folder, sorted.
///
/// # Errors
/// When there is none.
pub fn find_tapes(path: &AbsPath) -> Result<Vec<AbsPath>, FindError> {
    let mut out = Vec::new();
    let named = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    if path.child(HEAD).as_path().exists() || (named && path.as_path().is_dir()) {
        out.push(path.clone());
    } else {
        below(path, 0, &mut out);
    }
    out.sort();
    if out.is_empty() { Err(FindError::NoTape { path: path.clone() }) } else { Ok(out) }
}

fn below(folder: &AbsPath, depth: u32, out: &mut Vec<AbsPath>) {
    // A folder that cannot be read holds nothing that could be replayed.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || name.starts_with('.') {
            continue;
        }
        let path = folder.child(&name);
        if name.ends_with(SUFFIX) {
            out.push(path);
        } else if depth < DEEPEST && name != "node_modules" {
            below(&path, depth + 1, out);
        }
    }
}

/// The scenario of a tape, which lies in the suite that the tape belongs to, links followed.
///
/// # Errors
/// When it is not there, or lies beyond the suite; a tape could name any file of the user's.
pub fn scenario_of(
    tape: &AbsPath,
    head: &TapeHead,
    environment: &HostEnvironment,
) -> Result<AbsPath, FindError> {
    let file = visible(&head.scenario.file).into_owned();
    let missing = || FindError::NoScenario { tape: tape.clone(), file: file.clone() };
    let folder = tape.parent().unwrap_or_else(|| tape.clone());
    let path = folder.join(&head.scenario.file).ok().ok_or_else(missing)?;
    let scope = Scope::of_tape(tape, environment);
    if !scope.holds(&path) {
        let suite = scope.root().map_or("the tape itself".to_owned(), |root| format!("`{root}`"));
        return Err(FindError::Beyond { tape: tape.clone(), file, suite });
    }
    if path.as_path().is_file() { Ok(path) } else { Err(missing()) }
}

/// Whether a tape at `target` would find the scenario again.
#[must_use]
pub fn finds_its_scenario(target: &AbsPath, scenario: &AbsPath, environment: &HostEnvironment) -> bool {
    Scope::of_tape(target, environment).holds(scenario)
}

/// How a file is called from a folder.
pub(super) fn from_folder(folder: &AbsPath, file: &AbsPath) -> String {
    let parts = |path: &AbsPath| -> Vec<PathBuf> {
        let words = path.as_path().components().filter(|part| matches!(part, Component::Normal(_)));
        words.map(|part| Path::new(part.as_os_str()).to_owned()).collect()
    };
    let (folder, file) = (parts(folder), parts(file));
    let same = folder.iter().zip(&file).take_while(|(left, right)| left == right).count();
    let mut out = PathBuf::new();
    folder[same..].iter().for_each(|_| out.push(".."));
    file[same..].iter().for_each(|part| out.push(part));
    out.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[test]
    fn a_scenario_is_named_from_the_tapes_folder() {
        assert_eq!(from_folder(&path("/a/b"), &path("/a/b/s.yaml")), "s.yaml");
        assert_eq!(from_folder(&path("/a/tapes"), &path("/a/b/s.yaml")), "../b/s.yaml");
    }

    #[test]
    fn a_tape_has_its_scenarios_name() {
        assert_eq!(tape_beside(&path("/a/s.yaml"), None), path("/a/s.tape"));
        assert_eq!(tape_beside(&path("/a/s.v2.yml"), Some(&path("/t"))), path("/t/s.v2.tape"));
    }
}
