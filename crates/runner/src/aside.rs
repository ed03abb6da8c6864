//! Changes that runs keep beside a project: looked at, applied, discarded; never while a run has them.

use crate::instances::{HeldInstance, InstanceError};
use crate::layers::{self, About, Layer, LayerEntry, LayerError, kept_in};
use crate::planning::Planned;
use crate::workspace::{WorkspaceError, overlays_of};
use belljar_contract::{AbsPath, AgentName, Finding, RunName, WorkspaceMode, visible_name};
use belljar_sandbox::{Kept, LayersError, Side, SideContent};
use belljar_sys::signal::{SignalError, SignalSet, Signals};
use rustix::process::Signal;
use std::path::Path;
use std::time::SystemTime;

pub use belljar_sandbox::{
    Applied, ApplyMode, ApplyRequest, BothChanged, BranchRequest, Branched, Carried, Change, ChangeKind,
    Class, Consent, Discarded, EntryKind, KeptChanges, KeptRepository, NewBranch, NewCommit, OnConflict,
    Presence, Recovered, RefChange, RefValue, Refused, RefusedBecause, RepositoryChanges, Selection,
    Unmerged, Unseen, bad_branch, short_ref,
};

/// As much of a file as a difference is shown of.
const SHOWN: u64 = 1 << 20;

/// What a file was, and what it is.
pub type Sides = (Vec<u8>, Vec<u8>);

/// Why kept changes cannot be got at.
#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    /// The agent changes the project itself.
    #[error("the agent `{agent}` keeps no changes aside")]
    NotKept {
        /// The agent.
        agent: AgentName,
    },
    /// There are several, and none was named.
    #[error("the agent `{agent}` keeps several sets of changes: {}", names(.found))]
    Several {
        /// The agent.
        agent: AgentName,
        /// What there is.
        found: Vec<RunName>,
    },
    /// There is none of that name.
    #[error("the agent `{agent}` keeps no changes called `{name}`")]
    Unknown {
        /// The agent.
        agent: AgentName,
        /// What was asked for.
        name: String,
        /// What there is.
        found: Vec<RunName>,
    },
    /// The project's state cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// They cannot be held.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// What protects files of the project cannot be read.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// Signals cannot be received.
    #[error("cannot take over signals")]
    Signals(#[from] SignalError),
    /// The layers cannot be read or written.
    #[error(transparent)]
    Layers(#[from] LayersError),
}

fn names(found: &[RunName]) -> String {
    found.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What a run has kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSummary {
    /// The name by which it is asked for.
    pub name: RunName,
    /// The name that the agent is given on the command line.
    pub called: Option<AgentName>,
    /// Whether the agent keeps others, so that a command has to name it.
    pub ambiguous: bool,
    /// Where it is.
    pub directory: AbsPath,
    /// Files that were added, changed or deleted, those of git left out; what cannot be read counts as one.
    pub files: usize,
    /// How many of them, and of the refs, need a yes of their own.
    pub guarded: usize,
    /// New commits, by the name of their branch.
    pub commits: Vec<(String, usize)>,
    /// Other refs that were moved, made or deleted.
    pub refs: usize,
}

/// Looks at what a run has kept, and at what its commits would check out. Where it is nothing, nothing is left of it.
pub(crate) fn look_at(
    planned: &Planned,
    layer: Layer,
) -> Result<(Option<KeptSummary>, Vec<Finding>), AsideError> {
    let aside = Aside::of(planned, layer)?;
    let found = aside.changes()?;
    let Aside { layer, .. } = aside;
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
        crate::findings::of_commits(&source, label, &repository.changes)
    });
    Ok((Some(KeptSummary { ambiguous, ..summary }), findings.collect()))
}

/// How many changes to a repository need a yes of their own, its files left out.
fn guarded_in(KeptRepository { changes, presence, .. }: &KeptRepository) -> usize {
    let refs = changes.refs.iter().filter(|change| change.needs_consent()).count();
    refs + usize::from(changes.unread_refs.is_some()) + usize::from(*presence == Presence::Gone)
}

/// A branch, with the path of its repository where that is not the project's own.
fn branch_of(path: &Path, change: &RefChange) -> String {
    let branch = visible_name(short_ref(&change.name));
    if path.as_os_str().is_empty() { branch } else { format!("{branch} in {}", visible_name(path)) }
}

/// What the plan's agent keeps of this project.
fn of_agent(planned: &Planned) -> Result<Vec<LayerEntry>, AsideError> {
    let plan = &planned.compiled.plan;
    let mut found = kept_in(&plan.instance.directory)?;
    found.retain(|entry| {
        let About { agent, mode: _, source, repository: _ } = &entry.about;
        *agent == plan.agent && *source == plan.workspace.source && !entry.is_empty()
    });
    Ok(found)
}

