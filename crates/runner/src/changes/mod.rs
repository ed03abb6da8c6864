//! Examines, applies and discards the changes that runs keep beside a project; never while a run uses them.

pub(crate) mod layers;

use crate::changes::layers::{About, Layer, LayerEntry, LayerError, kept_in};
use crate::launch::workspace::{WorkspaceError, overlays_of};
use crate::plan::planned::Planned;
use crate::store::instances::{HeldInstance, InstanceError};
use belljar_contract::{AbsPath, AgentName, Finding, RunName, WorkspaceMode, visible_name};
use belljar_sandbox::{Kept, LayersError, Side, SideContent};
use belljar_sys::signal::{SignalError, SignalSet, Signals, not_ignored};
use rustix::process::Signal;
use std::path::Path;
use std::time::SystemTime;

pub use belljar_sandbox::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, BothChanged, BranchRequest, BranchUse, Branched, Carried,
    Change, ChangeKind, ChangeSelection, Class, Discarded, EntryKind, KeptChanges, KeptRepository, NewBranch,
    NewCommit, OnConflict, Presence, Recovered, RefChange, RefValue, RefusedBecause, RefusedChange,
    RepositoryChanges, Unmerged, Unseen, bad_branch, short_ref,
};

/// The longest part of a file that is compared.
const SHOWN: u64 = 1 << 20;

/// The contents of a file before and after.
pub type Sides = (Vec<u8>, Vec<u8>);

