//! Which files are scenarios.

use crate::environment::HostEnvironment;
use belljar_contract::AbsPath;
use std::io;

/// Directories below a given one that are searched.
const DEEPEST: u32 = 8;

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A path that was named is not there.
    #[error("cannot read `{path}`")]
    Read {
        /// The path.
        path: AbsPath,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// None of the files is a scenario.
    #[error("there is no scenario to run")]
    NoScenario,
}

/// The scenario files that paths mean, sorted, each once. A file counts whatever it is called; in a directory, files count
/// that end in `.yaml` or `.yml` and have a `prompt` of their own, because sessions and answer policies lie beside them.
///
/// # Errors
/// When a path cannot be read, or nothing is left.
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
    out.sort();
    out.dedup();
    if let Some(wanted) = filter {
        out.retain(|path| environment.shown(path).contains(wanted));
    }
    if out.is_empty() { Err(DiscoverError::NoScenario) } else { Ok(out) }
}

fn below(directory: &AbsPath, depth: u32, out: &mut Vec<AbsPath>) {
    // A directory that cannot be read holds nothing that could be run.
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
