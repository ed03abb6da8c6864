//! `SKILL.md`: its front matter, and the limits the format sets.

use crate::scenario::DocumentText;
use crate::syntax::{Aliases, parse_yaml};
use crate::text;
use belljar_contract::decode::{Fault, Faults, Kind, Node};
use belljar_contract::{Diagnostic, SourceFile, Sources};
use std::ops::Range;

/// What is known about a skill from its own file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    pub name: String,
    pub description: String,
}

/// A `SKILL.md` and everything that is wrong with it.
#[derive(Debug, Clone)]
pub struct SkillDocument {
    /// `None` after an error.
    pub skill: Option<SkillFile>,
    /// The text, for diagnostics.
    pub sources: Sources,
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads a `SKILL.md`.
#[must_use]
pub fn parse_skill(file: DocumentText) -> SkillDocument {
    let DocumentText { name, bytes } = file;
    // A byte order mark is kept here: it hides the front matter from the agent.
    let (source, finding) = match String::from_utf8(bytes) {
        Ok(text) if text.len() <= text::SIZE_LIMIT => (SourceFile { name, text }, None),
        Ok(text) => text::read(0, name, text.into_bytes()),
        Err(error) => text::read(0, name, error.into_bytes()),
    };
    let mut faults = Faults::new(0, &source.text);
    let skill = match finding {
        Some(finding) => {
            faults.list.push(finding);
            None
        }
        None => parse(&source.text, &mut faults),
    };
    let diagnostics = faults.list;
    SkillDocument { skill, sources: vec![source], diagnostics }
}

/// Reads the front matter of `text`; every fault is reported with its place in the file.
pub(crate) fn parse(text: &str, faults: &mut Faults<'_>) -> Option<SkillFile> {
    let first_line = 0..text.find('\n').unwrap_or(text.len());
    let Some(matter) = front_matter(text) else {
        let fault = if text.starts_with('\u{feff}') {
            Fault::new("`SKILL.md` begins with a byte order mark, so that its front matter is not seen")
                .label("in front of this line")
                .help("save the file as UTF-8 without a byte order mark")
        } else if text.lines().next().is_some_and(|line| line.trim_end() == "---") {
            Fault::new("the front matter of `SKILL.md` has no end")
                .label("it begins here")
                .help("close it with another line `---`")
        } else {
            Fault::new("`SKILL.md` has no front matter")
                .label("a line `---` belongs here")
                .help("begin the file with `---`, `name: …`, `description: …`, `---`")
        };
        faults.push("skill-front-matter", &first_line, fault);
        return None;
    };
    let node = match parse_yaml(&text[matter.clone()], Aliases::Refused) {
        Ok(node) => node,
        Err(errors) => {
            for error in errors {
                let span = shift(&error.span, matter.start);
                let mut fault =
                    Fault::new(format!("the front matter of `SKILL.md` is not YAML: {}", error.message));
                fault.help = error.help.map(str::to_owned);
                faults.push("skill-front-matter", &span, fault);
            }
            return None;
        }
    };
    let Kind::Table(table) = &node.kind else {
        let fault = Fault::new(format!("the front matter of `SKILL.md` is {}, not a table", node.describe()))
            .help("write `name: …` and `description: …`");
        faults.push("skill-front-matter", &first_line, fault);
        return None;
    };
    let mut field = |key: &str, required: bool, check: fn(&str) -> Result<(), String>| {
        let found = text_field(table.get(key), key, (&first_line, matter.start), required, faults)?;
        let (value, span) = found?;
        if let Err(message) = check(&value) {
            faults.push("skill-front-matter", &span, Fault::new(format!("`{key}`: {message}")));
            return None;
        }
        Some(value)
    };
    let name = field("name", true, check_name);
    let description = field("description", true, check_description);
    field("license", false, |_| Ok(()));
    field("compatibility", false, |text| at_most(text, 500));
    Some(SkillFile { name: name?, description: description? })
}

/// The place of the YAML between the two `---` lines.
fn front_matter(text: &str) -> Option<Range<usize>> {
    let start = ["---\n", "---\r\n"].iter().find(|mark| text.starts_with(**mark)).map(|mark| mark.len())?;
    let mut at = start;
    for line in text[start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some(start..at);
        }
        at += line.len();
    }
    None
}

