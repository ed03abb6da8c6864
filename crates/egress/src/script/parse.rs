//! Parses a script file: JSON text to a checked [`Script`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::check::ScriptFaults;
use super::format::{SCRIPT_VERSION, Script};

/// Largest script file that is read; no script is as large.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a text is not a valid script.
#[derive(Debug, thiserror::Error)]
pub enum ParseScriptError {
    #[error("script version {found} is not supported; this build reads version {SCRIPT_VERSION}")]
    Version { found: u64 },
    /// The text is not JSON, or has an unknown or missing key or a value of the wrong type.
    #[error("line {line}, column {column}: `{at}` does not fit the script format")]
    Shape {
        /// The place in the file; `.` is the file itself.
        at: String,
        /// Line of the text, from 1.
        line: usize,
        /// Column of the text, from 1.
        column: usize,
        #[source]
        cause: serde_json::Error,
    },
    /// The text is well formed, but cannot be played.
    #[error("the script cannot be played")]
    Faults(#[source] ScriptFaults),
}

#[derive(Debug, thiserror::Error)]
pub enum LoadScriptError {
    #[error("cannot read the script {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the script {} is larger than {MAX_FILE_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is not a script", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        cause: ParseScriptError,
    },
}

/// The version is read before all other keys, so that a newer file is reported as such instead of for its keys.
#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

impl Script {
    /// Reads a script from JSON text and checks it.
    ///
    /// ```
    /// # use belljar_egress::script::Script;
    /// let script = Script::parse(br#"{
    ///     "version": 1,
    ///     "side_requests": {"reply": "a title"},
    ///     "turns": [
    ///         {"answer": {"reply": {"content": [{"tool_use": {"name": "Bash", "input": {"command": "ls"}}}]}}},
    ///         {"when": {"last_message_contains": "README"},
    ///          "answer": {"reply": {"content": [{"text": "There is a README."}]}}}
    ///     ]
    /// }"#)?;
    /// assert_eq!(script.turns.len(), 2);
    /// # Ok::<(), belljar_egress::script::ParseScriptError>(())
    /// ```
    ///
    /// # Errors
    /// The first error in the format, or all reasons why the script cannot be played.
    pub fn parse(json: &[u8]) -> Result<Self, ParseScriptError> {
        // If the version cannot be read, the full parser reports the error with its place.
        if let Ok(VersionOnly { version: found }) = serde_json::from_slice(json)
            && found != SCRIPT_VERSION
        {
            return Err(ParseScriptError::Version { found });
        }
        let mut reader = serde_json::Deserializer::from_slice(json);
        let script: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let at = error.path().to_string();
            shape(at, error.into_inner())
        })?;
        reader.end().map_err(|cause| shape(".".to_owned(), cause))?;
        script.check().map_err(ParseScriptError::Faults)?;
        Ok(script)
    }

    /// Reads a script from a file and checks it.
    ///
    /// # Errors
    /// As [`Script::parse`], with the name of the file, and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, LoadScriptError> {
        let unreadable = |cause| LoadScriptError::Read { path: path.to_owned(), cause };
        let mut json = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut json))
            .map_err(unreadable)?;
        if json.len() as u64 > MAX_FILE_BYTES {
            return Err(LoadScriptError::TooLarge { path: path.to_owned() });
        }
        Self::parse(&json).map_err(|cause| LoadScriptError::Parse { path: path.to_owned(), cause })
    }
}

fn shape(at: String, cause: serde_json::Error) -> ParseScriptError {
    ParseScriptError::Shape { at, line: cause.line(), column: cause.column(), cause }
}
