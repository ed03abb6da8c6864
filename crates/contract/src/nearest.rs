//! "Did you mean …?"

/// A word longer than this is like none of the known ones, and comparing a megabyte takes time.
const LONGEST: usize = 80;

/// How much alike two words must be, from 0 to 1, before one is suggested for the other.
const ALIKE: f64 = 0.8;

/// The known word that `word` is most like, letter case ignored, if one is enough like it to be suggested.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let folded = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_suggested_and_strangers_are_not() {
        let known = ["source", "deny", "model", "thinking_display", "Changelog"];
        for (word, near) in [
            ("suorce", Some("source")),
            ("src", Some("source")),
            ("denied", Some("deny")),
            ("MODEL", Some("model")),
            ("thinking", Some("thinking_display")),
            ("chagelog", Some("Changelog")),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        assert_eq!(nearest(&"model".repeat(1000), known), None);
        assert_eq!(nearest("model", []), None);
    }
}
