//! The directories and variables of the user, as the caller found them.

use crate::dotenv::PrivateValues;
use crate::git::UserFiles;
use crate::launch::guest_program::GuestProgram;
use crate::plan::project;
use belljar_contract::AbsPath;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The directories and variables of the user who calls belljar. The caller gathers them: this crate reads no
/// environment variable of its own process.
#[derive(Debug, Clone)]
pub struct HostEnvironment {
    /// The working directory, canonical.
    pub directory: AbsPath,
    /// The home, canonical.
    pub home: AbsPath,
    /// belljar's configuration.
    pub config: AbsPath,
    pub data: AbsPath,
    /// The guest program, which finishes a sandbox from inside.
    pub guest: GuestProgram,
    pub state: AbsPath,
    /// Names and sockets that exist only while something runs.
    pub runtime: AbsPath,
    pub variables: BTreeMap<OsString, OsString>,
    /// Values of `.env` files; belljar uses them for no decision of its own.
    pub private: PrivateValues,
}

impl HostEnvironment {
    /// The user's own files that git reads.
    pub(crate) fn git_files(&self) -> UserFiles {
        let config = self.variables.get(OsStr::new("XDG_CONFIG_HOME")).map(std::path::PathBuf::from);
        let config = config.filter(|path| path.is_absolute());
        let config = config.unwrap_or_else(|| self.home.child(".config").as_path().to_owned());
        UserFiles { home: self.home.clone(), config }
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(std::ffi::OsStr::new(name)) || self.file_of(name).is_some()
    }

    /// A program on the search path that may run outside the sandbox, with symbolic links resolved. Relative entries of
    /// the path are skipped, and so are programs of the project, such as those in its `node_modules/.bin`.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<AbsPath> {
        let path = self.variables.get(std::ffi::OsStr::new("PATH"))?;
        programs_on(path, name).find(|program| !self.is_of_the_project(program))
    }

    /// The first file of a name on the search path, links not resolved, for a program that runs inside the sandbox: it
    /// may be one of the project.
    pub(crate) fn found_inside(&self, name: &str) -> Option<std::path::PathBuf> {
        all_on_path(self.variables.get(std::ffi::OsStr::new("PATH"))?, name).next()
    }

    /// The search path for programs that run outside the sandbox and start others: existing directories, by their
    /// canonical paths, without those of the project.
    #[must_use]
    pub fn outside_path(&self) -> OsString {
        let path = self.variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let entries = std::env::split_paths(&path).filter(|entry| entry.is_absolute());
        let real = entries.filter_map(|entry| AbsPath::new(entry.canonicalize().ok()?).ok());
        let outside = real.filter(|entry| !self.is_of_the_project(entry));
        std::env::join_paths(outside.map(|entry| entry.as_path().to_owned())).unwrap_or_default()
    }

    /// Whether a program belongs to the project, so that an agent may have written it: such a program must not run
    /// outside the sandbox. If the project cannot be found, the answer is yes. Programs of the system are not the
    /// project's, even if the project is `/`.
    #[must_use]
    pub fn is_of_the_project(&self, program: &AbsPath) -> bool {
        let system = Path::new("/usr");
        project::find(&self.directory).map_or(true, |project| {
            // No agent has the whole home as its project, and a home that was not checked out is no stranger's.
            if project.root == self.home && !project.root.as_path().join(".git").exists() {
                return false;
            }
            let of_the_system =
                program.as_path().starts_with(system) && !project.root.as_path().starts_with(system);
            program.is_within(&project.root) && !of_the_system
        })
    }

    /// The program that the first argument of a command names, links not followed: the path itself if it has a slash,
    /// otherwise the first match on the search path, whose relative entries are skipped.
    pub(crate) fn program_of(&self, name: &str) -> std::io::Result<AbsPath> {
        if name.contains('/') {
            return self.directory.join(name).map_err(std::io::Error::other);
        }
        let path = self.variables.get(OsStr::new("PATH"));
        let found =
            path.and_then(|path| all_on_path(path, name).next()).and_then(|found| AbsPath::new(found).ok());
        found.ok_or_else(|| std::io::Error::other(format!("`{name}` is not on your PATH")))
    }

    /// A path as the user would write it: relative to the working directory, or with `~`.
    #[must_use]
    pub fn shown(&self, path: &AbsPath) -> String {
        if let Some(below) = path.relative_to(&self.directory) {
            return AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| p.to_string()[1..].to_owned());
        }
        self.shown_from_home(path)
    }

    /// A path with `~` for the home directory, never relative: for lists of paths all over the disk.
    #[must_use]
    pub fn shown_from_home(&self, path: &AbsPath) -> String {
        match path.relative_to(&self.home) {
            Some(below) => AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| format!("~{p}")),
            None => path.to_string(),
        }
    }
}

/// Programs on a search path, with links resolved; see [`HostEnvironment::program`].
fn programs_on(path: &OsStr, name: &str) -> impl Iterator<Item = AbsPath> {
    all_on_path(path, name).filter_map(|found| AbsPath::new(found.canonicalize().ok()?).ok())
}

/// A program of the system on a search path, for callers that do not know the project yet.
pub(crate) fn system_program(path: &OsStr, name: &str) -> Option<AbsPath> {
    programs_on(path, name).next().filter(|program| program.as_path().starts_with("/usr"))
}

fn all_on_path(path: &OsStr, name: &str) -> impl Iterator<Item = std::path::PathBuf> {
    belljar_sys::spawn::all_on_path(name.as_bytes(), path.as_bytes())
        .map(|file| std::path::PathBuf::from(OsString::from_vec(file)))
}
