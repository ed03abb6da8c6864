//! Writes the rules that would have answered a question.

use crate::question::Question;
use belljar_contract::{AskedQuestion, visible};
use serde_json::json;

/// Number of further options that are listed in a comment.
const NAMED_OPTIONS: usize = 8;

/// Lines for the list `answers` of a scenario; nothing where no rule can answer.
pub(super) fn lines(question: &Question) -> Option<String> {
    match question {
        Question::Permission(request) => {
            Some(format!("{}\n  decide: allow  # or deny\n", when_tool(&request.tool)))
        }
        Question::Choice { questions, .. } => Some(questions.iter().map(for_question).collect()),
        Question::Unreadable { .. }
        | Question::Hook(_)
        | Question::Mcp(_)
        | Question::Elicitation(_)
        | Question::Dialog(_) => None,
    }
}

/// The first line of a rule for a tool.
pub(super) fn when_tool(tool: &str) -> String {
    // Versions 2.1.197 and 2.1.327 ask before they use such a skill, and about no other one (2026-11-19).
    let why = if tool == "Skill" { "  # the agent asks before a skill with `allowed-tools`" } else { "" };
    format!("- when_tool: {}{why}", quoted(tool))
}

fn for_question(asked: &AskedQuestion) -> String {
    let when = quoted(&format!("^{}$", belljar_contract::Pattern::quoted(&asked.question)));
    let labels: Vec<String> = asked.options.iter().map(|option| quoted(&option.label)).collect();
    match labels.split_first() {
        None => format!("- when_question: {when}\n  answer: \"your answer\"\n"),
        Some((first, [])) => format!("- when_question: {when}\n  choose: {first}\n"),
        Some((first, others)) => {
            let more = if others.len() > NAMED_OPTIONS { ", …" } else { "" };
            let others = others[..others.len().min(NAMED_OPTIONS)].join(", ");
            let word = if asked.multi_select { "and" } else { "or" };
            let choose = if asked.multi_select { format!("[{first}]") } else { first.clone() };
            format!("- when_question: {when}\n  choose: {choose}  # {word} {others}{more}\n")
        }
    }
}

/// Quotes a text for YAML. Every JSON string is a YAML string. Characters that YAML wants escaped and JSON does not, and
/// those that a terminal does not show as they are, are escaped too.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::new();
    for char in json!(text).to_string().chars() {
        match char {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(char)));
            }
            hidden if visible(&hidden.to_string()) != hidden.to_string() && hidden != '\\' => {
                out.push_str(&format!("\\U{:08x}", u32::from(hidden)));
            }
            other => out.push(other),
        }
    }
    out
}
