//! The user's side of a run: directories and variables, as the caller found them.

use crate::git::UserFiles;
use crate::launch::guest_program::GuestProgram;
use crate::plan::project;
use belljar_contract::AbsPath;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Directories and variables of the user who calls belljar. The caller gathers them; this crate never asks the process.
#[derive(Debug, Clone)]
pub struct HostEnvironment {
    /// The working directory, canonical.
    pub directory: AbsPath,
    /// The home, canonical.
    pub home: AbsPath,
    /// belljar's configuration.
    pub config: AbsPath,
    /// belljar's data: instances.
    pub data: AbsPath,
    /// The program that finishes a sandbox from inside.
    pub guest: GuestProgram,
    /// belljar's state: runs.
    pub state: AbsPath,
    /// What belljar has only while something runs: names, sockets.
    pub runtime: AbsPath,
    /// The environment.
    pub variables: BTreeMap<OsString, OsString>,
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
        self.variables.contains_key(std::ffi::OsStr::new(name))
    }

    /// A program on the search path that may run outside, symbolic links followed. Relative entries of the path do not
    /// count, nor do programs of the project, such as those in its `node_modules/.bin`.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<AbsPath> {
        let path = self.variables.get(std::ffi::OsStr::new("PATH"))?;
        programs_on(path, name).find(|program| !self.is_of_the_project(program))
    }

    /// The same for a program that runs inside: one of the project will do.
    #[must_use]
    pub fn program_inside(&self, name: &str) -> Option<AbsPath> {
        programs_on(self.variables.get(std::ffi::OsStr::new("PATH"))?, name).next()
    }

    /// The search path for programs that are started outside and look for others: directories that exist, by their real
    /// names, and none of the project.
    #[must_use]
    pub fn outside_path(&self) -> OsString {
        let path = self.variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let entries = std::env::split_paths(&path).filter(|entry| entry.is_absolute());
        let real = entries.filter_map(|entry| AbsPath::new(entry.canonicalize().ok()?).ok());
        let outside = real.filter(|entry| !self.is_of_the_project(entry));
        std::env::join_paths(outside.map(|entry| entry.as_path().to_owned())).unwrap_or_default()
    }

    /// Whether a program belongs to the project, so that an agent may have written it: it must not run outside. In
    /// doubt it does. Programs of the system are not the project's, even where the project is `/`.
    #[must_use]
    pub fn is_of_the_project(&self, program: &AbsPath) -> bool {
        let system = Path::new("/usr");
        project::find(&self.directory).map_or(true, |project| {
            let of_the_system =
                program.as_path().starts_with(system) && !project.root.as_path().starts_with(system);
            program.is_within(&project.root) && !of_the_system
        })
    }

    /// The program that a command's first word names, links not followed: that path where it has a
    /// slash, else on the search path, whose relative entries do not count.
    pub(crate) fn program_of(&self, name: &str) -> std::io::Result<AbsPath> {
        if name.contains('/') {
            return self.directory.join(name).map_err(std::io::Error::other);
        }
        let path = self.variables.get(OsStr::new("PATH"));
        let found =
            path.and_then(|path| all_on_path(path, name).next()).and_then(|found| AbsPath::new(found).ok());
        found.ok_or_else(|| std::io::Error::other(format!("`{name}` is not on your PATH")))
    }

    /// A path the way the user would write it.
    #[must_use]
    pub fn shown(&self, path: &AbsPath) -> String {
        if let Some(below) = path.relative_to(&self.directory) {
            return AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| p.to_string()[1..].to_owned());
        }
        self.shown_from_home(path)
    }

    /// A path with `~` for the home; never relative, for lists of places all over the disk.
    #[must_use]
    pub fn shown_from_home(&self, path: &AbsPath) -> String {
        match path.relative_to(&self.home) {
            Some(below) => AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| format!("~{p}")),
            None => path.to_string(),
        }
    }
}

/// A program on a search path, see [`HostEnvironment::program`].
fn programs_on(path: &OsStr, name: &str) -> impl Iterator<Item = AbsPath> {
    all_on_path(path, name).filter_map(|found| AbsPath::new(found.canonicalize().ok()?).ok())
}

/// A program of the system on a search path, for those who do not know the project yet.
pub(crate) fn system_program(path: &OsStr, name: &str) -> Option<AbsPath> {
    programs_on(path, name).next().filter(|program| program.as_path().starts_with("/usr"))
}

fn all_on_path(path: &OsStr, name: &str) -> impl Iterator<Item = std::path::PathBuf> {
    belljar_sys::spawn::all_on_path(name.as_bytes(), path.as_bytes())
        .map(|file| std::path::PathBuf::from(OsString::from_vec(file)))
}
