//! A question at the user's terminal while a command uses it.

use crate::session::screen::Screen;
use belljar_contract::{GuestYes, HeldAnswer};
use std::time::{Duration, Instant};

/// Keys are accepted after this long without input since the question was shown: a user who is typing still types for
/// the command, and a terminal's replies to queries of the command must not count as the user's answer.
const QUIET: Duration = Duration::from_millis(500);

/// The receiver of typed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    ForCommand,
    /// A key that is not an answer; it is dropped.
    Ignored,
    Answer(HeldAnswer),
}

/// An open question, and the state for answering it.
#[derive(Debug)]
pub(crate) struct Prompt {
    text: String,
    yes: GuestYes,
    /// The state in which the command had left the terminal.
    pub(crate) before: Screen,
    heeds_from: Instant,
    pub(crate) answer: Option<HeldAnswer>,
}

impl Prompt {
    pub(crate) fn new(text: &str, yes: GuestYes, before: Screen, now: Instant) -> Self {
        // A terminal in raw mode needs both characters.
        Prompt { text: text.replace('\n', "\r\n"), yes, before, heeds_from: now + QUIET, answer: None }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Restarts the quiet time, because the question is shown again.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.heeds_from = now + QUIET;
    }

    /// Handles the bytes of one read. A key is a single byte: more bytes are an escape sequence or pasted text.
    pub(crate) fn typed(&mut self, bytes: &[u8], now: Instant) -> Typed {
        if now < self.heeds_from {
            self.heeds_from = now + QUIET;
            return Typed::ForCommand;
        }
        match bytes {
            // Enter, Escape, Ctrl-C, Ctrl-D.
            [b'n' | b'N' | b'\r' | b'\n' | 0x1b | 0x03 | 0x04] => Typed::Answer(HeldAnswer::No),
            [b'o' | b'O'] => Typed::Answer(HeldAnswer::Once),
            [b'r' | b'R'] if self.yes == GuestYes::File => Typed::Answer(HeldAnswer::Run),
            [b'a' | b'A'] if self.yes == GuestYes::File => Typed::Answer(HeldAnswer::Always),
            [_] => Typed::Ignored,
            _ => Typed::ForCommand,
        }
    }

    /// The text that remains on the terminal.
    pub(crate) fn trace(answer: HeldAnswer, line: Option<&str>) -> String {
        let shown = match answer {
            HeldAnswer::No => "no",
            HeldAnswer::Once => "once",
            HeldAnswer::Run => "for this run",
            HeldAnswer::Always => "always",
            HeldAnswer::Unanswered => "no (it was not answered in time)",
        };
        let line = line.map(|line| format!("{line}\r\n")).unwrap_or_default();
        format!("{shown}\r\n{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(now: Instant) -> Prompt {
        Prompt::new("allow it?\n", GuestYes::File, Screen::default(), now)
    }

    #[test]
    fn what_is_typed_on_is_not_an_answer() {
        let start = Instant::now();
        let mut prompt = prompt(start);
        let mut now = start;
        for _ in 0..10 {
            now += QUIET / 2;
            assert_eq!(prompt.typed(b"o", now), Typed::ForCommand);
        }
        assert_eq!(prompt.typed(b"o", now + QUIET), Typed::Answer(HeldAnswer::Once));
    }

    #[test]
    fn one_key_is_an_answer_and_nothing_longer() {
        let start = Instant::now();
        let later = start + QUIET;
        for (bytes, expected) in [
            (&b"n"[..], Typed::Answer(HeldAnswer::No)),
            (b"\r", Typed::Answer(HeldAnswer::No)),
            (b"\x1b", Typed::Answer(HeldAnswer::No)),
            (b"\x03", Typed::Answer(HeldAnswer::No)),
            (b"o", Typed::Answer(HeldAnswer::Once)),
            (b"R", Typed::Answer(HeldAnswer::Run)),
            (b"a", Typed::Answer(HeldAnswer::Always)),
            (b"y", Typed::Ignored),
            (b" ", Typed::Ignored),
            (b"oo", Typed::ForCommand),
            (b"\x1b[A", Typed::ForCommand),
            // Replies of a terminal to queries for its title, its colours, its cursor position.
            (b"\x1b]lo\x1b\\", Typed::ForCommand),
            (b"\x1b]11;rgb:0000/0000/0000\x07", Typed::ForCommand),
            (b"\x1b[12;40R", Typed::ForCommand),
        ] {
            assert_eq!(prompt(start).typed(bytes, later), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_yes_to_content_is_for_once() {
        let start = Instant::now();
        let mut prompt = Prompt::new("allow it?\n", GuestYes::Content, Screen::default(), start);
        for key in [b"r", b"a"] {
            assert_eq!(prompt.typed(key, start + QUIET), Typed::Ignored);
        }
        assert_eq!(prompt.typed(b"o", start + QUIET), Typed::Answer(HeldAnswer::Once));
    }

    #[test]
    fn lines_are_for_a_terminal_in_raw_mode() {
        assert_eq!(prompt(Instant::now()).text(), "allow it?\r\n");
        assert_eq!(Prompt::trace(HeldAnswer::No, Some("that was all")), "no\r\nthat was all\r\n");
        assert_eq!(Prompt::trace(HeldAnswer::Run, None), "for this run\r\n");
    }
}
