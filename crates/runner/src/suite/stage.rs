//! The stage of a trial: a workspace with copies of the files that the agent works on, and of the skills and plugins
//! that are tested, made anew for each run. The originals are never mounted: the agent can change copies only.

use super::originals::{Original, Permitted};
use super::stage_copy::{base_name, copy_directory, copy_one, free_name, is_directory};
use crate::git::{Shared, SharedError, Untracked, UserFiles, shared_files};
use crate::store::locks::{self, Lock};
use crate::store::runtime::{RunDirectory, RuntimeDirectory, RuntimeError, make_private};
use belljar_contract::{AbsPath, LibraryName, RunId};
use belljar_plan::FolderMode;
use belljar_sandbox::CopyError;
use belljar_sys::beneath::Directory;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The directory for results.
pub const OUTPUTS: &str = "outputs";
/// The directory for files that the user provides.
pub const UPLOADS: &str = "uploads";
/// The file of a conversation in which an agent was started.
const BEGUN: &str = "begun";
/// The directory for projects that the agent can read.
pub const PROJECTS: &str = ".projects";

/// Why a stage could not be created. No part of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("cannot create the directory for the test")]
    Place(#[from] RuntimeError),
    /// A path that the files name does not exist, or is not what it should be.
    #[error("{what} `{path}` {why}")]
    Source {
        what: &'static str,
        /// The path as the files name it.
        path: AbsPath,
        why: &'static str,
    },
    /// The list of files that git would share cannot be made.
    #[error("cannot list the files of `{path}` that git would share")]
    Shared {
        path: AbsPath,
        #[source]
        cause: SharedError,
    },
    #[error("cannot copy `{path}`")]
    Copy {
        path: AbsPath,
        #[source]
        cause: CopyError,
    },
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    #[error("cannot stage `{path}`")]
    Make {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// The name is that of an earlier conversation.
    #[error("a conversation named `{name}` exists already")]
    Begun { name: String },
    /// Nothing of this conversation is kept.
    #[error("no conversation is called `{name}`")]
    NotBegun { name: String },
    /// Another run uses it.
    #[error("another run continues the conversation in `{path}`")]
    Taken { path: AbsPath },
    /// The agent replaced a directory by something else.
    #[error(
        "`{path}` is not a directory any more: an earlier part of the conversation replaced it; begin a new conversation"
    )]
    Replaced { path: AbsPath },
    /// The name is not valid.
    #[error("`{name}` cannot be the name of {what}")]
    Name { what: &'static str, name: String },
}

/// The directory of stages that are removed with their run.
pub(crate) fn staging(state: &AbsPath) -> AbsPath {
    state.child("staging")
}

/// The directory of stages that are kept.
pub(crate) fn conversations(state: &AbsPath) -> AbsPath {
    state.child("conversations")
}

/// The directory of a stage.
#[derive(Debug)]
enum StageDirectory {
    /// Removed when this is dropped, however the run ends.
    Passing(RunDirectory),
    /// For a conversation that can be continued: the workspace is kept, the library is staged anew.
    Lasting { path: AbsPath, _lock: Lock },
}

/// The names in a workspace that no directory can have.
pub(super) fn own_names() -> BTreeSet<String> {
    BTreeSet::from([OUTPUTS.to_owned(), UPLOADS.to_owned()])
}

/// A workspace and a library of copies for one trial.
#[derive(Debug)]
pub struct Stage {
    place: StageDirectory,
    workspace: AbsPath,
    was_there: bool,
    taken: BTreeSet<String>,
    /// Directories below the workspace whose files the user would see.
    pub visible: Vec<String>,
    /// Directories below the workspace that the agent may not change.
    pub read_only: Vec<String>,
    /// Directories below the workspace in which the agent may not delete the files that it was given.
    pub lasting: Vec<String>,
    /// Files of skills and plugins that are not tracked by git and were not staged.
    pub left_out: Vec<String>,
}

/// The most files that a line names.
const NAMED_FILES: usize = 5;

