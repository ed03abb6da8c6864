//! The JSON object that a command prints with `--json`.

use crate::{ErrorText, ExitCode};
use serde::Serialize;
use serde_json::Value;

/// What `--json` prints, once, on standard output, on success and on failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Envelope {
    pub belljar: u32,
    /// The name of the command.
    pub verb: &'static str,
    /// Whether it succeeded.
    pub ok: bool,
    /// The exit status.
    pub exit_code: u8,
    /// The command's own result; null if it failed before it had one.
    pub data: Value,
    /// Problems in files, as [`crate::Diagnostic::to_json`] writes them.
    pub diagnostics: Vec<Value>,
    /// Why it failed; null on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
}

impl Envelope {
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
