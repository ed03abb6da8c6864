//! A conversation in progress, with a few lines for each event.

use crate::{Style, render_open};
use belljar_contract::{
    Event, LimitKind, Observation, ProtocolFlaw, SkillWay, Speaker, visible, visible_lines,
};
use serde_json::{Map, Value};

/// How much of a conversation is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Only problems.
    Quiet,
    /// Texts and tool calls, with results shortened.
    Normal,
    /// Reasoning and complete results as well.
    Verbose,
}

/// The number of lines of a shortened result.
const FOLDED: usize = 3;
/// The maximum number of characters of such a line.
const WIDTH: usize = 160;

/// The text for an event; `None` for most events.
#[must_use]
pub fn live_text(event: &Event, detail: Detail, style: Style) -> Option<String> {
    match event {
        Event::Seen { what } => seen(what, detail, style),
        Event::Notice { text } => Some(format!("{}\n", style.warn(&visible(text)))),
        Event::LimitReached { limit } => Some(format!("{}\n", style.warn(limit_text(*limit)))),
        Event::ConversationEnded { end } => {
            let failure = end.failure.as_ref()?;
            Some(format!("{}\n", style.removed(&visible(&failure.to_string()))))
        }
        // Said however little else is.
        Event::Unsealed { open } => Some(render_open(open, style)),
        Event::Interrupted { .. } => Some(format!("{}\n", style.warn("interrupted"))),
        Event::RunStarted { .. }
        | Event::Sealed { .. }
        | Event::CommandStarted { .. }
        | Event::LimitSet { .. }
        | Event::SignalForwarded { .. }
        | Event::HostExecutedCreated { .. }
        | Event::HostExecutedHeld { .. }
        | Event::HostExecutedAsked { .. }
        | Event::HostExecutedAnswered { .. }
        | Event::WorkspaceChanged { .. }
        | Event::FilesListed { .. }
        | Event::EgressLogged { .. }
        | Event::FramesLogged { .. }
        | Event::ModelLogged { .. }
        | Event::CommandEnded { .. }
        | Event::Judged { .. }
        | Event::CleanupFailed { .. }
        | Event::RunEnded { .. } => None,
    }
}

const fn limit_text(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Memory => "the limit of memory was reached",
        LimitKind::Pids => "the limit of processes was reached",
        LimitKind::Cpu => "the limit of processors was reached",
        LimitKind::Time => "the limit of time was reached",
        LimitKind::Cost => "the limit of money was reached",
        LimitKind::Tmpfs => "the limit of file systems in memory was reached",
    }
}

