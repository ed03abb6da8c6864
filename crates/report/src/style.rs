//! Whether and how text is emphasised.

/// Plain text, or text with terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// No escape sequences.
    Plain,
    /// ANSI escape sequences.
    Ansi,
}

impl Style {
    /// Every escape sequence that a page may hold: those of this type, and those of the drawn diagnostics. A printer
    /// lets no other through.
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

    /// A heading.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Something that matters less.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Something that came.
    #[must_use]
    pub fn added(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Something that went.
    #[must_use]
    pub fn removed(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// Something to look at twice.
    #[must_use]
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }
}
