//! The script file: JSON text to a checked [`Script`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::check::ScriptFaults;
use super::format::{SCRIPT_VERSION, Script};

/// Largest script file that is read.
/// Larger than any script.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a text is not a script.
#[derive(Debug, thiserror::Error)]
pub enum ParseScriptError {
    /// The file was written for another version of the format.
    #[error("script version {found} is not readable here; this build reads version {SCRIPT_VERSION}")]
    Version {
        /// The version that the text names.
        found: u64,
    },
    /// Not JSON, an unknown or missing key, or a value of the wrong kind.
    #[error("line {line}, column {column}: `{at}` is not as a script has it")]
    Shape {
        /// Place in the words of the file; `.` is the file itself.
        at: String,
        /// Line of the text, from 1.
        line: usize,
        /// Column of the text, from 1.
        column: usize,
        /// What was expected and what was found.
        #[source]
        cause: serde_json::Error,
    },
    /// Well formed, but not playable.
    #[error("the script cannot be played")]
    Faults(#[source] ScriptFaults),
}

/// Why a script file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadScriptError {
    /// The file could not be read.
    #[error("cannot read the script {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The file is too large to be a script.
    #[error("the script {} is larger than {MAX_FILE_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file was read, but is not a script.
    #[error("{} is not a script", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: ParseScriptError,
    },
}

/// The one key that is read before all others, so that a newer file is named as such and not blamed for its keys.
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
    /// The first place where the text departs from the format, or else all reasons why it cannot be played.
    pub fn parse(json: &[u8]) -> Result<Self, ParseScriptError> {
        // A text without a readable version is left to the full reader, whose message has a place.
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
    /// As [`Script::parse`], with the file named, and when the file cannot be read.
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
