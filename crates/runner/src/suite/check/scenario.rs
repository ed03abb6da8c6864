//! A scenario, and the session, the script and the skills that it names.

use super::{Check, CheckedKind, at, described, rules};
use crate::suite::load::{LoadError, NamedFiles, Trial, known_skills, load_scenario_alone};
use crate::suite::scope::{self, Reading, Scope};
use crate::suite::script::parse_script;
use crate::suite::script_beside;
use belljar_contract::decode::{Kind, Node, Scalar, list, shown};
use belljar_contract::{AbsPath, Diagnostic, PathUse, SandboxChoice, Severity, nearest};
use belljar_egress::script::Script;
use belljar_plan::{Document, DocumentText, SessionFile, SessionReference, parse_document};

impl Check<'_> {
    pub(super) fn scenario(&mut self, path: &AbsPath) {
        if !self.listed(CheckedKind::Scenario, path) {
            return;
        }
        let alone = match load_scenario_alone(self.environment, path) {
            Ok(trial) => Some(trial),
            Err(error) => {
                self.failure(path, &error);
                None
            }
        };
        // The tree is read again, so that what a scenario with faults names is checked as well.
        let Ok(text) = scope::read(self.environment, path) else { return };
        let Ok(document) = parse_document(text) else { return };
        let scope =
            alone.as_ref().map_or_else(|| Scope::of_file(path, self.environment), |it| it.scope.clone());
        let mut found: Vec<Diagnostic> = Vec::new();
        if let Some(trial) = &alone {
            // One warning can be on the list of each source.
            found.extend(trial.warnings.iter().map(|(_, warning)| warning.clone()));
            found.extend(without_checks(trial, &document));
            found.extend(without_backend(trial, &document));
        }
        found.extend(rules::never_reached(document.root()));
        found.extend(rules::never_matching(document.root()));
        let files = self.session_of(path, &document, &scope, &mut found);
        if let Some(files) = &files {
            found.extend(unknown_skills(&document, files));
        }
        self.add(document.sources(), found);
        let script = self.script_of(path, &scope);
        if let (Some(trial), Some((script, document))) = (&alone, &script) {
            let found = rules::unanswered(trial, script, document.root());
            self.add(document.sources(), found);
        }
    }

    /// Checks the session that a scenario names. Gives the files that it names; `None` where they are not all known.
    fn session_of(
        &mut self,
        path: &AbsPath,
        document: &Document,
        scope: &Scope,
        found: &mut Vec<Diagnostic>,
    ) -> Option<NamedFiles> {
        let node = match &document.root().kind {
            Kind::Table(table) => table.get("session"),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => None,
        };
        let Some(node) = node else { return Some(NamedFiles::default()) };
        let Kind::String(written) = &node.kind else { return None };
        // What is wrong with the reference itself is among the faults of the scenario.
        let written = match SessionReference::parse(written).ok()? {
            SessionReference::Inline => return Some(NamedFiles::default()),
            SessionReference::File(written) => written,
        };
        let real = scope::really(path);
        let directory = real.parent().unwrap_or(real);
        let session = written.resolve(&self.environment.home, &directory).ok()?;
        if let Err(error) = self.can_open((PathUse::Session, &session), scope) {
            found.push(at(&node.span, Severity::Error, described(&error)));
            return None;
        }
        let SessionFile { session: read, document, warnings: _ } = self.session_file(&session, scope)?;
        let beside = session.parent().unwrap_or(session);
        self.named_by((&read, &document), (&beside, scope))
    }

    /// Whether a file that must be read may be opened and is there.
    pub(super) fn can_open(
        &self,
        (used_as, path): (PathUse, &AbsPath),
        scope: &Scope,
    ) -> Result<(), LoadError> {
        Reading::new(self.environment, scope, self.permit).ask(&[(used_as, path.clone())])?;
        let found = std::fs::metadata(path);
        found.map(drop).map_err(|cause| LoadError::Read { path: path.clone(), cause })
    }

    /// Checks the script beside a scenario, if there is one.
    fn script_of(&mut self, scenario: &AbsPath, scope: &Scope) -> Option<(Script, Document)> {
        let path = script_beside(scenario);
        if path.as_path().symlink_metadata().is_err() {
            return None;
        }
        let reading = Reading::new(self.environment, scope, self.permit);
        let mut tree = None;
        let parsed = reading.parse((PathUse::Script, &path), |text: DocumentText| {
            tree = parse_document(text.clone()).ok();
            parse_script(text)
        });
        self.listed(CheckedKind::Script, &path);
        match parsed {
            // What lies beyond the suite is not quoted.
            Ok(script) => Some((script, tree.filter(|_| scope.holds(&path))?)),
            Err(error) => {
                self.failure(&path, &error);
                None
            }
        }
    }
}

/// A scenario that checks nothing passes whatever the agent does.
fn without_checks(trial: &Trial, document: &Document) -> Option<Diagnostic> {
    if !trial.checks.is_empty() {
        return None;
    }
    let message = "the scenario has no checks, so it passes whatever the agent does".to_owned();
    let help = "add a check below `assert`, such as `- skill_triggered: NAME`";
    Some(at(&first_key(document.root()).span, Severity::Warning, ("no-checks", message, help)))
}

/// A tier that needs a backend which belljar does not have, so that `test` cannot run the scenario as it is.
fn without_backend(trial: &Trial, document: &Document) -> Option<Diagnostic> {
    let error = trial.backend(&SandboxChoice::default()).err()?;
    let span = &document.root().nearest_to("fidelity").span;
    Some(at(span, Severity::Warning, ("no-backend", error.to_string(), "")))
}

/// The first value of a file, as the place of what concerns all of it.
fn first_key(root: &Node) -> &Node {
    match &root.kind {
        Kind::Table(table) => table.0.first().map_or(root, |(_, node)| node),
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Foreign(_) => root,
    }
}

/// Skills that the scenario is about and that the session does not have.
fn unknown_skills(document: &Document, files: &NamedFiles) -> Vec<Diagnostic> {
    let mut known = known_skills(files);
    known.sort();
    let listed = document.root().nearest_to("skills");
    let items = listed.items().filter(|_| listed != document.root()).unwrap_or_default();
    let named = items.iter().filter_map(|item| match &item.kind {
        Kind::String(name) => Some((item, name)),
        Kind::Null
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Table(_)
        | Kind::Foreign(_) => None,
    });
    let missing = named.filter(|(_, name)| !known.contains(name));
    let one = |(item, name): (&Node, &String)| {
        let message = format!("the session has no skill `{}`", shown(name));
        let help = match known.is_empty() {
            true => {
                "the session has none; name its directory below `skills: local:` of the session".to_owned()
            }
            false => format!("it has {}", list(&known)),
        };
        let mut found = at(&item.span, Severity::Error, ("unknown-skill", message, &help));
        if let (Some(near), Some(label)) = (nearest(name, known.iter().map(String::as_str)), &mut found.label)
        {
            label.text = format!("did you mean `{near}`?");
        }
        found
    };
    missing.map(one).collect()
}
