//! TOML written by hand: strings, keys and remarks that read back as what they were.

use belljar_contract::is_hidden;

/// `text` as a basic string on one line.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            _ => push(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// `text` as a basic string that keeps its lines, where it has several.
pub(crate) fn quote_lines(text: &str) -> String {
    if !text.contains('\n') {
        return quote(text);
    }
    // The format drops the newline right behind the opening quotes.
    let mut out = "\"\"\"\n".to_owned();
    let mut chars = text.chars().peekable();
    let mut before = None;
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.push('\n'),
            // A run of quotes, or one at the end, would close the string.
            '"' if before != Some('"') && chars.peek().is_some() => out.push('"'),
            '"' => out.push_str("\\\""),
            _ => push(&mut out, c),
        }
        before = Some(c);
    }
    out.push_str("\"\"\"");
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        _ if !is_hidden(c) => out.push(c),
        _ if u32::from(c) > 0xffff => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        _ => out.push_str(&format!("\\u{:04X}", u32::from(c))),
    }
}

/// A key of a table: bare where it can be.
pub(crate) fn key(text: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !text.is_empty() && text.bytes().all(bare) { text.to_owned() } else { quote(text) }
}

/// A list of strings on one line.
pub(crate) fn quote_list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quote(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A stranger's text as part of a comment: one line, bounded, nothing hidden.
pub(crate) fn remark(text: &str) -> String {
    const LIMIT: usize = 160;
    let visible: String = text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    let visible = visible.trim();
    match visible.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &visible[..end]),
        None => visible.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse_toml;
    use belljar_contract::decode::Kind;

    fn read_back(value: &str) -> String {
        let text = format!("k = {value}\n");
        let table = parse_toml(&text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        let Kind::String(text) = table.get("k").unwrap().kind.clone() else { panic!("a string") };
        text
    }

    #[test]
    fn strings_read_back_as_they_were() {
        let every: String = (0..0x3000).filter_map(char::from_u32).collect();
        for text in [
            "",
            " ",
            "a",
            "\"",
            "\"\"",
            "\"\"\"",
            "a\"\"\"\"b",
            "\\",
            "\\n",
            "a\\",
            "$(rm -rf /)",
            "`x`",
            "'''",
            "\n",
            "\n\n",
            "a\nb",
            "a\r\nb\r",
            "\n\"",
            "\"\n\"\"\"\n\"\"",
            "a \\\n  b",
            "\t\u{b}\u{7f}\u{85}\0\u{1b}[31m",
            "é 日本 😀 👩\u{200d}💻",
            "\u{202e}abc\u{feff}\u{2028}",
            "\u{fffe}\u{10ffff}",
            "# not a comment",
            &every,
        ] {
            assert_eq!(read_back(&quote(text)), text);
            assert_eq!(read_back(&quote_lines(text)), text);
            assert!(!quote(text).contains('\n'));
        }
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        assert_eq!(quote("a\u{202e}\u{7}\"\\"), r#""a\u202E\u0007\"\\""#);
        assert_eq!(
            quote_lines("say \"hi\"\nand \"\"\"\n\""),
            "\"\"\"\nsay \"hi\"\nand \"\\\"\\\"\n\\\"\"\"\""
        );
        assert_eq!(remark(" a\nkey = 1\u{202e} "), "a key = 1");
        assert_eq!(remark(&"x".repeat(200)).chars().count(), 161);
    }

    #[test]
    fn keys() {
        for (text, written) in [("a-B_9", "a-B_9"), ("a.b", "\"a.b\""), ("", "\"\""), ("é", "\"é\"")] {
            assert_eq!(key(text), written);
        }
    }
}
