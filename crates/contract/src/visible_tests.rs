use super::*;
use std::time::Duration;

/// One of each kind of character that must not be printed.
const HOSTILE: &str = "\0\u{7}\u{8}\r\u{1b}[2J\u{7f}\u{85}\u{9b}31m\u{9d}\u{ad}\u{34f}\u{61c}\u{115f}\u{17b4}\u{180e}\
    \u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{3164}\u{fe00}\
    \u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{ffff}\u{1d173}\u{e0001}\u{e0041}\u{e007f}\u{e0100}\u{10fffe}";

#[test]
fn hidden_characters_are_spelled_out() {
    for (text, shown) in [
        ("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u{1b}[2J\\u{1b}]0;x\\u{7}"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("exe\u{202e}txt", "exe\\u{202e}txt"),
        ("a\u{200b}b\u{e0041}", "a\\u{200b}b\\u{e0041}"),
        ("\u{9b}31m", "\\u{9b}31m"),
    ] {
        assert_eq!(visible(text), shown);
    }
    assert!(!visible(HOSTILE).contains(is_hidden));
}

#[test]
fn ordinary_text_stays() {
    for text in [
        "",
        "a plain line",
        "é e\u{301} Ω ñ ß",
        "日本語 한국어 עברית العربية हिन्दी",
        "C:\\dir\\u{1b}",
        "→ ✓ ⚠\u{fe0f} ❤\u{fe0f} 1\u{fe0f}\u{20e3} ©\u{fe0f}",
        "👍🏽 👨\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 👩🏽\u{200d}💻",
    ] {
        assert!(matches!(visible(text), Cow::Borrowed(_)) || visible(text) == text, "{text}");
        assert_eq!(visible(text), text);
    }
}

#[test]
fn parts_of_an_emoji_hide_nowhere_else() {
    for (text, shown) in [
        ("v1\u{fe0f}", "v1\\u{fe0f}"),
        ("a\u{200d}b", "a\\u{200d}b"),
        ("👍\u{200d}a", "👍\\u{200d}a"),
        ("⚠\u{fe0f}\u{fe0f}", "⚠\u{fe0f}\\u{fe0f}"),
        ("⚠\u{fe0e}", "⚠\\u{fe0e}"),
        ("\u{200d}👍", "\\u{200d}👍"),
        ("👍\u{200d}", "👍\\u{200d}"),
    ] {
        assert_eq!(visible(text), shown);
    }
}

#[test]
fn bytes_that_are_not_text_are_seen() {
    assert_eq!(visible_bytes(b"a\xff\xc3b\x1b\xed\xa0\x80"), "a\\xff\\xc3b\\u{1b}\\xed\\xa0\\x80");
    assert_eq!(visible_bytes("é".as_bytes()), "é");
    assert_eq!(visible_name("x\ny"), "x\\ny");
}

#[test]
fn the_start_of_a_text_is_marked_as_one() {
    assert_eq!(visible_start("é\u{1b}x", 2), "é\\u{1b}…");
    assert_eq!(visible_start("é\u{1b}", 2), "é\\u{1b}");
}

#[test]
fn lines_of_others_are_indented() {
    let text = "one\ttab\r\nbelljar: all is well\n\u{1b}[1Aerror: none\rx";
    let shown = visible_lines(text, "    ");
    assert_eq!(shown, "one\ttab\n    belljar: all is well\n    \\u{1b}[1Aerror: none\\rx");
    assert_eq!(visible_lines("", "  "), "");
}

#[test]
fn only_own_sequences_pass_a_page() {
    let own = ["\u{1b}[1m", "\u{1b}[0m"];
    let page = "\u{1b}[1mtitle\u{1b}[0m\n\tx \u{1b}[8mhidden\u{1b}[2J\u{1b}\u{9b}0m\r\u{202e}\n";
    let shown = "\u{1b}[1mtitle\u{1b}[0m\n\tx \\u{1b}[8mhidden\\u{1b}[2J\\u{1b}\\u{9b}0m\\r\\u{202e}\n";
    assert_eq!(visible_page(page, &own), shown);
    assert_eq!(visible_page(shown, &own), shown);
    assert!(matches!(visible_page("plain\n", &own), Cow::Borrowed(_)));
}

#[test]
fn json_means_the_same() {
    let value = serde_json::json!({"text": HOSTILE, "⚠\u{fe0f}": ["\u{e0041}"]});
    let printed = format!("{value:#}\n");
    let shown = visible_json(&printed);
    assert!(!shown.contains(|c| is_hidden(c) && c != '\n'), "{shown}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
}

/// A hidden character that escaping may leave: a part of an emoji.
fn is_left(c: char) -> bool {
    matches!(c, '\u{fe0f}' | '\u{200d}')
}

#[test]
fn fuzz_visible_bytes() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(|bytes: &[u8]| {
        let shown = visible_bytes(bytes);
        assert!(!shown.contains(|c| is_hidden(c) && !is_left(c)), "{shown:?}");
        assert_eq!(visible(&shown), shown, "what is clean changes");
        assert!(shown.len() <= bytes.len() * 6, "{} bytes became {}", bytes.len(), shown.len());
    });
}

#[test]
fn fuzz_visible_text() {
    let letters: Vec<char> =
        HOSTILE.chars().chain("aé日👍⚠1\n\t\u{1b}[1m\u{1b}[0m\u{20e3}".chars()).collect();
    let own = ["\u{1b}[1m", "\u{1b}[0m"];
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(|choice: &[u8]| {
        let text: String = choice.iter().map(|byte| letters[usize::from(*byte) % letters.len()]).collect();
        let shown = visible(&text);
        assert!(!shown.contains(|c| is_hidden(c) && !is_left(c)), "{shown:?}");
        assert!(shown.len() <= text.len() * 6);
        for line in visible_lines(&text, "  ").split('\n').skip(1) {
            assert!(line.starts_with("  "), "{line:?}");
        }
        let page = visible_page(&text, &own);
        let rest = own.iter().fold(page.to_string(), |page, own| page.replace(own, ""));
        assert!(!rest.contains(|c| is_hidden(c) && !is_left(c) && !matches!(c, '\n' | '\t')), "{rest:?}");
        assert_eq!(visible_page(&page, &own), page);
        let value = serde_json::Value::String(text);
        let printed = value.to_string();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&visible_json(&printed)).unwrap(), value);
    });
}
