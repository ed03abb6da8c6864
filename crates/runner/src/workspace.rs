//! How the project is kept during a run: guarded where it is changed in place, or aside as an overlay or a copy.

use crate::findings::{few, finding_of, hidden};
use crate::instances::HeldInstance;
use crate::locks::{Holder, SessionLock, SessionLockError};
use crate::planning::Planned;
use belljar_contract::{AbsPath, Access, Finding, Plan, RunName, WorkspaceMode};
use belljar_sandbox::{
    CopyError, LARGEST_CONFIG, Overlay, Scan, ScanError, UnseenBecause, copy_directory, copy_tree,
    created_since, named_by_git, overlay_directory, scan_named,
};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Work trees whose own configuration is read.
const MOST_WORK_TREES: usize = 1000;

/// Why the project cannot be kept as the plan wants it.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The project cannot be looked at.
    #[error("cannot look for files that this machine would execute")]
    Scan(#[from] ScanError),
    /// What a git configuration makes git run cannot be found, so it cannot be protected.
    #[error(
        "the git configuration `{path}` is larger than {} MiB, so not all programs that it names can be protected: shorten it",
        LARGEST_CONFIG >> 20
    )]
    LargeConfig {
        /// The configuration.
        path: AbsPath,
    },
    /// Another run has the overlay or the copy.
    #[error("the changes that are kept aside are in use")]
    InUse(#[source] SessionLockError),
    /// The project could not be copied.
    #[error("cannot copy the project")]
    Copy(#[from] CopyError),
    /// An earlier copy could not be taken away.
    #[error("cannot remove the earlier copy `{path}`")]
    Remove {
        /// Where it is.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// What of the project, and of its repository elsewhere, must not change unnoticed.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    roots: Vec<(AbsPath, Scan)>,
}

impl Watch {
    /// Looks for files that this machine would execute later. Only a project that is changed in place needs it.
    pub fn begin(planned: &Planned) -> Result<Self, WorkspaceError> {
        let (plan, repository) = (&planned.compiled.plan, planned.repository.as_ref());
        let mut roots = Vec::new();
        let project = (plan.workspace.mode == WorkspaceMode::Direct).then_some(&plan.workspace.source);
        for root in project.into_iter().chain(repository) {
            let scan = scan_named(root.as_path(), &named_in(planned, root)?)?;
            if let Some(large) = scan.unseen.iter().find(|unseen| unseen.why == UnseenBecause::TooLarge) {
                let path = root.join(&large.path).unwrap_or_else(|_| root.clone());
                return Err(WorkspaceError::LargeConfig { path });
            }
            roots.push((root.clone(), scan));
        }
        Ok(Self { roots })
    }

    /// What is mounted over itself, in order: first directories that must stay in place, because renaming one
    /// would take a guard away with it, then what must stay as it is.
    pub fn guarded(&self) -> Vec<(AbsPath, Access)> {
        let mut out = Vec::new();
        for (root, scan) in &self.roots {
            let below = |path: &Path| root.join(path).ok();
            // Only hidden directories, and those of files that are used outside by name, are pinned: a pin on every
            // directory above would forbid ordinary renames.
            let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
            let pinned = scan.anchors().into_iter().filter(|path| hidden(path) || scan.holds_named(path));
            out.extend(pinned.filter_map(|path| Some((below(&path)?, Access::ReadWrite))));
            let guarded = scan.protected.iter().filter_map(|protected| below(&protected.path));
            out.extend(guarded.map(|path| (path, Access::ReadOnly)));
        }
        out
    }

    /// What appeared or changed since, of the kind that this machine would execute, or that leads out; and what
    /// could not be looked at, so that nothing can be said about it.
    pub fn end(&self) -> (Vec<Finding>, Vec<String>) {
        let (mut planted, mut unseen) = (Vec::new(), Vec::new());
        for (root, before) in &self.roots {
            // A project that was deleted during the run holds nothing that could be executed.
            if !root.as_path().exists() {
                continue;
            }
            match created_since(before, root.as_path()) {
                Ok(found) => {
                    planted.extend(found.created.into_iter().filter_map(|created| finding_of(root, created)));
                    for place in &found.unseen {
                        let Ok(path) = root.join(&place.path) else { continue };
                        match before.unseen.contains(place) {
                            true => unseen.push(format!("`{path}` could not be looked at")),
                            false => planted.push(hidden(path)),
                        }
                    }
                }
                Err(error) => unseen.push(format!("`{root}` could not be looked at: {error}")),
            }
        }
        (planted, few(unseen))
    }
}

/// The layers of the plan's project.
///
/// # Errors
/// When a configuration of the project's repository is too large to be read.
pub(crate) fn overlay_of(planned: &Planned) -> Result<Overlay, WorkspaceError> {
    let plan = &planned.compiled.plan;
    let source = &plan.workspace.source;
    let named = named_in(planned, source)?;
    Ok(Overlay::new(source.as_path(), overlay_directory(plan).as_path()).with_named(named))
}

/// The files below a directory that the plan or that of another agent uses outside, or that the configuration of the
/// project's repository, where it lies elsewhere, makes git run or obey.
fn named_in(planned: &Planned, root: &AbsPath) -> Result<Vec<PathBuf>, WorkspaceError> {
    let (plan, repository) = (&planned.compiled.plan, planned.repository.as_ref());
    let used = plan.used_outside.iter().map(|used| &used.path).chain(&planned.used_by_others);
    let mut named: Vec<PathBuf> = used.filter_map(|path| path.relative_to(root)).map(PathBuf::from).collect();
    for config in repository.into_iter().filter(|_| *root == plan.workspace.source).flat_map(configurations) {
        let mut text = Vec::new();
        let is_file = fs::metadata(&config).is_ok_and(|found| found.is_file());
        let opened = if is_file { File::open(&config).ok() } else { None };
        // What cannot be read here is the repository's own trouble: git cannot either.
        opened.map(|file| file.take(LARGEST_CONFIG + 1).read_to_end(&mut text));
        if text.len() as u64 > LARGEST_CONFIG {
            let path = AbsPath::new(&config).unwrap_or_else(|_| root.clone());
            return Err(WorkspaceError::LargeConfig { path });
        }
        named.extend(named_by_git(&text, root.as_path()).unwrap_or_default());
    }
    named.sort();
    named.dedup();
    Ok(named)
}

/// The configurations of a repository: the shared one, and those of its work trees.
fn configurations(repository: &AbsPath) -> Vec<PathBuf> {
    let trees = fs::read_dir(repository.child("worktrees")).into_iter().flatten().flatten();
    let own = trees.take(MOST_WORK_TREES).map(|tree| tree.path().join("config.worktree"));
    let shared = ["config", "config.worktree"].map(|name| repository.child(name).as_path().to_owned());
    shared.into_iter().chain(own).collect()
}

/// Takes the changes that are kept aside: one run, or one look at them, at a time.
///
/// # Errors
/// When someone else has them; the error says who.
pub(crate) fn take_aside(plan: &Plan, instance: &HeldInstance) -> Result<SessionLock, WorkspaceError> {
    let holder = Holder { run: RunName::numbered(&plan.agent, 1), pid: std::process::id() };
    take_changes(instance.directory(), &holder).map_err(WorkspaceError::InUse)
}

/// The same by the directory of the instance.
pub(crate) fn take_changes(instance: &AbsPath, holder: &Holder) -> Result<SessionLock, SessionLockError> {
    SessionLock::take_in(instance, "changes kept aside", holder)
}

/// Makes a fresh copy of the project.
pub(crate) fn copy(plan: &Plan) -> Result<(), WorkspaceError> {
    let path = copy_directory(plan);
    if path.as_path().symlink_metadata().is_ok() {
        let removed = belljar_record::remove_tree(path.as_path());
        removed.map_err(|cause| WorkspaceError::Remove { path: path.clone(), cause })?;
    }
    copy_tree(plan.workspace.source.as_path(), path.as_path())?;
    Ok(())
}
