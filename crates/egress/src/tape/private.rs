//! Private data that should not be shared with a tape: home directories, email addresses, and texts that look like keys.
//!
//! Each kind has a normaliser of the same name. A scrubbed tape lists it, so that the requests of a replay are treated in
//! the same way as the recorded ones.

use super::normaliser::Normaliser;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The home directory inside every sandbox.
const HOME_INSIDE: &str = "/home/agent";

static HOME: LazyLock<Regex> = LazyLock::new(|| pattern(r"/(?:home|Users)/[A-Za-z0-9._-]+|/root/"));
static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
});
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?-u:\b)(?:sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}",
        r"|glpat-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}",
        r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})",
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]*-----END [A-Z ]*PRIVATE KEY-----)?",
    ))
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a test compiles every pattern")
}

/// A kind of private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Private {
    HomePath,
    Email,
    Token,
}

impl Private {
    pub const ALL: [Self; 3] = [Self::HomePath, Self::Email, Self::Token];

    /// A stable name for machines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HomePath => "home-path",
            Self::Email => "email",
            Self::Token => "token",
        }
    }

    #[must_use]
    pub const fn normaliser(self) -> Normaliser {
        match self {
            Self::HomePath => Normaliser::HomePath,
            Self::Email => Normaliser::Email,
            Self::Token => Normaliser::Token,
        }
    }

    fn mark(self) -> String {
        format!("[redacted:{}]", self.name())
    }

    /// Where a text contains it.
    #[must_use]
    pub fn places(self, text: &str) -> Vec<Range<usize>> {
        let pattern = match self {
            Self::HomePath => &HOME,
            Self::Email => &EMAIL,
            Self::Token => &TOKEN,
        };
        let found = pattern.find_iter(text).filter(|found| !self.is_not_private(found.as_str()));
        found.map(|found| found.range()).collect()
    }

    /// Whether a match is not private, because it is the same everywhere or does not belong to a person.
    fn is_not_private(self, found: &str) -> bool {
        match self {
            Self::HomePath => found == HOME_INSIDE,
            Self::Email => {
                let (name, host) = found.split_once('@').unwrap_or_default();
                let made_up = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
                ["git", "noreply", "no-reply"].contains(&name)
                    || ["example.com", "example.org", "example.net", "example"].into_iter().any(made_up)
            }
            Self::Token => false,
        }
    }

    /// The text with it redacted; `None` if it contains none.
    #[must_use]
    pub fn without(self, text: &str) -> Option<String> {
        let places = self.places(text);
        if places.is_empty() {
            return None;
        }
        let (mut out, mut from) = (String::new(), 0);
        for Range { start, end } in places {
            // The slash after a directory name is kept.
            let tail = if text[start..end].ends_with('/') { "/" } else { "" };
            out.push_str(&text[from..start]);
            out.push_str(&self.mark());
            out.push_str(tail);
            from = end;
        }
        Some(out + &text[from..])
    }
}

/// Whether a text contains a word on its own, not as a part of another.
#[must_use]
pub fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_found_and_its_near_miss_is_not() {
        let key = ["sk", "ant-api03-0123456789abcdef0123"].join("-");
        for (kind, text, without) in [
            (Private::HomePath, "in /home/maria/notes", "in [redacted:home-path]/notes"),
            (Private::HomePath, "/Users/m.x", "[redacted:home-path]"),
            (Private::HomePath, "in /root/notes", "in [redacted:home-path]/notes"),
            (Private::Email, "to maria@post.ch.", "to [redacted:email]."),
            (Private::Token, &format!("key={key};"), "key=[redacted:token];"),
        ] {
            assert_eq!(kind.without(text).as_deref(), Some(without), "{text}");
        }
        for (kind, text) in [
            (Private::HomePath, "/home/agent/.config and /home and /rooted"),
            (Private::Email, "git@forge.net, someone@example.org, a @b.c, x@y"),
            (Private::Token, "sk-short, task-0123456789abcdef0123456789, belljar-placeholder-not-a-key"),
        ] {
            assert_eq!(kind.without(text), None, "{text}");
        }
    }
}
