//! Answers given on the command line: `--answer "pattern=choice"`.

use super::rule::Rule;
use belljar_contract::{Letters, Pattern};

/// Why an argument is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFlagError {
    /// It has no `=`, or nothing beside it.
    #[error("an answer is `PATTERN=CHOICE`, this is {text:?}")]
    Form {
        /// What was given.
        text: String,
    },
    /// Its pattern cannot be used.
    #[error("{text:?}: {why}")]
    Pattern {
        /// What was given.
        text: String,
        /// Why not.
        why: String,
    },
}

/// Reads one `--answer`. The first `=` that no backslash precedes ends the pattern.
///
/// # Errors
/// When it is none.
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
