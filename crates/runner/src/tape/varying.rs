//! Values that may differ in each run, and the normaliser that would leave one out of the comparison.

use super::Difference;
use belljar_contract::{Pattern, SuiteNormaliser, normalised};
use belljar_session::decider::yaml_quoted;

/// The most characters of a value, and of the words beside it.
const VALUE: usize = 64;
const BESIDE: usize = 24;

/// A value that looks as if it differed in each run: a number, a time, an id, a part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Varying {
    /// A pattern for it; `None` if nothing stands beside the value by which a pattern could know it.
    pub pattern: Option<String>,
}

impl Varying {
    /// How the value is left out of the comparison, in lines.
    #[must_use]
    pub fn hint(&self) -> Vec<String> {
        match &self.pattern {
            None => vec![
                "hint: if this value differs in each run, print words around it, and name them in a pattern below \
                 `normalise` in the session"
                    .to_owned(),
            ],
            Some(pattern) => vec![
                "hint: if this value differs in each run, add this to the session, and record again".to_owned(),
                "  normalise:".to_owned(),
                "    - name: varying-value".to_owned(),
                format!("      pattern: {}", yaml_quoted(pattern)),
                "      reason: it differs in each run".to_owned(),
            ],
        }
    }
}

/// The first value of a difference, if the texts differ as they would in each run. Only what the user's side says can be
/// normalised.
#[must_use]
pub fn varying(difference: &Difference) -> Option<Varying> {
    let Difference { pointer, recorded, present, agent_texts, call: _ } = difference;
    if *agent_texts || !pointer.starts_with("/messages/") {
        return None;
    }
    of_texts(recorded.as_deref()?, present.as_deref()?)
}

fn of_texts(old: &str, new: &str) -> Option<Varying> {
    let (old_chars, new_chars): (Vec<char>, Vec<char>) = (old.chars().collect(), new.chars().collect());
    let same = old_chars.iter().zip(&new_chars).take_while(|(left, right)| left == right).count();
    let begin = same - old_chars[..same].iter().rev().take_while(|char| is_value(**char)).count();
    let begin = begin + label(&old_chars[begin..same]);
    let value = |text: &[char]| -> Vec<char> {
        text[begin..].iter().copied().take_while(|char| is_value(*char)).collect()
    };
    let (left, right) = (value(&old_chars), value(&new_chars));
    let is_named = old_chars[..begin].last() == Some(&'/') && left.len() == right.len();
    let has_digit = |text: &[char]| text.iter().any(char::is_ascii_digit);
    let fits = |text: &[char]| (1..=VALUE).contains(&text.len()) && (is_named || has_digit(text));
    if left == right || !fits(&left) || !fits(&right) {
        return None;
    }
    let only_digits = left.iter().chain(&right).all(char::is_ascii_digit);
    let class = if only_digits { "[0-9]+" } else { "[A-Za-z0-9_:.+-]+" };
    let before: String = beside(old_chars[..begin].iter().rev()).into_iter().rev().collect();
    let rest = old_chars[begin + left.len()..].iter().zip(&new_chars[begin + right.len()..]);
    let after: String =
        beside(rest.take_while(|(left, right)| left == right).map(|(left, _)| left)).into_iter().collect();
    let pattern = format!("{}({class}){}", Pattern::quoted(&before), Pattern::quoted(&after));
    let helps = |one: &[SuiteNormaliser]| {
        let with = |text: &str| normalised(one, text);
        matches!((with(old), with(new)), (Some(left), Some(right)) if shared(&left, &right) > same)
    };
    let normaliser = SuiteNormaliser::new("varying-value", &pattern, "it differs in each run").ok();
    Some(Varying { pattern: normaliser.filter(|one| helps(std::slice::from_ref(one))).map(|_| pattern) })
}

/// How many characters two texts share from their beginning; all of equal ones and more.
fn shared(left: &str, right: &str) -> usize {
    if left == right {
        return usize::MAX;
    }
    left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count()
}

/// What a number, a time or an id consists of.
fn is_value(char: char) -> bool {
    char.is_ascii_alphanumeric() || "_:.+-".contains(char)
}

/// The length of a word and a colon at the beginning, as in `port:8080`.
fn label(text: &[char]) -> usize {
    let word = text.iter().take_while(|char| char.is_ascii_alphabetic()).count();
    if word > 0 && text.get(word) == Some(&':') { word + 1 } else { 0 }
}

/// The characters next to a value, on its line.
fn beside<'c>(chars: impl Iterator<Item = &'c char>) -> Vec<char> {
    chars.copied().take_while(|char| !"\n\r…".contains(*char)).take(BESIDE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_words_beside_it_has_a_pattern() {
        for (old, new, pattern) in [
            ("Build 17 finished", "Build 18 finished", "Build ([0-9]+) finished"),
            ("serving at port:8080\n", "serving at port:41\n", "serving at port:([0-9]+)"),
            ("done at 12:30:05.", "done at 12:31:10.", "done at ([A-Za-z0-9_:.+-]+)"),
            ("one\nid=a7f3 two", "one\nid=b210 two", "id=([A-Za-z0-9_:.+-]+) two"),
            ("in /tmp/tmp.aXbYcZ/out", "in /tmp/tmp.QwErTy/out", "in /tmp/([A-Za-z0-9_:.+-]+)/out"),
            ("a 1 and b 2 end", "a 7 and b 8 end", "a ([0-9]+) and b "),
        ] {
            assert_eq!(of_texts(old, new).unwrap().pattern.as_deref(), Some(pattern), "{old}");
        }
    }

    #[test]
    fn a_value_alone_has_none_and_words_are_no_value() {
        assert_eq!(of_texts("1700000", "1700001"), Some(Varying { pattern: None }));
        for (old, new) in [("3 entries", "3 errors"), ("ok", ""), ("Hello you", "Hello me"), ("2 a", "two a")]
        {
            assert_eq!(of_texts(old, new), None, "{old}");
        }
    }
}