fn shift(span: &Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

/// The text of a field and its place. `None` when it is of the wrong kind or missing though required;
/// `Some(None)` when it is absent and may be.
fn text_field(
    node: Option<&Node>,
    key: &str,
    (first_line, start): (&Range<usize>, usize),
    required: bool,
    faults: &mut Faults<'_>,
) -> Option<Option<(String, Range<usize>)>> {
    let Some(node) = node.filter(|node| node.kind != Kind::Null) else {
        if required {
            let fault = Fault::new(format!("the front matter of `SKILL.md` lacks `{key}`"))
                .label(format!("`{key}: …` belongs below"));
            faults.push("skill-front-matter", first_line, fault);
            return None;
        }
        return Some(None);
    };
    let span = shift(&node.span, start);
    match &node.kind {
        Kind::String(value) => Some(Some((value.clone(), span))),
        Kind::Integer(value) => Some(Some((value.to_string(), span))),
        Kind::Null
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Table(_)
        | Kind::Foreign(_) => {
            let fault = Fault::new(format!(
                "`{key}` in the front matter of `SKILL.md` is {}, not a string",
                node.describe()
            ));
            faults.push("skill-front-matter", &span, fault);
            None
        }
    }
}

fn at_most(text: &str, limit: usize) -> Result<(), String> {
    let found = text.chars().count();
    if found > limit { Err(format!("at most {limit} characters, this has {found}")) } else { Ok(()) }
}

fn check_name(name: &str) -> Result<(), String> {
    at_most(name, 64)?;
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !plain || name.is_empty() || name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Err("lower-case letters, digits and single hyphens between them".to_owned());
    }
    Ok(())
}

fn check_description(description: &str) -> Result<(), String> {
    if description.trim().is_empty() {
        return Err("it is empty; the agent decides by it when to use the skill".to_owned());
    }
    at_most(description, 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(text: &str) -> Vec<String> {
        let mut faults = Faults::new(0, text);
        let file = parse(text, &mut faults);
        assert_eq!(file.is_some(), faults.list.is_empty());
        faults
            .list
            .iter()
            .map(|fault| {
                let span = fault.label.clone().unwrap().span;
                assert!(text.get(span).is_some(), "the place lies in the text");
                fault.message.clone()
            })
            .collect()
    }

    #[test]
    fn good_files() {
        for text in [
            "---\nname: a-b\ndescription: Does things\n---\nbody",
            "---\r\nname: a\r\ndescription: 'Use when: asked'\r\nlicense: MIT\r\n---\r\n",
            "---\nname: a\ndescription: |\n  two\n  lines\nmetadata:\n  x: y\n---\n",
        ] {
            assert_eq!(faults_of(text), Vec::<String>::new());
        }
    }

    #[test]
    fn broken_files() {
        let long = "x".repeat(1025);
        for (text, message) in [
            ("# Title\n", "`SKILL.md` has no front matter"),
            ("", "`SKILL.md` has no front matter"),
            ("---\nname: a\n", "the front matter of `SKILL.md` has no end"),
            (
                "\u{feff}---\nname: a\ndescription: b\n---\n",
                "`SKILL.md` begins with a byte order mark, so that its front matter is not seen",
            ),
            ("---\n- a\n---\n", "the front matter of `SKILL.md` is a list, not a table"),
            ("---\n---\n", "the front matter of `SKILL.md` is nothing, not a table"),
            (
                "---\nname: [a]\ndescription: d\n---\n",
                "`name` in the front matter of `SKILL.md` is a list, not a string",
            ),
            (
                "---\nname: A\ndescription: d\n---\n",
                "`name`: lower-case letters, digits and single hyphens between them",
            ),
            (
                "---\nname: a--b\ndescription: d\n---\n",
                "`name`: lower-case letters, digits and single hyphens between them",
            ),
            (
                "---\nname: a\ndescription: ' '\n---\n",
                "`description`: it is empty; the agent decides by it when to use the skill",
            ),
            (
                &format!("---\nname: a\ndescription: {long}\n---\n"),
                "`description`: at most 1024 characters, this has 1025",
            ),
            ("---\nname: a\n---\n", "the front matter of `SKILL.md` lacks `description`"),
        ] {
            assert_eq!(faults_of(text), [message], "{text:?}");
        }
        assert!(
            faults_of("---\nname: a\ndescription: Use: when\n---\n")[0]
                .starts_with("the front matter of `SKILL.md` is not YAML")
        );
        assert_eq!(faults_of("---\nlicense: x\n---\n").len(), 2, "both missing keys are named");
    }
}