fn seen(what: &Observation, detail: Detail, style: Style) -> Option<String> {
    let normal = detail >= Detail::Normal;
    let verbose = detail == Detail::Verbose;
    let shown = match what {
        Observation::Unanswered { notes, paste, .. } => unanswered(notes, paste.as_deref(), style),
        Observation::Flawed(flaw) => format!("{}\n", style.warn(&flaw_text(flaw))),
        Observation::Retried { attempt, status, error } => {
            let attempt = attempt.map(|number| format!(" {number}")).unwrap_or_default();
            let why = error.clone().or_else(|| status.map(|status| format!("status {status}")));
            let text = format!("the model is asked again{attempt}: {}", why.unwrap_or_default());
            format!("{}\n", style.warn(&visible(&text)))
        }
        _ if !normal => return None,
        Observation::Said { by, text } | Observation::Noted { by, text } => {
            format!("{}\n", block(text, indent(by)))
        }
        Observation::Thought { by, text } if verbose => {
            format!("{}\n", style.dim(&block(text, indent(by))))
        }
        Observation::ToolCalled { by, tool, input, .. } => {
            format!("{}{} {}\n", indent(by), style.bold(&format!("> {}", visible(tool))), gist(input))
        }
        Observation::ToolReturned { by, text, is_error, .. } => {
            returned(indent(by), text, *is_error, verbose, style)
        }
        Observation::SubAgentStarted { agent, description, .. } => {
            let name = agent.as_deref().unwrap_or("a sub-agent");
            let about = description.as_deref().unwrap_or_default();
            format!("  {} {}\n", style.bold(&format!("+ {}", visible(name))), visible(about))
        }
        Observation::SubAgentEnded { status, .. } => {
            format!(
                "  {}\n",
                style.dim(&format!("- sub-agent {}", visible(status.as_deref().unwrap_or("ended"))))
            )
        }
        Observation::SkillActivated { skill, way, .. } => {
            format!("{}\n", style.added(&format!("* skill {} ({})", visible(skill), way_text(*way))))
        }
        Observation::Asked { questions, .. } if !questions.is_empty() => questions
            .iter()
            .map(|asked| {
                let labels: Vec<_> = asked.options.iter().map(|option| visible(&option.label)).collect();
                format!("{} {}\n", style.bold(&format!("? {}", visible(&asked.question))), labels.join(" / "))
            })
            .collect(),
        Observation::Answered { chosen, by, reason, .. } if !chosen.is_empty() => {
            let text =
                format!("  = {}", chosen.iter().map(|one| visible(one)).collect::<Vec<_>>().join("; "));
            format!("{text} {}\n", style.dim(&format!("({by}: {})", visible(reason))))
        }
        Observation::Answered { answer, by, reason, .. } if answer.starts_with("deny") => {
            let text = format!("  = {}", visible(answer));
            format!("{} {}\n", style.warn(&text), style.dim(&format!("({by}: {})", visible(reason))))
        }
        Observation::HookRan { event, name, outcome, .. } if verbose => {
            let how = outcome.as_deref().unwrap_or("ran");
            format!(
                "{}\n",
                style.dim(&format!("hook {} {}: {}", visible(event), visible(name), visible(how)))
            )
        }
        Observation::CallRefused { tool, reason, .. } => {
            let tool = tool.as_deref().unwrap_or("a tool");
            let why = reason.as_deref().unwrap_or("by the agent's own rules");
            format!("{}\n", style.warn(&format!("  {} was refused: {}", visible(tool), visible(why))))
        }
        Observation::Compacted => format!("{}\n", style.dim("the conversation was compacted")),
        Observation::Ready { .. }
        | Observation::ConversationBegan { .. }
        | Observation::MessageSent { .. }
        | Observation::MessageTaken { .. }
        | Observation::StateChanged { .. }
        | Observation::Thought { .. }
        | Observation::SkillLoaded { .. }
        | Observation::Asked { .. }
        | Observation::Answered { .. }
        | Observation::HookRan { .. }
        | Observation::Withdrawn { .. }
        | Observation::RequestSettled { .. }
        | Observation::TurnEnded(_)
        | Observation::AfterResult { .. }
        | Observation::UnknownFrame { .. } => return None,
    };
    Some(shown)
}

fn unanswered(notes: &[String], paste: Option<&str>, style: Style) -> String {
    let mut out =
        format!("{}\n", style.removed("a question was not answered, and the run ends because of it"));
    for note in notes {
        out.push_str(&format!("  {}\n", visible(note)));
    }
    out.push_str(&paste.map(to_paste).unwrap_or_default());
    out
}

/// Rules that would answer a question, to be pasted.
pub(crate) fn to_paste(rules: &str) -> String {
    let mut out =
        "  these lines in `answers` of a scenario, or in an answer policy, would answer it:\n".to_owned();
    rules.lines().for_each(|line| out.push_str(&format!("    {}\n", visible(line))));
    out
}

