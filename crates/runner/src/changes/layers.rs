//! Changes of runs that do not write to the project itself. They are kept beside it until they are applied or
//! discarded.
//!
//! ```text
//! instances/<key>/layers/<name>/
//!   about        the agent, the mode of the workspace, the project and the repository
//!   lock         names the run or command that uses it
//!   project/     the layers of the project, or its copy
//!   repository/  the same for a repository outside the project
//! ```
//!
//! The name is the agent's, with a number if that is taken. A run with an overlay continues the first unused one of its
//! agent and project; a run with a copy always begins a new one.

use crate::store::instances::HeldInstance;
use crate::store::locks::{Claim, Claimed, Holder, SessionLockError, holder_of};
use crate::store::runtime::make_private;
use belljar_contract::{AbsPath, AgentName, Plan, RunName, WorkspaceMode};
use belljar_sandbox::{KeptAt, Overlay};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// More than a user keeps of one agent.
const MOST: u16 = 1000;
/// The format of `about`, and its version.
const HEAD: &[u8] = b"belljar kept 1";
/// Enough for two paths and a few words.
const LARGEST: u64 = 16 << 10;

/// Why kept changes cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A file or directory cannot be created or read.
    #[error("cannot keep changes in `{path}`")]
    Keep {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// A run has them.
    #[error("the changes `{name}` are in use")]
    InUse {
        name: RunName,
        #[source]
        by: SessionLockError,
    },
    #[error("{MOST} runs of `{agent}` have changes that were neither applied nor discarded")]
    TooMany { agent: AgentName },
}

/// The description of a directory of kept changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub agent: AgentName,
    pub mode: WorkspaceMode,
    pub source: AbsPath,
    /// The project's repository, if it lies outside the project.
    pub repository: Option<AbsPath>,
}

