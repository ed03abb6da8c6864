//! Names of tools and of files with `*` and `?` in them.

use super::PathName;
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node};
use belljar_contract::{glob_matches, text_glob_matches};
use serde_json::{Value, json};

/// The name of a tool; `*` is any text, `?` one character. Letters count as written, and all of the name must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolGlob(String);

const LONGEST_TOOL: usize = 256;
const LONGEST_PATH: usize = 4096;

/// What regular expressions have and the name of a tool never does.
const PATTERN_MARKS: [char; 11] = ['|', '(', ')', '[', ']', '{', '}', '+', '^', '$', '\\'];

impl ToolGlob {
    pub(crate) fn fits(&self, tool: &str) -> bool {
        text_glob_matches(&self.0, tool)
    }
}

impl std::fmt::Display for ToolGlob {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "`{}`", self.0)
    }
}

impl Decode for ToolGlob {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "the name of a tool");
        };
        if text.trim().is_empty() {
            return faults.invalid(node, Fault::new("expected the name of a tool, found an empty one"));
        }
        if text.len() > LONGEST_TOOL {
            let message =
                format!("the tool name has {} bytes, more than the maximum of {LONGEST_TOOL}", text.len());
            return faults.invalid(node, Fault::new(message));
        }
        if text.contains(PATTERN_MARKS) || text.contains(".*") {
            let fault = Fault::new("expected the name of a tool, found a regular expression")
                .help("write `*` for any text and `?` for one character, as in `mcp__files__*`");
            return faults.invalid(node, fault);
        }
        Some(Self(text.clone()))
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": LONGEST_TOOL, "pattern": "^[^|()\\[\\]{}+^$\\\\]+$"})
    }
}

/// Paths below the workspace; `*` and `?` stay within a part, `**` is any number of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGlob(String);

impl PathGlob {
    fn new(text: &str) -> Result<Self, Fault> {
        if text.len() > LONGEST_PATH {
            let message =
                format!("the path has {} bytes, more than the maximum of {LONGEST_PATH}", text.len());
            return Err(Fault::new(message));
        }
        if text.contains(['[', ']', '{', '}']) {
            return Err(Fault::new("brackets and braces cannot be used in a path")
                .help("write one path for each alternative"));
        }
        let path = PathName::new(text)?.as_str().to_owned();
        if path.split('/').any(|part| part != "**" && part.contains("**")) {
            return Err(Fault::new("`**` must be a whole part of a path").help("write it as `a/**/b`"));
        }
        Ok(Self(path))
    }

    pub(crate) fn fits(&self, path: &str) -> bool {
        let glob: Vec<&str> = self.0.split('/').collect();
        let parts: Vec<&str> = path.split('/').collect();
        glob_matches(&glob, &parts, |part| *part == "**", |part, name| text_glob_matches(part, name))
    }
}

impl std::fmt::Display for PathGlob {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "`{}`", self.0)
    }
}

impl Decode for PathGlob {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a path with `*`, `?` and `**`");
        };
        Self::new(text).map_or_else(|fault| faults.invalid(node, fault), Some)
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": LONGEST_PATH, "pattern": "^[^/~]"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_part_by_part() {
        for (glob, path, fits) in [
            ("outputs/*.md", "outputs/a.md", true),
            ("outputs/*.md", "outputs/b/a.md", false),
            ("outputs/**", "outputs/b/a.md", true),
            ("outputs/**", "outputs2/a.md", false),
            ("**/a.md", "a.md", true),
            ("**/a.md", "x/y/a.md", true),
            ("a/**/b/**/c", "a/x/b/y/z/c", true),
            ("a/**/b/**/c", "a/x/y/z/c", false),
            ("a?", "ab", true),
            ("a?", "a/", false),
        ] {
            assert_eq!(PathGlob(glob.to_owned()).fits(path), fits, "{glob} {path}");
        }
    }
}
