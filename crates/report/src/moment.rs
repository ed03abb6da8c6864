//! The part of a conversation that best explains a failure.

use crate::{Detail, Style, live_text};
use belljar_contract::{Event, Observation, Speaker};

/// The maximum number of lines of the agent's last text.
const LINES: usize = 6;
/// The maximum number of characters of such a line.
const WIDTH: usize = 160;

/// The last tool call that failed, with its result shortened, and the agent's last text; in plain lines.
#[must_use]
pub fn decisive_moment<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<String> {
    let (mut calls, mut failed, mut last_text) = (Vec::new(), None, None);
    for event in events {
        let Event::Seen { what } = event else { continue };
        match &**what {
            Observation::ToolCalled { call, .. } => calls.push((call, event)),
            Observation::ToolReturned { call, is_error: true, .. } => {
                let called = calls.iter().rev().find(|(known, _)| *known == call).map(|(_, event)| *event);
                failed = Some((called, event));
            }
            Observation::Said { by: Speaker::Main, .. } => last_text = Some(event),
            Observation::Ready { .. }
            | Observation::ConversationBegan { .. }
            | Observation::MessageSent { .. }
            | Observation::MessageTaken { .. }
            | Observation::StateChanged { .. }
            | Observation::Said { .. }
            | Observation::Noted { .. }
            | Observation::Thought { .. }
            | Observation::ToolReturned { .. }
            | Observation::SubAgentStarted { .. }
            | Observation::SubAgentEnded { .. }
            | Observation::SkillActivated { .. }
            | Observation::SkillLoaded { .. }
            | Observation::Compacted
            | Observation::Asked { .. }
            | Observation::Answered { .. }
            | Observation::HookRan { .. }
            | Observation::CallRefused { .. }
            | Observation::Retried { .. }
            | Observation::Unanswered { .. }
            | Observation::Withdrawn { .. }
            | Observation::RequestSettled { .. }
            | Observation::TurnEnded(_)
            | Observation::AfterResult { .. }
            | Observation::UnknownFrame { .. }
            | Observation::Flawed(_) => {}
        }
    }
    let lines = |event: &Event| -> Vec<String> {
        let text = live_text(event, Detail::Normal, Style::Plain).unwrap_or_default();
        text.lines().map(|line| line.chars().take(WIDTH).collect()).collect()
    };
    let (called, returned) = failed.unzip();
    let mut out: Vec<String> = called.flatten().into_iter().chain(returned).flat_map(lines).collect();
    let unmarked = |line: String| line.strip_prefix("| ").map(str::to_owned).unwrap_or(line);
    let said: Vec<String> = last_text.map(lines).unwrap_or_default().into_iter().map(unmarked).collect();
    // The end is more informative than the beginning.
    let folded = said.len().saturating_sub(LINES);
    out.extend((folded > 0).then(|| format!("… {folded} lines before")));
    out.extend(said.into_iter().skip(folded));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::CallId;
    use serde_json::json;

    fn seen(what: Observation) -> Event {
        Event::Seen { what: Box::new(what) }
    }

    fn called(id: &str, command: &str) -> Event {
        let input = json!({"command": command}).as_object().cloned().unwrap_or_default();
        let call = CallId::new(id).unwrap();
        seen(Observation::ToolCalled { by: Speaker::Main, call, tool: "Bash".to_owned(), input })
    }

    fn returned(id: &str, text: &str, is_error: bool) -> Event {
        let call = CallId::new(id).unwrap();
        let tool = Some("Bash".to_owned());
        seen(Observation::ToolReturned { by: Speaker::Main, call, tool, text: text.to_owned(), is_error })
    }

    fn said(text: &str) -> Event {
        seen(Observation::Said { by: Speaker::Main, text: text.to_owned() })
    }

    #[test]
    fn the_call_that_failed_and_the_last_words() {
        let events = [
            said("I begin."),
            called("a", "make"),
            called("b", "ls"),
            returned("a", "one\ntwo\nthree\nfour\nfive", true),
            returned("b", "fine", false),
            said("0\n1\n2\n3\n4\n5\n6"),
        ];
        let lines = decisive_moment(events.iter());
        let expected = [
            "> Bash make",
            "  | one",
            "  | two",
            "  | three",
            "  … 2 more lines",
            "… 1 lines before",
            "1",
            "2",
            "3",
            "4",
            "5",
            "6",
        ];
        assert_eq!(lines, expected);
        assert!(decisive_moment([].iter()).is_empty());
    }
}
