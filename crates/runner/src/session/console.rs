//! What stands at the standard streams of a command: the user's terminal, or a conversation.

use belljar_contract::{Event, GuestEnd, GuestYes, HeldAnswer};
use rustix::event::PollFlags;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Where events go.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&Event);

/// What came of moving what could be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Nothing more will come.
    Closed,
    /// More may come.
    Open,
    /// The command is to be ended.
    Dismissed,
}

/// What is done about an interrupt from the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The command gets it.
    PassOn,
    /// It was taken.
    Taken,
    /// Everything ends.
    Stop,
}

/// The outer end of a command's standard streams.
pub(crate) trait Console {
    /// What to wait for.
    fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Moves what can be moved.
    fn pump(&mut self, emit: Emit<'_>) -> Pumped;

    /// When to pump again although nothing came.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The keyboard's interrupt came to belljar.
    fn interrupted(&mut self, _emit: Emit<'_>) -> Interrupt {
        Interrupt::PassOn
    }

    /// The user's window has another size.
    fn resized(&self) {}

    /// Asks the user, while what the command writes waits. The text is in lines without control characters. Whether there is
    /// somebody to ask.
    fn ask(&mut self, _question: &str, _yes: GuestYes) -> bool {
        false
    }

    /// What the user answered to the open question.
    fn answer(&self) -> Option<HeldAnswer> {
        None
    }

    /// Ends the open question with what became of it, and what else is to be said.
    fn settle(&mut self, _answer: HeldAnswer, _line: Option<&str>) {}

    /// The command has suspended itself; returns when it may go on.
    fn suspended(&mut self) {}

    /// The time of the run is up; the command is about to be ended.
    fn time_is_up(&mut self, _emit: Emit<'_>) {}

    /// The command has ended and nothing more will come.
    fn ended(&mut self, _end: GuestEnd, _emit: Emit<'_>) {}
}
