//! A kept run: what it was, whether its record is as it was written, and what happened in it.

use crate::trace_page::{incomplete_line, render_part, render_sub_agents, used_line};
use crate::{Style, Trace, TracePart, conclusion_word};
use belljar_contract::{
    AgentUsed, CallId, Conclusion, ConversationSource, Evidence, ExitCode, Observation, RunId, RunVerb,
    Speaker, UtcTime, visible, visible_lines,
};
use serde::Serialize;

/// A kept run that is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTrace {
    pub run: RunId,
    /// `None` if an older belljar recorded the run, or it is on a tape.
    pub verb: Option<RunVerb>,
    /// Whether it is on a tape.
    pub is_taped: bool,
    /// The name of the scenario, or of the agent.
    pub subject: String,
    /// The program of the agent; `None` if an older belljar recorded the run.
    pub agent: Option<AgentUsed>,
    pub started_at_ms: u64,
    /// The conclusion when the run ended. Absent if the record cannot be relied on.
    pub verdict: Option<TraceVerdict>,
    /// Where the conversation is known from.
    pub conversation: ConversationSource,
    /// What is wrong with the record, a line each.
    pub doubts: Vec<String>,
    /// Whether files were listed, and the listing cannot be used.
    pub lost_files: bool,
    pub trace: Trace,
    /// Every message, call, result, question and answer, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<TraceStep>>,
}

/// What a run was concluded to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TraceVerdict {
    pub conclusion: Conclusion,
    /// The status of the verb.
    pub exit_code: u8,
}

/// A step of a conversation, with its whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// Milliseconds since the start of the run.
    pub at_ms: u64,
    pub kind: StepKind,
    /// The call of the sub-agent whose step it is; `None` for the main agent.
    pub under: Option<CallId>,
    /// The tool of a call or a result, the decider of an answer.
    pub name: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    User,
    Agent,
    /// Reasoning of the model.
    Thought,
    /// A text of the agent's program, not of the model.
    Note,
    Call,
    Result,
    Error,
    Question,
    Answer,
    Unanswered,
}

impl StepKind {
    const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Thought => "thought",
            Self::Note => "note",
            Self::Call => "call",
            Self::Result => "result",
            Self::Error => "error",
            Self::Question => "question",
            Self::Answer => "answer",
            Self::Unanswered => "no answer",
        }
    }

    const fn is_of(self, part: TracePart) -> bool {
        match (part, self) {
            (TracePart::Tools, Self::Call | Self::Result | Self::Error)
            | (TracePart::Questions, Self::Question | Self::Answer | Self::Unanswered) => true,
            (TracePart::Tools | TracePart::Questions | TracePart::Files | TracePart::Egress, _) => false,
        }
    }
}

/// The steps of a conversation.
#[must_use]
pub fn trace_steps(evidence: &Evidence) -> Vec<TraceStep> {
    let steps = evidence.seen.iter().filter_map(|seen| {
        let (kind, by, name, text) = step(&seen.what)?;
        let under = match by {
            Some(Speaker::SubAgent { call }) => Some(call.clone()),
            Some(Speaker::Main) | None => None,
        };
        Some(TraceStep { at_ms: seen.offset_ms, kind, under, name, text })
    });
    steps.collect()
}

type Told<'a> = (StepKind, Option<&'a Speaker>, Option<String>, String);

fn step(what: &Observation) -> Option<Told<'_>> {
    Some(match what {
        Observation::MessageSent { text, .. } => (StepKind::User, None, None, text.clone()),
        Observation::Said { by, text } => (StepKind::Agent, Some(by), None, text.clone()),
        Observation::Noted { by, text } => (StepKind::Note, Some(by), None, text.clone()),
        Observation::Thought { by, text } => (StepKind::Thought, Some(by), None, text.clone()),
        Observation::ToolCalled { by, tool, input, .. } => {
            let input = serde_json::to_string_pretty(input).unwrap_or_default();
            (StepKind::Call, Some(by), Some(tool.clone()), input)
        }
        Observation::ToolReturned { by, tool, text, is_error, .. } => {
            let kind = if *is_error { StepKind::Error } else { StepKind::Result };
            (kind, Some(by), tool.clone(), text.clone())
        }
        Observation::Asked { by, tool, about, questions, .. } => {
            let lines = questions.iter().map(|asked| {
                let labels: Vec<&str> = asked.options.iter().map(|option| option.label.as_str()).collect();
                format!("{} [{}]", asked.question, labels.join(" | "))
            });
            let text =
                if questions.is_empty() { about.clone() } else { lines.collect::<Vec<_>>().join("\n") };
            (StepKind::Question, Some(by), tool.clone(), text)
        }
        Observation::Answered { answer, chosen, by, reason, .. } => {
            let answer = if chosen.is_empty() { answer.clone() } else { chosen.join(", ") };
            (StepKind::Answer, None, Some(by.clone()), format!("{answer} ({reason})"))
        }
        Observation::Unanswered { notes, .. } => (StepKind::Unanswered, None, None, notes.join("\n")),
        Observation::Ready { .. }
        | Observation::ConversationBegan { .. }
        | Observation::MessageTaken { .. }
        | Observation::StateChanged { .. }
        | Observation::SubAgentStarted { .. }
        | Observation::SubAgentEnded { .. }
        | Observation::SkillActivated { .. }
        | Observation::SkillLoaded { .. }
        | Observation::Compacted
        | Observation::HookRan { .. }
        | Observation::CallRefused { .. }
        | Observation::Retried { .. }
        | Observation::Withdrawn { .. }
        | Observation::RequestSettled { .. }
        | Observation::TurnEnded(_)
        | Observation::AfterResult { .. }
        | Observation::UnknownFrame { .. }
        | Observation::Flawed(_) => return None,
    })
}