/// Why kept changes cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    /// The agent works on the project directly.
    #[error("the agent `{agent}` works on the project directly and keeps no changes")]
    NotKept { agent: AgentName },
    /// There are several sets, and none was named.
    #[error("the agent `{agent}` keeps several sets of changes: {}", names(.found))]
    Several { agent: AgentName, found: Vec<RunName> },
    #[error("the agent `{agent}` keeps no changes called `{name}`")]
    Unknown { agent: AgentName, name: String, found: Vec<RunName> },
    /// The project's state cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The configuration that names protected files cannot be read.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("cannot install signal handling")]
    Signals(#[from] SignalError),
    /// The layers cannot be read or written.
    #[error(transparent)]
    Layers(#[from] LayersError),
}

fn names(found: &[RunName]) -> String {
    found.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A summary of the changes that a run kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSummary {
    pub name: RunName,
    /// The name that the agent is given on the command line.
    pub called: Option<AgentName>,
    /// Whether the agent keeps other sets, so that a command has to name this one.
    pub ambiguous: bool,
    pub directory: AbsPath,
    /// Files that were added, changed or deleted, without those of git; an unreadable part counts as one.
    pub files: usize,
    /// How many of them, and of the refs, need explicit consent.
    pub guarded: usize,
    /// New commits, by the name of their branch.
    pub commits: Vec<(String, usize)>,
    /// Other refs that were moved, created or deleted.
    pub refs: usize,
}

/// Examines the changes that a run kept, and the files in its commits. If there are none, the directory is removed.
pub(crate) fn look_at(
    planned: &Planned,
    layer: Layer,
) -> Result<(Option<KeptSummary>, Vec<Finding>), ChangesError> {
    let kept = KeptLayer::of(planned, layer)?;
    let found = kept.changes()?;
    let KeptLayer { layer, .. } = kept;
    if found.is_empty() {
        layer.remove_if_empty()?;
        return Ok((None, Vec::new()));
    }
    let is_file = |change: &&Change| change.entry != EntryKind::Directory;
    let guarded = found.files.iter().filter(|change| !matches!(change.class, Class::Ordinary)).count()
        + found.repositories.iter().map(guarded_in).sum::<usize>();
    let (mut commits, mut refs) = (Vec::new(), 0);
    for KeptRepository { path, changes, .. } in &found.repositories {
        for change in &changes.refs {
            match change.count {
                0 => refs += 1,
                count => commits.push((branch_of(path, change), count)),
            }
        }
    }
    let source = layer.about().source.clone();
    let summary = KeptSummary {
        name: layer.name().clone(),
        called: planned.called.clone(),
        ambiguous: false,
        directory: layer.directory().clone(),
        files: found.files.iter().filter(is_file).count() + found.unseen.len(),
        guarded,
        commits,
        refs,
    };
    drop(layer);
    let ambiguous = of_agent(planned)?.len() > 1;
    let findings = found.repositories.iter().flat_map(|repository| {
        let label =
            if repository.label.as_os_str().is_empty() { Path::new(".git") } else { &repository.label };
        crate::store::findings::of_commits(&source, label, &repository.changes)
    });
    Ok((Some(KeptSummary { ambiguous, ..summary }), findings.collect()))
}

/// How many changes to a repository need explicit consent, without its files.
fn guarded_in(KeptRepository { changes, presence, .. }: &KeptRepository) -> usize {
    let refs = changes.refs.iter().filter(|change| change.needs_consent()).count();
    refs + usize::from(changes.unread_refs.is_some()) + usize::from(*presence == Presence::Gone)
}

/// A branch, with the path of its repository where that is not the project's own.
fn branch_of(path: &Path, change: &RefChange) -> String {
    let branch = visible_name(short_ref(&change.name));
    if path.as_os_str().is_empty() { branch } else { format!("{branch} in {}", visible_name(path)) }
}

/// The changes that the plan's agent keeps of this project.
fn of_agent(planned: &Planned) -> Result<Vec<LayerEntry>, ChangesError> {
    let plan = &planned.compiled.plan;
    let mut found = kept_in(&plan.instance.directory)?;
    found.retain(|entry| {
        let About { agent, mode: _, source, repository: _ } = &entry.about;
        *agent == plan.agent && *source == plan.workspace.source && !entry.is_empty()
    });
    Ok(found)
}

/// The set of this name that a run uses, even if it is still empty.
fn named_in_use(planned: &Planned, name: Option<&str>) -> Result<Option<LayerEntry>, ChangesError> {
    let Some(name) = name else { return Ok(None) };
    let plan = &planned.compiled.plan;
    let found = kept_in(&plan.instance.directory)?;
    Ok(found.into_iter().find(|entry| {
        let About { agent, mode: _, source, repository: _ } = &entry.about;
        let same = *agent == plan.agent && *source == plan.workspace.source;
        same && entry.name.as_str() == name && entry.in_use.is_some()
    }))
}

/// A set of kept changes, locked for as long as this value lives.
pub struct KeptLayer {
    kept: Kept,
    recovered: Recovered,
    layer: Layer,
    source: AbsPath,
}

impl KeptLayer {
    /// Opens the changes that the plan's agent keeps: the only set, or the named one. `None` if there is none.
    ///
    /// # Errors
    /// If the agent works on the project directly, the set is ambiguous, or a run uses it.
    pub fn open(planned: &Planned, name: Option<&str>) -> Result<Option<Self>, ChangesError> {
        let plan = &planned.compiled.plan;
        let agent = || plan.agent.clone();
        let _instance = HeldInstance::prepare(plan, SystemTime::now())?;
        let wanted = About {
            agent: agent(),
            mode: plan.workspace.mode,
            source: plan.workspace.source.clone(),
            repository: planned.repository.clone(),
        };
        layers::adopt(&wanted, &plan.instance.directory)?;
        let mut found = of_agent(planned)?;
        if let Some(busy) = named_in_use(planned, name)? {
            found = vec![busy];
        }
        let all = |found: &[LayerEntry]| found.iter().map(|entry| entry.name.clone()).collect();
        if let Some(name) = name {
            let Some(at) = found.iter().position(|entry| entry.name.as_str() == name) else {
                return Err(ChangesError::Unknown {
                    agent: agent(),
                    name: name.to_owned(),
                    found: all(&found),
                });
            };
            found = vec![found.swap_remove(at)];
        }
        let entry = match found.as_slice() {
            [] if plan.workspace.mode == WorkspaceMode::Direct => {
                return Err(ChangesError::NotKept { agent: agent() });
            }
            [] => return Ok(None),
            [entry] => entry,
            several => return Err(ChangesError::Several { agent: agent(), found: all(several) }),
        };
        Self::of(planned, Layer::take(entry)?).map(Some)
    }

    fn of(planned: &Planned, layer: Layer) -> Result<Self, ChangesError> {
        let kept = Kept::new(overlays_of(planned, &layer)?);
        let recovered = kept.settle()?;
        let source = planned.compiled.plan.workspace.source.clone();
        Ok(Self { kept, recovered, layer, source })
    }

    #[must_use]
    pub fn source(&self) -> &AbsPath {
        &self.source
    }

    /// The name of this set.
    #[must_use]
    pub fn name(&self) -> &RunName {
        self.layer.name()
    }

    /// What an interrupted apply had left in the project: removed, or kept because it contains someone's change.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The changes: files, commits and refs, and parts that could not be read.
    ///
    /// # Errors
    /// If a layer cannot be opened.
    pub fn changes(&self) -> Result<KeptChanges, ChangesError> {
        Ok(self.kept.changes()?)
    }

    /// The contents of a file before and after, up to 1 MiB, if both are regular files or missing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn sides(&self, path: &Path) -> Result<Option<Sides>, ChangesError> {
        let read = |side| -> Result<Option<Vec<u8>>, ChangesError> {
            Ok(match self.kept.project().side(path, side, SHOWN)? {
                SideContent::Absent => Some(Vec::new()),
                SideContent::File { bytes, .. } => Some(bytes),
                SideContent::Symlink(_) | SideContent::Directory | SideContent::Special => None,
            })
        };
        // A file of a repository outside the project is listed without its text.
        if path.is_absolute() {
            return Ok(None);
        }
        Ok(read(Side::Before)?.zip(read(Side::After)?))
    }

    /// Writes changes to the project. Signals that would end this process are handled between two changes: no change is
    /// left half written, and the number of the signal is returned with the outcome.
    ///
    /// # Errors
    /// If a layer cannot be opened; changes that cannot be written are in the outcome.
    pub fn apply(&self, request: &ApplyRequest<'_>) -> Result<(Applied, Option<i32>), ChangesError> {
        let signals = Signals::take(&not_ignored(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]))?;
        let mut came = None;
        let applied = self.kept.apply(request, &mut || {
            came = came.or_else(|| signals.next().ok().flatten());
            came.is_some()
        });
        // A signal that arrived after the last check ends this process here, with all work done.
        SignalSet::none().block_exactly()?;
        Ok((applied?, came))
    }

    /// Makes a branch of the agent's commits, beside those of the user.
    ///
    /// # Errors
    /// When a layer cannot be opened or written.
    pub fn make_branch(&self, request: &BranchRequest<'_>) -> Result<Branched, ChangesError> {
        Ok(self.kept.make_branch(request)?)
    }

    /// Drops changes.
    ///
    /// # Errors
    /// If a layer cannot be opened.
    pub fn discard(&self, selection: &ChangeSelection) -> Result<Discarded, ChangesError> {
        Ok(self.kept.discard(selection)?)
    }

    /// Unlocks the changes. If none is left, the directory is removed.
    ///
    /// # Errors
    /// If something of it remains.
    pub fn close(self) -> Result<(), ChangesError> {
        Ok(self.layer.remove_if_empty()?)
    }
}

/// Ends this process with the signal that was handled before.
pub fn end_by(signal: i32) {
    let own = rustix::process::getpid();
    // Each of the signals that `apply` handles ends a process by default.
    belljar_sys::process::signal(belljar_sys::process::Target::Process(own), signal).ok();
}
