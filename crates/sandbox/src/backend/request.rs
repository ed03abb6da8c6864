//! The inputs of a launch beside the lowered plan.

use super::bwrap::{Leaving, Waiting};
use super::container::EnginePlaces;
use super::shared::source_identities::SourceIdentities;
use crate::workspace::Overlay;
use belljar_contract::{GuestVariable, Launch, RunFiles};
use std::os::fd::OwnedFd;

/// Where a standard stream of the command leads.
#[derive(Debug)]
pub enum StreamEnd {
    /// To the terminal that the backend opens for the command.
    Terminal,
    /// To this descriptor.
    Open(OwnedFd),
}

/// The standard streams of the command.
#[derive(Debug)]
pub struct Streams {
    /// Where its input comes from.
    pub stdin: StreamEnd,
    /// Where its output goes.
    pub stdout: StreamEnd,
    /// Where its error messages go.
    pub stderr: StreamEnd,
}

/// What a launch needs beside the lowered plan.
#[derive(Debug)]
pub struct LaunchRequest<'a> {
    /// The plan after it was lowered.
    pub launch: &'a Launch,
    /// A sandbox of bubblewrap that was started while the plan was being made; used if the launch asks for the same.
    pub waiting: Option<Waiting>,
    /// Variables whose values were found just now.
    pub variables: Vec<GuestVariable>,
    /// The standard streams of the command.
    pub streams: Streams,
    /// The name of the run; names what belongs to it on the host.
    pub name: &'a str,
    /// The overlays to mount where only the sandbox sees them, if the plan keeps changes in one.
    pub overlays: &'a [Overlay],
    /// Where an engine is looked for, if the plan wants a container.
    pub engine: Option<&'a EnginePlaces>,
    /// What the sources of mounts must be.
    pub identities: &'a SourceIdentities,
    /// The contents of files that the plan names without one.
    pub run_files: &'a RunFiles,
}

/// A sandbox that was started early and is not used. It is ending; dropping this waits for the end.
#[derive(Debug)]
pub(super) struct Unused {
    _leaving: Option<Leaving>,
}

impl Unused {
    /// Begins to end it.
    pub(super) fn new(waiting: Option<Waiting>) -> Self {
        Self { _leaving: waiting.and_then(Waiting::leave) }
    }
}
