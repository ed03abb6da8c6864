//! Normalisers that a suite declares: patterns for values that differ from run to run and say nothing.
//!
//! Each text is changed in one pass: what a pattern matches becomes a mark with the normaliser's name, and what looked like
//! such a mark before is escaped. So two texts become equal only if they are equal outside of the matches.

use crate::{Digest, Letters, Pattern, canonical_json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::Range;

/// The maximum number of normalisers that a suite declares.
pub const MOST_NORMALISERS: usize = 20;

/// The maximum length of a pattern in bytes.
const LONGEST_PATTERN: usize = 500;

/// A longer text is compared as it is.
const LONGEST_TEXT: usize = 1 << 20;

/// The maximum number of places in one text.
const MOST_PLACES: usize = 5_000;

/// How a mark begins.
const MARK: &str = "<suite:";

/// What no normaliser may match: plain texts of several kinds, without a value that differs from run to run.
const PROBES: [&str; 9] = [
    "The quick brown fox jumps over the lazy dog.",
    "PACK MY BOX WITH FIVE DOZEN LIQUOR JUGS!",
    "There are 3 files, 120 lines and 2 errors; 98.5 % passed (0 failed).",
    "/workspace/outputs/report.txt: done, see README.md",
    "{\"name\": \"value\", \"count\": 7, \"list\": [true, null]}",
    "fn main() { println!(\"{}\", x + 1); } // sh -c 'ls | wc -l' && echo $HOME",
    "# Title\n\n- [x] done\n- [ ] open\n\n| a | b |\n\nQ: why? A: 42\t<b>bold</b>\r\n",
    "Ja, schöne Grüße, 日本語.",
    " \n\t\n ",
];

/// A normaliser that a suite declares.
#[derive(Debug, Clone)]
pub struct SuiteNormaliser {
    pattern: Pattern,
    kept: TapeNormaliser,
}

impl Eq for SuiteNormaliser {}

impl PartialEq for SuiteNormaliser {
    fn eq(&self, other: &Self) -> bool {
        self.kept == other.kept
    }
}

/// A normaliser of a suite as a tape keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeNormaliser {
    pub name: String,
    /// A regular expression.
    pub pattern: String,
    /// Why the values say nothing.
    pub reason: String,
    /// The digest of its name and pattern.
    pub digest: Digest,
    /// How many different values it changed when the tape was recorded.
    #[serde(default)]
    pub values: u64,
    /// In how many requests.
    #[serde(default)]
    pub requests: u64,
}

impl TapeNormaliser {
    /// What it changed and why, in one line.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { name, pattern: _, reason, digest: _, values, requests } = self;
        let count =
            |number: &u64, one: &str| format!("{number} {one}{}", if *number == 1 { "" } else { "s" });
        format!("`{name}` changed {} in {} ({reason})", count(values, "value"), count(requests, "request"))
    }
}

/// Why a normaliser cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteNormaliserError {
    #[error("the name of a normaliser has 1 to 40 of `a` to `z`, `0` to `9` and `-`")]
    Name,
    #[error("pattern must have at most {LONGEST_PATTERN} bytes, not {bytes}")]
    Long { bytes: usize },
    #[error(transparent)]
    Pattern(#[from] crate::PatternError),
    #[error("the pattern matches the empty text")]
    Empty,
    #[error("the pattern has {count} groups; it may have one")]
    Groups { count: usize },
    #[error("the pattern matches `{found}` in plain text")]
    Broad { found: String },
    #[error("the normaliser `{name}` does not have the digest that is recorded with it")]
    Digest { name: String },
}

impl SuiteNormaliserError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Name | Self::Long { .. } | Self::Digest { .. } => None,
            Self::Pattern(error) => error.help(),
            Self::Empty => Some("require at least one character, such as `[0-9a-f]+` for `[0-9a-f]*`"),
            Self::Groups { .. } => Some("write `(?:…)` for a group that is not the value"),
            Self::Broad { .. } => Some(
                "write what stands around the value into the pattern, and the value in a group: `build ([0-9]+)`",
            ),
        }
    }
}

