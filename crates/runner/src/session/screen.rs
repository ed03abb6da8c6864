//! Tracks what a command did to the user's terminal, and how to undo it.
//!
//! The output of the command goes to the terminal unchanged; this code only parses it. When the command has ended, the
//! terminal may be on the alternate screen, inside a control string, with a hidden cursor, another character set or a
//! small scroll region, and a report would be unreadable. [`Screen::reset`] returns the sequences that restore it,
//! without clearing anything. The states and transitions are those of the VT500 parser (vt100.net/emu/dec_ansi_parser,
//! 2026-11).

use std::collections::BTreeSet;

/// Ends a control string, leaves VT52 mode, selects ASCII, shows the cursor, wraps lines, and turns off everything that
/// a program can turn on: alternate screen, colours, insertion, application keys, mouse, focus and paste reports,
/// reverse video, margins, synchronized output, an open hyperlink. The whole screen scrolls again. The cursor keeps its
/// position: it is saved and restored around the sequences that move it.
const RESET: &str = "\u{1b}\\\u{1b}<\u{f}\u{1b}(B\u{1b}[?1047l\u{1b}[!p\u{1b}[0m\u{1b}[?25h\u{1b}[?7h\u{1b}[4l\u{1b}[20l\
    \u{1b}[?1l\u{1b}>\u{1b}[?5l\u{1b}[?69l\u{1b}[?9;1000;1001;1002;1003;1004;1005;1006;1015;1016;2004l\u{1b}[?2026l\
    \u{1b}]8;;\u{1b}\\\u{1b}7\u{1b}[r\u{1b}8";
/// Counts lines from the top, and moves the cursor to the last one.
const TO_THE_END: &str = "\u{1b}[?6l\u{1b}[r\u{1b}[9999;1H";
/// Restores the user's colours.
const PALETTE: &str = "\u{1b}]104\u{1b}\\\u{1b}]110\u{1b}\\\u{1b}]111\u{1b}\\\u{1b}]112\u{1b}\\";
/// Restores ordinary key codes: empties the stack of the kitty protocol.
const KITTY_KEYS: &str = "\u{1b}[<99u\u{1b}[=0u";
/// Restores ordinary key codes after xterm's modified keys.
const XTERM_KEYS: &str = "\u{1b}[>4m";
/// Restores the default shape of the cursor.
const SHAPE: &str = "\u{1b}[0 q";

/// Bytes of a sequence that are kept; longer ones are treated as unknown.
const KEPT: usize = 48;

/// Modes that a program may change and that are restored when it continues after a question: application keys, reverse
/// video, wrapping, the cursor, mouse, focus and paste reports. The second part is the initial state.
const MODES: [(&str, bool); 15] = [
    ("1", false),
    ("5", false),
    ("7", true),
    ("9", false),
    ("25", true),
    ("1000", false),
    ("1001", false),
    ("1002", false),
    ("1003", false),
    ("1004", false),
    ("1005", false),
    ("1006", false),
    ("1015", false),
    ("1016", false),
    ("2004", false),
];
/// The most entries of the kitty protocol's stack that are restored.
const KITTY_DEPTH: usize = 16;

/// The tracked state of a terminal.
#[derive(Debug, Default, Clone)]
pub(crate) struct Screen {
    state: State,
    /// The sequence that is being read, without its introducer.
    sequence: Vec<u8>,
    /// Something other than plain text was written.
    touched: bool,
    /// The cursor may be anywhere, with output of the command below it.
    strayed: bool,
    /// The behaviour of the cursor may have changed: lines are counted from elsewhere, or another position was saved.
    warped: bool,
    alternate: bool,
    palette: bool,
    kitty_keys: bool,
    xterm_keys: bool,
    shape: bool,
    /// Modes that differ from their initial state, as indices into [`MODES`].
    modes: BTreeSet<usize>,
    keypad: bool,
    /// The last requests of the program: the stack of the kitty protocol, xterm's keys, the shape of the cursor.
    kitty_stack: Vec<String>,
    xterm_wish: String,
    shape_wish: String,
    /// The last line is not terminated; and whether it was not when the alternate screen was entered.
    open_line: bool,
    line_below: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// After the first byte of a control character in UTF-8.
    Lead,
    Escape,
    /// After an escape and an intermediate byte.
    Intermediate,
    Sequence,
    /// An operating system command.
    Command,
    /// Any other control string.
    Text,
}

