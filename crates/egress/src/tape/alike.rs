//! Texts of a run brought into the form that a tape's requests have, so that they can be compared with them.
//!
//! A tape keeps requests after its normalisers and answers as they came. What a normaliser did to every text by itself
//! is done to the other texts too. Ids that it numbered are put back: the tape has them.

use super::normal::{Normaliser, SESSION, each_text, normalise};
use super::words;
use belljar_contract::{Exchange, ExchangeRequest, TapeId};
use serde_json::Value;

/// What makes texts alike.
pub(crate) struct Alike {
    normalisers: Vec<Normaliser>,
    /// Whether the tape has the ids of sessions, to be put back.
    has_sessions: bool,
}

impl Alike {
    /// Of a tape with these normalisers and exchanges.
    pub fn new(normalisers: &[Normaliser], exchanges: &[Exchange]) -> Self {
        let by_itself = |one: &&Normaliser| one.stands_for(0).is_none();
        let mut ids = exchanges.iter().flat_map(|exchange| &exchange.request.ids);
        Self {
            normalisers: normalisers.iter().filter(by_itself).copied().collect(),
            has_sessions: ids.any(|id| id.normaliser == Normaliser::SessionId.name()),
        }
    }

    /// Changes every text as the texts of a kept request were changed, within the session that they belong to.
    pub fn texts(&self, value: &mut Value, session: Option<&str>) {
        let mut apply = |private: bool| {
            for one in self.normalisers.iter().filter(|one| one.private().is_some() == private) {
                normalise(value, *one);
            }
            if !private {
                words::digest_reminders(value);
            }
        };
        apply(false);
        apply(true);
        put_back(value, session.filter(|_| self.has_sessions).map(|id| (SESSION.to_owned(), id)).as_slice());
    }

    /// Puts the ids of the run back into the texts of a kept request.
    pub fn request(request: &ExchangeRequest, value: &mut Value) {
        let known = |name: &str| Normaliser::ALL.into_iter().find(|one| one.name() == name);
        let id = |id: &TapeId| known(&id.normaliser)?.stands_for(id.number);
        let ids: Vec<(String, &str)> =
            request.ids.iter().filter_map(|one| Some((id(one)?, one.id.as_str()))).collect();
        put_back(value, &ids);
    }
}

fn put_back(value: &mut Value, ids: &[(String, &str)]) {
    each_text(value, &mut |text| {
        let mut fresh = None;
        for (mark, id) in ids {
            if fresh.as_deref().unwrap_or(text).contains(mark.as_str()) {
                fresh = Some(fresh.as_deref().unwrap_or(text).replace(mark.as_str(), id));
            }
        }
        fresh
    });
}

/// A text without the digests that stand in the place of the agent's own words; none where it has none.
pub(crate) fn without_agents_words(text: &str) -> Option<String> {
    words::without_marks(text)
}
