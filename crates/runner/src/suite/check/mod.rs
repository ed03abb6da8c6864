//! Checks files of a suite without a run: scenarios with everything that they name, sessions, scripts, answer policies.
//!
//! All faults of all files are collected. No file beyond the suite is opened without a permit, and nothing is started.

mod kind;
mod rules;
mod scenario;
mod session;

pub use kind::CheckedKind;
pub(super) use kind::of_yaml as kind_of_yaml;

use super::discover::{DiscoverError, Discovered, Skipped, scenario_files};
use super::load::LoadError;
use super::scope::{self, Permit, Reading, Scope};
use super::script::parse_script;
use crate::environment::HostEnvironment;
use crate::plan::manifests::MANIFEST_NAME;
use crate::plan::planned::PlanningError;
use crate::plan::planner::Planner;
use belljar_contract::{AbsPath, Diagnostic, Label, PathUse, Severity, Sources, with_causes};
use belljar_plan::{DocumentError, DocumentText, SessionFile, parse_document, parse_session};
use belljar_session::decider::parse_policy;
use std::collections::BTreeSet;
use std::ops::Range;

/// What was found in the files.
#[derive(Debug, Default)]
pub struct CheckedFiles {
    pub sources: Sources,
    pub diagnostics: Vec<Diagnostic>,
    /// The files that were read.
    pub files: Vec<(CheckedKind, AbsPath)>,
}

/// Checks these files, and every scenario below these directories.
///
/// # Errors
/// If a path cannot be read, or a directory has no scenario.
pub fn check_files(
    environment: &HostEnvironment,
    paths: Vec<AbsPath>,
    kind: Option<CheckedKind>,
    permit: Permit<'_>,
) -> Result<CheckedFiles, DiscoverError> {
    let mut check = Check { environment, permit, found: CheckedFiles::default(), seen: BTreeSet::new() };
    for path in paths {
        let about = std::fs::metadata(&path);
        let about = about.map_err(|cause| DiscoverError::Read { path: path.clone(), cause })?;
        if about.is_dir() {
            let Discovered { scenarios, skipped } = scenario_files(vec![path], None, environment)?;
            scenarios.iter().for_each(|file| check.scenario(file));
            for Skipped { path, why } in skipped {
                check.warning("not-a-scenario", format!("`{}` {why}", environment.shown(&path)));
            }
        } else {
            check.file(&path, kind);
        }
    }
    Ok(check.found)
}

/// A check in progress.
struct Check<'a> {
    environment: &'a HostEnvironment,
    permit: Permit<'a>,
    found: CheckedFiles,
    /// What was listed: file, place and text. Several scenarios can name one file.
    seen: BTreeSet<(String, usize, String)>,
}

