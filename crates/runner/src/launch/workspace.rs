//! How the project is protected during a run: guarded if it is changed in place, otherwise behind an overlay or in a
//! copy.

use crate::changes::layers::{Layer, LayerError};
use crate::git::{ConfigFile, user_configurations};
use crate::plan::planned::Planned;
use crate::store::findings::{few, finding_of, hidden, of_commits, of_redirection};
use belljar_contract::{
    AbsPath, Access, Finding, GuestAlias, GuestGuard, GuestGuardRoot, GuestOnHeld, Harness, MountSource,
    OsText, Plan, Purpose, WorkspaceMode, path_words,
};
use belljar_sandbox::{
    Alias, LARGEST_CONFIG, LayersError, Overlay, RepositoryWatch, Scan, ScanError, Shows, UnseenBecause,
    created_since, guard_lacks, named_by_git, named_by_words, redirected, scan_named,
};
use belljar_session::Harnesses;
use belljar_sys::regular::read_regular;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most work trees whose own configuration is read.
const MOST_WORK_TREES: usize = 1000;

/// Why the workspace could not be prepared as planned.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The project could not be scanned.
    #[error("cannot scan the project for files that this machine would execute")]
    Scan(#[from] ScanError),
    /// The programs that a git configuration names cannot all be found, so they cannot be protected.
    #[error(
        "the git configuration `{path}` is larger than {} MiB, so not all programs that it names can be protected: shorten it",
        LARGEST_CONFIG >> 20
    )]
    LargeConfig { path: AbsPath },
    /// The guard would be incomplete.
    #[error("cannot guard `{}`: its path contains a NUL byte", path.display())]
    Guard {
        /// What is to be guarded.
        path: PathBuf,
    },
    /// The layers for the changes cannot be created or locked.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The state of the repository at the start cannot be recorded.
    #[error("cannot record the state of the repository")]
    Note(#[source] LayersError),
    /// The project could not be copied.
    #[error("cannot copy the project")]
    Copy(#[source] LayersError),
}

/// The state of the project, and of a repository outside it, at the start of a run, for the comparison at its end.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    roots: Vec<(AbsPath, Scan)>,
    repository: Option<RepositoryWatch>,
    /// The git configurations that a run may change, with their contents at the start.
    configurations: Vec<(AbsPath, Vec<u8>)>,
}

impl Watch {
    /// Scans for files that this machine would execute later. Only a project that is changed in place needs it.
    pub fn begin(planned: &Planned) -> Result<Self, WorkspaceError> {
        let (plan, repository) = (&planned.compiled.plan, planned.repository.as_ref());
        let mut roots = Vec::new();
        // In the other modes the run can write to neither.
        if plan.workspace.mode != WorkspaceMode::Direct {
            return Ok(Self::default());
        }
        for root in std::iter::once(&plan.workspace.source).chain(repository) {
            let mut named = named_in(planned, root)?;
            let mut scan = scan_named(root.as_path(), &named)?;
            let nested = named_in_nested(planned, root, &scan);
            if !nested.is_empty() {
                named.extend(nested);
                scan = scan_named(root.as_path(), &named)?;
            }
            if let Some(large) = scan.unseen.iter().find(|unseen| unseen.why == UnseenBecause::TooLarge) {
                let path = root.join(&large.path).unwrap_or_else(|_| root.clone());
                return Err(WorkspaceError::LargeConfig { path });
            }
            roots.push((root.clone(), scan));
        }
        let elsewhere = repository.map(AbsPath::as_path);
        let repository = RepositoryWatch::begin(plan.workspace.source.as_path(), elsewhere);
        let configurations = roots.iter().flat_map(|(root, scan)| changeable(root, scan)).collect();
        Ok(Self { roots, repository, configurations })
    }

