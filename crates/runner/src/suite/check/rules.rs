//! Rules that no question reaches, and questions of a script that no rule answers.

use super::at;
use crate::suite::Trial;
use belljar_contract::decode::{Kind, Node, shown};
use belljar_contract::{AskedOption, AskedQuestion, Diagnostic, PermissionRequest, Severity};
use belljar_egress::script::{Script, ScriptBlock, TurnAnswer};
use belljar_plan::OnUnanswered;
use belljar_session::decider::{Chain, Scripted, Unanswered};
use belljar_session::{By, Question};
use serde_json::Value;

/// The tool with which the agent asks the user.
const ASKING: &str = "AskUserQuestion";

/// Rules after one with the same condition, which decides first.
pub(super) fn never_reached(root: &Node) -> Vec<Diagnostic> {
    let answers = root.nearest_to("answers");
    let rules = answers.items().filter(|_| answers != root).unwrap_or_default();
    let mut known: Vec<(&'static str, Value)> = Vec::new();
    let mut out = Vec::new();
    for rule in rules {
        let Kind::Table(table) = &rule.kind else { continue };
        let Some((key, node)) =
            ["when_question", "when_tool"].iter().find_map(|key| Some((*key, table.get(key)?)))
        else {
            continue;
        };
        let condition = (key, node.to_value());
        if known.contains(&condition) {
            let message = format!("an earlier rule has the same `{key}`, so this one never answers");
            out.push(at(&node.span, Severity::Warning, ("unreached-rule", message, "leave one of them out")));
        } else if table.get("allow_if").is_none() {
            known.push(condition);
        }
    }
    out
}

/// Rules for tools that no tool's name equals: `*` stands for itself, and letters are compared as they are.
pub(super) fn never_matching(root: &Node) -> Vec<Diagnostic> {
    let answers = root.nearest_to("answers");
    let rules = answers.items().filter(|_| answers != root).unwrap_or_default();
    let mut out = Vec::new();
    for rule in rules {
        let Kind::Table(table) = &rule.kind else { continue };
        let Some(node) = table.get("when_tool") else { continue };
        let Kind::String(name) = &node.kind else { continue };
        let mut letters = name.chars();
        let first = letters.next().filter(char::is_ascii_lowercase);
        let help = match first {
            _ if name.contains(['*', '?']) => {
                "write one rule for each tool; the names of a server's tools are `mcp__SERVER__TOOL`"
                    .to_owned()
            }
            Some(first) if !name.contains(['_', ':']) => {
                format!("did you mean `{}{}`?", first.to_ascii_uppercase(), shown(letters.as_str()))
            }
            Some(_) | None => continue,
        };
        let message = "no tool has this name; it is compared letter by letter".to_owned();
        out.push(at(&node.span, Severity::Warning, ("unmatched-rule", message, &help)));
    }
    out
}

/// Questions that the script has the agent ask, and that no rule of the scenario answers: a label that is not among the
/// options, or a pattern that does not match.
pub(super) fn unanswered(trial: &Trial, script: &Script, root: &Node) -> Vec<Diagnostic> {
    match trial.scenario.on_unanswered {
        None | Some(OnUnanswered::Fail) => {}
        Some(OnUnanswered::First | OnUnanswered::Llm | OnUnanswered::Prompt) => return Vec::new(),
    }
    let mut out = Vec::new();
    for (turn, answer) in script.turns.iter().map(|turn| &turn.answer).enumerate() {
        let TurnAnswer::Reply(reply) = answer else { continue };
        for (block, content) in reply.content.iter().enumerate() {
            let ScriptBlock::ToolUse { name, input, id: _ } = content else { continue };
            if name != ASKING {
                continue;
            }
            for (number, asked) in questions(input).into_iter().enumerate() {
                let Some((why, help)) = refused(trial, asked) else { continue };
                let place = format!(
                    "turns[{turn}].answer.reply.content[{block}].tool_use.input.questions[{number}].question"
                );
                let message = format!("the scenario does not answer this question: {why}");
                let span = &root.nearest_to(&place).span;
                out.push(at(span, Severity::Warning, ("unanswered-question", message, help)));
            }
        }
    }
    out
}

/// Why the rules do not answer, and what would help.
fn refused(trial: &Trial, asked: AskedQuestion) -> Option<(String, &'static str)> {
    let request = PermissionRequest::of(ASKING, serde_json::Map::new());
    let rules = Scripted::default().with(trial.rules.clone(), By::Scenario);
    let answer = Chain::default().then(rules).decide(&Question::Choice { request, questions: vec![asked] });
    let Unanswered { about: _, notes, paste } = answer.err()?;
    let why = if notes.is_empty() { "no rule matches".to_owned() } else { notes.join("; ") };
    let help = match paste {
        Some(_) => "add a rule to `answers` of the scenario, or answer with --answer",
        // What to change is among the notes.
        None => "",
    };
    Some((why, help))
}

/// The questions in the input of a call; the agent refuses other forms itself.
fn questions(input: &Value) -> Vec<AskedQuestion> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let option =
        |value: &Value| AskedOption { label: text(value, "label"), description: text(value, "description") };
    let one = |value: &Value| AskedQuestion {
        question: text(value, "question"),
        header: text(value, "header"),
        options: value["options"].as_array().into_iter().flatten().map(option).collect(),
        multi_select: value["multiSelect"].as_bool().unwrap_or_default(),
    };
    input["questions"].as_array().into_iter().flatten().map(one).collect()
}
