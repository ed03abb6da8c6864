//! Finds scenario files.

use super::check::{CheckedKind, kind_of_yaml};
use crate::environment::HostEnvironment;
use belljar_contract::AbsPath;
use belljar_plan::DocumentText;
use belljar_sys::regular::open_regular;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

/// The greatest depth of the search below a directory.
const DEEPEST: u32 = 32;

/// The largest file that is looked into, as for a run.
const LONGEST: u64 = super::judge_again::LONGEST;

/// What paths stand for.
#[derive(Debug, Default)]
pub struct Discovered {
    /// Scenario files, sorted, each once.
    pub scenarios: Vec<AbsPath>,
    /// What may have been meant as a scenario and is none that is run.
    pub skipped: Vec<Skipped>,
}

/// A file or directory that was passed over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Skipped {
    pub path: AbsPath,
    /// The reason in one line.
    pub why: String,
}

/// Why no scenario was found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A named path cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// None of the files is a scenario.
    #[error("no scenario was found{}", passed_over(.skipped))]
    NoScenario { skipped: Vec<Skipped> },
    /// The paths have files, and the filter leaves none of them.
    #[error("none of {count} {files} has `{filter}` in its path")]
    Filtered { files: &'static str, filter: String, count: usize },
}

/// The scenario files that the paths stand for. A named file always counts. In a directory, files that end in `.yaml` or
/// `.yml` and have the keys of a scenario count, because sessions and answer policies lie beside them.
///
/// # Errors
/// If a path cannot be read, or there is no scenario.
pub fn scenario_files(
    paths: Vec<AbsPath>,
    filter: Option<&str>,
    environment: &HostEnvironment,
) -> Result<Discovered, DiscoverError> {
    let mut found = Discovered::default();
    for path in paths {
        match fs::metadata(&path) {
            Err(cause) => return Err(DiscoverError::Read { path, cause }),
            Ok(about) if about.is_dir() => found.below(&path, 0),
            Ok(_) => found.scenarios.push(path),
        }
    }
    found.skipped.sort();
    found.skipped.dedup();
    if let Some(wanted) = filter {
        found.skipped.retain(|one| environment.shown(&one.path).contains(wanted));
    }
    found.scenarios = selected(found.scenarios, filter, ("scenarios", environment))?;
    match found.scenarios.is_empty() {
        false => Ok(found),
        true => Err(DiscoverError::NoScenario { skipped: found.skipped }),
    }
}

/// The files whose path, as it is shown, contains the filter; sorted, each once. `files` says what they are.
///
/// # Errors
/// If the filter leaves none of them.
pub fn selected(
    mut all: Vec<AbsPath>,
    filter: Option<&str>,
    (files, environment): (&'static str, &HostEnvironment),
) -> Result<Vec<AbsPath>, DiscoverError> {
    all.sort();
    all.dedup();
    if let Some(wanted) = filter {
        let count = all.len();
        all.retain(|path| environment.shown(path).contains(wanted));
        if all.is_empty() && count > 0 {
            return Err(DiscoverError::Filtered { files, filter: wanted.to_owned(), count });
        }
    }
    Ok(all)
}

fn passed_over(skipped: &[Skipped]) -> String {
    skipped.first().map_or_else(String::new, |one| format!("; `{}` {}", one.path, one.why))
}

impl Discovered {
    fn below(&mut self, directory: &AbsPath, depth: u32) {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return self.skip(directory, format!("cannot be read: {error}")),
        };
        for entry in entries.flatten() {
            let (Ok(kind), Ok(path)) = (entry.file_type(), AbsPath::new(entry.path())) else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                if name.starts_with('.') || name == "node_modules" {
                    continue;
                }
                match depth < DEEPEST {
                    true => self.below(&path, depth + 1),
                    false => self.skip(&path, format!("is deeper than {DEEPEST} directories")),
                }
                continue;
            }
            let ending = name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
            if ending == "yaml" || ending == "yml" {
                self.file(path);
            } else if ending.eq_ignore_ascii_case("yaml") || ending.eq_ignore_ascii_case("yml") {
                self.skip(&path, "is not a scenario: those end in `.yaml` or `.yml`".to_owned());
            }
        }
    }

    fn file(&mut self, path: AbsPath) {
        match kind_of(&path) {
            Ok(CheckedKind::Scenario) => self.scenarios.push(path),
            Ok(
                CheckedKind::Session
                | CheckedKind::AnswerPolicy
                | CheckedKind::Script
                | CheckedKind::Manifest,
            ) => {}
            Err(why) => self.skip(&path, why),
        }
    }

    fn skip(&mut self, path: &AbsPath, why: String) {
        self.skipped.push(Skipped { path: path.clone(), why });
    }
}

/// The kind of a file, or why it is none.
fn kind_of(path: &AbsPath) -> Result<CheckedKind, String> {
    let about = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if super::scope::leads_away(path) {
        return Err("is a link that leads out of its directory".to_owned());
    }
    if !about.is_file() {
        return Err("is not a file".to_owned());
    }
    if about.len() > LONGEST {
        return Err(format!("has more than {} MiB, the most for a scenario", LONGEST >> 20));
    }
    let mut bytes = Vec::new();
    let read = open_regular(path.as_path()).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot be read: {error}"))?;
    let text = DocumentText { name: String::new(), bytes };
    kind_of_yaml(&text)
        .map_err(|why| format!("is not a scenario, session, answer policy or list of servers: {why}"))
}

/// The script beside a scenario.
#[must_use]
pub fn script_beside(file: &AbsPath) -> AbsPath {
    let name = file.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let stem = [b".yaml".as_slice(), b".yml"].iter().find_map(|ending| name.strip_suffix(*ending));
    let mut script = stem.unwrap_or(name).to_vec();
    script.extend(b".script.json");
    let directory = file.parent().unwrap_or_else(|| file.clone());
    // Never with a NUL byte: the file's own name has none.
    directory.join(OsStr::from_bytes(&script)).unwrap_or(directory)
}