impl About {
    fn of(plan: &Plan, repository: Option<&AbsPath>) -> Self {
        Self {
            agent: plan.agent.clone(),
            mode: plan.workspace.mode,
            source: plan.workspace.source.clone(),
            repository: repository.cloned(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { agent, mode, source, repository } = self;
        let mode: &[u8] = match mode {
            WorkspaceMode::Direct => b"direct",
            WorkspaceMode::Overlay => b"overlay",
            WorkspaceMode::Copy => b"copy",
        };
        let repository = repository.as_ref().map_or(&b""[..], |path| path.as_bytes());
        let parts = [HEAD, agent.as_str().as_bytes(), mode, source.as_bytes(), repository, b""];
        parts.join(&0)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let path = |bytes: &[u8]| AbsPath::new(OsStr::from_bytes(bytes)).ok();
        let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        let [head, agent, mode, source, repository, b""] = parts.as_slice() else { return None };
        let mode = match *mode {
            b"overlay" => WorkspaceMode::Overlay,
            b"copy" => WorkspaceMode::Copy,
            _ => return None,
        };
        let repository = if repository.is_empty() { None } else { Some(path(repository)?) };
        let agent = AgentName::new(std::str::from_utf8(agent).ok()?).ok()?;
        (*head == HEAD).then_some(Self { agent, mode, source: path(source)?, repository })
    }

    /// `None` if it is not written yet.
    fn read(directory: &AbsPath) -> Result<Option<Self>, LayerError> {
        let path = directory.child("about");
        let mut bytes = Vec::new();
        let read = match fs::File::open(&path) {
            Ok(file) => file.take(LARGEST).read_to_end(&mut bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        };
        let parsed = read.and_then(|_length| {
            Self::parse(&bytes).ok_or_else(|| io::Error::other("it is damaged, or of another version"))
        });
        parsed.map(Some).map_err(|cause| LayerError::Keep { path, cause })
    }
}

/// Kept changes in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerEntry {
    /// The name for `apply`, `diff` and `discard`.
    pub name: RunName,
    pub directory: AbsPath,
    pub about: About,
    pub in_use: Option<Holder>,
}

impl LayerEntry {
    fn at(&self) -> KeptAt {
        KeptAt { directory: self.directory.clone(), repository: self.about.repository.clone() }
    }

    /// The layers of the project, and of a repository outside it.
    #[must_use]
    pub fn overlays(&self) -> Vec<Overlay> {
        overlays(&self.about, &self.at())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.overlays().iter().all(Overlay::is_empty)
    }
}

fn overlays(about: &About, at: &KeptAt) -> Vec<Overlay> {
    let project = Overlay::new(about.source.as_path(), at.project().as_path());
    let of = |path: &AbsPath| Overlay::new(path.as_path(), at.of_repository().as_path());
    std::iter::once(project).chain(about.repository.as_ref().map(of)).collect()
}

/// All changes that are kept in an instance, by name.
///
/// # Errors
/// If one of them cannot be read.
pub fn kept_in(instance: &AbsPath) -> Result<Vec<LayerEntry>, LayerError> {
    let top = instance.child("layers");
    let failed = |cause| LayerError::Keep { path: top.clone(), cause };
    let entries = match fs::read_dir(&top) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut out = Vec::new();
    for entry in entries {
        let file = entry.map_err(failed)?.file_name();
        let Some(name) = file.to_str().and_then(|name| RunName::new(name).ok()) else { continue };
        let directory = top.child(name.as_str());
        // Without a description, it is being created or removed.
        let Some(about) = About::read(&directory)? else { continue };
        let in_use = holder_of(&directory.child("lock"));
        out.push(LayerEntry { name, directory, about, in_use });
    }
    out.sort_by(|one, other| {
        (one.name.as_str().len(), &one.name).cmp(&(other.name.as_str().len(), &other.name))
    });
    Ok(out)
}

/// Kept changes, locked for as long as this value lives.
#[derive(Debug)]
pub struct Layer {
    name: RunName,
    directory: AbsPath,
    about: About,
    claim: Claim,
}

impl Layer {
    /// The layers that a run of this plan writes to: the first ones that it can continue, or new ones.
    ///
    /// # Errors
    /// If none can be created.
    pub(crate) fn for_run(
        plan: &Plan,
        repository: Option<&AbsPath>,
        instance: &HeldInstance,
    ) -> Result<Self, LayerError> {
        let wanted = About::of(plan, repository);
        adopt(&wanted, instance.directory())?;
        let top = top_of(instance.directory())?;
        for number in 1..=MOST {
            let name = RunName::numbered(&plan.agent, number);
            if let Some(layer) = Self::try_take(&top, &name, &wanted)? {
                return Ok(layer);
            }
        }
        Err(LayerError::TooMany { agent: plan.agent.clone() })
    }

    /// `None` if the name belongs to another run or another project.
    fn try_take(top: &AbsPath, name: &RunName, wanted: &About) -> Result<Option<Self>, LayerError> {
        let directory = top.child(name.as_str());
        let failed = |cause| LayerError::Keep { path: directory.clone(), cause };
        let holder = Holder { run: name.clone(), pid: std::process::id() };
        let claim = loop {
            make_private(&directory).map_err(failed)?;
            match Claim::take(&directory.child("lock"), &holder) {
                Ok(Claimed::Ours(claim)) => break claim,
                Ok(Claimed::Taken(_)) => return Ok(None),
                // It was removed since it was created.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(failed(cause)),
            }
        };
        let layer = Self { name: name.clone(), directory: directory.clone(), about: wanted.clone(), claim };
        match About::read(&directory)? {
            Some(found) if found == *wanted && wanted.mode == WorkspaceMode::Overlay => Ok(Some(layer)),
            // A copy that was interrupted before its run began is empty.
            Some(found) if found == *wanted && layer.is_empty() => {
                layer.clear()?;
                layer.describe()?;
                Ok(Some(layer))
            }
            Some(_) => Ok(None),
            None => {
                layer.clear()?;
                layer.describe()?;
                Ok(Some(layer))
            }
        }
    }

    /// Locks changes to examine them.
    ///
    /// # Errors
    /// If a run uses them.
    pub(crate) fn take(entry: &LayerEntry) -> Result<Self, LayerError> {
        let LayerEntry { name, directory, about, in_use: _ } = entry;
        let lock = directory.child("lock");
        let holder = Holder { run: name.clone(), pid: std::process::id() };
        match Claim::take(&lock, &holder) {
            Ok(Claimed::Ours(claim)) => {
                Ok(Self { name: name.clone(), directory: directory.clone(), about: about.clone(), claim })
            }
            Ok(Claimed::Taken(holder)) => {
                let by = SessionLockError::Taken { session: name.to_string(), holder };
                Err(LayerError::InUse { name: name.clone(), by })
            }
            Err(cause) => Err(LayerError::Keep { path: lock, cause }),
        }
    }

    #[must_use]
    pub fn name(&self) -> &RunName {
        &self.name
    }

    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    pub(crate) fn at(&self) -> KeptAt {
        KeptAt { directory: self.directory.clone(), repository: self.about.repository.clone() }
    }

    pub(crate) fn overlays(&self) -> Vec<Overlay> {
        overlays(&self.about, &self.at())
    }

    fn is_empty(&self) -> bool {
        self.overlays().iter().all(Overlay::is_empty)
    }

    fn describe(&self) -> Result<(), LayerError> {
        let path = self.directory.child("about");
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(&self.about.bytes())?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|cause| LayerError::Keep { path: path.clone(), cause })
    }

    fn clear(&self) -> Result<(), LayerError> {
        for name in ["about", "project", "repository"] {
            let path = self.directory.child(name);
            let removed = match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => belljar_record::remove_tree(path.as_path()),
                Ok(_) => fs::remove_file(&path),
                Err(_absent) => Ok(()),
            };
            removed.map_err(|cause| LayerError::Keep { path, cause })?;
        }
        Ok(())
    }