    /// The paths that are mounted over themselves, in order: first directories that must stay in place, because
    /// renaming one would move a guarded file out of the guard, then files that must not change.
    ///
    /// Files that the guard inside judges by their content are left to it: a read-only mount would also prevent `git
    /// remote add`. Files that the user allowed, and directories that hold one, are left out as well.
    pub fn guarded(&self, guard: Option<&GuestGuard>, allowed: &[AbsPath]) -> Vec<(AbsPath, Access)> {
        let mut out = Vec::new();
        for (root, scan) in &self.roots {
            let below = |path: &Path| root.join(path).ok();
            // Only hidden directories, and those of files that are used outside by name, are pinned: pinning every
            // parent directory would forbid ordinary renames.
            let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
            let pinned = scan.anchors().into_iter().filter(|path| hidden(path) || scan.holds_named(path));
            out.extend(pinned.filter_map(|path| Some((below(&path)?, Access::ReadWrite))));
            let mounted = scan.protected.iter();
            let mounted = mounted.filter(|protected| guard.is_none() || !protected.decided_by_content);
            let guarded = mounted.filter_map(|protected| below(&protected.path));
            let allowed = |path: &AbsPath| guard.is_some() && allowed.iter().any(|one| one.is_within(path));
            let guarded = guarded.filter(|path| !allowed(path));
            out.extend(guarded.map(|path| (path, Access::ReadOnly)));
        }
        out
    }

    /// The rules for the guard inside, if this kernel supports one. A test works on a copy, whose files are not
    /// executed later.
    ///
    /// # Errors
    /// If a path cannot be passed to the guard.
    pub fn guard(&self, plan: &Plan, allowed: &[AbsPath]) -> Result<Option<GuestGuard>, WorkspaceError> {
        if self.roots.is_empty() || plan.purpose == Purpose::Test || guard_lacks().is_some() {
            return Ok(None);
        }
        let mut roots = Vec::new();
        for (root, scan) in &self.roots {
            let alias = |Alias { place, leads_to }: &Alias| {
                Ok(GuestAlias { place: text(place)?, leads_to: text(leads_to)? })
            };
            roots.push(GuestGuardRoot {
                path: text(inside(plan, root)?.as_path())?,
                is_git: *root != plan.workspace.source,
                aliases: scan.aliases().iter().map(alias).collect::<Result<_, WorkspaceError>>()?,
                named: scan.named().iter().map(|named| text(named)).collect::<Result<_, _>>()?,
            });
        }
        // Other mounts may show parts of the same trees: a file created there appears here, too.
        for mount in &plan.mounts {
            let MountSource::Host(source) = &mount.source else { continue };
            let known = |root: &GuestGuardRoot| root.path.as_bytes() == mount.target.as_bytes();
            if mount.access == Access::ReadWrite && !roots.iter().any(known) {
                roots.extend(self.root_at(plan, source, &mount.target)?);
            }
        }
        let allowed = allowed.iter().map(|path| text(inside(plan, path)?.as_path()));
        let allowed = allowed.collect::<Result<_, _>>()?;
        // Lowering changes `on_held` where there is a terminal to ask at.
        Ok(Some(GuestGuard { roots, apart: Vec::new(), allowed, on_held: GuestOnHeld::Refuse }))
    }

    /// The guarded root for a mount of `source` at `target`, if the mount shows a part of a guarded tree.
    fn root_at(
        &self,
        plan: &Plan,
        source: &AbsPath,
        target: &AbsPath,
    ) -> Result<Option<GuestGuardRoot>, WorkspaceError> {
        let (mut shares, mut is_git, mut named) = (false, false, Vec::new());
        for (root, scan) in &self.roots {
            // A repository outside the project is named `.git`, as git does.
            let git = Path::new(if *root == plan.workspace.source { "" } else { ".git" });
            let shows = match (source.relative_to(root), root.relative_to(source)) {
                (Some(path), _) => {
                    let called: PathBuf = git.iter().chain(path).collect();
                    is_git |= called.file_name() == Some(OsStr::new(".git"));
                    Shows::Part { path: called }
                }
                (None, Some(at)) => Shows::More { at: at.to_owned() },
                (None, None) => continue,
            };
            shares = true;
            named.extend(scan.named_from(&shows));
        }
        let named = named.iter().map(|named| text(named)).collect::<Result<_, _>>()?;
        let root =
            || Ok(GuestGuardRoot { path: text(target.as_path())?, is_git, aliases: Vec::new(), named });
        shares.then(root).transpose()
    }