fn returned(indent: &str, text: &str, is_error: bool, verbose: bool, style: Style) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = if verbose { lines.len() } else { FOLDED.min(lines.len()) };
    let mut out = String::new();
    for line in &lines[..shown] {
        let line = visible(line);
        let line: String = if verbose { line.into_owned() } else { line.chars().take(WIDTH).collect() };
        let line = if is_error { style.removed(&line) } else { style.dim(&line) };
        out.push_str(&format!("{indent}  | {line}\n"));
    }
    if lines.len() > shown {
        out.push_str(&format!("{indent}  {}\n", style.dim(&format!("… {} more lines", lines.len() - shown))));
    }
    out
}

fn flaw_text(flaw: &ProtocolFlaw) -> String {
    match flaw {
        ProtocolFlaw::UnreadLine { why } => {
            format!("the agent wrote a line that is not a frame: {}", visible(why))
        }
        ProtocolFlaw::MalformedFrame { frame, why } => {
            format!("the frame `{}` is malformed: {}", visible(frame), visible(why))
        }
        ProtocolFlaw::UnknownQuestion { subtype, why, .. } => {
            format!("the agent sent an unknown request, `{}`: {}", visible(subtype), visible(why))
        }
        ProtocolFlaw::RepeatedQuestion { request } => {
            format!("the agent asked {} twice", visible(request.as_str()))
        }
        ProtocolFlaw::TooManyQuestions => "the agent sent too many requests".to_owned(),
        ProtocolFlaw::StrayResponse { request } => {
            format!("a response without a request came, {}", visible(request.as_str()))
        }
        ProtocolFlaw::StrayWithdrawal { request } => {
            format!("{} was withdrawn but never requested", visible(request.as_str()))
        }
        ProtocolFlaw::StrayResult { call } => {
            format!("the result of an unknown call came, {}", visible(call.as_str()))
        }
        ProtocolFlaw::NotKept { bytes } => format!("{bytes} bytes were too many for the record"),
        ProtocolFlaw::FrameAfterExit => "a frame came after the agent's end".to_owned(),
    }
}

/// A summary of a call in one line: the most informative member of its input. Omitted lines are counted.
#[must_use]
pub fn gist(input: &Map<String, Value>) -> String {
    let telling =
        ["command", "file_path", "path", "pattern", "url", "query", "skill", "description", "prompt"];
    let value = telling.iter().find_map(|key| input.get(*key)).and_then(Value::as_str);
    let text = match value {
        Some(text) => text.to_owned(),
        None if input.is_empty() => String::new(),
        None => Value::Object(input.clone()).to_string(),
    };
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = visible(lines.next().unwrap_or_default());
    let cut = if first.chars().count() > WIDTH { "…" } else { "" };
    let more = match lines.count() {
        0 => String::new(),
        1 => " (and 1 more line)".to_owned(),
        more => format!(" (and {more} more lines)"),
    };
    format!("{}{cut}{more}", first.chars().take(WIDTH).collect::<String>())
}

const fn way_text(way: SkillWay) -> &'static str {
    match way {
        SkillWay::Tool => "by its tool",
        SkillWay::Read => "its text was read",
        SkillWay::ShellRead => "a command named its text",
        SkillWay::Script => "a command used its files",
        SkillWay::Message => "by the message",
    }
}

const fn indent(by: &Speaker) -> &'static str {
    match by {
        Speaker::Main => "",
        Speaker::SubAgent { .. } => "    ",
    }
}

/// Untrusted text on lines of its own. No line of belljar begins with this mark.
fn block(text: &str, indent: &str) -> String {
    let mark = format!("{indent}| ");
    format!("{mark}{}", visible_lines(text, &mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn omitted_lines_are_marked() {
        let shown = |command: &str| gist(json!({"command": command}).as_object().unwrap());
        assert_eq!(shown("echo harmless"), "echo harmless");
        assert_eq!(shown("echo harmless\necho evil"), "echo harmless (and 1 more line)");
        assert_eq!(shown("\n\ncurl evil\n\nx\ny"), "curl evil (and 2 more lines)");
        assert!(shown(&"x".repeat(1000)).ends_with("x…"));
    }
}