impl Screen {
    /// Parses output that goes to the terminal.
    pub fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// The sequences that restore the state in which the command had left the terminal, except for what a program
    /// restores itself when the size of its terminal changes.
    pub fn restore(&self) -> String {
        let mut out = String::new();
        if self.alternate {
            out.push_str("\u{1b}[?1049h");
        }
        for (mode, at_first) in self.modes.iter().filter_map(|at| MODES.get(*at)) {
            out.push_str(&format!("\u{1b}[?{mode}{}", if *at_first { 'l' } else { 'h' }));
        }
        if self.keypad {
            out.push_str("\u{1b}=");
        }
        out.extend(self.kitty_stack.iter().map(|flags| format!("\u{1b}[>{flags}u")));
        for wish in [&self.xterm_wish, &self.shape_wish] {
            if !wish.is_empty() {
                out.push_str(&format!("\u{1b}[{wish}"));
            }
        }
        out
    }

    /// Notes that a new line was begun, whatever the state was.
    pub fn begin_line(&mut self) {
        self.state = State::Ground;
        self.sequence.clear();
        self.open_line = false;
    }

    /// Whether the command wrote something other than plain text.
    pub fn is_drawn_on(&self) -> bool {
        self.touched
    }

    /// The sequences that reset the terminal and move the cursor to the beginning of a line; empty if only plain lines
    /// were written.
    pub fn reset(&mut self) -> String {
        let seen = std::mem::take(self);
        let mut out = String::new();
        if seen.touched || seen.state != State::Ground {
            out.push_str(RESET);
            for (used, sequence) in [
                (seen.palette, PALETTE),
                (seen.kitty_keys, KITTY_KEYS),
                (seen.xterm_keys, XTERM_KEYS),
                (seen.shape, SHAPE),
                (seen.strayed || seen.warped || seen.alternate, TO_THE_END),
            ] {
                if used {
                    out.push_str(sequence);
                }
            }
        }
        if seen.open_line || seen.strayed || seen.warped || seen.alternate {
            out.push_str("\r\n");
        }
        out
    }

    fn byte(&mut self, byte: u8) {
        if matches!(self.state, State::Ground | State::Lead) {
            self.open_line = byte != b'\n' && (self.open_line || byte >= b' ');
        }
        self.state = match (self.state, byte) {
            (_, 0x1b) => {
                self.end_of_string();
                self.touched = true;
                State::Escape
            }
            (_, 0x18 | 0x1a) => State::Ground,
            (State::Command, 0x07) => {
                self.end_of_string();
                State::Ground
            }
            (State::Command | State::Sequence, 0x20..=0x7e) if self.sequence.len() < KEPT => {
                self.sequence.push(byte);
                match (self.state, byte) {
                    (State::Sequence, 0x40..=0x7e) => {
                        self.dispatch();
                        State::Ground
                    }
                    (state, _) => state,
                }
            }
            (State::Sequence, 0x40..=0x7e) => {
                self.warped = true;
                State::Ground
            }
            (State::Escape, b'[') => self.begin(State::Sequence),
            (State::Escape, b']') => self.begin(State::Command),
            (State::Escape, b'P' | b'X' | b'^' | b'_') => State::Text,
            (State::Escape, b' '..=b'/') => {
                // `ESC # 8` fills the screen.
                self.warped |= byte == b'#';
                State::Intermediate
            }
            (State::Escape, 0x30..=0x7e) => {
                // Save cursor, restore cursor, reverse index; and full reset.
                self.warped |= matches!(byte, b'7' | b'8' | b'M' | b'c');
                match byte {
                    b'=' => self.keypad = true,
                    b'>' => self.keypad = false,
                    b'c' => self.forget_modes(),
                    _ => {}
                }
                State::Ground
            }
            (State::Intermediate, 0x30..=0x7e) => State::Ground,
            (State::Ground, 0xc2) => State::Lead,
            (State::Lead, 0x80..=0x9f) => {
                // Terminals differ in whether they obey these sequences.
                self.touched = true;
                self.warped = true;
                State::Ground
            }
            (State::Lead, _) => State::Ground,
            (State::Ground, 0x0e | 0x0f) => {
                self.touched = true;
                State::Ground
            }
            (state, _) => state,
        };
    }

