//! Files that are generated from code, and the check that they are up to date.
//!
//! Generated files are committed, so that they can be read without a build. The check fails if a source changes and
//! its file does not.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use belljar_contract::{ExitCode, HarnessProfile};
use belljar_runner::SchemaKind;
use serde_json::{Value, json};

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// A file and the function that generates it.
struct Generated {
    path: &'static str,
    content: fn() -> Result<String, TaskError>,
}

/// All generated files.
const FILES: [Generated; 12] = [
    Generated { path: "docs/reference/checks.md", content: checks },
    Generated { path: "docs/reference/exit-codes.md", content: exit_codes },
    Generated { path: "docs/reference/manifest.md", content: manifest },
    Generated { path: "docs/reference/programs-outside.md", content: crate::outside::page },
    Generated { path: "docs/reference/script.md", content: script },
    Generated { path: "schema/answer-policy.schema.json", content: answer_policy_schema },
    Generated { path: "schema/belljar.schema.json", content: schema },
    Generated { path: "schema/output.schema.json", content: output_schema },
    Generated { path: "schema/scenario.schema.json", content: scenario_schema },
    Generated { path: "schema/script.schema.json", content: script_schema },
    Generated { path: "schema/session.schema.json", content: session_schema },
    Generated { path: "schema/upgrade-report.schema.json", content: upgrade_report_schema },
];

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    for Generated { path, content } in &FILES {
        if let Some(difference) = difference(read(repository, path)?.as_deref(), &content()?) {
            findings.faults.push(format!("{path}: {difference}; run `cargo xtask generated --write`"));
        }
    }
    Ok(findings)
}

pub fn write(repository: &Repository) -> Result<Findings, TaskError> {
    let mut findings = Findings::default();
    for Generated { path, content } in &FILES {
        let content = content()?;
        if read(repository, path)?.as_deref() == Some(content.as_str()) {
            continue;
        }
        let target = repository.path(path);
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory)
                .map_err(|cause| format!("cannot create {}: {cause}", directory.display()))?;
        }
        fs::write(&target, content).map_err(|cause| format!("cannot write {path}: {cause}"))?;
        findings.notes.push(format!("wrote {path}"));
    }
    Ok(findings)
}

/// The content of a file; `None` if it does not exist.
fn read(repository: &Repository, path: &str) -> Result<Option<String>, TaskError> {
    match fs::read_to_string(repository.path(path)) {
        Ok(content) => Ok(Some(content)),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(format!("cannot read {path}: {cause}").into()),
    }
}

/// The first difference between a file and its generated content.
fn difference(found: Option<&str>, wanted: &str) -> Option<String> {
    let Some(found) = found else { return Some("is missing".to_owned()) };
    if found == wanted {
        return None;
    }
    let same = found.lines().zip(wanted.lines()).take_while(|(left, right)| left == right).count();
    let line_of =
        |text: &str| text.lines().nth(same).map_or("the end".to_owned(), |line| format!("`{line}`"));
    Some(format!("line {} is {} and should be {}", same + 1, line_of(found), line_of(wanted)))
}

fn exit_codes() -> Result<String, TaskError> {
    let mut page = String::from(
        "<!-- Written by `cargo xtask generated --write` from crates/contract/src/exit.rs. -->\n\n\
         # Exit codes\n\n\
         The status every verb ends with. `run`, `exec` and `shell` pass on the status of the command\n\
         they ran, and keep 125, 126 and 127 for their own failures.\n\n\
         | code | name | meaning |\n\
         | ---: | --- | --- |\n",
    );
    for code in ExitCode::ALL {
        writeln!(page, "| {} | {code:?} | {} |", code.code(), code.meaning())?;
    }
    Ok(page)
}

fn schema() -> Result<String, TaskError> {
    published(SchemaKind::Manifest)
}

fn answer_policy_schema() -> Result<String, TaskError> {
    published(SchemaKind::AnswerPolicy)
}

fn output_schema() -> Result<String, TaskError> {
    published(SchemaKind::Output)
}

fn scenario_schema() -> Result<String, TaskError> {
    published(SchemaKind::Scenario)
}

fn script_schema() -> Result<String, TaskError> {
    published(SchemaKind::Script)
}

fn script() -> Result<String, TaskError> {
    Ok(belljar_runner::script_reference())
}

fn session_schema() -> Result<String, TaskError> {
    published(SchemaKind::Session)
}

fn upgrade_report_schema() -> Result<String, TaskError> {
    published(SchemaKind::UpgradeReport)
}

