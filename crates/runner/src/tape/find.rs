//! Finds the tape of a scenario, and the scenario of a tape.

use crate::environment::HostEnvironment;
use crate::suite::{Scope, Skipped, really, scenario_files};
use belljar_contract::{AbsPath, TapeHead, visible};
use belljar_record::tape::{HEAD, SUFFIX};
use belljar_sys::regular::read_regular;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The greatest depth of the search below a directory.
const DEEPEST: u32 = 8;

/// Why no tape, or no scenario of a tape, was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("there is no tape at `{path}`")]
    NoTape {
        /// The path that was searched.
        path: AbsPath,
    },
    /// The scenario lies outside the suite that the tape belongs to. It was not opened.
    #[error("the scenario `{file}` of the tape `{tape}` lies beyond {suite}, where the tape belongs")]
    Beyond {
        tape: AbsPath,
        /// The file that the tape names, escaped.
        file: String,
        /// The suite's directory, as it is shown.
        suite: String,
    },
    /// The scenario does not exist.
    #[error("the scenario `{file}` of the tape `{tape}` does not exist")]
    NoScenario { tape: AbsPath, file: String },
}

/// The path of the tape for a scenario: beside it, or in another directory.
#[must_use]
pub fn tape_beside(scenario: &AbsPath, directory: Option<&AbsPath>) -> AbsPath {
    let name = scenario.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(&name);
    let beside = || scenario.parent().unwrap_or_else(|| scenario.clone());
    directory.cloned().unwrap_or_else(beside).child(&format!("{stem}{SUFFIX}"))
}

/// Two scenarios whose tapes are the same directory, with links resolved.
#[must_use]
pub fn sharing_a_tape(targets: &[(AbsPath, AbsPath)]) -> Option<[&AbsPath; 2]> {
    let mut seen: BTreeMap<AbsPath, &AbsPath> = BTreeMap::new();
    targets.iter().find_map(|(scenario, target)| {
        let real = target.parent().zip(target.file_name());
        let real = real.map(|(directory, name)| really(&directory).child(&name.to_string_lossy()));
        let first = seen.insert(real.unwrap_or_else(|| target.clone()), scenario)?;
        Some([first, scenario])
    })
}

/// Whether a path is that of a tape, be it broken.
#[must_use]
pub fn is_named_tape(path: &AbsPath) -> bool {
    let named = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    path.child(HEAD).as_path().exists() || (named && path.as_path().is_dir())
}

/// The tapes that a path stands for: the tape itself, or those in a directory, sorted.
///
/// # Errors
/// If there is none.
pub fn find_tapes(path: &AbsPath) -> Result<Vec<AbsPath>, FindError> {
    let mut out = Vec::new();
    if is_named_tape(path) {
        out.push(path.clone());
    } else {
        below(path, 0, &mut out);
    }
    out.sort();
    if out.is_empty() { Err(FindError::NoTape { path: path.clone() }) } else { Ok(out) }
}

/// What lies below a directory and is not replayed with its tapes: scenarios without a tape, and links to tapes.
#[must_use]
pub fn not_replayed(path: &AbsPath, tapes: &[AbsPath], environment: &HostEnvironment) -> Vec<Skipped> {
    if tapes.contains(path) {
        return Vec::new();
    }
    let of_tape = |tape: &AbsPath| {
        let head = read_regular(tape.child(HEAD).as_path(), HEAD_MOST).ok()?;
        let head: Value = serde_json::from_slice(&head).ok()?;
        let file = tape.parent()?.join(head["scenario"]["file"].as_str()?).ok()?;
        fs::canonicalize(file).ok()
    };
    let taped: BTreeSet<PathBuf> = tapes.iter().filter_map(of_tape).collect();
    let scenarios = scenario_files(vec![path.clone()], None, environment);
    let scenarios = scenarios.map(|found| found.scenarios).unwrap_or_default();
    let untaped = |file: &AbsPath| fs::canonicalize(file).is_ok_and(|file| !taped.contains(&file));
    let mut out: Vec<Skipped> = scenarios
        .into_iter()
        .filter(untaped)
        .map(|path| Skipped { path, why: "has no tape".to_owned() })
        .collect();
    links(path, 0, &mut out);
    out
}

/// The largest manifest of a tape that is looked into for its scenario.
const HEAD_MOST: u64 = 8 << 20;

fn links(directory: &AbsPath, depth: u32, out: &mut Vec<Skipped>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        let path = directory.child(&name);
        if kind.is_symlink() && name.ends_with(SUFFIX) {
            out.push(Skipped { path, why: "is a link to a tape, which is not followed".to_owned() });
        } else if kind.is_dir() && depth < DEEPEST && !name.starts_with('.') && name != "node_modules" {
            links(&path, depth + 1, out);
        }
    }
}

