//! The evidence as checks look at it: calls with their returns, what was said, and whether that is all.

use crate::compare;
use crate::finding::{Finding, count};
use belljar_contract::{
    CallId, ConversationFailure, Deadline, Evidence, FilesSeen, Gate, GuestEnd, LimitKind, ModelEvidence,
    OWN_REFUSAL, Observation, Outcome, SCRIPT_ACCEPTS_NONE, SCRIPT_EXHAUSTED, Seen, Speaker, Whole,
};
use serde_json::{Map, Value};

/// A run to be judged.
pub(crate) struct Run<'a> {
    pub evidence: &'a Evidence,
    calls: Vec<Call<'a>>,
    /// What the agent's frames claim otherwise than it was served.
    pub differences: Vec<String>,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub seq: u64,
    pub id: &'a CallId,
    pub origin: Origin,
    pub tool: &'a str,
    pub input: &'a Map<String, Value>,
    pub back: Option<Return<'a>>,
}

/// What a call came back with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Return<'a> {
    pub seq: u64,
    pub text: &'a str,
    pub is_error: bool,
}

/// Whose call it counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Main,
    SubAgent,
    /// Below a call that was not seen.
    Unseen,
}

/// Something that is in the way of "it did not happen".
pub(crate) type Gap = String;

impl<'a> Run<'a> {
    pub(crate) fn new(evidence: &'a Evidence) -> Self {
        let differences = match &evidence.model {
            ModelEvidence::Kept { frames, exchanges } => {
                compare::differences(frames, exchanges, evidence.egress.as_ref())
            }
            ModelEvidence::NotKept | ModelEvidence::Broken { .. } => Vec::new(),
        };
        Self { evidence, calls: calls(&evidence.seen), differences }
    }

    /// Whether the conversation came to its end, and every event of it was seen and understood.
    pub(crate) fn whole(&self) -> Result<(), Gap> {
        self.finished()?;
        self.recorded()
    }

    /// Whether the agent could do all that it would have done. What did not happen until a limit or a signal ended the
    /// run might have happened later.
    pub(crate) fn finished(&self) -> Result<(), Gap> {
        self.not_stopped()?;
        let end = self.evidence.end.as_ref();
        let failure = end.and_then(|end| end.failure.as_ref());
        // belljar ends the agent then, whatever status it ends with.
        if let (Some(end), Some(_)) = (end, failure)
            && !end.unanswered.is_empty()
        {
            return Err(ConversationFailure::Unanswered { count: end.unanswered.len() }.to_string());
        }
        match failure {
            Some(
                failure @ (ConversationFailure::Deadline { .. }
                | ConversationFailure::Unanswered { .. }
                | ConversationFailure::TooManyQuestions
                | ConversationFailure::Crashed { exit: GuestEnd::Signal(_) }
                | ConversationFailure::TurnUnfinished { exit: GuestEnd::Signal(_) }),
            ) => Err(failure.to_string()),
            Some(
                ConversationFailure::NoResult
                | ConversationFailure::Crashed { exit: GuestEnd::Code(_) }
                | ConversationFailure::TurnUnfinished { exit: GuestEnd::Code(_) }
                | ConversationFailure::ResultIsError { .. }
                | ConversationFailure::ExitAfterSuccess { .. }
                | ConversationFailure::MessagesUntaken { .. }
                | ConversationFailure::HandshakeRefused { .. },
            )
            | None => Ok(()),
        }
    }

    /// Whether the agent ended by itself, and not by a signal to belljar or a limit of the run.
    pub(crate) fn not_stopped(&self) -> Result<(), Gap> {
        if self.evidence.conversation == Whole::Interrupted {
            return Err("the run was interrupted".to_owned());
        }
        if self.own_error() == Some(OwnError::Script) {
            return Err("the script had no answer for the agent".to_owned());
        }
        let failure = self.evidence.end.as_ref().and_then(|end| end.failure.as_ref());
        match self.evidence.stopped_by {
            Some(limit @ (LimitKind::Time | LimitKind::Cost)) => {
                Err(format!("the {} limit ended the run", limit.describe()))
            }
            Some(limit @ (LimitKind::Memory | LimitKind::Pids | LimitKind::Cpu | LimitKind::Tmpfs))
                if died(failure) =>
            {
                Err(format!("the {} limit ended the run", limit.describe()))
            }
            Some(LimitKind::Memory | LimitKind::Pids | LimitKind::Cpu | LimitKind::Tmpfs) | None => {
                if let Some(ended @ ConversationFailure::Deadline { deadline: Deadline::Run }) = failure {
                    return Err(ended.to_string());
                }
                Ok(())
            }
        }
    }

