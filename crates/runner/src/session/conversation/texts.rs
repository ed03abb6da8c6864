//! Shortens the agent's texts to what the record accepts. Checks judge the recorded texts, so each is complete or
//! marked as cut.

use belljar_contract::{ConversationEnd, ConversationFailure, Observation};
use serde_json::Value;

/// Texts up to this size are always kept; a longer text that must be cut is cut to it.
const SHORT: usize = 128 << 10;
/// The longest text, in its encoded form.
const LONGEST: usize = 8 << 20;
/// The sum of all texts that are not short; less than the record accepts.
const IN_ALL: usize = 96 << 20;

/// Counts the bytes that a conversation adds to its record.
#[derive(Debug)]
pub(crate) struct Keeping {
    left: usize,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { left: IN_ALL }
    }
}

impl Keeping {
    /// Cuts the texts of an observation to what the record accepts; returns the number of bytes that are lost.
    pub fn fit(&mut self, what: &mut Observation) -> u64 {
        match what {
            Observation::Said { text, .. }
            | Observation::Noted { text, .. }
            | Observation::Thought { text, .. }
            | Observation::ToolReturned { text, .. }
            | Observation::HookRan { text, .. }
            | Observation::MessageSent { text, .. } => self.text(text),
            Observation::ToolCalled { input, .. } => {
                let whole: usize = input.values().map(encoded).sum();
                if self.takes(whole) {
                    return 0;
                }
                let long = input.values_mut().filter(|value| encoded(value) > SHORT / 4);
                long.map(|value| {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let (kept, lost) = shortened(&text, SHORT / 4);
                    *value = Value::String(kept);
                    lost
                })
                .sum()
            }
            Observation::TurnEnded(outcome) => outcome.text.as_mut().map_or(0, |text| self.text(text)),
            Observation::Ready { .. }
            | Observation::ConversationBegan { .. }
            | Observation::MessageTaken { .. }
            | Observation::StateChanged { .. }
            | Observation::SubAgentStarted { .. }
            | Observation::SubAgentEnded { .. }
            | Observation::SkillActivated { .. }
            | Observation::SkillLoaded { .. }
            | Observation::Compacted
            | Observation::Asked { .. }
            | Observation::Answered { .. }
            | Observation::CallRefused { .. }
            | Observation::Retried { .. }
            | Observation::Unanswered { .. }
            | Observation::Withdrawn { .. }
            | Observation::RequestSettled { .. }
            | Observation::AfterResult { .. }
            | Observation::UnknownFrame { .. }
            | Observation::Flawed(_) => 0,
        }
    }

    /// Like [`Keeping::fit`], for the end of a conversation, which repeats the last text.
    pub fn fit_end(&mut self, end: &mut ConversationEnd) -> u64 {
        let last = end.last.as_mut().and_then(|last| last.text.as_mut());
        let lost = last.map_or(0, |text| self.text(text));
        if let Some(ConversationFailure::ResultIsError { text: Some(text), .. }) = &mut end.failure {
            return lost + self.text(text);
        }
        lost
    }

    fn text(&mut self, text: &mut String) -> u64 {
        if text.len() <= SHORT
            || self.takes(serde_json::to_string(text).map_or(usize::MAX, |json| json.len()))
        {
            return 0;
        }
        let (kept, lost) = shortened(text, SHORT);
        *text = kept;
        lost
    }

    fn takes(&mut self, bytes: usize) -> bool {
        if bytes <= SHORT {
            return true;
        }
        let fits = bytes <= LONGEST && bytes <= self.left;
        if fits {
            self.left -= bytes;
        }
        fits
    }
}

fn encoded(value: &Value) -> usize {
    value.to_string().len()
}

/// The beginning of a text, and the number of bytes that it leaves out.
pub(super) fn shortened(text: &str, most: usize) -> (String, u64) {
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let cut = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let lost = (text.len() - cut) as u64;
    (format!("{} [{lost} more bytes]", &text[..cut]), lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{CallId, Speaker};
    use serde_json::json;

    fn said(text: String) -> Observation {
        Observation::Said { by: Speaker::Main, text }
    }

    #[test]
    fn a_long_text_is_kept_whole_until_the_record_is_full() {
        let mut keeping = Keeping::default();
        let megabyte = "é\n".repeat(350_000);
        let mut what = said(megabyte.clone());
        assert_eq!(keeping.fit(&mut what), 0);
        assert_eq!(what, said(megabyte));
        let mut long = said("x".repeat(LONGEST + 1));
        assert_eq!(keeping.fit(&mut long), (LONGEST + 1 - SHORT) as u64);
        // Escape sequences count in their encoded form.
        let mut escaped = said("\u{1}".repeat(LONGEST / 4));
        assert!(keeping.fit(&mut escaped) > 0);
        let piece = "x".repeat(LONGEST - 2);
        let kept = (0..20).filter(|_| keeping.fit(&mut said(piece.clone())) == 0).count();
        assert_eq!(kept, (IN_ALL - (350_000 * 4 + 2)) / LONGEST, "the rest of what the record takes");
        assert_eq!(keeping.fit(&mut said("x".repeat(SHORT))), 0, "a short one always fits");
    }

    #[test]
    fn the_input_of_a_call_counts_as_a_whole() {
        let input = |bytes: usize| {
            let half = "x".repeat(bytes / 2);
            json!({"file_path": "/workspace/a", "old": half, "new": half})
                .as_object()
                .cloned()
                .unwrap_or_default()
        };
        let called = |bytes| Observation::ToolCalled {
            by: Speaker::Main,
            call: CallId::new("a").unwrap(),
            tool: "Edit".to_owned(),
            input: input(bytes),
        };
        let mut keeping = Keeping::default();
        let mut what = called(1 << 20);
        assert_eq!(keeping.fit(&mut what), 0);
        assert_eq!(what, called(1 << 20));
        let mut what = called(LONGEST);
        assert_eq!(keeping.fit(&mut what), (LONGEST - SHORT / 2) as u64);
        let Observation::ToolCalled { input, .. } = what else { panic!("another one") };
        assert_eq!(input["file_path"], "/workspace/a");
    }
}