/// Whether a directory is a tape.
pub(crate) fn is_tape(directory: &AbsPath) -> bool {
    directory.child(HEAD).as_path().is_file()
}

fn below(directory: &AbsPath, depth: u32, out: &mut Vec<AbsPath>) {
    // An unreadable directory is skipped.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || name.starts_with('.') {
            continue;
        }
        let path = directory.child(&name);
        if name.ends_with(SUFFIX) {
            out.push(path);
        } else if depth < DEEPEST && name != "node_modules" {
            below(&path, depth + 1, out);
        }
    }
}

/// The scenario of a tape, which must lie in the suite that the tape belongs to, with links resolved.
///
/// # Errors
/// If it does not exist, or lies outside the suite; a tape could name any file of the user.
pub fn scenario_of(
    tape: &AbsPath,
    head: &TapeHead,
    environment: &HostEnvironment,
) -> Result<AbsPath, FindError> {
    let file = visible(&head.scenario.file).into_owned();
    let missing = || FindError::NoScenario { tape: tape.clone(), file: file.clone() };
    let directory = tape.parent().unwrap_or_else(|| tape.clone());
    let path = directory.join(&head.scenario.file).ok().ok_or_else(missing)?;
    let scope = Scope::of_tape(tape, environment);
    if !scope.holds(&path) {
        let suite = scope.root().map_or("the tape itself".to_owned(), |root| format!("`{root}`"));
        return Err(FindError::Beyond { tape: tape.clone(), file, suite });
    }
    if path.as_path().is_file() { Ok(path) } else { Err(missing()) }
}

/// Whether a tape at `target` would find its scenario.
#[must_use]
pub fn finds_its_scenario(target: &AbsPath, scenario: &AbsPath, environment: &HostEnvironment) -> bool {
    Scope::of_tape(target, environment).holds(scenario)
}

/// The relative path of a file from a directory.
pub(super) fn relative_path(directory: &AbsPath, file: &AbsPath) -> String {
    let parts = |path: &AbsPath| -> Vec<PathBuf> {
        let names = path.as_path().components().filter(|part| matches!(part, Component::Normal(_)));
        names.map(|part| Path::new(part.as_os_str()).to_owned()).collect()
    };
    let (directory, file) = (parts(directory), parts(file));
    let same = directory.iter().zip(&file).take_while(|(left, right)| left == right).count();
    let mut out = PathBuf::new();
    directory[same..].iter().for_each(|_| out.push(".."));
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
    fn a_scenario_is_named_from_the_tapes_directory() {
        assert_eq!(relative_path(&path("/a/b"), &path("/a/b/s.yaml")), "s.yaml");
        assert_eq!(relative_path(&path("/a/tapes"), &path("/a/b/s.yaml")), "../b/s.yaml");
    }

    /// A pipe would keep belljar waiting for ever.
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let place = tempfile::tempdir().unwrap();
        let top = AbsPath::new(place.path()).unwrap();
        let tape = top.child("a.tape");
        std::fs::create_dir(&tape).unwrap();
        let head = tape.child(HEAD);
        mknodat(CWD, head.as_path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let environment = crate::suite::test_environment(&top);
        assert_eq!(find_tapes(&top).unwrap(), std::slice::from_ref(&tape));
        assert_eq!(not_replayed(&top, &[tape], &environment), []);
    }

    #[test]
    fn a_tape_has_its_scenarios_name() {
        assert_eq!(tape_beside(&path("/a/s.yaml"), None), path("/a/s.tape"));
        assert_eq!(tape_beside(&path("/a/s.v2.yml"), Some(&path("/t"))), path("/t/s.v2.tape"));
    }

    #[test]
    fn scenarios_that_share_a_tape_are_found_through_links_too() {
        let place = tempfile::tempdir().unwrap();
        let top = AbsPath::new(place.path()).unwrap();
        std::fs::create_dir(top.child("real")).unwrap();
        std::os::unix::fs::symlink("real", top.child("link")).unwrap();
        let targets = |pairs: &[(&str, &str)]| -> Vec<(AbsPath, AbsPath)> {
            pairs.iter().map(|(scenario, target)| (path(scenario), top.child(target))).collect()
        };
        let apart = targets(&[("/a.yaml", "real/a.tape"), ("/b.yaml", "real/b.tape")]);
        assert_eq!(sharing_a_tape(&apart), None);
        let shared = targets(&[("/a.yaml", "real/a.tape"), ("/b.yaml", "link/a.tape")]);
        assert_eq!(sharing_a_tape(&shared), Some([&path("/a.yaml"), &path("/b.yaml")]));
    }
}
