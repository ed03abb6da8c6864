//! Writes first scenarios, from a skill, a plugin or a marketplace and from a kept run, and first scripts.

mod from_run;
mod from_subject;
mod new_script;
mod script_text;
mod session_of_run;

pub use from_run::{FromRunError, scaffold_from_run};
pub use from_subject::scaffold_new;
pub use new_script::scaffold_script;
pub(crate) use script_text::script_text;

use super::scope::really;
use belljar_contract::AbsPath;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, PathBuf};

/// Files to write, and what is worth knowing about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaffold {
    /// What was asked for is the first.
    pub files: Vec<(AbsPath, String)>,
    pub notes: Vec<String>,
}

/// Whether files that exist are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    Never,
    Always,
}

#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// Nothing was written.
    #[error("refusing to replace {}", list(paths))]
    Exists { paths: Vec<AbsPath> },
    #[error("cannot write `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

fn list(paths: &[AbsPath]) -> String {
    paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" and ")
}

impl Scaffold {
    /// Writes the files.
    ///
    /// # Errors
    /// If a file exists that may not be replaced, or cannot be written.
    pub fn write(&self, overwrite: Overwrite) -> Result<(), ScaffoldError> {
        let there = |path: &AbsPath| path.as_path().symlink_metadata().is_ok();
        let paths: Vec<AbsPath> =
            self.files.iter().map(|(path, _)| path).filter(|path| there(path)).cloned().collect();
        if overwrite == Overwrite::Never && !paths.is_empty() {
            return Err(ScaffoldError::Exists { paths });
        }
        for (path, text) in &self.files {
            write(path, text, overwrite).map_err(|cause| {
                if cause.kind() == io::ErrorKind::AlreadyExists {
                    return ScaffoldError::Exists { paths: vec![path.clone()] };
                }
                ScaffoldError::Write { path: path.clone(), cause }
            })?;
        }
        Ok(())
    }
}

/// Writes a file beside its name and moves it there, so that no link is followed and none is half written.
fn write(path: &AbsPath, text: &str, overwrite: Overwrite) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| path.clone());
    fs::create_dir_all(&directory)?;
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    match overwrite {
        Overwrite::Never => file.persist_noclobber(path).map(drop).map_err(|error| error.error),
        Overwrite::Always => file.persist(path).map(drop).map_err(|error| error.error),
    }
}

/// A path as a file in `directory` names it.
fn relative(directory: &AbsPath, target: &AbsPath) -> String {
    let (from, to) = (really(directory), really(target));
    let (mut from, mut to) = (from.as_path().components().peekable(), to.as_path().components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let path: PathBuf = from.map(|_| Component::ParentDir).chain(to).collect();
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

/// The file of this ending beside a scenario.
fn beside(scenario: &AbsPath, ending: &str) -> AbsPath {
    let name = scenario.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(&name);
    scenario.parent().unwrap_or_else(|| scenario.clone()).child(&format!("{stem}{ending}"))
}
