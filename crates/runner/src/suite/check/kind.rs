//! The kind of a file that is checked.

use crate::schemas::SchemaKind;
use belljar_contract::AbsPath;
use belljar_contract::decode::Kind;
use belljar_plan::{Document, DocumentText, parse_document};
use serde::Serialize;

/// A kind of file that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckedKind {
    Scenario,
    Session,
    Script,
    AnswerPolicy,
    Manifest,
}

pub(super) const HELP: &str =
    "`--kind` names it: `scenario`, `session`, `script`, `answer-policy` or `manifest`";

impl CheckedKind {
    pub const ALL: [Self; 5] =
        [Self::Scenario, Self::Session, Self::Script, Self::AnswerPolicy, Self::Manifest];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Session => "session",
            Self::Script => "script",
            Self::AnswerPolicy => "answer-policy",
            Self::Manifest => "manifest",
        }
    }

    /// What one file of this kind is called.
    #[must_use]
    pub const fn one(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Session => "session",
            Self::Script => "script",
            Self::AnswerPolicy => "answer policy",
            Self::Manifest => "manifest",
        }
    }

    /// What several are called.
    #[must_use]
    pub const fn many(self) -> &'static str {
        match self {
            Self::Scenario => "scenarios",
            Self::Session => "sessions",
            Self::Script => "scripts",
            Self::AnswerPolicy => "answer policies",
            Self::Manifest => "manifests",
        }
    }

    const fn schema(self) -> SchemaKind {
        match self {
            Self::Scenario => SchemaKind::Scenario,
            Self::Session => SchemaKind::Session,
            Self::Script => SchemaKind::Script,
            Self::AnswerPolicy => SchemaKind::AnswerPolicy,
            Self::Manifest => SchemaKind::Manifest,
        }
    }
}

/// The kind by the name of the file, or by its keys.
///
/// # Errors
/// Why it cannot be decided.
pub(super) fn guess(path: &AbsPath, text: &DocumentText) -> Result<CheckedKind, String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with(".toml") {
        return Ok(CheckedKind::Manifest);
    }
    if name.ends_with(".json") {
        return Ok(CheckedKind::Script);
    }
    let Ok(document) = parse_document(text.clone()) else {
        // Not YAML: a line says what it was meant to be; its faults are listed then.
        return Ok(if has_prompt(text) { CheckedKind::Scenario } else { CheckedKind::Session });
    };
    by_keys(&document)
}

/// The kind of a YAML file in a suite; a list of MCP servers counts as a part of a session.
///
/// # Errors
/// Why it is none.
pub(in super::super) fn of_yaml(text: &DocumentText) -> Result<CheckedKind, String> {
    match parse_document(text.clone()) {
        Ok(document) => match &document.root().kind {
            Kind::Table(table) if table.get("mcpServers").is_some() => Ok(CheckedKind::Session),
            // Both kinds have some keys; without a `prompt` or a check it is the session.
            Kind::Table(table) => by_keys(&document).or_else(|why| {
                let schema = CheckedKind::Session.schema().schema();
                let is_known = |key: &str| schema["properties"].get(key).is_some();
                let known = table.0.iter().any(|(key, _)| is_known(&key.text));
                if known { Ok(CheckedKind::Session) } else { Err(why) }
            }),
            Kind::Array(_)
            | Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Foreign(_) => by_keys(&document),
        },
        Err(_invalid) if has_prompt(text) => Ok(CheckedKind::Scenario),
        Err(_invalid) => Err("it is not valid YAML in UTF-8".to_owned()),
    }
}

/// Whether a line begins with the key `prompt`, in a text that is not YAML.
fn has_prompt(text: &DocumentText) -> bool {
    let text = String::from_utf8_lossy(&text.bytes);
    text.lines().any(|line| {
        let line = line.trim_start_matches([' ', '\t', '\u{feff}', '{', '"', '\'', '-']);
        line.strip_prefix("prompt")
            .is_some_and(|rest| rest.trim_start_matches([' ', '\t', '"', '\'']).starts_with(':'))
    })
}

fn by_keys(document: &Document) -> Result<CheckedKind, String> {
    let table = match &document.root().kind {
        Kind::Table(table) => table,
        Kind::Array(_) => return Ok(CheckedKind::AnswerPolicy),
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Foreign(_) => return Err("it is neither a table nor a list".to_owned()),
    };
    if table.get("prompt").is_some() {
        return Ok(CheckedKind::Scenario);
    }
    if table.get("answers").is_some() && table.0.len() == 1 {
        return Ok(CheckedKind::AnswerPolicy);
    }
    let shared = |kind: CheckedKind| {
        let schema = kind.schema().schema();
        table.0.iter().filter(|(key, _)| schema["properties"].get(&key.text).is_some()).count()
    };
    let kinds = [CheckedKind::Session, CheckedKind::Scenario, CheckedKind::Script];
    let counts = kinds.map(shared);
    let most = counts.into_iter().max().unwrap_or_default();
    let mut best = kinds.into_iter().zip(counts).filter(|(_, count)| *count == most && most > 0);
    match (best.next(), best.next()) {
        (Some((kind, _)), None) => Ok(kind),
        (Some(_), Some(_)) | (None, _) => Err("its keys are those of no kind of file".to_owned()),
    }
}