    /// Removes the directory if it keeps no change.
    ///
    /// # Errors
    /// If something of it remains.
    pub(crate) fn remove_if_empty(self) -> Result<(), LayerError> {
        if !self.is_empty() {
            return Ok(());
        }
        self.clear()?;
        let Self { directory, claim, .. } = self;
        drop(claim);
        // Another run may have taken it since.
        fs::remove_dir(&directory).ok();
        Ok(())
    }
}

fn top_of(instance: &AbsPath) -> Result<AbsPath, LayerError> {
    let top = instance.child("layers");
    make_private(&top).map_err(|cause| LayerError::Keep { path: top.clone(), cause })?;
    Ok(top)
}

/// Takes over the changes of an earlier belljar, which had one overlay for each instance. They belonged to all agents,
/// so the first agent with an overlay gets them.
pub(crate) fn adopt(wanted: &About, instance: &AbsPath) -> Result<(), LayerError> {
    let old = instance.child("overlay");
    let is_empty = |path: &Path| fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none());
    if wanted.mode != WorkspaceMode::Overlay || is_empty(old.child("upper").as_path()) {
        return Ok(());
    }
    let top = top_of(instance)?;
    for number in 1..=MOST {
        let name = RunName::numbered(&wanted.agent, number);
        if let Some(layer) = Layer::try_take(&top, &name, wanted)?
            && layer.is_empty()
        {
            let project = layer.at().project();
            if fs::symlink_metadata(&project).is_ok() {
                let removed = belljar_record::remove_tree(project.as_path());
                removed.map_err(|cause| LayerError::Keep { path: project.clone(), cause })?;
            }
            return fs::rename(&old, &project).map_err(|cause| LayerError::Keep { path: project, cause });
        }
    }
    Err(LayerError::TooMany { agent: wanted.agent.clone() })
}

/// The name that the next run would take if no other began: for display.
pub(crate) fn shown(plan: &Plan, repository: Option<&AbsPath>) -> KeptAt {
    let name = RunName::numbered(&plan.agent, 1);
    let directory = plan.instance.directory.child("layers").child(name.as_str());
    KeptAt { directory, repository: repository.cloned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_changes_is_read_back() {
        let abs = |path: &[u8]| AbsPath::new(OsStr::from_bytes(path)).unwrap();
        for repository in [None, Some(abs(b"/r\xff/.git"))] {
            let agent = AgentName::new("a").unwrap();
            let about = About { agent, mode: WorkspaceMode::Copy, source: abs(b"/p\nq"), repository };
            let bytes = about.bytes();
            assert_eq!(About::parse(&bytes), Some(about));
            for end in 0..bytes.len() {
                assert_eq!(About::parse(&bytes[..end]), None, "{end}");
            }
        }
    }
}
