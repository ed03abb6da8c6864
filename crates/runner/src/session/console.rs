//! The outer end of a command's standard streams: the user's terminal, or a conversation.

use belljar_contract::{Event, GuestEnd, GuestYes, HeldAnswer};
use rustix::event::PollFlags;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Receives events of the run.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&Event);

/// The result of transferring available data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Nothing more will come.
    Closed,
    Open,
    /// The command is to be ended, because the other end of its streams has finished.
    Dismissed,
}

/// The reaction to an interrupt from the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    PassOn,
    /// The console handled it.
    Taken,
    /// The run is to be ended.
    Stop,
}

/// The outer end of a command's standard streams.
pub(crate) trait Console {
    /// The descriptors to poll, with the events to wait for.
    fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Transfers the available data.
    fn pump(&mut self, emit: Emit<'_>) -> Pumped;

    /// When to transfer again even if no descriptor is ready.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Handles an interrupt from the keyboard that belljar received.
    fn interrupted(&mut self, _emit: Emit<'_>) -> Interrupt {
        Interrupt::PassOn
    }

    /// Handles a change of the size of the user's window.
    fn resized(&self) {}

    /// Asks the user, and holds back the command's output meanwhile. The text consists of lines without control
    /// characters. Returns whether a user can be asked.
    fn ask(&mut self, _question: &str, _yes: GuestYes) -> bool {
        false
    }

    /// The user's answer to the open question.
    fn answer(&self) -> Option<HeldAnswer> {
        None
    }

    /// Closes the open question: shows the outcome, and a further line.
    fn settle(&mut self, _answer: HeldAnswer, _line: Option<&str>) {}

    /// Handles a command that suspended itself; returns when it may continue.
    fn suspended(&mut self) {}

    /// Handles the end of the time limit; the command is about to be ended.
    fn time_is_up(&mut self, _emit: Emit<'_>) {}

    /// Handles the end of the command; no more data follows.
    fn ended(&mut self, _end: GuestEnd, _emit: Emit<'_>) {}
}
