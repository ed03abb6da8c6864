//! Emphasis in the output.

/// Plain text, or text with terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// No escape sequences.
    Plain,
    Ansi,
}

impl Style {
    /// Every escape sequence that a page may contain: those of this type, and those of rendered diagnostics. The
    /// printer escapes all others.
    pub const SEQUENCES: [&str; 11] = [
        "\u{1b}[0m",
        "\u{1b}[1m",
        "\u{1b}[2m",
        "\u{1b}[31m",
        "\u{1b}[32m",
        "\u{1b}[33m",
        "\u{1b}[91m",
        "\u{1b}[92m",
        "\u{1b}[93m",
        "\u{1b}[94m",
        "\u{1b}[96m",
    ];

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Secondary text.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Text about something new.
    #[must_use]
    pub fn added(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Text about something removed or failed.
    #[must_use]
    pub fn removed(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A warning.
    #[must_use]
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }
}
