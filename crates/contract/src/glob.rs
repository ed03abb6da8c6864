//! Patterns in which some items stand for any number of others.

/// Whether `items` match `pattern`. An item of the pattern for which `any` holds stands for any number of items, none
/// included; of the others `fits` says which item each one stands for.
///
/// Only the last such item is ever tried again, so the time is bounded by the product of the lengths: a pattern may come
/// from a stranger's file.
pub fn glob_matches<P, T>(
    pattern: &[P],
    items: &[T],
    any: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while item < items.len() {
        if at < pattern.len() && any(&pattern[at]) {
            last = Some((at, item));
            at += 1;
        } else if at < pattern.len() && fits(&pattern[at], &items[item]) {
            at += 1;
            item += 1;
        } else if let Some((star, from)) = last {
            last = Some((star, from + 1));
            at = star + 1;
            item = from + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(any)
}

/// The same for text: `*` stands for any characters, `?` for one, and letter case counts.
#[must_use]
pub fn text_glob_matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    glob_matches(&pattern, &text, |part| *part == '*', |part, char| *part == '?' || part == char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_whole_and_as_written() {
        for (pattern, text, matches) in [
            ("Write", "Write", true),
            ("Write", "write", false),
            ("Write", "WriteFile", false),
            ("mcp__*", "mcp__files__read", true),
            ("*__read", "mcp__files__read", true),
            ("m*p*d", "mcp__files__read", true),
            ("m*p*x", "mcp__files__read", false),
            ("Re?d", "Read", true),
            ("Re?d", "Red", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a**b", "ab", true),
            ("?", "é", true),
        ] {
            assert_eq!(text_glob_matches(pattern, text), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn the_time_of_a_bad_case_is_a_product() {
        assert!(!text_glob_matches(&format!("{}b", "a*".repeat(60)), &"a".repeat(5000)));
    }
}
