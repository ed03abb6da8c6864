//! The name of a file below the workspace.

use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, shown};
use serde_json::{Value, json};

/// A path below the workspace, in one spelling: parts with `/` between them, none of them `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathName(String);

impl PathName {
    pub(crate) fn new(text: &str) -> Result<Self, Fault> {
        let refused = |why: &str| {
            Err(Fault::new(format!("`{}` {why}", shown(text)))
                .help("write a path relative to the workspace, such as `outputs/report.md`"))
        };
        if text.starts_with('/') {
            return refused("is absolute");
        }
        if text.starts_with('~') {
            return refused("is in a home directory");
        }
        if text.contains(['\0', '\\']) {
            return refused("has a NUL or a backslash in it");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return refused("has a part `..` and may lead out of the workspace");
        }
        if parts.is_empty() {
            return refused("names no file");
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

impl Decode for PathName {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a path");
        };
        Self::new(text).map_or_else(|fault| faults.invalid(node, fault), Some)
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "pattern": "^[^/~]"})
    }
}
