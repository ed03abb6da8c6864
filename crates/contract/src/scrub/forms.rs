//! The forms in which a value occurs in texts: as it is, and in common encodings.

use super::wrapped::Wrapped;
use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::BTreeSet;
use std::fmt::Write;
use zeroize::Zeroizing;

/// Above this length only the usual forms are searched for: the rare ones take several times the value's length.
const RARE_FORMS_UP_TO: usize = 2048;

/// Above this length base64 with line breaks is not searched for: long patterns around a break make the search slow.
const WRAPPED_UP_TO: usize = 256;

/// Every searched form of a value, except [`wrapped`] ones; the memory is cleared on drop.
pub(super) fn forms(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut found = BTreeSet::from([value.to_vec()]);
    base64_forms(value, &mut found);
    if let Ok(text) = std::str::from_utf8(value) {
        json_forms(text, &mut found);
    }
    // Names and targets of links are escaped, or their bytes replaced, before some of them are searched.
    found.insert(crate::visible_bytes(value).into_bytes());
    found.insert(String::from_utf8_lossy(value).into_owned().into_bytes());
    if value.len() <= RARE_FORMS_UP_TO {
        percent_forms(value, &mut found);
        found.insert(hex(value, Case::Lower).into_bytes());
        found.insert(hex(value, Case::Upper).into_bytes());
    }
    found.into_iter().map(Zeroizing::new).collect()
}

#[derive(Clone, Copy)]
enum Case {
    Lower,
    Upper,
}

fn hex(value: &[u8], case: Case) -> String {
    value.iter().fold(String::new(), |text, byte| text + &hex_byte(*byte, case))
}

fn hex_byte(byte: u8, case: Case) -> String {
    match case {
        Case::Lower => format!("{byte:02x}"),
        Case::Upper => format!("{byte:02X}"),
    }
}

/// Base64 of the value at any position in a longer text, once for each of three alignments: the characters that
/// depend on the value only, and the final characters if the value is at the end.
fn base64(engine: &GeneralPurpose, value: &[u8]) -> [(Zeroizing<String>, Zeroizing<String>); 3] {
    [0, 1, 2].map(|ahead| {
        let mut bytes = Zeroizing::new(vec![0; ahead]);
        bytes.extend_from_slice(value);
        let whole = Zeroizing::new(engine.encode(&*bytes));
        // The first character without bits of the preceding bytes, and the last one without bits of the following
        // bytes.
        let from = (ahead * 8).div_ceil(6);
        let until = bytes.len() * 8 / 6;
        let padding = "=".repeat((3 - bytes.len() % 3) % 3);
        (Zeroizing::new(whole[from..until].to_owned()), Zeroizing::new(whole[until..].to_owned() + &padding))
    })
}

/// Base64 that may be broken over lines. The URL-safe alphabet is not wrapped.
pub(super) fn wrapped(value: &[u8]) -> Vec<Wrapped> {
    if value.len() > WRAPPED_UP_TO {
        return Vec::new();
    }
    base64(&STANDARD_NO_PAD, value)
        .map(|(decided, _end)| Wrapped(Zeroizing::new(decided.as_bytes().to_vec())))
        .into()
}

fn base64_forms(value: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        for (decided, end) in base64(engine, value) {
            let unpadded = end.trim_end_matches('=');
            for end in ["", unpadded, end.as_str()] {
                let text = Zeroizing::new(format!("{}{end}", *decided));
                // Base64 text also occurs in JSON and in query strings.
                for (plus, slash, equals) in [
                    ("+", "/", "="),
                    ("+", "\\/", "="),
                    ("%2B", "%2F", "%3D"),
                    ("%2b", "%2f", "%3d"),
                    ("\\u002B", "/", "="),
                ] {
                    let text = text.replace('=', equals).replace('/', slash).replace('+', plus);
                    found.insert(text.into_bytes());
                }
            }
        }
    }
}

/// Characters that encoders do not encode, besides letters and digits.
const LEFT_ALONE: [&[u8]; 6] = [
    // Encodes everything, even letters; see below.
    b"",
    // The unreserved characters of RFC 3986.
    b"-._~",
    // The same and the slash, as in a path.
    b"-._~/",
    // As encodeURIComponent does.
    b"-._~!*'()",
    // As encodeURI does.
    b"-._~!*'();/?:@&=+$,#",
    // As HTML forms do, which encode a space as a plus.
    b"-._*",
];

fn percent_forms(value: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    for case in [Case::Lower, Case::Upper] {
        let encoded = |byte: u8| format!("%{}", hex_byte(byte, case)).into_bytes();
        for alone in LEFT_ALONE {
            let byte = |byte: &u8| match byte {
                byte if alone.contains(byte) => vec![*byte],
                byte if !alone.is_empty() && byte.is_ascii_alphanumeric() => vec![*byte],
                byte => encoded(*byte),
            };
            let text: Vec<u8> = value.iter().flat_map(byte).collect();
            if value.contains(&b' ') {
                found.insert(String::from_utf8_lossy(&text).replace("%20", "+").into_bytes());
            }
            found.insert(text);
        }
    }
}

