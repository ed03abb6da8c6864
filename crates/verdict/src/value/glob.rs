//! Names of tools and of files with `*` and `?` in them.

use super::PathName;
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node};
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
        let glob: Vec<char> = self.0.chars().collect();
        let name: Vec<char> = tool.chars().collect();
        wild(&glob, &name, |part| *part == '*', |part, char| *part == '?' || part == char)
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
                format!("the name of a tool has at most {LONGEST_TOOL} bytes, this has {}", text.len());
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
            let message = format!("a path has at most {LONGEST_PATH} bytes, this has {}", text.len());
            return Err(Fault::new(message));
        }
        if text.contains(['[', ']', '{', '}']) {
            return Err(Fault::new("brackets and braces have no meaning in a path here")
                .help("write one path for each alternative"));
        }
        let path = PathName::new(text)?.as_str().to_owned();
        if path.split('/').any(|part| part != "**" && part.contains("**")) {
            return Err(Fault::new("`**` stands for whole parts of a path").help("write it as `a/**/b`"));
        }
        Ok(Self(path))
    }

    pub(crate) fn fits(&self, path: &str) -> bool {
        let glob: Vec<&str> = self.0.split('/').collect();
        let parts: Vec<&str> = path.split('/').collect();
        wild(&glob, &parts, |part| *part == "**", |part, name| part_fits(part, name))
    }
}

impl std::fmt::Display for PathGlob {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "`{}`", self.0)
    }
}

fn part_fits(part: &str, name: &str) -> bool {
    let glob: Vec<char> = part.chars().collect();
    let name: Vec<char> = name.chars().collect();
    wild(&glob, &name, |part| *part == '*', |part, char| *part == '?' || part == char)
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

/// Whether a list fits a pattern in which some parts stand for any number of items. The last such part is the only one
/// that is ever taken back, so the time is bounded by the product of the lengths.
fn wild<P, T>(pattern: &[P], items: &[T], any: impl Fn(&P) -> bool, fits: impl Fn(&P, &T) -> bool) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while item < items.len() {
        if at < pattern.len() && any(&pattern[at]) {
            last = Some((at, item));
            at += 1;
        } else if at < pattern.len() && fits(&pattern[at], &items[item]) {
            at += 1;
            item += 1;
        } else if let Some((star, from)) = last {
            last = Some((star, from + 1));
            at = star + 1;
            item = from + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_whole_and_as_written() {
        for (glob, name, fits) in [
            ("Write", "Write", true),
            ("Write", "write", false),
            ("Write", "WriteFile", false),
            ("mcp__*", "mcp__files__read", true),
            ("*__read", "mcp__files__read", true),
            ("m*p*d", "mcp__files__read", true),
            ("m*p*x", "mcp__files__read", false),
            ("Re?d", "Read", true),
            ("Re?d", "Red", false),
            ("*", "", true),
        ] {
            assert_eq!(ToolGlob(glob.to_owned()).fits(name), fits, "{glob} {name}");
        }
    }

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
        // The time of a bad case is a product, not a power.
        let glob = PathGlob(format!("{}b", "a*".repeat(60)));
        assert!(!glob.fits(&"a".repeat(5000)));
    }
}