impl Check<'_> {
    fn file(&mut self, path: &AbsPath, kind: Option<CheckedKind>) {
        if scope::leads_away(path) {
            let message =
                format!("`{}` is a link that leads out of its directory", self.environment.shown(path));
            return self.whole("link", message, "name the file itself");
        }
        let text = match scope::read(self.environment, path) {
            Ok(text) => text,
            Err(error) => return self.failure(path, &error),
        };
        let name = text.name.clone();
        match kind.map_or_else(|| kind::guess(path, &text), Ok) {
            Ok(CheckedKind::Scenario) => self.scenario(path),
            Ok(CheckedKind::Session) => self.lone_session(path),
            Ok(CheckedKind::Script) => self.parsed((CheckedKind::Script, path), text, parse_script),
            Ok(CheckedKind::AnswerPolicy) => self.parsed((CheckedKind::AnswerPolicy, path), text, policy),
            Ok(CheckedKind::Manifest) => self.manifest(path),
            Err(why) => self.whole("unknown-kind", format!("`{name}`: {why}"), kind::HELP),
        }
    }

    /// A session that no scenario named.
    fn lone_session(&mut self, path: &AbsPath) {
        let scope = Scope::of_file(path, self.environment);
        if let Some(SessionFile { session, document, warnings: _ }) = self.session_file(path, &scope) {
            let beside = path.parent().unwrap_or_else(|| path.clone());
            self.named_by((&session, &document), (&beside, &scope));
        }
    }

    /// Reads a session within a scope.
    fn session_file(&mut self, path: &AbsPath, scope: &Scope) -> Option<SessionFile> {
        let reading = Reading::new(self.environment, scope, self.permit);
        self.listed(CheckedKind::Session, path);
        match reading.parse((PathUse::Session, path), parse_session) {
            Ok(file) => {
                // A warning quotes lines of the file.
                if scope.holds(path) {
                    self.add(file.document.sources(), file.warnings.clone());
                }
                Some(file)
            }
            Err(error) => {
                self.failure(path, &error);
                None
            }
        }
    }

    fn manifest(&mut self, path: &AbsPath) {
        let directory = path.parent().unwrap_or_else(|| path.clone());
        if path.file_name() != Some(MANIFEST_NAME.as_ref()) {
            let message = format!("`{}` is not called {MANIFEST_NAME}", self.environment.shown(path));
            return self.whole("unknown-kind", message, "rename it; a manifest is found by its name");
        }
        self.listed(CheckedKind::Manifest, path);
        let environment =
            HostEnvironment { directory: scope::really(&directory), ..self.environment.clone() };
        match Planner::new(environment).and_then(|planner| planner.check()) {
            Ok(checked) => self.add(checked.sources, checked.diagnostics),
            Err(PlanningError::Invalid { sources, diagnostics }) => self.add(sources, diagnostics),
            Err(error) => self.failure(path, &LoadError::Planning(Box::new(error))),
        }
    }

    fn parsed<T>(
        &mut self,
        (kind, path): (CheckedKind, &AbsPath),
        text: DocumentText,
        parse: impl FnOnce(DocumentText) -> Result<T, DocumentError>,
    ) {
        self.listed(kind, path);
        if let Err(DocumentError { sources, diagnostics }) = parse(text) {
            self.add(sources, diagnostics);
        }
    }

    /// Lists a file; whether it is there for the first time.
    fn listed(&mut self, kind: CheckedKind, path: &AbsPath) -> bool {
        let new = !self.found.files.iter().any(|(_, known)| known == path);
        if new {
            self.found.files.push((kind, path.clone()));
        }
        new
    }

    /// Adds findings, each once.
    fn add(&mut self, sources: Sources, diagnostics: Vec<Diagnostic>) {
        let before = self.found.sources.len();
        let moved = |mut label: Label| {
            label.file += before;
            label
        };
        for mut diagnostic in diagnostics {
            let name = |label: &Label| sources.get(label.file).map(|source| source.name.clone());
            let file = diagnostic.label.as_ref().and_then(name).unwrap_or_default();
            let start = diagnostic.label.as_ref().map_or(0, |label| label.span.start);
            if self.seen.insert((file, start, diagnostic.message.clone())) {
                diagnostic.label = diagnostic.label.map(moved);
                diagnostic.related = diagnostic.related.into_iter().map(moved).collect();
                self.found.diagnostics.push(diagnostic);
            }
        }
        self.found.sources.extend(sources);
    }

    fn warning(&mut self, code: &'static str, message: String) {
        let severity = Severity::Warning;
        let found = Diagnostic { severity, code, message, label: None, related: Vec::new(), help: None };
        self.add(Vec::new(), vec![found]);
    }

    /// A fault of a whole file.
    fn whole(&mut self, code: &'static str, message: String, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        let severity = Severity::Error;
        let found = Diagnostic { severity, code, message, label: None, related: Vec::new(), help };
        self.add(Vec::new(), vec![found]);
    }

    /// A failure to load that has no place of its own.
    fn failure(&mut self, path: &AbsPath, error: &LoadError) {
        match error {
            LoadError::Invalid { sources, diagnostics } => self.add(sources.clone(), diagnostics.clone()),
            LoadError::Read { .. }
            | LoadError::Named { .. }
            | LoadError::Beyond { .. }
            | LoadError::Asks { .. }
            | LoadError::Unfit(_)
            | LoadError::Path(_)
            | LoadError::Planning(_) => {
                let (code, message, help) = described(error);
                let name = self.environment.shown(path);
                self.whole(code, format!("`{name}`: {message}"), help);
            }
        }
    }
}

/// The code, the text and the hint of a failure that is reported at a place.
fn described(error: &LoadError) -> (&'static str, String, &'static str) {
    let text = with_causes(error);
    match error {
        LoadError::Asks { .. } => (
            "not-agreed",
            "this lies beyond the suite, so it was not opened".to_owned(),
            "`--yes` opens it for this call; `belljar trust --suite FILE` agrees once; a suite reaches as far as the \
             directory with `belljar.toml` or `.git` above it: an empty `belljar.toml` or `git init` makes one",
        ),
        LoadError::Read { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            ("not-found", text, "paths are relative to the file that names them")
        }
        LoadError::Named { .. } => ("not-found", text, "paths are relative to the file that names them"),
        LoadError::Read { .. } | LoadError::Planning(_) => ("unreadable", text, ""),
        LoadError::Beyond { .. } => ("invalid-value", text, ""),
        LoadError::Invalid { .. } | LoadError::Unfit(_) | LoadError::Path(_) => ("invalid-value", text, ""),
    }
}

/// A diagnostic at a place of the first source.
fn at(
    span: &Range<usize>,
    severity: Severity,
    (code, message, help): (&'static str, String, &str),
) -> Diagnostic {
    let label = Label { file: 0, span: span.clone(), text: String::new() };
    let found = Diagnostic::error(code, belljar_contract::decode::plain(&message), label);
    let found = if help.is_empty() { found } else { found.help(help) };
    match severity {
        Severity::Error => found,
        Severity::Warning => found.warning(),
    }
}

fn policy(text: DocumentText) -> Result<(), DocumentError> {
    let document = parse_document(text)?;
    let mut faults = document.faults();
    match parse_policy(document.root(), &mut faults) {
        Some(_) => Ok(()),
        None => Err(DocumentError { sources: document.sources(), diagnostics: faults.list }),
    }
}
