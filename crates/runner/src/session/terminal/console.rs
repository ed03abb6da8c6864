//! The terminal as the supervisor uses it.

use super::{HELD, Sink, Terminal, readable, write_all};
use crate::session::console::{Console, Emit, Interrupt, Pumped};
use crate::session::prompt::Prompt;
use belljar_contract::{GuestYes, HeldAnswer};
use belljar_sys::pty;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::stdio::stdin;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

impl Console for Terminal {
    fn resized(&self) {
        if let (Some(controller), Ok(size)) = (&self.pty, pty::size(stdin())) {
            // A terminal that has just been closed has no size to set.
            pty::resize(controller.as_fd(), size).ok();
        }
    }

    /// Suspends belljar, so that the user's shell has the terminal. When the shell continues belljar, the command
    /// continues.
    fn suspended(&mut self) {
        if self.pty.is_none() {
            return;
        }
        self.reset();
        self.raw = None;
        // Returns once the shell continues this process. Without a shell, it returns at once.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP).ok();
        // A terminal that cannot be entered again is closed, and the following hang-up ends the run.
        self.enter().ok();
        self.resized();
        if let Some(prompt) = &mut self.prompt {
            prompt.renew(Instant::now());
            write_all(self.used, prompt.text().as_bytes());
        }
    }

    fn ask(&mut self, question: &str, yes: GuestYes) -> bool {
        // Earlier input is for the command.
        self.take_input(&mut vec![0; 64 << 10]);
        if self.raw.is_none() || !self.stdin_open || self.prompt.is_some() {
            return false;
        }
        self.used = Sink::terminal();
        let before = self.screen.clone();
        self.reset();
        let prompt = Prompt::new(question, yes, before, Instant::now());
        write_all(self.used, prompt.text().as_bytes());
        self.prompt = Some(prompt);
        true
    }

    fn answer(&self) -> Option<HeldAnswer> {
        self.prompt.as_ref()?.answer
    }

    /// Restores the terminal for the command.
    fn settle(&mut self, answer: HeldAnswer, line: Option<&str>) {
        let Some(prompt) = self.prompt.take() else { return };
        write_all(self.used, Prompt::trace(answer, line).as_bytes());
        write_all(self.used, prompt.before.restore().as_bytes());
        self.screen = prompt.before;
        self.screen.begin_line();
        if self.screen.is_drawn_on() {
            self.nudge();
        }
    }

    fn interrupted(&mut self, _emit: Emit<'_>) -> Interrupt {
        if self.prompt.is_none() {
            return Interrupt::PassOn;
        }
        self.answered(HeldAnswer::No);
        Interrupt::Taken
    }

    fn deadline(&self) -> Option<Instant> {
        self.nudged
    }

    fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut out = Vec::new();
        if let (Some(controller), Some(_)) = (&self.pty, &self.prompt) {
            out.push((stdin(), PollFlags::IN));
            if !self.held.is_empty() {
                out.push((controller.as_fd(), PollFlags::OUT));
            }
            return out;
        }
        if let Some(controller) = &self.pty {
            let wants = if self.held.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            out.push((controller.as_fd(), wants));
            if self.stdin_open && self.held.len() < HELD {
                out.push((stdin(), PollFlags::IN));
            }
        }
        out.extend(
            self.relays.iter().filter(|relay| relay.open).map(|relay| (relay.from.as_fd(), PollFlags::IN)),
        );
        out
    }

    fn pump(&mut self, _emit: Emit<'_>) -> Pumped {
        let mut buffer = vec![0; 64 << 10];
        if self.nudged.is_some_and(|until| until <= Instant::now()) {
            self.nudged = None;
            self.resized();
        }
        if self.prompt.is_some() {
            // The command's output is held back.
            self.take_input(&mut buffer);
            return Pumped::Open;
        }
        let mut alive = false;
        if let Some(controller) = &self.pty {
            match rustix::io::read(controller, &mut buffer) {
                Ok(0) => {}
                Ok(count) => {
                    self.show(Sink::terminal(), &buffer[..count]);
                    alive = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => alive = true,
                // Every copy of the other end is closed: no more data follows.
                Err(_) => {}
            }
            self.take_input(&mut buffer);
        }
        for at in 0..self.relays.len() {
            let relay = &mut self.relays[at];
            if relay.open && readable(relay.from.as_fd()) {
                match rustix::io::read(&relay.from, &mut buffer) {
                    Ok(0) => relay.open = false,
                    Ok(count) => {
                        let to = relay.to;
                        self.show(to, &buffer[..count]);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => relay.open = false,
                }
            }
            alive |= self.relays[at].open;
        }
        if alive { Pumped::Open } else { Pumped::Closed }
    }
}