    fn begin(&mut self, state: State) -> State {
        self.sequence.clear();
        state
    }

    /// Changes on the alternate screen disappear with it.
    fn stray(&mut self) {
        self.strayed |= !self.alternate;
    }

    fn dispatch(&mut self) {
        let sequence = std::mem::take(&mut self.sequence);
        let Some((last, parameters)) = sequence.split_last() else { return };
        match (last, parameters.first()) {
            (b'h' | b'l', Some(b'?')) => {
                let on = *last == b'h';
                parameters[1..].split(|byte| *byte == b';').for_each(|mode| self.mode(mode, on));
            }
            (b'u', Some(b'>' | b'=' | b'<' | b'?')) => {
                self.kitty_keys = true;
                self.kitty(parameters);
            }
            (b'm', Some(b'>')) => {
                self.xterm_keys = true;
                self.xterm_wish = String::from_utf8_lossy(&sequence).into_owned();
            }
            (b'q', _) if parameters.ends_with(b" ") => {
                self.shape = true;
                self.shape_wish = String::from_utf8_lossy(&sequence).into_owned();
            }
            (b'p', _) if parameters == b"!" => self.forget_modes(),
            // No text remains below the cursor.
            (b'J', _) if matches!(parameters, b"" | b"0" | b"2") => self.strayed &= self.alternate,
            // Colours, and sequences that stay on the line or move down.
            (b'm' | b'h' | b'l' | b'n' | b'c' | b't' | b'q' | b'g' | b'p', _)
            | (
                b'@' | b'B' | b'C' | b'D' | b'E' | b'G' | b'I' | b'J' | b'K' | b'P' | b'X' | b'Z',
                None | Some(b'0'..=b'9'),
            ) => {}
            // A saved cursor outlives the alternate screen in some terminals.
            (b's' | b'u', _) => self.warped = true,
            _ => self.stray(),
        }
    }

    /// Returns all modes to their initial state.
    fn forget_modes(&mut self) {
        self.modes.clear();
        self.keypad = false;
    }

    /// The stack of the kitty protocol: `>` pushes flags, `<` pops some, `=` changes the topmost.
    fn kitty(&mut self, parameters: &[u8]) {
        let Some((act, rest)) = parameters.split_first() else { return };
        let first = rest.split(|byte| *byte == b';').next().unwrap_or_default();
        let flags: String =
            first.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
        match act {
            b'>' if self.kitty_stack.len() < KITTY_DEPTH => self.kitty_stack.push(flags),
            b'<' => {
                let count = flags.parse().unwrap_or(1_usize);
                self.kitty_stack.truncate(self.kitty_stack.len().saturating_sub(count));
            }
            b'=' => {
                self.kitty_stack.pop();
                self.kitty_stack.push(flags);
            }
            _ => {}
        }
    }

    fn mode(&mut self, mode: &[u8], on: bool) {
        if let Some(at) = MODES.iter().position(|(known, _)| known.as_bytes() == mode) {
            match MODES.get(at).is_some_and(|(_, at_first)| *at_first == on) {
                true => self.modes.remove(&at),
                false => self.modes.insert(at),
            };
        }
        match mode {
            // Leaving the alternate screen restores the position of the cursor.
            b"1049" => {
                match (self.alternate, on) {
                    (false, true) => self.line_below = self.open_line,
                    (true, false) => self.open_line = self.line_below,
                    (true, true) | (false, false) => {}
                }
                self.alternate = on;
            }
            b"47" | b"1047" => {
                self.alternate = on;
                self.warped = true;
            }
            // These move the cursor, or change the meaning of sequences that do.
            b"2" | b"3" | b"6" | b"1048" => self.warped = true,
            _ => {}
        }
    }

    fn end_of_string(&mut self) {
        if self.state != State::Command {
            return;
        }
        let text = std::mem::take(&mut self.sequence);
        let (number, rest) = text.split_at(text.iter().position(|byte| *byte == b';').unwrap_or(text.len()));
        let asks = rest.starts_with(b";?");
        self.palette |= !asks && matches!(number, b"4" | b"5" | b"10" | b"11" | b"12" | b"17" | b"19");
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