impl Stage {
    /// A line about the files that were not staged, if there are any.
    #[must_use]
    pub fn left_out_line(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.left_out.iter().take(NAMED_FILES).map(String::as_str).collect();
        let more = match self.left_out.len().saturating_sub(NAMED_FILES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "not staged, because not tracked by git: {}{more} (`git add` them, or pass `--include-untracked`)",
            names.join(", ")
        ))
    }

    /// An empty stage in a directory of stages.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new(staging: &AbsPath, id: &RunId) -> Result<Self, StageError> {
        let directory = RuntimeDirectory::open(staging)?.make_run(id)?;
        let workspace = directory.path().child("workspace");
        Self::with(StageDirectory::Passing(directory), workspace, false)
    }

    /// The stage of a conversation that can be continued.
    ///
    /// # Errors
    /// If the directory cannot be created, or a run uses it.
    pub fn lasting(state: &AbsPath, name: &str) -> Result<Self, StageError> {
        let path = conversations(state).child(name);
        let made = |cause| StageError::Make { path: path.clone(), cause };
        make_private(&path).map_err(made)?;
        let Some(lock) = locks::try_exclusive(&path.child("lock")).map_err(made)? else {
            return Err(StageError::Taken { path });
        };
        lock.touch().map_err(made)?;
        let workspace = path.child("workspace");
        let was_there = workspace.as_path().is_dir();
        for family in ["skills", "plugins"] {
            let old = path.child(family);
            if old.as_path().symlink_metadata().is_ok() {
                belljar_record::remove_tree(old.as_path()).map_err(made)?;
            }
        }
        Self::with(StageDirectory::Lasting { path, _lock: lock }, workspace, was_there)
    }

    fn with(place: StageDirectory, workspace: AbsPath, was_there: bool) -> Result<Self, StageError> {
        let outputs = workspace.child(OUTPUTS);
        is_directory(&outputs)?;
        fs::create_dir_all(&outputs).map_err(|cause| StageError::Make { path: outputs, cause })?;
        let taken = own_names();
        let visible = vec![OUTPUTS.to_owned()];
        let (read_only, lasting, left_out) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { place, workspace, was_there, taken, visible, read_only, lasting, left_out })
    }

    /// Whether an agent was started in the conversation. A stage that was only planned on has none yet.
    #[must_use]
    pub(super) fn has_begun(&self) -> bool {
        self.path().child(BEGUN).as_path().exists()
    }

    /// Notes that an agent is started in the conversation, so that its name is not given to another one.
    pub(super) fn begin(&self) -> Result<(), StageError> {
        match &self.place {
            StageDirectory::Passing(_) => Ok(()),
            StageDirectory::Lasting { path, .. } => {
                let mark = path.child(BEGUN);
                fs::write(&mark, b"").map_err(|cause| StageError::Make { path: mark, cause })
            }
        }
    }

    /// Takes the note back: the agent was not started.
    pub(super) fn not_begun(&self) {
        // If it remains, the name is refused, and the user chooses another one.
        fs::remove_file(self.path().child(BEGUN)).ok();
    }

    /// Whether an earlier part of the conversation used it.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    pub(super) fn path(&self) -> &AbsPath {
        match &self.place {
            StageDirectory::Passing(directory) => directory.path(),
            StageDirectory::Lasting { path, .. } => path,
        }
    }

    /// Copies the workspace as it is now.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn keep_workspace(&self, to: &AbsPath) -> Result<(), StageError> {
        copy_directory(&Original::open("the workspace", (&self.workspace, &|_| true))?, to)
    }

    /// The workspace, on the host.
    #[must_use]
    pub fn workspace(&self) -> &AbsPath {
        &self.workspace
    }

    /// Adds a directory that the agent works with; `access` decides whether it may change the copy.
    ///
    /// # Errors
    /// If it is not a directory, or cannot be copied.
    pub fn add_directory(
        &mut self,
        (from, permitted): (&AbsPath, Permitted<'_>),
        access: DirectoryAccess,
    ) -> Result<String, StageError> {
        let name = free_name(&mut self.taken, &base_name("a directory", from)?);
        let to = self.workspace.child(&name);
        // The changes of an earlier part of the conversation are kept.
        if !(is_directory(&to)? && self.was_there) {
            copy_directory(&Original::open("the directory", (from, permitted))?, &to)?;
        }
        match access {
            DirectoryAccess::ReadWrite => self.lasting.push(name.clone()),
            DirectoryAccess::ReadWriteDelete => {}
            DirectoryAccess::ReadOnly => self.read_only.push(name.clone()),
        }
        self.visible.push(name.clone());
        Ok(name)
    }

    /// Adds a project that the agent can read, below its identifier.
    ///
    /// # Errors
    /// If it is not a directory, or cannot be copied.
    pub fn project(
        &mut self,
        uuid: &str,
        (from, permitted): (&AbsPath, Permitted<'_>),
    ) -> Result<(), StageError> {
        let projects = self.workspace.child(PROJECTS);
        is_directory(&projects)?;
        fs::create_dir_all(&projects).map_err(|cause| StageError::Make { path: projects.clone(), cause })?;
        let to = projects.child(uuid);
        if !(is_directory(&to)? && self.was_there) {
            copy_directory(&Original::open("the project", (from, permitted))?, &to)?;
        }
        self.read_only.push(format!("{PROJECTS}/{uuid}"));
        Ok(())
    }

    /// Adds a file or directory that the user provides.
    ///
    /// # Errors
    /// If it does not exist, or cannot be copied.
    pub fn upload(&mut self, (from, permitted): (&AbsPath, Permitted<'_>)) -> Result<(), StageError> {
        let uploads = self.workspace.child(UPLOADS);
        if !self.read_only.iter().any(|name| name == UPLOADS) {
            is_directory(&uploads)?;
            fs::create_dir_all(&uploads)
                .map_err(|cause| StageError::Make { path: uploads.clone(), cause })?;
            self.read_only.push(UPLOADS.to_owned());
        }
        let to = uploads.child(&base_name("an upload", from)?);
        let wrong = |why| StageError::Source { what: "the upload", path: from.clone(), why };
        if to.as_path().symlink_metadata().is_ok() {
            if self.was_there {
                return Ok(());
            }
            return Err(wrong("has the name of another one"));
        }
        let original = Original::open("the upload", (from, permitted))?;
        match original.metadata() {
            Err(_gone) => Err(wrong("does not exist")),
            Ok(found) if found.is_dir() => copy_directory(&original, &to),
            Ok(found) if found.is_file() => {
                let copied = fs::copy(original.place(), &to).map(|_bytes| ());
                copied.map_err(|cause| StageError::Make { path: to.clone(), cause })
            }
            Ok(_) => Err(wrong("is neither a file nor a directory")),
        }
    }

    /// Adds a skill or a plugin under its name. Of a directory in a repository, only the files that git would share are
    /// copied: a file that others do not have must not make a test pass. Returns the files that were left out as well.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn library(
        &self,
        (family, name): (&str, &LibraryName),
        (from, permitted): (&AbsPath, Permitted<'_>),
        (user, untracked): (&UserFiles, Untracked),
    ) -> Result<(AbsPath, Vec<PathBuf>), StageError> {
        let place = self.path().child(family);
        fs::create_dir_all(&place).map_err(|cause| StageError::Make { path: place.clone(), cause })?;
        let to = place.child(name.as_str());
        let made = |cause| StageError::Make { path: from.clone(), cause };
        let original = Original::open("the directory", (from, permitted))?;
        let shared = shared_files(&original.real, user, untracked);
        match shared.map_err(|cause| StageError::Shared { path: from.clone(), cause })? {
            Shared::Everything => {
                copy_directory(&original, &to)?;
                Ok((to, Vec::new()))
            }
            Shared::Files { files, left_out } => {
                let source = Directory::open(&original.place()).map_err(|cause| made(cause.into()))?;
                for file in files {
                    copy_one(&source, &file, &to).map_err(made)?;
                }
                Ok((to, left_out))
            }
        }
    }
}

/// What the agent may do in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryAccess {
    ReadOnly,
    /// It may not delete files that it was given. The copy does not prevent it; the verdict shows it.
    ReadWrite,
    ReadWriteDelete,
}

impl DirectoryAccess {
    /// The access for a session's `mode`.
    #[must_use]
    pub const fn of(mode: FolderMode) -> Self {
        match mode {
            FolderMode::Read => Self::ReadOnly,
            FolderMode::ReadWrite => Self::ReadWrite,
            FolderMode::ReadWriteDelete => Self::ReadWriteDelete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_an_agent_left_in_the_place_of_a_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let (state, given) = (top.child("state"), top.child("pre-commit"));
        fs::create_dir_all(top.child("hooks")).unwrap();
        fs::write(&given, "mine").unwrap();
        let workspace = Stage::lasting(&state, "talk").unwrap().workspace().clone();
        symlink(top.child("hooks"), workspace.child(UPLOADS)).unwrap();
        symlink(top.child("hooks"), workspace.child("directory")).unwrap();
        let mut stage = Stage::lasting(&state, "talk").unwrap();
        let refused = stage.upload((&given, &|_| true)).unwrap_err();
        assert!(matches!(refused, StageError::Replaced { .. }), "{refused}");
        fs::create_dir(top.child("directory")).unwrap();
        let refused =
            stage.add_directory((&top.child("directory"), &|_| true), DirectoryAccess::ReadOnly).unwrap_err();
        assert!(matches!(refused, StageError::Replaced { .. }), "{refused}");
        assert_eq!(
            fs::read_dir(top.child("hooks")).unwrap().count(),
            0,
            "nothing was written through a link"
        );
        drop(stage);
        fs::remove_dir(workspace.child(OUTPUTS)).unwrap();
        symlink(top.child("hooks"), workspace.child(OUTPUTS)).unwrap();
        Stage::lasting(&state, "talk").unwrap_err();
    }
}