    /// The files that appeared or changed during the run and that this machine would execute, or that lead out of the
    /// project; and messages about paths that could not be examined.
    pub fn end(&self) -> (Vec<Finding>, Vec<String>) {
        let (mut dropped_files, mut unseen) = (Vec::new(), Vec::new());
        for (root, before) in &self.roots {
            // A project that was deleted during the run has no file that could be executed.
            if !root.as_path().exists() {
                continue;
            }
            match created_since(before, root.as_path()) {
                Ok(found) => {
                    dropped_files
                        .extend(found.created.into_iter().filter_map(|created| finding_of(root, created)));
                    for place in &found.unseen {
                        let Ok(path) = root.join(&place.path) else { continue };
                        match before.unseen.contains(place) {
                            true => unseen.push(format!("`{path}` could not be examined")),
                            false => dropped_files.push(hidden(path)),
                        }
                    }
                }
                Err(error) => unseen.push(format!("`{root}` could not be examined: {error}")),
            }
        }
        for (path, before) in &self.configurations {
            // A missing configuration redirects nothing, and the scan reports that it is missing.
            let Ok(after) = read_regular(path.as_path(), LARGEST_CONFIG) else { continue };
            let changes = redirected(before, &after).into_iter();
            dropped_files.extend(changes.map(|change| of_redirection(path.clone(), change)));
        }
        if let (Some(repository), Some((root, scan))) = (&self.repository, self.roots.first())
            && root.as_path().exists()
        {
            match repository.end(scan) {
                Ok(changes) => {
                    dropped_files.extend(of_commits(root, Path::new(".git"), &changes));
                    unseen.extend(changes.unread_index);
                }
                Err(error) => unseen.push(format!("the repository could not be examined: {error}")),
            }
        }
        (dropped_files, few(unseen))
    }
}

/// Encodes a path for the guard.
fn text(path: &Path) -> Result<OsText, WorkspaceError> {
    let encoded = OsText::new(path.as_os_str().as_bytes());
    encoded.map_err(|_nul| WorkspaceError::Guard { path: path.to_owned() })
}

/// The path inside the sandbox of a path of the project or of its repository.
fn inside(plan: &Plan, path: &AbsPath) -> Result<AbsPath, WorkspaceError> {
    match path.relative_to(&plan.workspace.source) {
        Some(below) => {
            let there = plan.workspace.target.join(below);
            there.map_err(|_odd| WorkspaceError::Guard { path: path.as_path().to_owned() })
        }
        None => Ok(path.clone()),
    }
}

/// The path on the host for a path inside the sandbox.
pub(crate) fn outside(plan: &Plan, path: &AbsPath) -> AbsPath {
    let below = path.relative_to(&plan.workspace.target);
    below.and_then(|below| plan.workspace.source.join(below).ok()).unwrap_or_else(|| path.clone())
}

/// The layers of kept changes, each with the files of it that are used outside by name.
///
/// # Errors
/// If a configuration of the project's repository is too large to be read.
pub(crate) fn overlays_of(planned: &Planned, layer: &Layer) -> Result<Vec<Overlay>, WorkspaceError> {
    let about = layer.about();
    let roots = std::iter::once(&about.source).chain(&about.repository);
    let pairs = layer.overlays().into_iter().zip(roots);
    pairs.map(|(overlay, root)| Ok(overlay.with_named(named_in(planned, root)?))).collect()
}

/// The git configurations of a tree that the guard judges by their content, including one that may be created, each
/// with its content.
fn changeable(root: &AbsPath, scan: &Scan) -> Vec<(AbsPath, Vec<u8>)> {
    let decided = scan.protected.iter().filter(|protected| protected.decided_by_content);
    let git = decided.filter_map(|protected| root.join(protected.path.parent()?).ok());
    let git: BTreeSet<AbsPath> = git.collect();
    let files = git.iter().flat_map(|git| ["config", "config.worktree"].map(|name| git.child(name)));
    // A missing configuration counts as empty.
    files
        .map(|path| (path.clone(), read_regular(path.as_path(), LARGEST_CONFIG).unwrap_or_default()))
        .collect()
}

