//! What a judge is shown of a run, within limits. A quote of the judge must occur in it.

use belljar_contract::{ClaimScope, FileKind, FilesSeen, Observation, Speaker};
use std::borrow::Cow;

/// The most bytes of the last message.
const FINAL_MESSAGE: usize = 32 << 10;
/// The most bytes of the transcript.
const TRANSCRIPT: usize = 128 << 10;
/// The most bytes of everything together.
const IN_ALL: usize = 256 << 10;

/// A file gets no less room than this, in bytes.
const WORTH_SHOWING: usize = 512;

/// The most parts that are named as left out.
const MOST_NAMED: usize = 20;

/// What a judge is shown of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The agent's last message.
    pub final_message: String,
    /// Everything that the agent said.
    pub transcript: String,
    /// The files that it made or changed, by path, as far as they are text.
    pub files: Vec<(String, String)>,
    /// What a limit left out, a sentence each. A claim about the whole cannot be decided then.
    pub left_out: Vec<String>,
}

impl Material {
    /// Gathers what the agent said and wrote. What is too long loses its middle.
    pub fn of<'a>(
        seen: impl IntoIterator<Item = &'a Observation>,
        files: Option<&FilesSeen>,
        scope: ClaimScope,
    ) -> Self {
        let said = seen.into_iter().filter_map(|what| {
            let Observation::Said { by, text } = what else { return None };
            Some((by, text.as_str()))
        });
        let (mut last, mut texts) = ("", Vec::new());
        for (by, text) in said {
            match (by, scope) {
                (Speaker::Main, _) => {
                    last = text;
                    texts.push(text);
                }
                (Speaker::SubAgent { .. }, ClaimScope::WithSubAgents) => texts.push(text),
                (Speaker::SubAgent { .. }, ClaimScope::Agent) => {}
            }
        }
        let said = texts.join("\n");
        let (final_message, transcript) = (bounded(last, FINAL_MESSAGE), bounded(&said, TRANSCRIPT));
        let room = IN_ALL.saturating_sub(final_message.len() + transcript.len());
        let mut out = Self { final_message, transcript, ..Self::default() };
        // A last message that is too long is whole in a transcript that is not.
        if said.len() > TRANSCRIPT {
            out.left_out.push(beyond("the transcript", said.len() as u64, TRANSCRIPT));
        }
        if let Some(files) = files {
            out.authored(files, room);
            let unread = files.unread.iter().map(|path| format!("a file was not read: {path}"));
            out.left_out.extend(unread);
        }
        let more = out.left_out.len().saturating_sub(MOST_NAMED);
        out.left_out.truncate(MOST_NAMED);
        if more > 0 {
            out.left_out.push(format!("{more} more"));
        }
        out
    }

    /// Adds the files that the agent made or changed, in the order of their paths, until the room is used up.
    fn authored(&mut self, files: &FilesSeen, mut room: usize) {
        for (path, file) in &files.after {
            // A file without a digest was too long to be read, before and after.
            let same = files.before.get(path).is_some_and(|before| before.digest == file.digest);
            if (same && file.digest.is_some()) || file.kind != FileKind::File {
                continue;
            }
            let what = format!("the file `{path}`");
            let Some(body) = file.body.as_deref() else {
                self.left_out.push(format!("{what} ({} bytes) was not kept", file.bytes));
                continue;
            };
            let text = &*shown(body);
            if room < WORTH_SHOWING {
                self.left_out.push(beyond(&what, text.len() as u64, IN_ALL));
                continue;
            }
            if text.len() > room {
                self.left_out.push(beyond(&format!("the middle of {what}"), text.len() as u64, IN_ALL));
            }
            let text = bounded(text, room);
            room = room.saturating_sub(text.len() + path.len());
            self.files.push((path.clone(), text));
        }
    }

    /// Whether a quote occurs in it, whatever the white space.
    #[must_use]
    pub fn holds(&self, quote: &str) -> bool {
        let quote = plain(quote);
        let is_long = quote.chars().filter(|letter| letter.is_alphanumeric()).count() >= LEAST_QUOTE;
        let fits = |text: &String| {
            let text = plain(text);
            if is_long { text.contains(&quote) } else { text == quote }
        };
        let texts = [&self.final_message, &self.transcript].into_iter();
        !quote.is_empty() && texts.chain(self.files.iter().map(|(_, text)| text)).any(fits)
    }
}

/// The letters and digits that a quote needs to show anything, unless it is a whole text.
const LEAST_QUOTE: usize = 4;

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A file as the judge sees it. No file is left out in silence; one with a NUL byte is named, others are texts.
fn shown(body: &[u8]) -> Cow<'_, str> {
    if body.contains(&0) {
        return Cow::Owned(format!("(not text, {} bytes)", body.len()));
    }
    String::from_utf8_lossy(body)
}

