//! A container that holds a sandbox.

use super::handle::ContainerHandle;
use crate::backend::request::Unused;
use crate::backend::shared::guest_session::{Holder, SealedGuest};
use crate::backend::{LaunchError, limits};
use belljar_contract::{GuestUsage, LimitKind};
use belljar_sys::cgroup::Groups;
use std::os::fd::OwnedFd;

/// A container with the guest in it. Dropping it removes the container.
#[derive(Debug)]
pub(super) struct HeldContainer {
    handle: ContainerHandle,
    /// The control groups of the container, which its engine removes. Known once the sandbox is sealed.
    groups: Option<Groups>,
    /// A sandbox of bubblewrap that was started early and is not used.
    _unused: Unused,
}

impl HeldContainer {
    pub(super) fn new(handle: ContainerHandle, unused: Unused) -> Self {
        Self { handle, groups: None, _unused: unused }
    }
}

impl Holder for HeldContainer {
    /// The engine has set the limits; here they are read back.
    fn confine(&mut self, guest: SealedGuest<'_>) -> Result<(), LaunchError> {
        let SealedGuest { pid, control: _, launch, run: _ } = guest;
        limits::confirm(&launch.limits, pid)?;
        self.groups = Groups::of(pid).ok();
        Ok(())
    }

    fn reached(&self) -> Vec<LimitKind> {
        self.groups.as_ref().map(|groups| limits::kinds(&groups.reached())).unwrap_or_default()
    }

    fn complaint(&mut self) -> LaunchError {
        LaunchError::Container { message: self.handle.complaint() }
    }

    fn abandon(self, control: OwnedFd) {
        drop(control);
    }

    /// The processes of the container are children of its engine.
    fn used(&self, reported: Option<GuestUsage>) -> Option<GuestUsage> {
        reported
    }

    fn lacks(&self) -> &[String] {
        &self.handle.lacks
    }
}