/// Characters that a JSON serialiser escapes although it need not.
#[derive(Clone, Copy)]
enum Cautious {
    No,
    /// `<`, `>` and `&`, for embedding in HTML.
    Html,
    /// Those, quotes and `=`.
    HtmlAndQuotes,
    /// Those, plus and backquote, and `"` as a code point.
    ByNumber,
    Everything,
}

#[derive(Clone, Copy)]
struct JsonStyle {
    cautious: Cautious,
    slash: &'static str,
    ascii_only: bool,
    case: Case,
}

fn json_forms(text: &str, found: &mut BTreeSet<Vec<u8>>) {
    let plain = JsonStyle { cautious: Cautious::No, slash: "/", ascii_only: false, case: Case::Lower };
    // JSON within JSON, as logs quote it.
    found.insert(json(&json(text, plain), plain).into_bytes());
    if text.len() > RARE_FORMS_UP_TO {
        found.insert(json(text, plain).into_bytes());
        return;
    }
    for cautious in
        [Cautious::No, Cautious::Html, Cautious::HtmlAndQuotes, Cautious::ByNumber, Cautious::Everything]
    {
        for slash in ["/", "\\/"] {
            for ascii_only in [false, true] {
                for case in [Case::Lower, Case::Upper] {
                    found.insert(json(text, JsonStyle { cautious, slash, ascii_only, case }).into_bytes());
                }
            }
        }
    }
}

fn json(text: &str, style: JsonStyle) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let needless = match style.cautious {
            Cautious::No => false,
            Cautious::Html => "<>&\u{2028}\u{2029}".contains(character),
            Cautious::HtmlAndQuotes => "<>&='\u{2028}\u{2029}".contains(character),
            Cautious::ByNumber => "<>&'+`\"\u{7f}".contains(character),
            Cautious::Everything => true,
        };
        match character {
            character if needless => by_number(&mut out, character, style.case),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '/' => out.push_str(style.slash),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => by_number(&mut out, character, style.case),
            character if style.ascii_only && !character.is_ascii() => {
                by_number(&mut out, character, style.case)
            }
            character => out.push(character),
        }
    }
    out
}

fn by_number(out: &mut String, character: char, case: Case) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let written = match case {
            Case::Lower => write!(out, "\\u{unit:04x}"),
            Case::Upper => write!(out, "\\u{unit:04X}"),
        };
        debug_assert!(written.is_ok(), "a String takes every text");
    }
}

/// All forms of a value, including the wrapped ones.
#[cfg(test)]
pub(super) fn every_form(value: &[u8]) -> Vec<Vec<u8>> {
    let wrapped = wrapped(value)
        .into_iter()
        .flat_map(|Wrapped(text)| super::wrapped::tests::listed(&String::from_utf8_lossy(&text)));
    forms(value).iter().map(|form| form.to_vec()).chain(wrapped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(value: &[u8]) -> Vec<String> {
        every_form(value).iter().map(|form| String::from_utf8_lossy(form).into_owned()).collect()
    }

    #[test]
    fn forms_match_common_encoders() {
        let found = texts("p@ss/w \"ö+\\".as_bytes());
        for form in [
            "p@ss/w \"ö+\\",
            "p%40ss%2Fw%20%22%C3%B6%2B%5C",
            "p%40ss%2fw%20%22%c3%b6%2b%5c",
            "p%40ss/w%20%22%C3%B6%2B%5C",
            "p%40ss%2Fw+%22%C3%B6%2B%5C",
            "%70%40%73%73%2F%77%20%22%C3%B6%2B%5C",
            "p@ss/w \\\"ö+\\\\",
            "p@ss\\/w \\\"\\u00f6+\\\\",
            "p@ss/w \\u0022\\u00F6\\u002B\\\\",
            "p@ss/w \\\\\\\"ö+\\\\\\\\",
            "70407373",
        ] {
            assert!(found.iter().any(|one| one.starts_with(form)), "{form} is not among {found:#?}");
        }
    }

    #[test]
    fn base64_over_the_ends_of_lines() {
        for value in [&b"hunter2-and-more"[..], &[b'k'; 200]] {
            let found = texts(value);
            for ahead in 0..100 {
                let text = [&vec![b'a'; ahead], value, b"and what follows"].concat();
                let encoded = STANDARD_NO_PAD.encode(text);
                for (width, end) in [(76, "\n"), (76, "\r\n"), (64, "\n"), (76, "\\n")] {
                    let lines: Vec<_> =
                        encoded.as_bytes().chunks(width).map(String::from_utf8_lossy).collect();
                    let wrapped = lines.join(end);
                    assert!(found.iter().any(|form| wrapped.contains(form.as_str())), "{wrapped}");
                }
            }
        }
    }

    #[test]
    fn base64_at_every_place() {
        let value = b"hunter2-and-more";
        let found = texts(value);
        for ahead in ["", "u", "us", "use", "user", "user:"] {
            for behind in ["", "x", "xy", "xyz"] {
                let text = [ahead.as_bytes(), value, behind.as_bytes()].concat();
                let encoded = STANDARD_NO_PAD.encode(text);
                assert!(found.iter().any(|form| encoded.contains(form.as_str())), "{encoded}");
            }
        }
    }
}