fn beyond(what: &str, bytes: u64, limit: usize) -> String {
    format!("{what} ({bytes} bytes) does not fit in the limit of {limit} bytes")
}

/// The text, or its beginning and its end with a note between them.
fn bounded(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let note = format!("\n[{} bytes are left out here]\n", text.len() - limit);
    let half = limit.saturating_sub(note.len()) / 2;
    let (from, to) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}{note}{}", &text[..from], &text[to..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{CallId, Digest, FileSeen};

    fn said(by: Speaker, text: &str) -> Observation {
        Observation::Said { by, text: text.to_owned() }
    }

    fn file(text: &[u8]) -> FileSeen {
        let (bytes, digest) = (text.len() as u64, Some(Digest::of(text)));
        FileSeen { kind: FileKind::File, bytes, digest, kept: None, body: Some(text.to_vec()) }
    }

    #[test]
    fn a_judge_sees_what_the_agent_said_and_wrote() {
        let call = CallId::new("c").unwrap();
        let seen = [
            said(Speaker::Main, "first"),
            said(Speaker::SubAgent { call }, "below"),
            said(Speaker::Main, "last  word"),
        ];
        let files = FilesSeen {
            lasting: Default::default(),
            before: [("same".to_owned(), file(b"same")), ("old".to_owned(), file(b"old"))].into(),
            after: [
                ("same".to_owned(), file(b"same")),
                ("old".to_owned(), file(b"changed")),
                ("latin".to_owned(), file(b"a loss \xe9")),
                ("picture".to_owned(), file(b"\xff\0")),
            ]
            .into(),
            visible: Vec::new(),
            read_only: Vec::new(),
            unread: Vec::new(),
        };
        let own = Material::of(&seen, Some(&files), ClaimScope::Agent);
        assert_eq!(
            (own.final_message.as_str(), own.transcript.as_str()),
            ("last  word", "first\nlast  word")
        );
        let shown = [("latin", "a loss \u{fffd}"), ("old", "changed"), ("picture", "(not text, 2 bytes)")];
        assert_eq!(own.files, shown.map(|(path, text)| (path.to_owned(), text.to_owned())));
        assert!(own.holds("last word") && own.holds("changed") && own.holds("first last"));
        assert!(!own.holds("below") && !own.holds(" ") && !own.holds("same"));
        assert!(Material::of(&seen, None, ClaimScope::WithSubAgents).holds("below"));
    }

    #[test]
    fn no_part_is_longer_than_its_limit() {
        let long = "é".repeat(TRANSCRIPT);
        let seen = [said(Speaker::Main, &long)];
        let mut files = FilesSeen {
            lasting: Default::default(),
            before: Default::default(),
            after: Default::default(),
            visible: Vec::new(),
            read_only: Vec::new(),
            unread: Vec::new(),
        };
        for name in ["a", "b"] {
            files.after.insert(name.to_owned(), file(long.as_bytes()));
        }
        let found = Material::of(&seen, Some(&files), ClaimScope::Agent);
        assert!(found.final_message.len() <= FINAL_MESSAGE && found.transcript.len() <= TRANSCRIPT);
        let written: usize = found.files.iter().map(|(_, text)| text.len()).sum();
        assert!(found.final_message.len() + found.transcript.len() + written <= IN_ALL, "{written}");
        assert!(found.transcript.contains("bytes are left out here"));
        let left_out = found.left_out.join("\n");
        for named in ["the transcript (262144 bytes)", "the middle of the file `a`", "the file `b`"] {
            assert!(left_out.contains(named), "{named}: {left_out}");
        }
        assert!(left_out.contains("the limit of 131072 bytes"), "{left_out}");
    }

    #[test]
    fn what_is_shown_whole_leaves_nothing_out() {
        let last = "word ".repeat(FINAL_MESSAGE / 4);
        let mut files = FilesSeen::default();
        files.after.insert("a".to_owned(), file(b"short"));
        let whole =
            |files: &FilesSeen| Material::of(&[said(Speaker::Main, &last)], Some(files), ClaimScope::Agent);
        assert!(whole(&files).final_message.len() <= FINAL_MESSAGE, "the transcript has all of it");
        assert_eq!(whole(&files).left_out, [""; 0]);
        let not_kept = FileSeen { body: None, ..file(b"longer than what is kept") };
        files.after.insert("b".to_owned(), not_kept);
        assert_eq!(whole(&files).left_out, ["the file `b` (24 bytes) was not kept"]);
    }
}
