//! A conversation as the supervisor uses it.

use super::Talk;
use crate::session::console::{Console, Emit, Interrupt, Pumped};
use belljar_contract::{Deadline, GuestEnd};
use belljar_session::{Command, Decoder};
use rustix::event::PollFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

impl Console for Talk {
    fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let reads = [&self.output, &self.errors].into_iter().flatten();
        let mut out: Vec<_> = reads.map(|stream| (stream.as_fd(), PollFlags::IN)).collect();
        if let (Some(input), false) = (&self.input, self.unsent.is_empty()) {
            out.push((input.as_fd(), PollFlags::OUT));
        }
        out.push((self.mailbox.as_fd(), PollFlags::IN));
        out
    }

    fn pump(&mut self, emit: Emit<'_>) -> Pumped {
        self.hear(emit);
        self.read_output(emit);
        self.read_errors();
        self.write_input();
        self.watch_time(emit);
        match (self.dismissed, self.output.is_some() || self.errors.is_some()) {
            // Returned once; output that still arrives is handled as before.
            (true, true) => Pumped::Dismissed,
            (false, true) => Pumped::Open,
            (_, false) => Pumped::Closed,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        [self.handshake, self.exit, self.stalled].into_iter().flatten().min()
    }

    fn interrupted(&mut self, emit: Emit<'_>) -> Interrupt {
        if !self.mailbox.listens() || self.mailbox.is_ready() {
            return Interrupt::Stop;
        }
        let outputs = self.machine.on_command(Command::Interrupt);
        self.carry_out(outputs, emit);
        Interrupt::Taken
    }

    fn time_is_up(&mut self, emit: Emit<'_>) {
        let outputs = self.machine.on_deadline(Deadline::Run);
        self.carry_out(outputs, emit);
    }

    fn ended(&mut self, end: GuestEnd, emit: Emit<'_>) {
        if let Some(item) = self.decoder.take().and_then(Decoder::finish) {
            self.take_item(item, emit);
        }
        let outputs = self.machine.on_exit(end);
        self.carry_out(outputs, emit);
    }
}
