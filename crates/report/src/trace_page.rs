//! What a run did, in order: tool calls with their outcome and time, questions from request to delivery, sub-agents,
//! files, egress and resources.

use crate::{Style, dollars, gist, human_size, render_table, seconds};
use belljar_contract::visible;
use belljar_contract::{
    CallId, Delivery, EgressDecision, EgressLogState, EgressRow, EgressVerdict, Enforcement, Evidence,
    FilesSeen, Metrics, Observation, Speaker, Whole,
};
use serde::Serialize;

/// What a run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// Why the record is incomplete; `None` if it is complete.
    pub incomplete: Option<String>,
    pub tools: Vec<ToolTrace>,
    /// Questions to the user.
    pub questions: Vec<QuestionTrace>,
    pub sub_agents: Vec<SubAgentTrace>,
    /// Names of the skills that were used.
    pub skills: Vec<String>,
    /// Files that were created, changed and removed; `None` if they were not examined.
    pub files: Option<FileChanges>,
    /// Decisions on egress; `None` if no proxy ran.
    pub egress: Option<Vec<EgressTrace>>,
    /// Why connections may be missing from these decisions; `None` if none is.
    pub egress_incomplete: Option<String>,
    pub usage: Metrics,
    pub duration_ms: Option<u64>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolTrace {
    pub tool: String,
    /// The call of the sub-agent that made it; `None` for the main agent.
    pub under: Option<CallId>,
    /// A summary of its input.
    pub about: String,
    pub status: ToolStatus,
    /// Milliseconds since the start of the run.
    pub at_ms: u64,
    pub duration_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Ok,
    /// It returned an error.
    Error,
    /// It did not return.
    Open,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuestionTrace {
    pub question: String,
    /// The options of the question.
    pub options: Vec<String>,
    pub answer: Option<String>,
    /// The decider's name.
    pub by: Option<String>,
    /// Whether the answer reached the model.
    pub delivered: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubAgentTrace {
    pub task: String,
    pub agent: Option<String>,
    /// The agent's description of the task.
    pub description: Option<String>,
    pub status: Option<String>,
    /// The number of its tool calls.
    pub tools: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileChanges {
    /// Created files with their sizes.
    pub created: Vec<(String, u64)>,
    /// Changed files with their new sizes.
    pub changed: Vec<(String, u64)>,
    pub removed: Vec<String>,
}

/// A decision on egress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressTrace {
    pub destination: String,
    /// Whether it was allowed.
    pub allowed: bool,
    /// Whether no connection could be made without the proxy.
    pub enforced: bool,
    pub rule: Option<String>,
}

impl Trace {
    #[must_use]
    pub fn of(evidence: &Evidence) -> Self {
        Self {
            incomplete: incomplete(evidence),
            tools: tools(evidence),
            questions: questions(evidence),
            sub_agents: sub_agents(evidence),
            skills: skills(evidence),
            files: evidence.files.as_ref().map(changes),
            egress: evidence.egress.as_ref().map(|log| {
                let decided = log.rows.iter().filter_map(|row| match row {
                    EgressRow::Decided { seq: _, at_ms: _, decision, enforcement } => {
                        Some(egress(decision, *enforcement))
                    }
                    EgressRow::Opened { .. } | EgressRow::Finished { .. } | EgressRow::Closed { .. } => None,
                });
                decided.collect()
            }),
            egress_incomplete: evidence.egress.as_ref().and_then(|log| match &log.state {
                EgressLogState::Unenforced | EgressLogState::Truncated | EgressLogState::Newer { .. } => {
                    Some(log.state.describe())
                }
                // The record as a whole is reported as incomplete.
                EgressLogState::Edited { .. } | EgressLogState::Absent | EgressLogState::Complete => None,
            }),
            usage: evidence.metrics.clone(),
            duration_ms: evidence.duration_ms,
        }
    }
}

fn incomplete(evidence: &Evidence) -> Option<String> {
    if let Whole::No { why } = &evidence.conversation {
        return Some(why.clone());
    }
    let log = evidence.egress.as_ref().map(|log| &log.state);
    log.filter(|state| matches!(state, EgressLogState::Edited { .. })).map(EgressLogState::describe)
}

fn egress(decision: &EgressDecision, enforcement: Enforcement) -> EgressTrace {
    EgressTrace {
        destination: decision.destination.clone(),
        allowed: decision.verdict == EgressVerdict::Allowed,
        enforced: enforcement == Enforcement::Enforced,
        rule: decision.rule.clone(),
    }
}

fn tools(evidence: &Evidence) -> Vec<ToolTrace> {
    let mut out = Vec::new();
    for seen in &evidence.seen {
        let Observation::ToolCalled { by, call, tool, input } = &seen.what else { continue };
        let back = evidence.seen.iter().find_map(|back| {
            let Observation::ToolReturned { call: of, is_error, .. } = &back.what else { return None };
            (of == call).then_some((back.offset_ms, *is_error))
        });
        out.push(ToolTrace {
            tool: tool.clone(),
            under: match by {
                Speaker::Main => None,
                Speaker::SubAgent { call } => Some(call.clone()),
            },
            about: gist(input),
            status: status_of(back.map(|(_, is_error)| is_error)),
            at_ms: seen.offset_ms,
            duration_ms: back.map(|(at, _)| at.saturating_sub(seen.offset_ms)),
        });
    }
    out
}

fn status_of(is_error: Option<bool>) -> ToolStatus {
    match is_error {
        Some(false) => ToolStatus::Ok,
        Some(true) => ToolStatus::Error,
        None => ToolStatus::Open,
    }
}

fn questions(evidence: &Evidence) -> Vec<QuestionTrace> {
    let mut out = Vec::new();
    for gate in evidence.gates() {
        for (at, asked) in gate.questions.iter().enumerate() {
            out.push(QuestionTrace {
                question: asked.question.clone(),
                options: asked.options.iter().map(|option| option.label.clone()).collect(),
                answer: gate.answers.and_then(|answers| answers.get(at).cloned()),
                by: gate.by.map(str::to_owned),
                delivered: gate.delivery == Delivery::Delivered,
            });
        }
    }
    out
}

fn sub_agents(evidence: &Evidence) -> Vec<SubAgentTrace> {
    let mut out: Vec<SubAgentTrace> = Vec::new();
    for seen in &evidence.seen {
        if let Observation::SubAgentStarted { task, call, agent, description } = &seen.what {
            let own = |seen: &&belljar_contract::Seen| {
                matches!(&seen.what, Observation::ToolCalled { by: Speaker::SubAgent { call: under }, .. }
                        if Some(under) == call.as_ref())
            };
            out.push(SubAgentTrace {
                task: task.clone(),
                agent: agent.clone(),
                description: description.clone(),
                status: None,
                tools: evidence.seen.iter().filter(own).count(),
            });
        } else if let Observation::SubAgentEnded { task, status, .. } = &seen.what
            && let Some(known) = out.iter_mut().find(|known| known.task == *task)
        {
            known.status.clone_from(status);
        }
    }
    out
}

fn skills(evidence: &Evidence) -> Vec<String> {
    let mut out = Vec::new();
    for seen in &evidence.seen {
        if let Observation::SkillActivated { skill, .. } = &seen.what
            && !out.contains(skill)
        {
            out.push(skill.clone());
        }
    }
    out
}

/// The differences between before and after.
#[must_use]
pub fn changes(files: &FilesSeen) -> FileChanges {
    let mut out = FileChanges::default();
    for (path, file) in &files.after {
        match files.before.get(path) {
            None => out.created.push((path.clone(), file.bytes)),
            Some(before) if before.digest != file.digest || before.kind != file.kind => {
                out.changed.push((path.clone(), file.bytes));
            }
            Some(_) => {}
        }
    }
    out.removed = files.before.keys().filter(|path| !files.after.contains_key(*path)).cloned().collect();
    out
}

#[must_use]
pub fn render_trace(trace: &Trace, style: Style) -> String {
    let mut out = incomplete_line(trace, style);
    for part in [TracePart::Tools, TracePart::Questions] {
        out.push_str(&render_part(trace, part, style));
    }
    out.push_str(&render_sub_agents(trace, style));
    for part in [TracePart::Files, TracePart::Egress] {
        out.push_str(&render_part(trace, part, style));
    }
    out.push_str(&used_line(trace, style));
    out
}

/// A part of a trace that can be shown alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracePart {
    Tools,
    Questions,
    Files,
    Egress,
}

pub(crate) fn incomplete_line(trace: &Trace, style: Style) -> String {
    let line = |why: &String| style.warn(&format!("The record is incomplete: {}", visible(why)));
    trace.incomplete.as_ref().map(|why| format!("{}\n\n", line(why))).unwrap_or_default()
}

pub(crate) fn used_line(trace: &Trace, style: Style) -> String {
    format!("{}  {}\n", style.bold("Used"), used(trace))
}

pub(crate) fn render_part(trace: &Trace, part: TracePart, style: Style) -> String {
    match part {
        TracePart::Tools => {
            section("Tools", &["tool", "status", "at", "took", "about"], &tool_rows(trace), style)
        }
        TracePart::Questions => {
            let rows = trace.questions.iter().map(|asked| {
                let delivered = if asked.delivered { "delivered" } else { "not delivered" };
                vec![
                    asked.question.clone(),
                    asked.answer.clone().unwrap_or_else(|| "no answer".to_owned()),
                    asked.by.clone().unwrap_or_default(),
                    delivered.to_owned(),
                ]
            });
            section(
                "Questions to the user",
                &["asked", "answered", "by", ""],
                &rows.collect::<Vec<_>>(),
                style,
            )
        }
        TracePart::Files => match &trace.files {
            None => "Files: not examined\n\n".to_owned(),
            Some(files) => section("Files", &["", "bytes", "path"], &file_rows(files), style),
        },
        TracePart::Egress => match &trace.egress {
            None => "Egress: not recorded\n\n".to_owned(),
            Some(rows) => {
                let rows = rows.iter().map(|row| {
                    let verdict = match (row.allowed, row.enforced) {
                        (true, true) => "allowed",
                        (false, true) => "denied",
                        (true, false) => "allowed, not enforced",
                        (false, false) => "denied, not enforced",
                    };
                    vec![verdict.to_owned(), row.destination.clone(), row.rule.clone().unwrap_or_default()]
                });
                let rows = rows.collect::<Vec<_>>();
                let list = section("Egress", &["", "destination", "rule"], &rows, style);
                match &trace.egress_incomplete {
                    None => list,
                    Some(why) if rows.is_empty() => format!("Egress: no decision; {}\n\n", visible(why)),
                    Some(why) => {
                        let line = style.warn(&format!("Egress: {}", visible(why)));
                        format!("{list}{line}\n\n")
                    }
                }
            }
        },
    }
}

/// Sub-agents and skills.
pub(crate) fn render_sub_agents(trace: &Trace, style: Style) -> String {
    let rows = trace.sub_agents.iter().map(|agent| {
        vec![
            agent.agent.clone().unwrap_or_default(),
            agent.status.clone().unwrap_or_else(|| "end not seen".to_owned()),
            agent.tools.to_string(),
            agent.description.clone().unwrap_or_default(),
        ]
    });
    let rows = rows.collect::<Vec<_>>();
    let agents = section("Sub-agents", &["kind", "status", "tools", "about"], &rows, style);
    let rows = trace.skills.iter().map(|skill| vec![skill.clone()]);
    agents + &section("Skills", &["name"], &rows.collect::<Vec<_>>(), style)
}

fn section(title: &str, headings: &[&str], rows: &[Vec<String>], style: Style) -> String {
    if rows.is_empty() {
        return format!("{title}: none\n\n");
    }
    format!("{}\n{}\n", style.bold(title), render_table(headings, rows, style))
}

fn tool_rows(trace: &Trace) -> Vec<Vec<String>> {
    let row = |tool: &ToolTrace| {
        let under = if tool.under.is_some() { "  " } else { "" };
        let status = match tool.status {
            ToolStatus::Ok => "ok",
            ToolStatus::Error => "error",
            ToolStatus::Open => "open",
        };
        vec![
            format!("{under}{}", tool.tool),
            status.to_owned(),
            seconds(tool.at_ms),
            tool.duration_ms.map(|ms| format!("{ms} ms")).unwrap_or_default(),
            tool.about.clone(),
        ]
    };
    trace.tools.iter().map(row).collect()
}

fn file_rows(files: &FileChanges) -> Vec<Vec<String>> {
    let sized = |word: &str, list: &[(String, u64)]| {
        let row = |(path, bytes): &(String, u64)| vec![word.to_owned(), human_size(*bytes), path.clone()];
        list.iter().map(row).collect::<Vec<_>>()
    };
    let mut rows = sized("created", &files.created);
    rows.extend(sized("changed", &files.changed));
    rows.extend(files.removed.iter().map(|path| vec!["removed".to_owned(), String::new(), path.clone()]));
    rows
}

fn used(trace: &Trace) -> String {
    let Metrics { input_tokens, output_tokens, cost_micros_usd, cpu_ms, peak_memory_bytes, usage: _reported } =
        &trace.usage;
    let mut parts: Vec<String> = trace.duration_ms.map(seconds).into_iter().collect();
    if let (Some(read), Some(written)) = (input_tokens, output_tokens) {
        parts.push(format!("{read} tokens read, {written} written"));
    }
    parts.extend(cost_micros_usd.map(dollars));
    parts.extend(cpu_ms.map(|ms| format!("{} of processor", seconds(ms))));
    parts.extend(peak_memory_bytes.map(|bytes| format!("{} at most", human_size(bytes))));
    parts.join(", ")
}
