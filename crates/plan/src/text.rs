//! Decodes an untrusted file: bounded, UTF-8, without a byte order mark.

use belljar_contract::{Diagnostic, Label, Severity, SourceFile};

/// Larger than any manifest is; a file beyond it is not parsed.
pub const SIZE_LIMIT: usize = 4 << 20;

/// A finding about a whole file.
pub(crate) fn whole_file(code: &'static str, message: String, help: &str) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code,
        message,
        label: None,
        related: Vec::new(),
        help: Some(help.to_owned()),
    }
}

/// The text, or what can be shown of it together with why it cannot be used.
pub(crate) fn read(file: usize, name: String, bytes: Vec<u8>) -> (SourceFile, Option<Diagnostic>) {
    if bytes.len() > SIZE_LIMIT {
        let message = format!("`{name}` is larger than {} MiB, which no such file is", SIZE_LIMIT >> 20);
        let finding = whole_file("too-large", message, "look at what the file holds; it was not read");
        return (SourceFile { name, text: String::new() }, Some(finding));
    }
    match String::from_utf8(bytes) {
        // Editors of other systems put a byte order mark in front; it says nothing here.
        Ok(text) => {
            let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
            (SourceFile { name, text }, None)
        }
        Err(error) => {
            // Up to the bad byte the lossy text is the same; there it has a replacement.
            let at = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let span = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
            let label = Label { file, span, text: "this byte is not UTF-8".to_owned() };
            let finding = Diagnostic::error("not-utf8", format!("`{name}` is not UTF-8"), label);
            (SourceFile { name, text }, Some(finding.help("save the file as UTF-8")))
        }
    }
}
