//! A scenario: read, checked, typed.

use super::document::{Document, DocumentError, DocumentText};
use super::lint;
use super::scenario_spec::{ScenarioSpec, SessionReference};
use super::words::{Capability, Fidelity, OnUnanswered};
use belljar_contract::decode::{At, Decode, Node};
use belljar_contract::{Diagnostic, Lane};
use serde_json::Value;
use std::time::Duration;

/// A scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// Which facts of the emulated platform count, as written.
    pub baseline: Option<String>,
    /// The session.
    pub session: SessionReference,
    /// What stands between the agent and this machine.
    pub fidelity: Option<Fidelity>,
    /// How results reach the user.
    pub lane: Lane,
    /// What the agent is told, as it is.
    pub prompt: String,
    /// Wall clock for the whole run.
    pub timeout: Option<Duration>,
    /// The rules that answer, a list; read by whoever decides.
    pub answers: Value,
    /// What happens to a question that no rule answers.
    pub on_unanswered: Option<OnUnanswered>,
    /// Hosts that must have been refused.
    pub expect_denied: Vec<Node>,
    /// The checks, which `verdict` decodes.
    pub assert: Vec<Node>,
    /// The skills that this is about; all when there is none.
    pub skills: Vec<String>,
    /// What the image must be able to do.
    pub requires_capabilities: Vec<Capability>,
    /// Whether the agent may write to a connected folder itself.
    pub allow_host_writes: bool,
}

/// A scenario and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioFile {
    /// The scenario.
    pub scenario: Scenario,
    /// Its text, for faults that are found later.
    pub document: Document,
    /// What is worth knowing about it.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a scenario.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn parse_scenario(text: DocumentText) -> Result<ScenarioFile, DocumentError> {
    let document = Document::read(text)?;
    let mut faults = document.faults();
    let spec = ScenarioSpec::decode(document.root(), &mut faults);
    if let Some(spec) = &spec {
        lint::scenario(spec, &document, &mut faults);
    }
    let scenario = spec.map(|spec| scenario(spec, document.name()));
    let found = faults.list;
    let (document, warnings) = document.judged(found)?;
    match scenario {
        Some(scenario) => Ok(ScenarioFile { scenario, document, warnings }),
        None => Err(DocumentError { sources: document.sources(), diagnostics: warnings }),
    }
}

fn scenario(spec: ScenarioSpec, file: &str) -> Scenario {
    // Destructured in full: a key that is added stops this function from compiling.
    let ScenarioSpec {
        name,
        baseline,
        session,
        fidelity,
        execution: _,
        lane,
        prompt,
        timeout_ms,
        answers,
        on_unanswered,
        expect_denied,
        assert,
        skills,
        requires_capabilities,
        allow_host_writes,
    } = spec;
    let list =
        |list: Option<At<super::data::DataList>>| list.map_or(Value::Array(Vec::new()), |list| list.value.0);
    Scenario {
        name: name.map_or_else(|| stem(file).to_owned(), |name| name.value.0),
        baseline: baseline.map(|line| line.value.0),
        session: session.map_or(SessionReference::Inline, |session| session.value),
        fidelity: fidelity.map(|at| at.value),
        lane: lane.map_or(Lane::Local, |lane| lane.value),
        prompt: prompt.value.0,
        timeout: timeout_ms.map(|at| at.value.0),
        answers: list(answers),
        on_unanswered: on_unanswered.map(|at| at.value),
        expect_denied: expect_denied.into_iter().map(|host| host.value.0).collect(),
        assert: assert.map_or_else(Vec::new, |list| list.value.0),
        skills: skills.into_iter().map(|line| line.value.0).collect(),
        requires_capabilities: requires_capabilities.into_iter().map(|at| at.value).collect(),
        allow_host_writes: allow_host_writes.is_some_and(|at| at.value),
    }
}

/// The file's name without folders and ending.
fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.rsplit_once('.') {
        Some((stem, "yaml" | "yml")) if !stem.is_empty() => stem,
        _ => name,
    }
}
