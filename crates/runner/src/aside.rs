//! Changes that an agent's overlay keeps aside: looked at, applied, discarded; never while a run has them.

use crate::instances::{HeldInstance, InstanceError};
use crate::locks::SessionLock;
use crate::planning::Planned;
use crate::workspace::{WorkspaceError, overlay_of, take_aside};
use belljar_contract::{AgentName, WorkspaceMode};
use belljar_sandbox::{LayersError, Overlay, Recovery, Side, SideContent};
use belljar_sys::signal::{SignalError, SignalSet, Signals};
use rustix::process::Signal;
use std::path::Path;
use std::time::SystemTime;

pub use belljar_sandbox::{
    Applied, ApplyRequest, Change, ChangeKind, Class, Consent, Discarded, EntryKind, OnConflict, Recovered,
    Refused, RefusedBecause, Selection, Unseen,
};

/// As much of a file as a difference is shown of.
const SHOWN: u64 = 1 << 20;

/// What a file was, and what it is.
pub type Sides = (Vec<u8>, Vec<u8>);

/// Why kept changes cannot be got at.
#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    /// The agent changes the project itself, or a copy.
    #[error("the agent `{agent}` keeps no changes aside")]
    NotKept {
        /// The agent.
        agent: AgentName,
    },
    /// The project's state cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A run has them.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// Signals cannot be received.
    #[error("cannot take over signals")]
    Signals(#[from] SignalError),
    /// The layers cannot be read or written.
    #[error(transparent)]
    Layers(#[from] LayersError),
}

/// The kept changes of one project, held for as long as this lives.
pub struct Aside {
    overlay: Overlay,
    recovered: Recovered,
    _lock: SessionLock,
    _instance: HeldInstance,
}

impl Aside {
    /// Takes the changes that the plan's agent keeps aside.
    ///
    /// # Errors
    /// When there are none to be had, or a run has them.
    pub fn open(planned: &Planned) -> Result<Self, AsideError> {
        let plan = &planned.compiled.plan;
        if plan.workspace.mode != WorkspaceMode::Overlay {
            return Err(AsideError::NotKept { agent: plan.agent.clone() });
        }
        let instance = HeldInstance::prepare(plan, SystemTime::now())?;
        let lock = take_aside(plan, &instance)?;
        let overlay = overlay_of(planned)?;
        let recovered = overlay.recover(Recovery::Remove)?;
        Ok(Self { overlay, recovered, _lock: lock, _instance: instance })
    }

    /// What an interrupted apply had left in the project: removed, or kept because somebody's change is in it.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The changes, and parts that could not be read.
    ///
    /// # Errors
    /// When a layer cannot be opened.
    pub fn changes(&self) -> Result<(Vec<Change>, Vec<Unseen>), AsideError> {
        if !self.overlay.upper().exists() {
            return Ok((Vec::new(), Vec::new()));
        }
        let found = self.overlay.changes()?;
        Ok((found.changes, found.unseen))
    }

    /// What a file was and is, where both are files or nothing; its first mebibyte.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sides(&self, path: &Path) -> Result<Option<Sides>, AsideError> {
        let read = |side| -> Result<Option<Vec<u8>>, AsideError> {
            Ok(match self.overlay.side(path, side, SHOWN)? {
                SideContent::Absent => Some(Vec::new()),
                SideContent::File { bytes, .. } => Some(bytes),
                SideContent::Symlink(_) | SideContent::Directory | SideContent::Special => None,
            })
        };
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
        let applied = self.overlay.apply_until(request, &mut || {
            came = came.or_else(|| signals.next().ok().flatten());
            came.is_some()
        });
        // One that came after the last look ends this process here, with nothing left to do.
        SignalSet::none().block_exactly()?;
        Ok((applied?, came))
    }

    /// Drops changes.
    ///
    /// # Errors
    /// When a layer cannot be opened.
    pub fn discard(&self, selection: &Selection) -> Result<Discarded, AsideError> {
        Ok(self.overlay.discard(selection)?)
    }
}

/// Ends this process as the signal would have, had it not been taken.
pub fn end_by(signal: i32) {
    let own = rustix::process::getpid();
    // None of those that `apply` takes fails to end a process that does nothing about it.
    belljar_sys::process::signal(belljar_sys::process::Target::Process(own), signal).ok();
}
