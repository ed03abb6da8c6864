//! What a judge is shown of a run, within limits. A quote of the judge must occur in it.

use belljar_contract::{ClaimScope, FileKind, FilesSeen, Observation, Speaker};

/// The most bytes of the last message.
const FINAL_MESSAGE: usize = 32 << 10;
/// The most bytes of the transcript.
const TRANSCRIPT: usize = 128 << 10;
/// The most bytes of everything together.
const IN_ALL: usize = 256 << 10;

/// A file gets no less room than this, in bytes.
const WORTH_SHOWING: usize = 512;

/// What a judge is shown of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The agent's last message.
    pub final_message: String,
    /// Everything that the agent said.
    pub transcript: String,
    /// The files that it made or changed, by path, as far as they are text.
    pub files: Vec<(String, String)>,
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
        let final_message = bounded(last, FINAL_MESSAGE);
        let transcript = bounded(&texts.join("\n"), TRANSCRIPT);
        let room = IN_ALL.saturating_sub(final_message.len() + transcript.len());
        Self {
            final_message,
            transcript,
            files: files.map(|files| authored(files, room)).unwrap_or_default(),
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

/// The files that the agent made or changed, in the order of their paths, until the room is used up.
fn authored(files: &FilesSeen, mut room: usize) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (path, file) in &files.after {
        let changed = files.before.get(path).is_none_or(|before| before.digest != file.digest);
        if !changed || file.kind != FileKind::File || room < WORTH_SHOWING {
            continue;
        }
        let Some(Ok(text)) = file.body.as_deref().map(std::str::from_utf8) else { continue };
        let text = bounded(text, room);
        room = room.saturating_sub(text.len() + path.len());
        out.push((path.clone(), text));
    }
    out
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
                ("picture".to_owned(), file(b"\xff")),
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
        assert_eq!(own.files, [("old".to_owned(), "changed".to_owned())]);
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
    }
}
