//! Normalises texts of a run as the requests of a tape were normalised, so that both can be compared.
//!
//! A tape keeps normalised requests and unchanged responses. Normalisers that change each text on its own are applied to
//! the other texts too. Ids that were replaced by numbers are restored: the tape has them.

use super::agent_texts;
use super::normaliser::{Changes, Normaliser, SESSION, each_text};
use belljar_contract::{Exchange, ExchangeRequest, TapeId};
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// Finds what a text must contain to be changed by [`Changes::With`], as a reminder or with a session's id. Most texts
/// contain none of it, and one search is cheaper than one for each.
static CHANGEABLE: LazyLock<Regex> = LazyLock::new(|| {
    let with = Normaliser::ALL.into_iter().filter_map(|one| match one.changes() {
        Changes::With(part) => Some(part),
        Changes::None | Changes::Any => None,
    });
    let parts: Vec<String> = with.chain([agent_texts::OPEN, SESSION]).map(regex::escape).collect();
    Regex::new(&parts.join("|")).expect("escaped texts are a pattern")
});

/// Normalises texts in the way of one tape.
pub(crate) struct TextNormaliser {
    /// Normalisers that change each text on its own: before the agent's own texts are replaced by digests, and after.
    before: Vec<Normaliser>,
    after: Vec<Normaliser>,
    /// Whether one of them may change a text without a part that [`CHANGEABLE`] finds.
    changes_any: bool,
    /// Whether the tape has session ids, which are restored.
    has_sessions: bool,
}

impl TextNormaliser {
    pub fn new(normalisers: &[Normaliser], exchanges: &[Exchange]) -> Self {
        let by_itself = normalisers.iter().copied().filter(|one| one.changes() != Changes::None);
        let changes_any = by_itself.clone().any(|one| one.changes() == Changes::Any);
        let (after, before) = by_itself.partition(|one| one.private().is_some());
        let mut ids = exchanges.iter().flat_map(|exchange| &exchange.request.ids);
        let has_sessions = ids.any(|id| id.normaliser == Normaliser::SessionId.name());
        Self { before, after, changes_any, has_sessions }
    }

    /// Changes every text as the texts of a recorded request were changed, for the session that they belong to.
    pub fn texts(&self, value: &mut Value, session: Option<&str>) {
        each_text(value, &mut |text| self.text(text, session));
    }

    /// Whether [`TextNormaliser::texts`] changes anything.
    pub fn changes(&self, value: &Value, session: Option<&str>) -> bool {
        match value {
            Value::String(text) => self.text(text, session).is_some(),
            Value::Array(items) => items.iter().any(|item| self.changes(item, session)),
            Value::Object(members) => members.values().any(|item| self.changes(item, session)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn text(&self, text: &str, session: Option<&str>) -> Option<String> {
        if !self.changes_any && !CHANGEABLE.is_match(text) {
            return None;
        }
        let mut fresh = None;
        let mut change = |with: &dyn Fn(&str) -> Option<String>| {
            fresh = with(fresh.as_deref().unwrap_or(text)).or(fresh.take());
        };
        self.before.iter().for_each(|one| change(&|text| one.text(text)));
        change(&agent_texts::outside_of_reminders);
        self.after.iter().for_each(|one| change(&|text| one.text(text)));
        if let Some(id) = session.filter(|_| self.has_sessions) {
            change(&|text| put_back(text, SESSION, id));
        }
        fresh
    }

    /// Restores the ids of the run in the texts of a recorded request.
    pub fn request(request: &ExchangeRequest) -> impl Fn(&mut Value) {
        let known = |name: &str| Normaliser::ALL.into_iter().find(|one| one.name() == name);
        let id = |id: &TapeId| known(&id.normaliser)?.stands_for(id.number);
        let ids: Vec<(String, &str)> =
            request.ids.iter().filter_map(|one| Some((id(one)?, one.id.as_str()))).collect();
        move |value| {
            each_text(value, &mut |text| {
                let mut fresh = None;
                for (mark, id) in &ids {
                    fresh = put_back(fresh.as_deref().unwrap_or(text), mark, id).or(fresh);
                }
                fresh
            });
        }
    }
}

fn put_back(text: &str, mark: &str, id: &str) -> Option<String> {
    text.contains(mark).then(|| text.replace(mark, id))
}

/// A text without the digests of the agent's own texts; `None` if it has none.
pub(crate) fn without_agent_texts(text: &str) -> Option<String> {
    agent_texts::without_marks(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What texts are made of.
    const PIECES: [&str; 12] = [
        "Today's date is 2026-11-18",
        "Today's date is now 2026-11-18",
        "OS Version: Linux 6.1\n",
        "<usage>total_tokens: 1\nduration_ms: 12</usage>",
        "<system-reminder>note",
        "</system-reminder>",
        "<session>",
        "12:30:01",
        "/home/maria/x",
        "a1b2",
        " ",
        "<",
    ];

    #[test]
    fn fuzz_a_text_that_is_passed_over_would_stay_as_it_is() {
        let alike = |changes_any| {
            let (after, before) = Normaliser::defaults().into_iter().partition(|one| one.private().is_some());
            TextNormaliser { before, after, changes_any, has_sessions: true }
        };
        let (quick, thorough) = (alike(false), alike(true));
        bolero::check!().for_each(|bytes: &[u8]| {
            let piece = |byte: &u8| PIECES[usize::from(*byte) % PIECES.len()];
            let text: String = bytes.iter().map(piece).collect();
            for text in [text.as_str(), &String::from_utf8_lossy(bytes)] {
                assert_eq!(quick.text(text, Some("s")), thorough.text(text, Some("s")), "{text}");
            }
        });
    }
}