    /// Whose answer the error is with which the agent ended, if it is belljar's and not the model's.
    pub(crate) fn own_error(&self) -> Option<OwnError> {
        let failure = self.evidence.end.as_ref()?.failure.as_ref()?;
        let ConversationFailure::ResultIsError { subtype: _, text, api_error_status: _ } = failure else {
            return None;
        };
        let (_, said) = text.as_deref()?.split_once("API Error: ")?;
        let said = said.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ' ');
        if [SCRIPT_EXHAUSTED, SCRIPT_ACCEPTS_NONE].iter().any(|own| said.starts_with(own)) {
            Some(OwnError::Script)
        } else {
            said.starts_with(OWN_REFUSAL).then_some(OwnError::Gateway)
        }
    }

    /// Whether every event up to the end of the run was seen and understood.
    pub(crate) fn recorded(&self) -> Result<(), Gap> {
        match &self.evidence.conversation {
            Whole::No { why } => {
                return Err(format!("the record of the conversation is not whole: {why}"));
            }
            Whole::Yes | Whole::Interrupted | Whole::JudgeInterrupted => {}
        }
        let Some(end) = &self.evidence.end else {
            return Err("how the conversation ended is not known".to_owned());
        };
        let flaws = self.evidence.seen.iter().filter(|seen| matches!(seen.what, Observation::Flawed(_)));
        let flaws = end.flaws.max(flaws.count() as u64);
        match (end.unread, flaws) {
            (0, 0) => Ok(()),
            (0, flaws) => Err(format!("{flaws} things were not as the protocol has them")),
            (unread, _) => Err(format!("{unread} lines of the agent could not be read")),
        }
    }

    /// A finding that holds, where nothing of the conversation is lost that could say otherwise.
    pub(crate) fn holds_if_whole(&self, message: impl Into<String>) -> Finding {
        let message = message.into();
        match self.whole() {
            Ok(()) => Finding::pass(message).shown(&self.wholeness()),
            Err(gap) => Finding::unknown(format!("{message} in what is there, but {gap}")),
        }
    }

    /// A finding that does not hold, where nothing of the conversation is lost that could say otherwise.
    pub(crate) fn fails_if_whole(&self, message: impl Into<String>) -> Finding {
        let message = message.into();
        match self.whole() {
            Ok(()) => Finding::fail(message).shown(&self.wholeness()),
            Err(gap) => Finding::unknown(format!("{message} in what is there, but {gap}")),
        }
    }

    /// A finding for what may happen so many times.
    pub(crate) fn at_most(&self, found: u64, most: u64, what: &str, places: &[(u64, String)]) -> Finding {
        let message = format!("{found} {what}, at most {most} allowed");
        if found <= most {
            return self.holds_if_whole(message);
        }
        let finding = Finding::fail(message);
        places.iter().fold(finding, |finding, (seq, text)| finding.seen(*seq, text))
    }

    /// What "it did not happen" rests on.
    pub(crate) fn wholeness(&self) -> String {
        let end = match &self.evidence.end {
            Some(end) => format!("the agent ended with {}", end.exit),
            None => "the end is not known".to_owned(),
        };
        format!("{} of a whole conversation; {end}", count(self.evidence.seen.len(), "event"))
    }

    /// Every call, in order.
    pub(crate) fn calls(&self) -> &[Call<'a>] {
        &self.calls
    }

    /// Every return, in order, with the name of its tool.
    pub(crate) fn returns(&self) -> impl Iterator<Item = (Return<'a>, &'a str)> {
        self.evidence.seen.iter().filter_map(|seen| {
            let Observation::ToolReturned { by: _, call: _, tool, text, is_error } = &seen.what else {
                return None;
            };
            let tool = tool.as_deref().unwrap_or("a tool that was not seen to be called");
            Some((Return { seq: seen.seq, text, is_error: *is_error }, tool))
        })
    }

    /// What was said, by the agent itself or by anyone.
    pub(crate) fn said(&self, who: Who) -> impl Iterator<Item = (u64, &'a str)> {
        self.evidence.seen.iter().filter_map(move |seen| {
            let Observation::Said { by, text } = &seen.what else { return None };
            let meant = match who {
                Who::Anyone => true,
                Who::Agent => *by == Speaker::Main,
            };
            meant.then_some((seen.seq, text.as_str()))
        })
    }

    /// The questions that were put to the user.
    pub(crate) fn gates(&self) -> Vec<Gate<'a>> {
        self.evidence.gates()
    }

    /// The files, or why nothing can be said of them.
    pub(crate) fn files(&self) -> Result<&'a FilesSeen, Finding> {
        self.evidence.files.as_ref().ok_or_else(|| Finding::unknown("the files were not looked at"))
    }

    /// The files where all of them were looked at, after a run that was not cut short.
    pub(crate) fn all_files(&self) -> Result<&'a FilesSeen, Finding> {
        let files = self.files()?;
        if let Err(gap) = self.finished() {
            return Err(Finding::unknown(gap));
        }
        match files.unread.first() {
            None => Ok(files),
            Some(first) => Err(Finding::unknown(format!("not every file could be looked at: {first}"))),
        }
    }

    /// The finding, or unknown where it may come from the way in which the run was stopped.
    pub(crate) fn unless_stopped(&self, finding: Finding) -> Finding {
        match (self.not_stopped(), finding.outcome) {
            (Err(gap), Outcome::Fail) => Finding::unknown(format!("{}, but {gap}", finding.message)),
            (Err(_), Outcome::Pass | Outcome::Unknown | Outcome::Waived) | (Ok(()), _) => finding,
        }
    }

    /// The finding, or unknown where the run was cut short and the rest of it could say otherwise.
    pub(crate) fn unless_cut_short(&self, finding: Finding) -> Finding {
        match self.finished() {
            Ok(()) => finding,
            Err(gap) => Finding::unknown(format!("{}, but {gap}", finding.message)),
        }
    }
}

