//! The decision on tools that no rule names.

use super::{Decider, Decision};
use crate::question::{Answer, AnswerValue, By, Question};
use belljar_contract::AfterDeny;

/// Tools that change nothing.
const READERS: [&str; 3] = ["Read", "Glob", "Grep"];

/// Tools with which the agent organises its own work. What a sub-agent or a skill does is a call of its own.
const ORGANISERS: [&str; 22] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "KillShell",
    "LSP",
    "ListMcpResourcesTool",
    "ReportFindings",
    "SendMessage",
    "Skill",
    "StructuredOutput",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
];

/// The names under which fetches are asked about; those are a matter of their own.
const FETCH: &str = "webfetch:";

/// A scenario's setting for tools that no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// Allow and record; the verdict counts it as a failure unless the scenario waives it.
    Cowork,
    Strict,
}

impl Parity {
    /// Whether a call that was not asked about would have been denied: all that may run a command, change a file or reach a
    /// host, and every tool that is not known.
    #[must_use]
    pub fn denies_unasked(self, tool: &str) -> bool {
        match self {
            Self::Cowork => false,
            Self::Strict => !READERS.contains(&tool) && !ORGANISERS.contains(&tool),
        }
    }
}

impl Decider for Parity {
    fn decide(&self, question: &Question) -> Decision {
        let request = match question {
            Question::Permission(request) if !request.tool.starts_with(FETCH) => request,
            Question::Permission(_)
            | Question::Choice { .. }
            | Question::Unreadable { .. }
            | Question::Hook(_)
            | Question::Mcp(_)
            | Question::Elicitation(_)
            | Question::Dialog(_) => return Decision::NoOpinion { note: None },
        };
        let allow = AnswerValue::Allow { input: None, permissions: Vec::new() };
        let (value, by, reason) = match self {
            _ if READERS.contains(&request.tool.as_str()) => (allow, By::Belljar, "the tool only reads"),
            Self::Cowork => (allow, By::Parity, "no rule names the tool, and it was allowed all the same"),
            Self::Strict => {
                let message = "denied (strict, off-registry)".to_owned();
                (AnswerValue::Deny { message, then: AfterDeny::GoOn }, By::Parity, "no rule names the tool")
            }
        };
        Decision::Answered(Answer { value, by, reason: reason.to_owned(), grant: None })
    }
}
