//! The one JSON object that a verb prints for machines.

use crate::{ErrorText, ExitCode};
use serde::Serialize;
use serde_json::Value;

/// What `--json` prints, once, on standard output, whatever happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Envelope {
    /// Version of this envelope.
    pub belljar: u32,
    /// The verb that ran.
    pub verb: &'static str,
    /// Whether it ended well.
    pub ok: bool,
    /// The process status that goes with it.
    pub exit_code: u8,
    /// The verb's own result; null when it failed before it had one.
    pub data: Value,
    /// Findings about files.
    pub diagnostics: Vec<Value>,
    /// Why it failed, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
}

impl Envelope {
    /// An envelope around a result.
    #[must_use]
    pub fn new(verb: &'static str, exit: ExitCode, data: Value) -> Self {
        Self {
            belljar: 1,
            verb,
            ok: exit == ExitCode::Passed,
            exit_code: exit.code(),
            data,
            diagnostics: Vec::new(),
            error: None,
        }
    }
}
