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

/// Asks the person something on standard error; the answer is typed behind it.
pub fn prompt(text: &str) {
    let mut stream = std::io::stderr().lock();
    // A terminal that cannot be written to cannot be read from either, and the reader says so.
    stream.write_all(visible_page(text, &[]).as_bytes()).and_then(|()| stream.flush()).ok();
}

/// How this run speaks.
pub struct Output {
    /// Whether one JSON envelope is all that goes to standard output.
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

    /// How text on standard output looks.
    pub fn out_style(&self) -> Style {
        self.style(std::io::stdout().is_terminal())
    }

    /// How text on standard error looks.
    pub fn err_style(&self) -> Style {
        self.style(std::io::stderr().is_terminal())
    }

    /// A result. Nothing reaches the terminal but text, line breaks, tabs and the colours of [`Style`].
    pub fn result(&self, text: &str) {
        self.write(&visible_page(text, &Style::SEQUENCES));
    }

    /// Whether standard output is read by a person: it is a terminal, or coloured for a pager.
    pub fn is_read(&self) -> bool {
        self.color == Color::Always || std::io::stdout().is_terminal()
    }

    /// A file: a manifest, a patch, a script for a shell. Its own bytes, unless they go to a terminal.
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

    /// Why a result was lost, if one was: a verb that says it is done must have been heard.
    pub fn lost(&self) -> Option<std::io::Error> {
        self.lost.borrow_mut().take()
    }

    /// Something for the person; the same holds as for a result.
    pub fn say(&self, text: &str) {
        let mut text = visible_page(text, &Style::SEQUENCES).into_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // Without a standard error the message is lost.
        std::io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// A line on a terminal that the next one is painted over; an empty one takes it away.
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