/// The arguments of all command lines in a JSON text, which are the values of these keys. Text that is not JSON has
/// none: the agent cannot parse it either.
fn command_arguments(text: &[u8], keys: &[String]) -> Vec<Vec<u8>> {
    let (mut open, mut out) = (Vec::new(), Vec::new());
    open.extend(serde_json::from_slice::<serde_json::Value>(text).ok());
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Array(values) => open.extend(values),
            serde_json::Value::Object(entries) => {
                for (key, value) in entries {
                    match value.as_str() {
                        Some(line) if keys.contains(&key) => {
                            out.extend(path_words(line.as_bytes()));
                        }
                        Some(_) | None => open.push(value),
                    }
                }
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    out
}

/// The files below a directory that this plan or another agent's uses outside, that an agent's settings name as
/// programs, or that a git configuration makes git run or obey: the user's, or that of a project's repository
/// elsewhere.
fn named_in(planned: &Planned, root: &AbsPath) -> Result<Vec<PathBuf>, WorkspaceError> {
    let (plan, repository) = (&planned.compiled.plan, planned.repository.as_ref());
    let used = plan.used_outside.iter().map(|used| &used.path).chain(&planned.used_by_others);
    // A link cannot be a mount point. The plan records its target: if that changes, the next start asks.
    let used = used.filter(|path| !path.as_path().is_symlink());
    let mut named: Vec<PathBuf> = used.filter_map(|path| path.relative_to(root)).map(PathBuf::from).collect();
    for config in repository.into_iter().filter(|_| *root == plan.workspace.source).flat_map(configurations) {
        let text = match read_regular(&config, LARGEST_CONFIG) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let path = AbsPath::new(&config).unwrap_or_else(|_| root.clone());
                return Err(WorkspaceError::LargeConfig { path });
            }
            // git cannot read such a file either, so it has no effect.
            read => read.unwrap_or_default(),
        };
        named.extend(named_by_git(&text, root.as_path()).unwrap_or_default());
    }
    if *root == plan.workspace.source {
        for ConfigFile { path, text } in user_configurations(&planned.git_files) {
            named.extend(named_by_git(&text, root.as_path()).unwrap_or_default());
            named.extend(below(root, &path));
        }
        // Of every known agent: the user may start another one in the same project.
        for profile in Harnesses::built_in().list().into_iter().map(Harness::profile) {
            for settings in &profile.project_settings {
                let text = read_regular(root.child(settings).as_path(), LARGEST_CONFIG).unwrap_or_default();
                let words = command_arguments(&text, &profile.settings_commands);
                named.extend(named_by_words(&words, root.as_path()).unwrap_or_default());
            }
        }
    }
    named.sort();
    named.dedup();
    Ok(named)
}

/// The files that the user's git configuration names in the repositories below the project.
fn named_in_nested(planned: &Planned, root: &AbsPath, scan: &Scan) -> Vec<PathBuf> {
    if *root != planned.compiled.plan.workspace.source {
        return Vec::new();
    }
    let git =
        scan.protected.iter().filter_map(|one| one.path.ancestors().find(|path| path.ends_with(".git")));
    let tops: BTreeSet<&Path> = git.filter_map(Path::parent).collect();
    let tops = tops.into_iter().filter(|top| !top.as_os_str().is_empty()).take(MOST_WORK_TREES);
    let files = user_configurations(&planned.git_files);
    let named = |top: &Path, file: &ConfigFile| {
        let named = named_by_git(&file.text, &root.as_path().join(top)).unwrap_or_default();
        named.into_iter().map(|path| top.join(path)).collect::<Vec<_>>()
    };
    tops.flat_map(|top| files.iter().flat_map(move |file| named(top, file))).collect()
}

/// A path, which need not exist, relative to a directory, if it leads there after links are resolved.
fn below(root: &AbsPath, path: &Path) -> Option<PathBuf> {
    let there = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    let real = path.canonicalize().ok().or_else(there)?;
    let root = root.as_path().canonicalize().ok()?;
    Some(real.strip_prefix(root).ok()?.to_owned())
}

/// The configurations of a repository: the shared one, and those of its work trees.
fn configurations(repository: &AbsPath) -> Vec<PathBuf> {
    let trees = fs::read_dir(repository.child("worktrees")).into_iter().flatten().flatten();
    let own = trees.take(MOST_WORK_TREES).map(|tree| tree.path().join("config.worktree"));
    let shared = ["config", "config.worktree"].map(|name| repository.child(name).as_path().to_owned());
    shared.into_iter().chain(own).collect()
}

/// Makes a fresh copy of the project, and of a repository outside it.
pub(crate) fn copy(overlays: &[Overlay]) -> Result<(), WorkspaceError> {
    for overlay in overlays {
        overlay.begin_copy().map_err(WorkspaceError::Copy)?;
    }
    Ok(())
}
