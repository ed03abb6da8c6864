//! Snapshots that are equal on every machine: values that vary become placeholders.

use std::path::Path;

/// Replaces varying values in a command's output.
///
/// Literals are replaced first, in the order in which they were given, then digests, durations and versions, if
/// requested. Nothing is replaced by default: a snapshot that hides a number by accident proves less than it seems
/// to.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    literals: Vec<(String, String)>,
    kinds: Vec<Kind>,
}

/// A kind of value that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Digest,
    Duration,
    Version,
}

impl Redactor {
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces a text, such as an id that the test knows.
    #[must_use]
    pub fn literal(mut self, text: impl Into<String>, placeholder: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.literals.push((text, placeholder.into()));
        }
        self
    }

    /// Replaces a path, as given and with links resolved. Give a directory after the paths inside it.
    #[must_use]
    pub fn path(self, path: &Path, placeholder: &str) -> Self {
        let resolved = path.canonicalize().ok().filter(|resolved| resolved != path);
        let with_resolved = match resolved {
            Some(resolved) => self.literal(resolved.to_string_lossy(), placeholder),
            None => self,
        };
        with_resolved.literal(path.to_string_lossy(), placeholder)
    }

    /// Replaces words of at least 12 hexadecimal digits, with letters among them, by `[DIGEST]`.
    #[must_use]
    pub fn digests(mut self) -> Self {
        self.kinds.push(Kind::Digest);
        self
    }

    /// Replaces numbers with a unit of time (`12ms`, `1.5s`) by `[TIME]`.
    #[must_use]
    pub fn durations(mut self) -> Self {
        self.kinds.push(Kind::Duration);
        self
    }

    /// Replaces `1.2.3`, with or without a `v` and a suffix, by `[VERSION]`.
    #[must_use]
    pub fn versions(mut self) -> Self {
        self.kinds.push(Kind::Version);
        self
    }

    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (literal, placeholder) in &self.literals {
            text = text.replace(literal, placeholder);
        }
        self.redact_words(&text)
    }

    fn redact_words(&self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let in_word = |character: char| character.is_alphanumeric() || ".-+_".contains(character);
            let end = rest.find(|character| !in_word(character)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            // The full stop of a sentence is not part of its last word.
            let bare = word.trim_end_matches(['.', '-']);
            match self.kinds.iter().find(|kind| kind.is(bare)) {
                Some(kind) => {
                    redacted.push_str(kind.placeholder());
                    redacted.push_str(&word[bare.len()..]);
                }
                None => redacted.push_str(word),
            }
            let separator = after.chars().next().map_or(0, char::len_utf8);
            redacted.push_str(&after[..separator]);
            rest = &after[separator..];
        }
        redacted
    }
}

impl Kind {
    fn placeholder(self) -> &'static str {
        match self {
            Self::Digest => "[DIGEST]",
            Self::Duration => "[TIME]",
            Self::Version => "[VERSION]",
        }
    }

    fn is(self, word: &str) -> bool {
        match self {
            Self::Digest => {
                word.len() >= 12
                    && word.chars().all(|digit| digit.is_ascii_hexdigit())
                    && word.chars().any(|digit| digit.is_ascii_alphabetic())
            }
            Self::Duration => ["ns", "µs", "us", "ms", "s", "min", "m", "h"]
                .iter()
                .filter_map(|unit| word.strip_suffix(unit))
                .any(|number| number.ends_with(|digit: char| digit.is_ascii_digit()) && is_number(number)),
            Self::Version => {
                let word = word.strip_prefix('v').unwrap_or(word);
                let core = word.split(['-', '+']).next().unwrap_or_default();
                let mut parts = 0;
                let numeric = core.split('.').all(|part| {
                    parts += 1;
                    !part.is_empty() && part.chars().all(|digit| digit.is_ascii_digit())
                });
                numeric && parts == 3
            }
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok() && text.starts_with(|digit: char| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_replaced() {
        let text = "belljar 0.1.0 took 1.5s (12ms idle) for 0123456789abcdef.";
        assert_eq!(Redactor::new().redact(text), text);
        assert_eq!(
            Redactor::new().digests().durations().versions().redact(text),
            "belljar [VERSION] took [TIME] ([TIME] idle) for [DIGEST]."
        );
    }

    #[test]
    fn near_misses_stay() {
        let text = "127.0.0.1 1.2 v1 123456789012 deadbeef 3x s 5 lines 1.2.x é…";
        assert_eq!(Redactor::new().digests().durations().versions().redact(text), text);
        let text = "v1.2.3-rc.1+x, 1.2.3. 80µs";
        assert_eq!(Redactor::new().durations().versions().redact(text), "[VERSION], [VERSION]. [TIME]");
    }

    #[test]
    fn paths_are_replaced_as_given_and_as_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let text = format!("{}/a {}/b", link.display(), real.canonicalize().unwrap().display());
        assert_eq!(Redactor::new().path(&link, "[PROJECT]").redact(&text), "[PROJECT]/a [PROJECT]/b");
    }
}
