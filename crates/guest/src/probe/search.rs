//! Looking for a text wherever a program can look.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_contract::ProcessFile;

use super::attempts::{absent, bytes_of, contains, processes};
use super::{Outcome, Seen, unsupported};

/// The list of attempts is skipped: it contains the texts that are searched for.
const OWN_LIST: &str = ".attempts.json";
/// More files than any sandbox has outside the directories of the system.
const FILES_LIMIT: usize = 200_000;

pub(super) fn environment(holds: &str) -> Seen {
    let found = std::env::vars_os()
        .find(|(_, value)| contains(value.as_encoded_bytes(), holds.as_bytes()))
        .map(|(name, _)| name.to_string_lossy().into_owned());
    found.map_or_else(absent, |name| (Outcome::Open, format!("in {name}")))
}

/// Searches the environment and processes first, then files, and stops at the first match.
pub(super) fn everywhere(holds: &str, below: &[String]) -> Seen {
    let near =
        [environment(holds), processes(ProcessFile::Environ, holds), processes(ProcessFile::Cmdline, holds)];
    if let Some(found) = near.into_iter().find(|(outcome, _)| *outcome == Outcome::Open) {
        return found;
    }
    let mut waiting: Vec<PathBuf> = below.iter().map(PathBuf::from).collect();
    let mut looked = 0_usize;
    while let Some(directory) = waiting.pop() {
        // A directory that cannot be listed is skipped: no program of the sandbox could list it either.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() && entry.file_name() != OWN_LIST => {
                    looked += 1;
                    if holds_text(&path, holds) {
                        return (Outcome::Open, format!("in {}", path.display()));
                    }
                }
                Ok(_) | Err(_) => {}
            }
            if looked > FILES_LIMIT {
                return unsupported("there are too many files");
            }
        }
    }
    (Outcome::Closed { errno: None }, format!("in no process and in none of {looked} files"))
}

pub(super) fn beside(variable: &str, holds: &str) -> Seen {
    let Some(file) = std::env::var_os(variable) else { return unsupported("the variable is not set") };
    let directory = Path::new(&file).parent().map(|directory| directory.to_string_lossy().into_owned());
    let files = directory.as_deref().map(fs::read_dir);
    for entry in files.into_iter().flatten().flatten().flatten() {
        if holds_text(&entry.path(), holds) {
            return (Outcome::Open, format!("in {}", entry.path().display()));
        }
    }
    absent()
}

fn holds_text(path: &Path, holds: &str) -> bool {
    bytes_of(&path.to_string_lossy()).is_ok_and(|bytes| contains(&bytes, holds.as_bytes()))
}
