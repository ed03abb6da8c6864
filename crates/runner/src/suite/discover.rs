//! Finds scenario files.

use crate::environment::HostEnvironment;
use belljar_contract::AbsPath;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The greatest depth of the search below a directory.
const DEEPEST: u32 = 8;

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
    #[error("no scenario was found")]
    NoScenario,
    /// The paths have files, and the filter leaves none of them.
    #[error("none of {count} {files} has `{filter}` in its name")]
    Filtered { files: &'static str, filter: String, count: usize },
}

/// The scenario files that the paths stand for, sorted, each once. A named file always counts. In a directory, files
/// that end in `.yaml` or `.yml` and have a `prompt` count, because sessions and answer policies lie beside them.
///
/// # Errors
/// If a path cannot be read, or there is no scenario.
pub fn scenario_files(
    paths: Vec<AbsPath>,
    filter: Option<&str>,
    environment: &HostEnvironment,
) -> Result<Vec<AbsPath>, DiscoverError> {
    let mut out = Vec::new();
    for path in paths {
        match std::fs::metadata(&path) {
            Err(cause) => return Err(DiscoverError::Read { path, cause }),
            Ok(found) if found.is_dir() => below(&path, 0, &mut out),
            Ok(_) => out.push(path),
        }
    }
    let out = selected(out, filter, ("scenarios", environment))?;
    if out.is_empty() { Err(DiscoverError::NoScenario) } else { Ok(out) }
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

fn below(directory: &AbsPath, depth: u32, out: &mut Vec<AbsPath>) {
    // An unreadable directory is skipped.
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (Ok(kind), Ok(path)) = (entry.file_type(), AbsPath::new(entry.path())) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && depth < DEEPEST && !name.starts_with('.') && name != "node_modules" {
            below(&path, depth + 1, out);
        } else if kind.is_file() && (name.ends_with(".yaml") || name.ends_with(".yml")) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.lines().any(|line| line.starts_with("prompt:")) {
                out.push(path);
            }
        }
    }
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
