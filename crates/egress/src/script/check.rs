//! Checks whether a script can be played, beyond what its types guarantee.

use std::collections::BTreeSet;
use std::fmt;

use hyper::header::{HeaderName, HeaderValue};

use super::format::{ErrorReply, Script, ScriptBlock, ScriptReply, Turn, TurnAnswer};

/// Longest pause that a script may ask for. A longer one is a mistake, and no client waits for it.
pub(super) const LONGEST_SILENCE_MS: u64 = 10 * 60 * 1000;

/// Headers that the server writes itself; a second, different value would break the framing.
const SERVER_HEADERS: [&str; 4] = ["content-length", "content-type", "transfer-encoding", "connection"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFault {
    /// The place in the file: `turns[1].answer.reply.content[0]`.
    pub at: String,
    /// What was expected there and what was found.
    pub problem: String,
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`: {}", self.at, self.problem)
    }
}

/// All faults of a script, so that they can be fixed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFaults(
    /// Never empty.
    pub Vec<ScriptFault>,
);

impl fmt::Display for ScriptFaults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(out, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScriptFaults {}

impl Script {
    /// Finds every reason why this script cannot be played.
    ///
    /// # Errors
    /// The faults, each with its place.
    pub fn check(&self) -> Result<(), ScriptFaults> {
        let Self { schema: _, version: _, note: _, turns, side_requests: _, when_exhausted: _ } = self;
        let mut faults = Faults { found: Vec::new(), tool_ids: BTreeSet::new() };
        for (index, turn) in turns.iter().enumerate() {
            faults.turn(&format!("turns[{index}]"), turn);
        }
        if faults.found.is_empty() { Ok(()) } else { Err(ScriptFaults(faults.found)) }
    }
}

/// The faults and tool ids found so far. The result of a tool is found by its id, which must be unique.
struct Faults<'script> {
    found: Vec<ScriptFault>,
    tool_ids: BTreeSet<&'script str>,
}

impl<'script> Faults<'script> {
    fn add(&mut self, at: String, problem: impl Into<String>) {
        self.found.push(ScriptFault { at, problem: problem.into() });
    }

    fn turn(&mut self, at: &str, turn: &'script Turn) {
        let Turn { note: _, when: _, delay_ms, answer } = turn;
        self.silence(format!("{at}.delay_ms"), *delay_ms);
        match answer {
            TurnAnswer::Reply(reply) => self.reply(&format!("{at}.answer.reply"), reply),
            TurnAnswer::Error(error) => self.error(&format!("{at}.answer.error"), error),
            TurnAnswer::HangUp => (),
        }
    }

    fn reply(&mut self, at: &str, reply: &'script ScriptReply) {
        let ScriptReply { content, stop_reason: _, usage: _, model: _, pause_ms, delta_chars: _, cut: _ } =
            reply;
        self.silence(format!("{at}.pause_ms"), *pause_ms);
        if content.is_empty() {
            self.add(format!("{at}.content"), "expected at least one block, found none");
        }
        for (index, block) in content.iter().enumerate() {
            self.block(&format!("{at}.content[{index}]"), block);
        }
    }

    fn block(&mut self, at: &str, block: &'script ScriptBlock) {
        let ScriptBlock::ToolUse { name, input, id } = block else { return };
        if name.is_empty() {
            self.add(format!("{at}.tool_use.name"), "expected the name of a tool, found an empty string");
        }
        if !input.is_object() {
            self.add(format!("{at}.tool_use.input"), "expected a JSON object");
        }
        if let Some(id) = id
            && !self.tool_ids.insert(id)
        {
            self.add(format!("{at}.tool_use.id"), format!("`{id}` is already the id of an earlier call"));
        }
    }

    fn error(&mut self, at: &str, error: &ErrorReply) {
        let ErrorReply { status, kind: _, message: _, headers } = error;
        if !(400..=599).contains(status) {
            self.add(format!("{at}.status"), format!("expected 400 to 599, found {status}"));
        }
        for (name, value) in headers {
            if let Some(problem) = header_problem(name, value) {
                self.add(format!("{at}.headers.{name}"), problem);
            }
        }
    }

    fn silence(&mut self, at: String, millis: u64) {
        if millis > LONGEST_SILENCE_MS {
            self.add(at, format!("expected at most {LONGEST_SILENCE_MS} ms, found {millis}"));
        }
    }
}

/// Why a header cannot be sent with an error.
pub(super) fn header_problem(name: &str, value: &str) -> Option<&'static str> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Err(_) => Some("not a valid header name"),
        Ok(name) if SERVER_HEADERS.contains(&name.as_str()) => Some("this header is set by the server"),
        Ok(_) if HeaderValue::from_str(value).is_err() => {
            Some("the value contains characters that are not allowed in a header")
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn all_faults_are_reported_at_once_with_their_places() {
        let twice = |input| ScriptBlock::ToolUse { name: "Bash".into(), input, id: Some("toolu_1".into()) };
        let script = Script::new()
            .turn(Turn::reply(ScriptReply::new()).delay(Duration::MAX))
            .turn(Turn::reply(ScriptReply::new().block(twice(json!({}))).block(twice(json!([])))))
            .turn(Turn::error(
                ErrorReply::new(200, "").header("a b", "c").header("x", "\n").header("Content-Length", "1"),
            ));
        let faults = script.check().unwrap_err();
        let places: Vec<&str> = faults.0.iter().map(|fault| fault.at.as_str()).collect();
        assert_eq!(
            places,
            [
                "turns[0].delay_ms",
                "turns[0].answer.reply.content",
                "turns[1].answer.reply.content[1].tool_use.input",
                "turns[1].answer.reply.content[1].tool_use.id",
                "turns[2].answer.error.status",
                "turns[2].answer.error.headers.Content-Length",
                "turns[2].answer.error.headers.a b",
                "turns[2].answer.error.headers.x",
            ]
        );
        assert!(
            faults.to_string().contains("`turns[2].answer.error.status`: expected 400 to 599, found 200; ")
        );
    }

    #[test]
    fn derived_ids_are_unique() {
        let script = Script::new().turn(Turn::reply(
            ScriptReply::new().tool_use("Bash", json!({})).tool_use("Bash", json!({})).text("and text"),
        ));
        assert_eq!(script.check(), Ok(()));
    }
}
