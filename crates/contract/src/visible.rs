//! Escapes untrusted text so that it is safe to print.
//!
//! File names, link targets, model output, tapes, manifests and host names reach the terminal only through this
//! module. All characters that move the cursor, change the terminal's state, change the direction of the text or are
//! invisible are escaped. Characters become `\n`, `\r`, `\t` or `\u{1b}`; bytes that are not UTF-8 become `\xff`. A
//! backslash stays as it is, so that paths and regular expressions stay readable: a name that spells out `\u{1b}`
//! looks like one that holds the character, which is harmless.
//!
//! Emoji stay whole: U+FE0F is kept directly after a character that has an emoji form (after a digit only in a
//! keycap), and U+200D between two emoji. Everywhere else they are invisible, and are escaped; so is U+200C, which
//! some scripts use between letters.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// The text on one line: line breaks and tabs are escaped too.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// The first `limit` characters on one line, with `…` where there are more.
#[must_use]
pub fn visible_start(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", visible(&text[..end])),
        None => visible(text).into_owned(),
    }
}

/// The text on one line, from bytes that need not be UTF-8.
#[must_use]
pub fn visible_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&visible(chunk.valid()));
        for byte in chunk.invalid() {
            push(&mut out, format_args!("\\x{byte:02x}"));
        }
    }
    out
}

/// The name or path on one line.
#[must_use]
pub fn visible_name(name: impl AsRef<OsStr>) -> String {
    visible_bytes(name.as_ref().as_bytes())
}

/// The text on several lines. Each line but the first begins with `indent`, so that none looks like a line of
/// belljar; tabs are kept.
#[must_use]
pub fn visible_lines(text: &str, indent: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            out.push('\n');
            out.push_str(indent);
        }
        out.push_str(&escape(line, |c| c == '\t'));
    }
    out
}

/// Escapes a whole page, except belljar's own line breaks, tabs and `sequences`. Renderers escape what they quote;
/// this is a second check in case one of them does not.
#[must_use]
pub fn visible_page<'a>(page: &'a str, sequences: &[&str]) -> Cow<'a, str> {
    let kept = |c| matches!(c, '\n' | '\t');
    if !page.contains('\u{1b}') {
        return escape(page, kept);
    }
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, from) = rest.split_at(at);
        out.push_str(&escape(before, kept));
        let own = sequences.iter().find(|own| from.starts_with(**own));
        let length = own.map_or('\u{1b}'.len_utf8(), |own| own.len());
        match own {
            Some(own) => out.push_str(own),
            None => write_escaped(&mut out, '\u{1b}'),
        }
        rest = &from[length..];
    }
    out.push_str(&escape(rest, kept));
    Cow::Owned(out)
}

/// Escapes hidden characters in printed JSON as `\u202e`. The value stays the same.
#[must_use]
pub fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| is_hidden(c) && c != '\n') {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                push(&mut out, format_args!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character controls the terminal or the direction of the text, or is invisible.
///
/// The invisible ones are Unicode 16's `Default_Ignorable_Code_Point` (DerivedCoreProperties.txt), the separators of
/// lines and paragraphs, the interlinear annotations and the noncharacters.
#[must_use]
pub const fn is_hidden(c: char) -> bool {
    // Checked first, because nearly all characters are in this range.
    if matches!(c, ' '..='~') {
        return false;
    }
    matches!(c,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
        || c as u32 & 0xfffe == 0xfffe
}

fn escape(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| !is_hidden(c) || kept(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = Before::Other;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = rest.clone().next();
        let stays = !is_hidden(c) || kept(c) || before.keeps(c, next);
        if stays {
            out.push(c);
        } else {
            write_escaped(&mut out, c);
        }
        before = before.then(c, stays);
    }
    Cow::Owned(out)
}

/// The previous character, as far as parts of an emoji depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A character that U+FE0F may follow.
    Base,
    /// A character that it may follow in a keycap.
    Key,
    /// Such a character with its selector or a skin tone.
    Dressed,
    Other,
}

impl Before {
    fn keeps(self, c: char, next: Option<char>) -> bool {
        match (self, c) {
            (Before::Base, '\u{fe0f}') => true,
            (Before::Key, '\u{fe0f}') => next == Some('\u{20e3}'),
            (Before::Base | Before::Dressed, '\u{200d}') => next.is_some_and(is_pictograph),
            _ => false,
        }
    }

    fn then(self, c: char, stays: bool) -> Self {
        match c {
            '\u{fe0f}' if stays && self == Before::Base => Before::Dressed,
            '\u{1f3fb}'..='\u{1f3ff}' if self == Before::Base => Before::Dressed,
            '0'..='9' | '#' | '*' => Before::Key,
            c if is_pictograph(c) || takes_selector(c) => Before::Base,
            _ => Before::Other,
        }
    }
}

/// Unicode blocks that contain emoji. Wider than the property, but all characters in them are visible.
const fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{23ff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Other characters with an emoji form.
const fn takes_selector(c: char) -> bool {
    matches!(c, '©' | '®' | '‼' | '⁉' | '™' | 'ℹ' | 'Ⓜ' | '〰' | '〽' | '㊗' | '㊙')
        || matches!(c, '\u{25aa}'..='\u{25fe}' | '\u{2934}'..='\u{2935}')
}

fn write_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c => push(out, format_args!("\\u{{{:x}}}", u32::from(c))),
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    out.write_fmt(text).ok();
}

#[cfg(test)]
#[path = "visible_tests.rs"]
mod tests;
