//! A scenario: read, checked, typed.

use super::document::{Document, DocumentError, DocumentText};
use super::lint;
use super::scenario_spec::{ScenarioSpec, SessionReference};
use super::words::{Capability, Fidelity, OnUnanswered};
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, shown};
use belljar_contract::{Diagnostic, Lane};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    pub session: SessionReference,
    /// What stands between the agent and this machine.
    pub fidelity: Option<Fidelity>,
    /// How results reach the user.
    pub lane: Lane,
    /// The first message to the agent, as it is written.
    pub prompt: String,
    /// Time limit for the whole run.
    pub timeout: Option<Duration>,
    /// What happens to a question that no rule answers.
    pub on_unanswered: Option<OnUnanswered>,
    /// The skills that this is about; all when there is none.
    pub skills: Vec<String>,
    /// What the image must be able to do.
    pub requires_capabilities: Vec<Capability>,
}

/// A scenario and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioFile {
    pub scenario: Scenario,
    pub document: Document,
    /// What is worth knowing about it.
    pub warnings: Vec<Diagnostic>,
}

/// What other crates decode of a scenario.
#[derive(Debug)]
pub struct ScenarioParts<'a> {
    /// The rules that answer questions.
    pub answers: &'a [Node],
    /// Hosts that must have been refused.
    pub expect_denied: Vec<Node>,
    pub assert: &'a [Node],
    /// How results reach the user.
    pub lane: Lane,
}

impl<'a> ScenarioParts<'a> {
    /// The parts of what could be decoded, so that their faults are found even where other keys have some.
    fn of(root: &'a Node, spec: Option<&ScenarioSpec>) -> Self {
        let items = |key: &str| match &root.kind {
            Kind::Table(table) => table.get(key).and_then(Node::items).unwrap_or_default(),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => &[],
        };
        let hosts = spec.map_or(&[][..], |spec| &spec.expect_denied);
        Self {
            answers: items("answers"),
            expect_denied: hosts.iter().map(|host| host.value.0.clone()).collect(),
            assert: items("assert"),
            lane: spec.and_then(|spec| spec.lane.as_ref()).map_or(Lane::Local, |lane| lane.value),
        }
    }
}

/// Reads a scenario. `decode` reads the parts that other crates know, and adds to the same list of faults.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn parse_scenario<T>(
    text: DocumentText,
    decode: impl FnOnce(&ScenarioParts<'_>, &mut Faults<'_>) -> Option<T>,
) -> Result<(ScenarioFile, T), DocumentError> {
    let document = Document::read(text)?;
    let mut faults = document.faults();
    let spec = ScenarioSpec::decode(document.root(), &mut faults);
    let parts = ScenarioParts::of(document.root(), spec.as_ref());
    let decoded = decode(&parts, &mut faults);
    // Warnings come last, so that on a full list they do not take the place of errors.
    if let Some(spec) = &spec {
        unattended(spec, &mut faults);
        unsupported(spec, &mut faults);
        lint::scenario(spec, &parts, &document, &mut faults);
    }
    let scenario = spec.map(|spec| scenario(spec, document.name()));
    let found = faults.list;
    let (document, warnings) = document.judged(found)?;
    match (scenario, decoded) {
        (Some(scenario), Some(decoded)) => Ok((ScenarioFile { scenario, document, warnings }, decoded)),
        (Some(_), None) | (None, _) => {
            Err(DocumentError { sources: document.sources(), diagnostics: warnings })
        }
    }
}

/// Keys that ask for something that belljar does not have, and those that it does not need.
fn unsupported(spec: &ScenarioSpec, faults: &mut Faults<'_>) {
    if let Some(baseline) = spec.baseline.as_ref().filter(|baseline| baseline.value.0 != "latest") {
        let fault = Fault::new(format!(
            "`baseline: {}` asks for the facts of an older desktop application, and belljar has none",
            shown(&baseline.value.0)
        ))
        .help("write `latest`, or leave `baseline` out");
        faults.push("refused", &baseline.place.span, fault);
    }
    if let Some(writes) = spec.allow_host_writes.as_ref().filter(|writes| writes.value) {
        let fault = Fault::new("`allow_host_writes` has no effect: the agent works on copies of directories")
            .label("has no effect")
            .help("leave it out; the results are in the run's directory");
        faults.warn("not-done", &writes.place.span, fault);
    }
}

/// A test has no terminal to ask at: with an answer that may come or not it would be another test each time.
fn unattended(spec: &ScenarioSpec, faults: &mut Faults<'_>) {
    if let Some(asked) = spec.on_unanswered.as_ref().filter(|asked| asked.value == OnUnanswered::Prompt) {
        let fault = Fault::new("`on_unanswered: prompt` is refused: a test has no terminal to ask at")
            .help("write `fail`, `first` or `llm`, or add answers; `chat` asks you");
        faults.push("refused", &asked.place.span, fault);
    }
}

fn scenario(spec: ScenarioSpec, file: &str) -> Scenario {
    // Destructured in full: a key that is added stops this function from compiling.
    let ScenarioSpec {
        name,
        baseline: _,
        session,
        fidelity,
        execution: _,
        lane,
        prompt,
        timeout_ms,
        answers: _,
        on_unanswered,
        expect_denied: _,
        assert: _,
        skills,
        requires_capabilities,
        allow_host_writes: _,
    } = spec;
    Scenario {
        name: name.map_or_else(|| stem(file).to_owned(), |name| name.value.0),
        session: session.map_or(SessionReference::Inline, |session| session.value),
        fidelity: fidelity.map(|at| at.value),
        lane: lane.map_or(Lane::Local, |lane| lane.value),
        prompt: prompt.value.0,
        timeout: timeout_ms.map(|at| at.value.0),
        on_unanswered: on_unanswered.map(|at| at.value),
        skills: skills.into_iter().map(|line| line.value.0).collect(),
        requires_capabilities: requires_capabilities.into_iter().map(|at| at.value).collect(),
    }
}

/// The file's name without directories and ending.
fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.rsplit_once('.') {
        Some((stem, "yaml" | "yml")) if !stem.is_empty() => stem,
        _ => name,
    }
}
