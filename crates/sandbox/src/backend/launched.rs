//! A command that was launched, whatever launched it.

use super::LaunchError;
use belljar_contract::{
    GuestAct, GuestEnd, GuestLandlock, GuestOrder, GuestUsage, GuestYes, LimitKind, OsText,
};
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A launched command. Dropping it ends the command and what it started.
pub type Running = Box<dyn Launched>;

/// What can be done with a command that was launched. The default methods are those of a command without a guest.
pub trait Launched: Debug {
    /// Takes a listener that was opened for the command, by name; each can be taken once.
    fn take_listener(&mut self, name: &str) -> Option<OwnedFd>;

    /// Takes the controlling end of the command's terminal, if it has one.
    fn take_controller(&mut self) -> Option<OwnedFd>;

    /// Starts the command.
    ///
    /// # Errors
    /// When it cannot be prepared. That the command cannot be executed is a [`Beginning`] and not an error.
    fn start(&mut self) -> Result<Beginning, LaunchError>;

    /// Returns the descriptor that becomes readable when there is something to [`report`](Self::report).
    fn control(&self) -> BorrowedFd<'_>;

    /// Reads the next report, once the descriptor is readable.
    ///
    /// # Errors
    /// When the report cannot be understood.
    fn report(&mut self) -> Result<News, LaunchError>;

    /// Sends an order to the command or to the guest beside it.
    ///
    /// # Errors
    /// When nothing is left that could receive it.
    fn order(&self, order: GuestOrder) -> Result<(), LaunchError>;

    /// Waits until nothing is left, at most for `patience`. What is left then ends when this is dropped.
    fn finish(&mut self, patience: Duration);

    /// Waits shortly until the kernel knows what everything used.
    fn settle(&self) {}

    /// Returns what Landlock adds to the sandbox.
    fn landlock(&self) -> Option<GuestLandlock> {
        None
    }

    /// Returns what the command used, where the kernel does not count it as a child of this process.
    fn used(&self) -> Option<GuestUsage> {
        None
    }

    /// Returns the limits that were reached; known once the command has ended.
    fn reached(&self) -> &[LimitKind] {
        &[]
    }

    /// Returns what the container's image lacks and the command can do without, one sentence each.
    fn lacks(&self) -> &[String] {
        &[]
    }
}

/// How a command began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// The kernel executes the command.
    Started,
    /// The command could not be executed.
    Failed {
        /// The file or name.
        what: String,
        /// The kernel's answer.
        errno: i32,
    },
}

/// What happened to a started command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The guard refused a change.
    Held {
        /// The path as it is inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run the file.
        why: String,
    },
    /// The guard refused this many more changes than it reports one by one.
    HeldMore(u64),
    /// The guard refused a change, and the call waits for an answer.
    Asked {
        /// The number of the question.
        number: u64,
        /// The path as it is inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run the file.
        why: String,
        /// What a yes allows.
        yes: GuestYes,
    },
    /// The caller of this question no longer waits for an answer.
    Withdrawn(u64),
    /// The command stopped itself and waits for SIGCONT.
    Stopped,
    /// The command ended by itself or was ended.
    Ended(GuestEnd),
    /// No process is left inside.
    Gone,
}
