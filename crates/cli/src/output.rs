//! The two streams: results on standard output, everything for people on standard error.

use crate::env;
use belljar_contract::{Envelope, visible, visible_json, visible_page};
use belljar_report::Style;
use clap::ValueEnum;
use std::cell::RefCell;
use std::io::{IsTerminal, Write};

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Prints a question on standard error; the user types the answer on the same line.
pub fn prompt(text: &str) {
    let mut stream = std::io::stderr().lock();
    // A terminal that cannot be written to cannot be read from either, and the reader says so.
    stream.write_all(visible_page(text, &[]).as_bytes()).and_then(|()| stream.flush()).ok();
}

/// The output streams of this call.
pub struct Output {
    /// Whether standard output gets a single JSON envelope and nothing else.
    pub json: bool,
    color: Color,
    /// Why a result did not reach standard output.
    lost: RefCell<Option<std::io::Error>>,
}

impl Output {
    pub fn new(color: Color, json: bool) -> Self {
        Self { json, color, lost: RefCell::new(None) }
    }

    fn style(&self, terminal: bool) -> Style {
        match self.color {
            Color::Always => Style::Ansi,
            Color::Auto if terminal && !env::no_color() => Style::Ansi,
            Color::Auto | Color::Never => Style::Plain,
        }
    }

    /// The style of text on standard output.
    pub fn out_style(&self) -> Style {
        self.style(std::io::stdout().is_terminal())
    }

    /// The style of text on standard error.
    pub fn err_style(&self) -> Style {
        self.style(std::io::stderr().is_terminal())
    }

    /// Prints a result. Only text, line breaks, tabs and the colours of [`Style`] reach the terminal.
    pub fn result(&self, text: &str) {
        self.write(&visible_page(text, &Style::SEQUENCES));
    }

    /// Whether standard output is read by a person: it is a terminal, or coloured for a pager.
    pub fn is_read(&self) -> bool {
        self.color == Color::Always || std::io::stdout().is_terminal()
    }

    /// Prints a file (a manifest, a patch, a shell script) unchanged, unless standard output is a terminal.
    pub fn file(&self, text: &str) {
        if self.is_read() {
            self.result(text);
        } else {
            self.write(text);
        }
    }

    /// One JSON value on a line of its own.
    pub fn json_line(&self, value: &serde_json::Value) {
        self.write(&visible_json(&format!("{value}\n")));
    }

    fn write(&self, text: &str) {
        let mut stream = std::io::stdout().lock();
        match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
            Ok(()) => {}
            // A reader that has gone away, as `head` does, wants no more and no complaint.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(error) => *self.lost.borrow_mut() = Some(error),
        }
    }

    /// Why a result could not be written, if so: a command must not succeed if its output was lost.
    pub fn lost(&self) -> Option<std::io::Error> {
        self.lost.borrow_mut().take()
    }

    /// Prints a message for the user on standard error; escaped as a result is.
    pub fn say(&self, text: &str) {
        let mut text = visible_page(text, &Style::SEQUENCES).into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // Without a standard error the message is lost.
        std::io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// Shows a progress line on a terminal, which the next one replaces; an empty one removes it.
    pub fn paint(&self, line: &str) {
        const COLUMNS: usize = 100;
        let line: String = visible(line).chars().take(COLUMNS).collect();
        let mut stream = std::io::stderr().lock();
        stream.write_all(format!("\r\u{1b}[K{line}").as_bytes()).and_then(|()| stream.flush()).ok();
    }

    /// The envelope for machines.
    pub fn envelope(&self, envelope: &Envelope) {
        self.write(&visible_json(&format!("{:#}\n", serde_json::json!(envelope))));
    }
}