impl SuiteNormaliser {
    /// A normaliser from what a suite declares.
    ///
    /// # Errors
    /// If the pattern cannot be used, or would match plain text.
    pub fn new(name: &str, pattern: &str, reason: &str) -> Result<Self, SuiteNormaliserError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=40).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(SuiteNormaliserError::Name);
        }
        if pattern.len() > LONGEST_PATTERN {
            return Err(SuiteNormaliserError::Long { bytes: pattern.len() });
        }
        let compiled = Pattern::new(pattern, Letters::AsWritten)?;
        if compiled.is_match("") {
            return Err(SuiteNormaliserError::Empty);
        }
        if compiled.groups() > 1 {
            return Err(SuiteNormaliserError::Groups { count: compiled.groups() });
        }
        let all = PROBES.join("\n").repeat(50);
        let broad =
            PROBES.into_iter().chain([all.as_str()]).find_map(|probe| Some((probe, compiled.find(probe)?)));
        if let Some((probe, at)) = broad {
            let found: String = probe[at].chars().take(40).collect();
            return Err(SuiteNormaliserError::Broad { found });
        }
        let digest = canonical_json(&json!({"name": name, "pattern": pattern}));
        let kept = TapeNormaliser {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            reason: reason.to_owned(),
            digest: Digest::of(digest.as_bytes()),
            values: 0,
            requests: 0,
        };
        Ok(Self { pattern: compiled, kept })
    }

    /// The normaliser that a tape was recorded with. The same rules hold for it.
    ///
    /// # Errors
    /// As [`SuiteNormaliser::new`], and if the digest is not that of the pattern.
    pub fn recorded(kept: &TapeNormaliser) -> Result<Self, SuiteNormaliserError> {
        let TapeNormaliser { name, pattern, reason, digest, values: _, requests: _ } = kept;
        let found = Self::new(name, pattern, reason)?;
        match found.kept.digest == *digest {
            true => Ok(found),
            false => Err(SuiteNormaliserError::Digest { name: name.clone() }),
        }
    }

    /// As a tape keeps it, before anything was changed.
    #[must_use]
    pub fn kept(&self) -> &TapeNormaliser {
        &self.kept
    }
}

/// Why a text cannot be normalised without losing what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// Nothing that says something would be left of it.
    Whole,
    /// There are more than [`MOST_PLACES`] matches.
    Places,
}

/// A place that is changed: the index of the normaliser, and the bytes.
pub type SuiteMatch = (usize, Range<usize>);

/// The places that normalisers change in a text, in their order. They do not overlap: of two that would, the first one
/// counts, and of two that begin together the one that was declared first.
///
/// # Errors
/// If the text cannot be normalised.
pub fn places(of: &[SuiteNormaliser], text: &str) -> Result<Vec<SuiteMatch>, Excess> {
    if text.len() > LONGEST_TEXT {
        return Ok(Vec::new());
    }
    let mut found: Vec<SuiteMatch> = Vec::new();
    for (index, one) in of.iter().enumerate() {
        let matches = one.pattern.places(text).take(MOST_PLACES + 1);
        found.extend(matches.map(|place| (index, place)));
    }
    found.sort_by_key(|(index, place)| (place.start, *index));
    let mut end = 0;
    found.retain(|(_, place)| {
        let free = place.start >= end;
        end = if free { place.end } else { end };
        free
    });
    if found.len() > MOST_PLACES {
        return Err(Excess::Places);
    }
    let says_something = |part: &str| part.chars().any(char::is_alphanumeric);
    let rest = between(&found, text);
    match found.is_empty() || rest.into_iter().any(says_something) {
        true => Ok(found),
        false => Err(Excess::Whole),
    }
}

/// The parts of a text outside of places: one more than places.
fn between<'t>(places: &[SuiteMatch], text: &'t str) -> Vec<&'t str> {
    let starts = std::iter::once(0).chain(places.iter().map(|(_, place)| place.end));
    let ends = places.iter().map(|(_, place)| place.start).chain([text.len()]);
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// A text with marks in these places; `None` if it stays as it is.
#[must_use]
pub fn marked(of: &[SuiteNormaliser], places: &[SuiteMatch], text: &str) -> Option<String> {
    if places.is_empty() && !text.contains(MARK) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    for (at, part) in between(places, text).into_iter().enumerate() {
        if let Some((index, _)) = at.checked_sub(1).map(|at| &places[at]) {
            out.push_str(&format!("{MARK}{}>", of[*index].kept.name));
        }
        out.push_str(&part.replace(MARK, &format!("{MARK}:")));
    }
    Some(out)
}

