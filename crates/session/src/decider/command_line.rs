//! Answers given on the command line: `--answer "pattern=choice"`.

use super::rule::Rule;
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
}

/// Parses one `--answer`. The first `=` without a backslash before it ends the pattern.
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
    Ok(Rule::choosing(when, choice.to_owned()))
}
