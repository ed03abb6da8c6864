//! The JSON object that a command prints with `--json`.

use crate::{ErrorText, ExitCode};
use serde::Serialize;
use serde_json::{Value, json};

/// Version of [`Envelope`], its member `belljar`. It rises when a member changes its meaning or is removed; new members
/// do not raise it.
pub const ENVELOPE_FORMAT: u32 = 1;

/// What `--json` prints, once, on standard output, on success and on failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Envelope {
    /// [`ENVELOPE_FORMAT`].
    pub belljar: u32,
    /// The version of belljar.
    pub version: &'static str,
    /// The name of the command; null if the command line names none.
    pub verb: Option<&'static str>,
    /// Whether it succeeded.
    pub ok: bool,
    /// The exit status.
    pub exit_code: u8,
    /// [`ExitCode::meaning`].
    pub exit_meaning: &'static str,
    /// The command's own result; null if it failed before it had one.
    pub data: Value,
    /// Problems in files, as [`crate::Diagnostic::to_json`] writes them.
    pub diagnostics: Vec<Value>,
    /// Why it failed; absent on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
}

impl Envelope {
    #[must_use]
    pub fn new(verb: impl Into<Option<&'static str>>, exit: ExitCode, data: Value) -> Self {
        Self {
            belljar: ENVELOPE_FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            verb: verb.into(),
            ok: exit == ExitCode::Passed,
            exit_code: exit.code(),
            exit_meaning: exit.meaning(),
            data,
            diagnostics: Vec::new(),
            error: None,
        }
    }

    /// The JSON Schema of what is printed. `data` differs from command to command.
    #[must_use]
    pub fn schema() -> Value {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let codes = ExitCode::ALL.map(|code| json!({"const": code.code(), "description": code.meaning()}));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "What belljar prints with --json",
            "type": "object",
            "required": ["belljar", "version", "verb", "ok", "exit_code", "exit_meaning", "data", "diagnostics"],
            "properties": {
                "belljar": {"description": "Version of this format", "const": ENVELOPE_FORMAT},
                "version": {"description": "Version of belljar", "type": "string"},
                "verb": {
                    "description": "Name of the command; null if the command line names none",
                    "type": ["string", "null"],
                },
                "ok": {"description": "Whether the exit status is 0", "type": "boolean"},
                "exit_code": {"description": "Exit status", "oneOf": codes},
                "exit_meaning": {"description": "Meaning of the exit status", "type": "string"},
                "data": {"description": "Result of the command; null if it failed before it had one"},
                "diagnostics": {
                    "description": "Problems in files",
                    "type": "array",
                    "items": {"type": "object"},
                },
                "error": {
                    "description": "Why the command failed; absent if it did not",
                    "type": "object",
                    "required": ["message", "causes", "hints"],
                    "properties": {
                        "message": {"type": "string"},
                        "causes": texts,
                        "hints": texts,
                    },
                    "additionalProperties": false,
                },
            },
            "if": {"properties": {"exit_code": {"const": 0}}},
            "then": {"properties": {"ok": {"const": true}, "error": false}},
            "else": {"properties": {"ok": {"const": false}}},
            "additionalProperties": false,
        })
    }
}