/// The page of a run, or one part of it.
#[must_use]
pub fn render_run(run: &RunTrace, only: Option<TracePart>, style: Style) -> String {
    let RunTrace { trace, steps, .. } = run;
    let mut out = head(run, style);
    for doubt in &run.doubts {
        out.push_str(&format!("{}\n", style.warn(&format!("Not verified: {}", visible(doubt)))));
    }
    out.push_str(&incomplete_line(trace, style));
    out.push_str(&source_line(run, style));
    out.push('\n');
    let part = |part| match part {
        TracePart::Files if run.lost_files => {
            "Files: the listing cannot be used: it is missing or was changed\n\n".to_owned()
        }
        TracePart::Tools | TracePart::Questions | TracePart::Files | TracePart::Egress => {
            render_part(trace, part, style)
        }
    };
    match (only, steps) {
        (Some(only @ (TracePart::Tools | TracePart::Questions)), Some(steps)) => {
            out.push_str(&render_steps(steps.iter().filter(|step| step.kind.is_of(only)), style));
        }
        (Some(only), Some(_) | None) => out.push_str(&part(only)),
        (None, steps) => {
            match steps {
                Some(steps) => out.push_str(&render_steps(steps.iter(), style)),
                None => out.push_str(&(part(TracePart::Tools) + &part(TracePart::Questions))),
            }
            out.push_str(&render_sub_agents(trace, style));
            out.push_str(&(part(TracePart::Files) + &part(TracePart::Egress)));
            out.push_str(&used_line(trace, style));
        }
    }
    out
}

fn head(run: &RunTrace, style: Style) -> String {
    let verb = run.verb.map_or(if run.is_taped { "tape" } else { "run" }, RunVerb::name);
    let when = UtcTime::from_unix_ms(run.started_at_ms);
    let verdict = run.verdict.map(|TraceVerdict { conclusion, exit_code }| {
        let word = verdict_word(conclusion, exit_code);
        if exit_code == ExitCode::Passed.code() { style.added(word) } else { style.removed(word) }
    });
    let verdict = verdict.map(|word| format!("  {word}")).unwrap_or_default();
    let agent = run.agent.as_ref().map(|agent| format!("Agent: {agent}\n")).unwrap_or_default();
    format!("{} {}  {}  {when} UTC{verdict}\n{agent}", style.bold(verb), visible(&run.subject), run.run)
}

/// A word for the end of a run that was judged: a drift is not its checks' conclusion.
#[must_use]
pub fn verdict_word(conclusion: Conclusion, exit_code: u8) -> &'static str {
    if exit_code == ExitCode::Drifted.code() { "DRIFTED" } else { conclusion_word(conclusion) }
}

fn source_line(run: &RunTrace, style: Style) -> String {
    match (run.conversation, run.verb) {
        (ConversationSource::Frames, _) => String::new(),
        (ConversationSource::Transcript, _) => {
            let text = "Conversation: the agent's own transcript, which belljar cannot verify";
            format!("{}\n", style.warn(text))
        }
        (ConversationSource::None, Some(verb @ (RunVerb::Exec | RunVerb::Shell))) => {
            format!("Conversation: none; `{verb}` runs a command, not an agent\n")
        }
        (ConversationSource::None, _) => "Conversation: none; the agent kept no transcript\n".to_owned(),
    }
}

fn render_steps<'a>(steps: impl Iterator<Item = &'a TraceStep>, style: Style) -> String {
    const INDENT: &str = "    ";
    let mut out = String::new();
    for TraceStep { at_ms, kind, under, name, text } in steps {
        let name = name.as_ref().map(|name| format!(" {}", visible(name))).unwrap_or_default();
        let under = under.as_ref().map(|call| format!(" (sub-agent {})", visible(call.as_str())));
        let title = format!("{}{name}{}", kind.word(), under.unwrap_or_default());
        out.push_str(&format!("{} {}\n", style.bold(&title), style.dim(&crate::seconds(*at_ms))));
        if !text.is_empty() {
            out.push_str(&format!("{INDENT}{}\n", visible_lines(text, INDENT)));
        }
    }
    if out.is_empty() {
        return "Steps: none\n\n".to_owned();
    }
    out + "\n"
}