/// A normalised text; `None` if it stays as it is. One that cannot be normalised stays so.
#[must_use]
pub fn normalised(of: &[SuiteNormaliser], text: &str) -> Option<String> {
    if of.is_empty() {
        return None;
    }
    marked(of, &places(of, text).unwrap_or_default(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Vec<SuiteNormaliser> {
        vec![
            SuiteNormaliser::new("build", "build ([0-9]+)", "a counter").unwrap(),
            SuiteNormaliser::new("hash", "[0-9a-f]{8}z", "random").unwrap(),
        ]
    }

    #[test]
    fn a_pattern_that_matches_plain_text_is_refused() {
        for pattern in [
            ".*",
            "(?s).+",
            ".+",
            "",
            "a*",
            "x?",
            r"\b",
            "^",
            "$",
            "(?m)^",
            r"\w+",
            "[a-z]{3}",
            r"\d+",
            "[^Ω]",
            r"\s+",
            r"(?s).{300}",
            "(?s)Q:.*",
            r".{60,}",
            "日",
            r"[A-Z]{2}",
            "e.*",
            "\n\n",
            "true|false",
            "/workspace.*",
            "[|]",
        ] {
            let found = SuiteNormaliser::new("x", pattern, "r");
            assert!(
                matches!(found, Err(SuiteNormaliserError::Empty | SuiteNormaliserError::Broad { .. })),
                "{pattern}: {found:?}"
            );
            assert!(found.unwrap_err().help().is_some());
        }
        for pattern in
            ["build-[0-9]+", r"took (\d+) ms", "[0-9a-f]{8}", r"\d{4}-\d{2}-\d{2}", "run id: (?:[a-z0-9]+)"]
        {
            SuiteNormaliser::new("x", pattern, "r").unwrap();
        }
        for (pattern, why) in [
            ("(a)b(c)1z", "2 groups"),
            ("(?=zzz)zzz", "look-around"),
            ("(zq{1000}){1000}", "too large"),
            (&"zq".repeat(300), "at most 500"),
        ] {
            let error = SuiteNormaliser::new("x", pattern, "r").unwrap_err().to_string();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }

    #[test]
    fn only_the_group_is_replaced_and_marks_cannot_be_forged() {
        let of = build();
        let text = |text: &str| normalised(&of, text);
        assert_eq!(text("done: build 17, ok").unwrap(), "done: build <suite:build>, ok");
        assert_eq!(text("build 1 and build 2").unwrap(), "build <suite:build> and build <suite:build>");
        assert_eq!(text("nothing"), None);
        assert_eq!(text("build <suite:build>").unwrap(), "build <suite::build>");
        // What would leave nothing stays as it is.
        assert_eq!(text("0123abcdz"), None);
        assert_eq!(places(&of, "0123abcdz, 0123abcdz!"), Err(Excess::Whole));
        assert_eq!(places(&of, &"build 1 ".repeat(MOST_PLACES + 1)), Err(Excess::Places));
        assert_eq!(text(&format!("build 1{}", " ".repeat(LONGEST_TEXT))), None);
        assert_eq!(normalised(&[], "<suite:"), None);
    }

    #[test]
    fn a_recorded_normaliser_is_held_to_the_same_rules() {
        let kept = build().remove(0).kept().clone();
        assert_eq!(SuiteNormaliser::recorded(&kept).unwrap(), build()[0]);
        let other = TapeNormaliser { pattern: "build (x[0-9]+)".to_owned(), ..kept.clone() };
        let error = SuiteNormaliser::recorded(&other).unwrap_err();
        assert_eq!(error, SuiteNormaliserError::Digest { name: "build".to_owned() });
        assert_eq!(SuiteNormaliser::new("a>", "zq", "r"), Err(SuiteNormaliserError::Name));
        let broad = TapeNormaliser { pattern: ".*".to_owned(), ..kept };
        assert_eq!(SuiteNormaliser::recorded(&broad).unwrap_err(), SuiteNormaliserError::Empty);
    }

    /// What texts are made of.
    const PIECES: [&str; 12] = [
        "build ",
        "1",
        "23",
        "build 4",
        "0123abcdz",
        "<suite:",
        "build>",
        ":",
        "<suite:build>",
        " ",
        "é",
        "words",
    ];

    /// Equal normalised texts are equal outside of the matches: a change there is never hidden.
    #[test]
    fn fuzz_a_change_outside_of_the_matches_is_never_hidden() {
        let of = build();
        let outside = |text: &str| match places(&of, text) {
            Ok(places) => between(&places, text).into_iter().map(str::to_owned).collect(),
            Err(_) => vec![text.to_owned()],
        };
        let read = |bytes: &[u8]| -> String {
            bytes.iter().map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect()
        };
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(left, right)| {
            for (left, right) in [(read(left), read(right)), (read(left), read(&left[..left.len() / 2]))] {
                let alike = |text: &String| normalised(&of, text).unwrap_or_else(|| text.clone());
                if alike(&left) == alike(&right) {
                    let both: [Vec<String>; 2] = [outside(&left), outside(&right)];
                    assert_eq!(both[0], both[1], "{left:?} {right:?}");
                }
            }
        });
    }

    #[test]
    fn fuzz_any_pattern_and_text() {
        bolero::check!().with_type::<(String, String)>().for_each(|(pattern, text)| {
            if let Ok(one) = SuiteNormaliser::new("x", pattern, "r") {
                let of = [one];
                assert_eq!(normalised(&of, text), normalised(&of, text));
                assert!(PROBES.iter().all(|probe| normalised(&of, probe).is_none()));
            }
        });
    }
}
