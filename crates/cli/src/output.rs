//! The two streams: results on standard output, everything for people on standard error.

use crate::env;
use belljar_contract::Envelope;
use belljar_runner::report::Style;
use clap::ValueEnum;
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

/// How this run speaks.
pub struct Output {
    /// Whether one JSON envelope is all that goes to standard output.
    pub json: bool,
    color: Color,
}

impl Output {
    pub fn new(color: Color, json: bool) -> Self {
        Self { json, color }
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

    /// A result.
    pub fn result(&self, text: &str) {
        // A reader that has gone away, as `head` does, wants no more and no complaint.
        std::io::stdout().lock().write_all(text.as_bytes()).ok();
    }

    /// A word to the person.
    pub fn say(&self, text: &str) {
        let mut text = text.to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // Without a standard error there is nobody to tell.
        std::io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// The envelope for machines.
    pub fn envelope(&self, envelope: &Envelope) {
        self.result(&format!("{:#}\n", serde_json::json!(envelope)));
    }
}
