//! Answers given on the command line: `--answer "pattern=choice"`, `--allow-tool NAME`, `--deny-tool NAME`.

use super::rule::{Allowance, Rule};
use belljar_contract::{Letters, Pattern};

/// Errors of [`parse_answer_flag`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFlagError {
    /// There is no `=`, or nothing on one side of it.
    #[error("expected `PATTERN=CHOICE`, found {text:?}")]
    Form { text: String },
    /// The pattern does not compile.
    #[error("{text:?}: {why}")]
    Pattern { text: String, why: String },
    #[error("expected the name of a tool, found an empty one")]
    NoTool,
}

/// Parses one `--answer`. The first `=` without a backslash before it ends the pattern; a second one right after it
/// begins free text.
///
/// # Errors
/// If the text is not `PATTERN=CHOICE`, or the pattern is invalid.
pub fn parse_answer_flag(text: &str) -> Result<Rule, AnswerFlagError> {
    let form = || AnswerFlagError::Form { text: text.to_owned() };
    let at =
        text.match_indices('=').map(|(at, _)| at).find(|at| !text[..*at].ends_with('\\')).ok_or_else(form)?;
    let (source, choice) = (&text[..at], text[at + 1..].trim());
    if source.is_empty() || choice.is_empty() {
        return Err(form());
    }
    let when = Pattern::new(source, Letters::AnyCase)
        .map_err(|error| AnswerFlagError::Pattern { text: text.to_owned(), why: error.to_string() })?;
    match choice.strip_prefix('=').map(str::trim) {
        None => Ok(Rule::choosing(when, choice.to_owned())),
        Some("") => Err(form()),
        Some(own) => Ok(Rule::saying(when, own.to_owned())),
    }
}

/// The rule of one `--allow-tool`, which allows the tool of exactly this name.
///
/// # Errors
/// If the name is empty.
pub fn allow_tool_rule(tool: &str) -> Result<Rule, AnswerFlagError> {
    tool_rule(tool, Allowance::Allow)
}

/// The rule of one `--deny-tool`, which denies the tool of exactly this name.
///
/// # Errors
/// If the name is empty.
pub fn deny_tool_rule(tool: &str) -> Result<Rule, AnswerFlagError> {
    tool_rule(tool, Allowance::Deny)
}

fn tool_rule(tool: &str, allowance: Allowance) -> Result<Rule, AnswerFlagError> {
    if tool.trim().is_empty() {
        return Err(AnswerFlagError::NoTool);
    }
    Ok(Rule::for_tool(tool.to_owned(), allowance))
}