fn published(kind: SchemaKind) -> Result<String, TaskError> {
    Ok(format!("{:#}\n", kind.schema()))
}

fn checks() -> Result<String, TaskError> {
    Ok(belljar_runner::checks_reference())
}

fn manifest() -> Result<String, TaskError> {
    let mut page = String::from(
        "<!-- Written by `cargo xtask generated --write` from crates/plan/src/manifest/schema.rs. -->\n\n\
         # The keys of a manifest\n\n\
         `NAME` is a name you choose. Keys without \"required\" may be left out. The guide is\n\
         [docs/manifest.md](../manifest.md), the JSON Schema for editors\n\
         [schema/belljar.schema.json](../../schema/belljar.schema.json).\n",
    );
    tables("", &SchemaKind::Manifest.schema(), &mut page)?;
    harnesses(&mut page)?;
    Ok(page)
}

/// The values of `harness`, the default first.
fn harnesses(page: &mut String) -> Result<(), TaskError> {
    page.push_str("\n## Kinds of agents\n\nThe values of `harness`; the first is the default.\n\n");
    page.push_str("| `harness` | program | instructions in a project |\n| --- | --- | --- |\n");
    for harness in belljar_runner::Harnesses::built_in().list() {
        let HarnessProfile { name, program, instructions_file, .. } = harness.profile();
        writeln!(page, "| `{name}` | `{program}` | `{instructions_file}` |")?;
    }
    Ok(())
}

/// A section for the table at `path`, then one for each table below it.
fn tables(path: &str, schema: &Value, page: &mut String) -> Result<(), TaskError> {
    let none = serde_json::Map::new();
    let keys = schema["properties"].as_object().unwrap_or(&none);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !keys.is_empty() {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        writeln!(page, "\n## {title}\n\n{}\n", text(&schema["description"]))?;
        writeln!(page, "| key | type | |\n| --- | --- | --- |")?;
        for (key, value) in keys {
            let required = schema["required"].as_array().is_some_and(|list| list.contains(&json!(key)));
            let mark = if required { "**required.** " } else { "" };
            let line = text(&value["description"]).replace('|', "\\|");
            writeln!(page, "| `{key}` | {} | {mark}{line} |", kind(value))?;
        }
    }
    for (key, value) in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if value["additionalProperties"].is_object() {
            tables(&format!("{path}.NAME"), &value["additionalProperties"], page)?;
        } else if value["items"]["properties"].is_object() {
            tables(&format!("{path}[]"), &value["items"], page)?;
        } else {
            tables(&path, value, page)?;
        }
    }
    Ok(())
}

/// The type of a key, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    if let Some(forms) = schema["oneOf"].as_array() {
        return forms.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match schema["type"].as_str() {
        Some("array") if schema["items"]["properties"].is_object() => "list of tables".to_owned(),
        Some("array") => format!("list of {}s", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            let entries = kind(&schema["additionalProperties"]);
            if entries.contains(' ') {
                "table by name".to_owned()
            } else {
                format!("table of {entries}s by name")
            }
        }
        Some("object") => "table".to_owned(),
        Some(other) => other.to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_where_it_starts() {
        assert_eq!(difference(Some("a\nb\n"), "a\nb\n"), None);
        assert_eq!(difference(None, "a\n").as_deref(), Some("is missing"));
        assert_eq!(difference(Some("a\nb\n"), "a\nc\n").as_deref(), Some("line 2 is `b` and should be `c`"));
        assert_eq!(difference(Some("a\n"), "a\nc\n").as_deref(), Some("line 2 is the end and should be `c`"));
    }

    #[test]
    fn every_key_has_a_row_with_its_type() {
        let page = manifest().unwrap();
        for row in [
            "| `agents` | table of tables by name | The agents, by name. |",
            "| `skills` | list of strings | Skills from the library. |",
            "| `home` | `\"clean\"`, `\"project\"`, `\"shared\"` |",
            "| `command` | string | **required.** The program",
            "## `agents.NAME.mounts[]`",
            "## `agents.NAME.limits`",
        ] {
            assert!(page.contains(row), "{row} in\n{page}");
        }
        assert!(!page.contains("|  |"), "a key without a type or a description\n{page}");
    }

    #[test]
    fn every_exit_code_has_a_row() {
        let page = exit_codes().unwrap();
        for code in ExitCode::ALL {
            assert!(page.contains(&format!("| {} | {code:?} |", code.code())), "{code:?}");
        }
    }
}
