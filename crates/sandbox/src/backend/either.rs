//! A command that was launched, behind walls or without.

use super::host::Unwalled;
use super::running::{Beginning, LaunchError, News, Running as Sealed};
use belljar_contract::{GuestLandlock, GuestOrder, GuestUsage, LimitKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A launch that stands. Dropping it ends what it started.
#[derive(Debug)]
pub enum Running {
    /// Behind walls, with the guest inside.
    Sealed(Sealed),
    /// A process like any other.
    Host(Box<Unwalled>),
}

impl Running {
    /// Waits until what everything used is known; not for long.
    pub fn settle(&self) {
        match self {
            Running::Sealed(sealed) => sealed.settle(),
            Running::Host(_) => {}
        }
    }

    /// What Landlock adds; nothing where there are no walls.
    #[must_use]
    pub fn landlock(&self) -> Option<GuestLandlock> {
        match self {
            Running::Sealed(sealed) => Some(sealed.landlock),
            Running::Host(_) => None,
        }
    }

    /// What the command used up, where it is not a child of this process.
    #[must_use]
    pub fn used(&self) -> Option<GuestUsage> {
        match self {
            Running::Sealed(sealed) => sealed.used(),
            Running::Host(_) => None,
        }
    }

    /// Limits that were reached, as far as is known; none where there are no walls.
    #[must_use]
    pub fn reached(&self) -> &[LimitKind] {
        match self {
            Running::Sealed(sealed) => sealed.reached(),
            Running::Host(_) => &[],
        }
    }

    /// What the container's image lacks and the command can do without, in words.
    #[must_use]
    pub fn lacks(&self) -> &[String] {
        match self {
            Running::Sealed(sealed) => sealed.lacks(),
            Running::Host(_) => &[],
        }
    }

    /// The listeners that were opened for the command, by name; each can be taken once.
    pub fn take_listener(&mut self, name: &str) -> Option<OwnedFd> {
        match self {
            Running::Sealed(sealed) => sealed.take_listener(name),
            Running::Host(unwalled) => unwalled.take_listener(name),
        }
    }

    /// The controlling end of the command's terminal, if it has one; can be taken once.
    pub fn take_controller(&mut self) -> Option<OwnedFd> {
        match self {
            Running::Sealed(sealed) => sealed.take_controller(),
            Running::Host(unwalled) => unwalled.take_controller(),
        }
    }

    /// Starts the command.
    ///
    /// # Errors
    /// When it cannot be prepared; a command that cannot be executed is no such error.
    pub fn start(&mut self) -> Result<Beginning, LaunchError> {
        match self {
            Running::Sealed(sealed) => sealed.start(),
            Running::Host(unwalled) => unwalled.start(),
        }
    }

    /// The descriptor that becomes readable when there is something to [`Running::report`].
    #[must_use]
    pub fn control(&self) -> BorrowedFd<'_> {
        match self {
            Running::Sealed(sealed) => sealed.control(),
            Running::Host(unwalled) => unwalled.control(),
        }
    }

    /// What there is to say, once the descriptor is readable: the command's end, or nothing more.
    ///
    /// # Errors
    /// When it is not understood.
    pub fn report(&mut self) -> Result<News, LaunchError> {
        match self {
            Running::Sealed(sealed) => sealed.report(),
            Running::Host(unwalled) => unwalled.report(),
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    /// When there is nobody to obey.
    pub fn order(&self, order: GuestOrder) -> Result<(), LaunchError> {
        match self {
            Running::Sealed(sealed) => sealed.order(order),
            Running::Host(unwalled) => unwalled.order(order),
        }
    }

    /// Waits until nothing is left, at most for `patience`, then uses force.
    pub fn finish(&mut self, patience: Duration) {
        match self {
            Running::Sealed(sealed) => sealed.finish(patience),
            Running::Host(unwalled) => unwalled.finish(),
        }
    }
}