/// The set of this name that a run has, whether it holds something yet or not.
fn named_in_use(planned: &Planned, name: Option<&str>) -> Result<Option<LayerEntry>, AsideError> {
    let Some(name) = name else { return Ok(None) };
    let plan = &planned.compiled.plan;
    let found = kept_in(&plan.instance.directory)?;
    Ok(found.into_iter().find(|entry| {
        let About { agent, mode: _, source, repository: _ } = &entry.about;
        let same = *agent == plan.agent && *source == plan.workspace.source;
        same && entry.name.as_str() == name && entry.in_use.is_some()
    }))
}

/// One set of kept changes, held for as long as this lives.
pub struct Aside {
    kept: Kept,
    recovered: Recovered,
    layer: Layer,
    source: AbsPath,
}

impl Aside {
    /// Takes the changes that the plan's agent keeps: the only ones, or those of this name. `None` where there are none.
    ///
    /// # Errors
    /// When the agent keeps none by design, it is not clear which are meant, or a run has them.
    pub fn open(planned: &Planned, name: Option<&str>) -> Result<Option<Self>, AsideError> {
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
                return Err(AsideError::Unknown {
                    agent: agent(),
                    name: name.to_owned(),
                    found: all(&found),
                });
            };
            found = vec![found.swap_remove(at)];
        }
        let entry = match found.as_slice() {
            [] if plan.workspace.mode == WorkspaceMode::Direct => {
                return Err(AsideError::NotKept { agent: agent() });
            }
            [] => return Ok(None),
            [entry] => entry,
            several => return Err(AsideError::Several { agent: agent(), found: all(several) }),
        };
        Self::of(planned, Layer::take(entry)?).map(Some)
    }

    fn of(planned: &Planned, layer: Layer) -> Result<Self, AsideError> {
        let kept = Kept::new(overlays_of(planned, &layer)?);
        let recovered = kept.settle()?;
        let source = planned.compiled.plan.workspace.source.clone();
        Ok(Self { kept, recovered, layer, source })
    }

    /// The project.
    #[must_use]
    pub fn source(&self) -> &AbsPath {
        &self.source
    }

    /// The name of this set.
    #[must_use]
    pub fn name(&self) -> &RunName {
        self.layer.name()
    }

    /// What an interrupted apply had left in the project: removed, or kept because somebody's change is in it.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The changes: files, commits and refs, and parts that could not be read.
    ///
    /// # Errors
    /// When a layer cannot be opened.
    pub fn changes(&self) -> Result<KeptChanges, AsideError> {
        Ok(self.kept.changes()?)
    }

    /// What a file was and is, where both are files or nothing; its first mebibyte.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sides(&self, path: &Path) -> Result<Option<Sides>, AsideError> {
        let read = |side| -> Result<Option<Vec<u8>>, AsideError> {
            Ok(match self.kept.project().side(path, side, SHOWN)? {
                SideContent::Absent => Some(Vec::new()),
                SideContent::File { bytes, .. } => Some(bytes),
                SideContent::Symlink(_) | SideContent::Directory | SideContent::Special => None,
            })
        };
        // A file of a repository elsewhere is listed without its text.
        if path.is_absolute() {
            return Ok(None);
        }
        Ok(read(Side::Before)?.zip(read(Side::After)?))
    }

    /// Writes changes to the project. A signal that would end this process is taken between two changes: nothing is left
    /// half written, and the outcome is given with its number.
    ///
    /// # Errors
    /// When a layer cannot be opened; what cannot be written is in the outcome.
    pub fn apply(&self, request: &ApplyRequest<'_>) -> Result<(Applied, Option<i32>), AsideError> {
        let signals = Signals::take(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])?;
        let mut came = None;
        let applied = self.kept.apply(request, &mut || {
            came = came.or_else(|| signals.next().ok().flatten());
            came.is_some()
        });
        // One that came after the last look ends this process here, with nothing left to do.
        SignalSet::none().block_exactly()?;
        Ok((applied?, came))
    }

    /// Makes a branch of the agent's commits, beside those of the user.
    ///
    /// # Errors
    /// When a layer cannot be opened or written.
    pub fn make_branch(&self, request: &BranchRequest<'_>) -> Result<Branched, AsideError> {
        Ok(self.kept.make_branch(request)?)
    }

    /// Drops changes.
    ///
    /// # Errors
    /// When a layer cannot be opened.
    pub fn discard(&self, selection: &Selection) -> Result<Discarded, AsideError> {
        Ok(self.kept.discard(selection)?)
    }

    /// Lets go of them. Where nothing is kept any more, nothing is left of them.
    ///
    /// # Errors
    /// When something of it remains.
    pub fn close(self) -> Result<(), AsideError> {
        Ok(self.layer.remove_if_empty()?)
    }
}

/// Ends this process as the signal would have, had it not been taken.
pub fn end_by(signal: i32) {
    let own = rustix::process::getpid();
    // None of those that `apply` takes fails to end a process that does nothing about it.
    belljar_sys::process::signal(belljar_sys::process::Target::Process(own), signal).ok();
}
