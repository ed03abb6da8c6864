//! The files that a session names, each with its place.

use super::{Check, at, described};
use crate::agents::{Absence, absence};
use crate::suite::load::{LoadError, NamedFiles, find};
use crate::suite::scope::{self, Reading, Scope};
use belljar_contract::{AbsPath, Diagnostic, PathUse, Severity};
use belljar_plan::{Document, McpChoice, PathText, PluginChoice, Session, SkillDocument, parse_skill};

impl Check<'_> {
    /// Checks everything that a session names. Gives the files; `None` where something is wrong with them.
    pub(super) fn named_by(
        &mut self,
        (session, document): (&Session, &Document),
        (beside, scope): (&AbsPath, &Scope),
    ) -> Option<NamedFiles> {
        let mut found: Vec<Diagnostic> = Vec::new();
        let (environment, permit) = (self.environment, self.permit);
        let resolved = |one: &Session| {
            let reading = Reading::new(environment, scope, permit);
            find(environment, one, (beside, &reading))
        };
        for (place, path) in directories(session) {
            let span = &document.root().nearest_to(&place).span;
            let Ok(path) = path.resolve(&environment.home, beside) else { continue };
            match self.can_open((PathUse::Directory, &path), scope) {
                Ok(()) => {}
                // It is copied, not read, so a session is checked without it.
                Err(error @ LoadError::Asks { .. }) => {
                    found.push(at(span, Severity::Warning, described(&error)));
                }
                Err(error) => found.push(at(span, Severity::Error, described(&error))),
            }
        }
        // Each entry alone, so that one that is wrong does not hide the others.
        let mut sound = true;
        for (place, one) in entries(session) {
            let error = match resolved(&one) {
                Ok((files, _)) => {
                    files.skills.iter().for_each(|(_, skill)| self.skill(skill, scope));
                    continue;
                }
                Err(error) => error,
            };
            sound = false;
            match error {
                LoadError::Invalid { sources, diagnostics } => self.add(sources, diagnostics),
                error @ (LoadError::Read { .. }
                | LoadError::Named { .. }
                | LoadError::Beyond { .. }
                | LoadError::Asks { .. }
                | LoadError::Unfit(_)
                | LoadError::Path(_)
                | LoadError::Planning(_)) => {
                    let span = &document.root().nearest_to(&place).span;
                    found.push(at(span, Severity::Error, described(&error)));
                }
            }
        }
        if let Some(release) = &session.agent
            && let Some(Absence { message, help }) = absence(environment, release)
        {
            let span = &document.root().nearest_to("agent").span;
            found.push(at(span, Severity::Warning, ("not-installed", message, &help)));
        }
        let whole = resolved(session).map(|(files, _)| files);
        if let (Err(error), true) = (&whole, sound) {
            // Entries that do not go together, such as two skills of one name.
            found.push(at(&document.root().span, Severity::Error, described(error)));
        }
        self.add(document.sources(), found);
        whole.ok()
    }

    /// Checks the `SKILL.md` of a skill.
    fn skill(&mut self, skill: &AbsPath, scope: &Scope) {
        let path = skill.child("SKILL.md");
        match scope::read(self.environment, &path) {
            Err(error) => self.failure(&path, &error),
            Ok(text) => {
                let SkillDocument { skill: _, sources, diagnostics } = parse_skill(text);
                // What lies beyond the suite is not quoted.
                match (scope.holds(&path), diagnostics.iter().any(Diagnostic::is_error)) {
                    (true, _) => self.add(sources, diagnostics),
                    (false, true) => {
                        self.failure(&path, &LoadError::Beyond { what: "skill", path: path.clone() })
                    }
                    (false, false) => {}
                }
            }
        }
    }
}

/// The directories and files that are copied for the agent, with their places in the session.
fn directories(session: &Session) -> Vec<(String, &PathText)> {
    let folders = session.folders.iter().enumerate();
    let projects = session.projects.iter().enumerate();
    let uploads = session.uploads.iter().enumerate();
    folders
        .map(|(number, one)| (format!("folders[{number}].from"), &one.from))
        .chain(projects.map(|(number, one)| (format!("projects[{number}].from"), &one.from)))
        .chain(uploads.map(|(number, one)| (format!("uploads[{number}]"), one)))
        .collect()
}

/// A session for each entry that leads to files which belljar reads, with the place of the entry.
fn entries(session: &Session) -> Vec<(String, Session)> {
    let PluginChoice { local_marketplaces, enabled, local_plugins, remote_plugins } = &session.plugins;
    let with = |plugins: PluginChoice| Session { plugins, ..Session::default() };
    let mut out = Vec::new();
    if session.agent.is_some() {
        let one = Session { agent: session.agent.clone(), ..Session::default() };
        out.push(("agent".to_owned(), one));
    }
    for (number, path) in session.skills.iter().enumerate() {
        let one = Session { skills: vec![path.clone()], ..Session::default() };
        out.push((format!("skills.local[{number}]"), one));
    }
    for (number, path) in local_plugins.iter().enumerate() {
        let one = PluginChoice { local_plugins: vec![path.clone()], ..PluginChoice::default() };
        out.push((format!("plugins.local_plugins[{number}]"), with(one)));
    }
    for (number, path) in remote_plugins.iter().enumerate() {
        let one = PluginChoice { remote_plugins: vec![path.clone()], ..PluginChoice::default() };
        out.push((format!("plugins.remote_plugins[{number}]"), with(one)));
    }
    for (number, path) in local_marketplaces.iter().enumerate() {
        let one = PluginChoice { local_marketplaces: vec![path.clone()], ..PluginChoice::default() };
        out.push((format!("plugins.local_marketplaces[{number}]"), with(one)));
    }
    for (number, wanted) in enabled.iter().enumerate() {
        let one = PluginChoice {
            enabled: vec![wanted.clone()],
            local_marketplaces: local_marketplaces.clone(),
            local_plugins: local_plugins.clone(),
            remote_plugins: Vec::new(),
        };
        out.push((format!("plugins.enabled[{number}]"), with(one)));
    }
    if session.mcp.config.is_some() {
        let mcp = McpChoice { ..session.mcp.clone() };
        out.push(("mcp.config".to_owned(), Session { mcp, ..Session::default() }));
    }
    out
}
