//! The rules of git's ignore files.

use super::wildmatch::Pattern;
use std::cell::Cell;

/// The longest line of an ignore file.
const LONGEST_LINE: usize = 4096;

/// The rules of one file.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// The directory that they are relative to, in the work tree: empty, or without a slash at its end.
    base: Vec<u8>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    negated: bool,
    /// Whether the rule applies to directories only.
    directory: bool,
    place: Against,
    /// The part before the first wildcard, which is compared first.
    literal: Box<[u8]>,
    /// The part from the first wildcard on, if there is one.
    rest: Option<Pattern>,
}

/// The text that a rule is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// The last component of the path.
    Name,
    /// The path below the directory of the ignore file.
    Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Ignored,
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    Directory,
    Other,
}

/// A line that is too long for a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is longer than {LONGEST_LINE} bytes")]
pub(crate) struct LineTooLong {
    line: usize,
}

impl Rules {
    /// Parses the text of a file in the directory `base` of the work tree.
    pub(crate) fn parse(text: &[u8], base: &[u8]) -> Result<Self, LineTooLong> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if line.len() > LONGEST_LINE {
                return Err(LineTooLong { line: number });
            }
            rules.extend(rule(line));
        }
        Ok(Self { base: base.to_vec(), rules })
    }

    /// The decision of the last rule that matches a path of the work tree.
    pub(crate) fn say(&self, path: &[u8], is: Is, steps: &Steps) -> Result<Option<Says>, StepsUsedUp> {
        let below = match self.base.as_slice() {
            b"" => Some(path),
            base => path.strip_prefix(base).and_then(|rest| rest.strip_prefix(b"/")),
        };
        let Some(below) = below else { return Ok(None) };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        for rule in self.rules.iter().rev() {
            let text = match rule.place {
                Against::Name => name,
                Against::Path => below,
            };
            if (!rule.directory || is == Is::Directory) && rule.matches(text, steps)? {
                return Ok(Some(if rule.negated { Says::Kept } else { Says::Ignored }));
            }
        }
        Ok(None)
    }
}

impl Rule {
    fn matches(&self, text: &[u8], steps: &Steps) -> Result<bool, StepsUsedUp> {
        steps.take(1)?;
        let Some(text) = text.strip_prefix(&*self.literal) else { return Ok(false) };
        match &self.rest {
            None => Ok(text.is_empty()),
            Some(pattern) => {
                steps.take(pattern.steps(text))?;
                Ok(pattern.matches(text))
            }
        }
    }
}

/// The comparison steps that are left.
#[derive(Debug)]
pub(crate) struct Steps(Cell<u64>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepsUsedUp;

impl Steps {
    pub(crate) fn new(most: u64) -> Self {
        Self(Cell::new(most))
    }

    fn take(&self, count: u64) -> Result<(), StepsUsedUp> {
        self.0.set(self.0.get().checked_sub(count).ok_or(StepsUsedUp)?);
        Ok(())
    }
}

fn rule(line: &[u8]) -> Option<Rule> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.first() == Some(&b'#') {
        return None;
    }
    // For git, a NUL ends the line.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let line = without_spaces(line);
    let (negated, line) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
    let (directory, line) = line.strip_suffix(b"/").map_or((false, line), |rest| (true, rest));
    let place = if line.contains(&b'/') { Against::Path } else { Against::Name };
    let line = match place {
        Against::Path => line.strip_prefix(b"/").unwrap_or(line),
        Against::Name => line,
    };
    if line.is_empty() {
        return None;
    }
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let split = line.iter().position(special).unwrap_or(line.len());
    let (literal, rest) = line.split_at(split);
    // git matches the rest on its own, so that `a**/b` crosses directories as `**/b` does.
    let (literal, rest) = match (rest, place) {
        ([], _) => (literal, None),
        (rest, Against::Path) => (literal, Some(Pattern::new(rest))),
        (_, Against::Name) => (&[][..], Some(Pattern::new(line))),
    };
    Some(Rule { negated, directory, place, literal: literal.into(), rest })
}

/// The line without trailing spaces, except those after a backslash.
fn without_spaces(line: &[u8]) -> &[u8] {
    let mut end = None;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => {
                end.get_or_insert(at);
            }
            b'\\' => {
                at += 1;
                if at == line.len() {
                    return line;
                }
                end = None;
            }
            _ => end = None,
        }
        at += 1;
    }
    end.map_or(line, |end| &line[..end])
}
