//! Scenario and session files, one directory each, and exactly what is said about them.
//!
//! `BELLJAR_BLESS=1` writes what is found; read the difference before it is committed.

use belljar_contract::{Diagnostic, Label, SourceFile, position};
use belljar_plan::{
    DocumentError, DocumentText, SIZE_LIMIT, ScenarioFile, parse_scenario, parse_session, scenario_schema,
    session_schema,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

pub fn text(name: &str, bytes: impl Into<Vec<u8>>) -> DocumentText {
    DocumentText { name: name.to_owned(), bytes: bytes.into() }
}

/// A diagnostic on a few lines: message, place, underlined text and help.
fn rendered(diagnostic: &Diagnostic, sources: &[SourceFile]) -> String {
    let at = |label: &Label| {
        let source = &sources[label.file];
        let (line, column) = position(&source.text, label.span.start);
        let underlined = source.text[label.span.clone()].replace('\n', "⏎");
        format!("{}:{line}:{column} `{underlined}` {}", source.name, label.text).trim_end().to_owned()
    };
    let severity = if diagnostic.is_error() { "error" } else { "warning" };
    let mut out = format!("{severity}[{}]: {}\n", diagnostic.code, diagnostic.message);
    out.extend(diagnostic.label.iter().map(|label| format!("  --> {}\n", at(label))));
    out.extend(diagnostic.related.iter().map(|label| format!("  and {}\n", at(label))));
    out.extend(diagnostic.help.iter().map(|help| format!("  help: {help}\n")));
    out
}

fn all(diagnostics: &[Diagnostic], sources: &[SourceFile]) -> String {
    diagnostics.iter().map(|diagnostic| rendered(diagnostic, sources)).collect::<Vec<_>>().join("\n")
}

pub fn refusal(error: &DocumentError) -> String {
    assert!(error.diagnostics.iter().any(Diagnostic::is_error));
    all(&error.diagnostics, &error.sources)
}

/// A scenario whose rules and checks are not decoded.
pub fn scenario(text: DocumentText) -> Result<ScenarioFile, DocumentError> {
    parse_scenario(text, |_, _| Some(())).map(|(file, ())| file)
}

/// The type and the warnings of a good file, or what is wrong with it.
fn outcome(directory: &Path) -> String {
    let read = |name: &str| fs::read(directory.join(name)).ok().map(|bytes| text(name, bytes));
    let good = |shown: String, warnings: String| match warnings.is_empty() {
        true => shown,
        false => format!("{shown}\n\n{warnings}"),
    };
    if let Some(text) = read("scenario.yaml") {
        return match parse_scenario(text, |parts, _| Some(format!("{parts:#?}"))) {
            Ok((file, parts)) => {
                let shown = format!("{:#?}\n{parts}\n", file.scenario);
                good(shown, all(&file.warnings, &file.document.sources()))
            }
            Err(error) => refusal(&error),
        };
    }
    match parse_session(read("session.yaml").unwrap()) {
        Ok(file) => good(format!("{:#?}\n", file.session), all(&file.warnings, &file.document.sources())),
        Err(error) => refusal(&error),
    }
}

pub fn directories() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan/scenarios");
    let mut directories: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    directories.sort();
    directories
}

#[test]
fn every_file_is_reported_as_expected() {
    let mut faults = Vec::new();
    for directory in directories() {
        let file = directory.join("expected.txt");
        let found = outcome(&directory);
        if std::env::var_os("BELLJAR_BLESS").is_some() {
            fs::write(&file, &found).unwrap();
        } else if fs::read_to_string(&file).ok().as_deref() != Some(found.as_str()) {
            faults.push(format!("== {}\n{found}", directory.display()));
        }
    }
    assert!(directories().len() > 25, "the cases are gone");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_file_that_is_too_large_is_not_parsed() {
    let error = scenario(text("big.yaml", "prompt: ".to_owned() + &"x".repeat(20 << 20))).unwrap_err();
    assert_eq!(error.diagnostics[0].code, "too-large");
    assert!(error.sources[0].text.is_empty());
    let many: String = (0..SIZE_LIMIT / 12).map(|n| format!("k{n:07}: 1\n")).collect();
    let error = scenario(text("many.yaml", many)).unwrap_err();
    assert_eq!(error.diagnostics[0].code, "syntax");
}

#[test]
fn a_name_is_taken_from_the_file() {
    for (file, name) in [
        ("a/b/smoke.yaml", "smoke"),
        ("smoke.test.yml", "smoke.test"),
        ("smoke", "smoke"),
        (".yaml", ".yaml"),
    ] {
        assert_eq!(scenario(text(file, "prompt: x\n")).unwrap().scenario.name, name);
    }
}

/// The examples of the guide are good files, and say nothing that needs a warning.
#[test]
fn the_guide_is_right() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/scenarios.md");
    let guide = fs::read_to_string(guide).unwrap();
    let blocks: Vec<&str> =
        guide.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    let part = scenario(text("part.yaml", format!("prompt: x\n{}", blocks[2])));
    assert_eq!(part.unwrap_or_else(|e| panic!("{}", refusal(&e))).warnings.len(), 0);
    let file = scenario(text("notes.yaml", blocks[0])).unwrap_or_else(|e| panic!("{}", refusal(&e)));
    assert_eq!((file.scenario.name.as_str(), file.warnings.len()), ("notes", 0));
    let session = parse_session(text("writer.yaml", blocks[1])).unwrap_or_else(|e| panic!("{}", refusal(&e)));
    assert_eq!(session.warnings.len(), 0);
    // Every key is in the guide, by its own name.
    for schema in [scenario_schema(&json!({"type": "object"}), &json!({"type": "object"})), session_schema()]
    {
        for (key, schema) in schema["properties"].as_object().unwrap() {
            let below = schema.get("properties").and_then(Value::as_object);
            for name in below.map_or(vec![key], |below| below.keys().collect()) {
                assert!(guide.contains(name.as_str()), "`{name}` is not in the guide");
            }
        }
    }
}
