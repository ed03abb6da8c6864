//! The name of a file below the workspace.

use super::{Form, Reader, shown};
use serde_json::{Value, json};

/// A path below the workspace, in one spelling: parts with `/` between them, none of them `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathName(String);

impl PathName {
    /// Checks a path.
    pub(crate) fn new(text: &str) -> Result<Self, &'static str> {
        if text.starts_with('/') {
            return Err(
                "the path is absolute; write it as seen from the workspace, such as `outputs/report.md`",
            );
        }
        if text.starts_with('~') {
            return Err("the path begins in a home; write it as seen from the workspace");
        }
        if text.contains(['\0', '\\']) {
            return Err("the path holds a character that no path here has");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err("the path leaves the workspace by `..`, or may");
        }
        if parts.is_empty() {
            return Err("the path names no file");
        }
        Ok(Self(parts.join("/")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for PathName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "`{}`", shown(&self.0))
    }
}

impl Form for PathName {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Value::String(text) = value else {
            return reader.expected("a path", value);
        };
        Self::new(text).map_err(|why| reader.fault::<()>(why)).ok()
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "pattern": "^[^/~]"})
    }
}
