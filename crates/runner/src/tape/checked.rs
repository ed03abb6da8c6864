//! What a check of a tape found.

use super::facts::Changed;
use super::privacy::PrivateFinding;
use super::values::ValueSearch;
use belljar_contract::ExitCode;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct CheckedTape {
    /// Why the conversation on it cannot be trusted.
    pub contradiction: Option<String>,
    pub changed: Vec<Changed>,
    /// What cannot be compared, in a strict check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<Vec<Changed>>,
    pub private: Vec<PrivateFinding>,
    pub values: ValueSearch,
}

impl CheckedTape {
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        let Self { contradiction, changed, not_compared, private, values } = self;
        let unknown = not_compared.as_ref().map_or(0, Vec::len) + values.unchecked;
        let clean = changed.is_empty() && private.is_empty() && values.found.is_empty();
        match (contradiction, clean, unknown) {
            // What is found on a tape that contradicts itself says little.
            (Some(_), ..) => ExitCode::Unverified,
            (None, false, _) => ExitCode::Failed,
            (None, true, 0) => ExitCode::Passed,
            // A comparison or search that did not take place has found nothing, and shows nothing.
            (None, true, _) => ExitCode::Unverified,
        }
    }
}