/// An error that the agent got from belljar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnError {
    Script,
    Gateway,
}

/// Whether the agent's process ended before the conversation was over.
pub(crate) fn died(failure: Option<&ConversationFailure>) -> bool {
    match failure {
        Some(
            ConversationFailure::NoResult
            | ConversationFailure::Crashed { .. }
            | ConversationFailure::TurnUnfinished { .. }
            | ConversationFailure::ExitAfterSuccess { .. },
        ) => true,
        Some(
            ConversationFailure::ResultIsError { .. }
            | ConversationFailure::Unanswered { .. }
            | ConversationFailure::MessagesUntaken { .. }
            | ConversationFailure::HandshakeRefused { .. }
            | ConversationFailure::TooManyQuestions
            | ConversationFailure::Deadline { .. },
        )
        | None => false,
    }
}

/// Whose messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Agent,
    Anyone,
}

/// The calls with what they came back with. What a skill or a fork of the agent calls counts as the agent's own.
fn calls(seen: &[Seen]) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    for Seen { seq, offset_ms: _, what } in seen {
        if let Observation::ToolCalled { by, call, tool, input } = what {
            let origin = origin(by, &calls);
            calls.push(Call { seq: *seq, id: call, origin, tool, input, back: None });
        } else if let Observation::ToolReturned { by: _, call, tool: _, text, is_error } = what {
            let open = calls.iter_mut().find(|open| open.id == call && open.back.is_none());
            if let Some(open) = open {
                open.back = Some(Return { seq: *seq, text, is_error: *is_error });
            }
        }
    }
    calls
}

fn origin(by: &Speaker, calls: &[Call<'_>]) -> Origin {
    let Speaker::SubAgent { call: parent } = by else { return Origin::Main };
    let Some(parent) = calls.iter().find(|call| call.id == parent) else { return Origin::Unseen };
    let fork = parent.input.get("subagent_type").and_then(Value::as_str) == Some("fork");
    if parent.tool == "Skill" || fork { parent.origin } else { Origin::SubAgent }
}

impl Call<'_> {
    /// A text of the input.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.input.get(key).and_then(Value::as_str)
    }

    /// Whether it begins a sub-agent.
    pub(crate) fn is_dispatch(&self) -> bool {
        matches!(self.tool, "Agent" | "Task") || self.input.contains_key("subagent_type")
    }

    /// The call in one line.
    pub(crate) fn line(&self) -> String {
        let input = serde_json::to_string(self.input).unwrap_or_default();
        format!("{} {input}", self.tool)
    }
}
