//! Reads a scenario's files into a trial that can be staged. All errors in the files are reported here, before anything
//! runs.

use super::plugins::{marketplace_plugins, plugin_name, push_once, skills};
use super::requests::{HostsFrom, TrialUse};
use super::scope::{self, FilesRead, Permit, Reading, Scope};
use crate::agents::known_agent;
use crate::environment::HostEnvironment;
use crate::git::Untracked;
use crate::plan::planned::PlanningError;
use belljar_contract::{
    AbsPath, AgentChoice, AgentRelease, Diagnostic, Digest, Harness, HarnessProfile, LibraryName, PathUse,
    SandboxChoice, Sources, TimeSpan, Usd, Wishes,
};
use belljar_plan::{
    DocumentError, DocumentText, McpEntry, PathText, Scenario, ScenarioFile, Session, SessionFile,
    SessionReference, parse_document, parse_mcp_config, parse_scenario, parse_session,
};
use belljar_session::Harnesses;
use belljar_session::decider::{Rule, parse_policy, parse_rules};
use belljar_verdict::{Checks, parse_checks};
use std::fs;

/// The constants of the agent that is tested.
pub(super) fn profile() -> &'static HarnessProfile {
    Harnesses::built_in().usual().profile()
}

/// Why a scenario could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
    /// The files are not valid.
    #[error("the scenario or its session is not valid")]
    Invalid { sources: Sources, diagnostics: Vec<Diagnostic> },
    /// A path that the files name is not what it should be.
    #[error("{what} `{path}` {why}")]
    Named {
        /// The expected kind, such as `the skill`.
        what: &'static str,
        path: AbsPath,
        why: String,
    },
    /// A file outside the suite is not valid. Its text is not quoted.
    #[error("`{path}` cannot be used as {what}; it lies beyond the suite, so its text is not shown")]
    Beyond {
        what: &'static str,
        /// The path as the suite names it.
        path: AbsPath,
    },
    /// The files name a file outside the suite that may not be read. It was not opened.
    #[error("`{}` asks for a file beyond its own directory, and no agreement covers it", wishes.suite)]
    Asks {
        /// The requests that are known so far.
        wishes: Box<Wishes>,
    },
    /// Parts of the files contradict each other.
    #[error("{0}")]
    Unfit(String),
    /// A path contains a NUL byte.
    #[error("a path is not valid")]
    Path(#[from] belljar_contract::PathError),
    #[error(transparent)]
    Planning(#[from] Box<PlanningError>),
}

impl From<DocumentError> for LoadError {
    fn from(DocumentError { sources, diagnostics }: DocumentError) -> Self {
        Self::Invalid { sources, diagnostics }
    }
}

/// A trial: the messages to the agent, its plugins and files, the rules that answer it, and the checks.
#[derive(Debug)]
pub struct Trial {
    pub scenario: Scenario,
    pub session: Session,
    pub checks: Checks,
    /// The scenario's answers, which are tried first.
    pub rules: Vec<Rule>,
    /// The scenario's file, if there is one.
    pub file: Option<AbsPath>,
    /// The text of the scenario. One is made for a skill that is tried without a scenario.
    pub text: Vec<u8>,
    /// The session that the command line describes, with absolute paths, for a skill that is tried without a scenario.
    pub described: Option<Vec<u8>>,
    /// Warnings about the files.
    pub warnings: Vec<(Sources, Diagnostic)>,
    /// The paths that the session names, resolved.
    pub found: NamedFiles,
    /// The limit on the model's cost, which only the command line can set.
    pub cost: Option<Usd>,
    /// The time limit of the command line, in the place of the scenario's. The agent is not told it.
    pub time: Option<TimeSpan>,
    /// Whether files of skills and plugins that git does not track are staged, which only the command line can set.
    pub untracked: Untracked,
    /// The files that belong to the suite.
    pub scope: Scope,
    /// Every file and directory that the files name, as they name it.
    pub named: Vec<(PathUse, AbsPath)>,
    /// The digests of the files beside the scenario that were read for it, as they were then.
    pub parsed: Vec<(PathUse, Digest)>,
    /// Where the list of reachable hosts comes from.
    pub hosts_from: HostsFrom,
}

/// The paths that a session names, made absolute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamedFiles {
    /// Directories to work with, and whether they may be changed.
    pub directories: Vec<(AbsPath, super::stage::DirectoryAccess)>,
    /// Projects that can be read, by their identifiers.
    pub projects: Vec<(String, AbsPath)>,
    /// Files that the user provides.
    pub uploads: Vec<AbsPath>,
    /// Skills by their names.
    pub skills: Vec<(LibraryName, AbsPath)>,
    /// Plugins by their names.
    pub plugins: Vec<(LibraryName, AbsPath)>,
    pub servers: Vec<McpEntry>,
}

/// Reads a scenario and its session. Files outside the suite are read with a permit only.
///
/// # Errors
/// All errors in the files, and [`LoadError::Asks`] if there is no permit.
pub fn load_scenario(
    environment: &HostEnvironment,
    path: &AbsPath,
    permit: Permit<'_>,
) -> Result<Trial, LoadError> {
    let mut trial = load_scenario_alone(environment, path)?;
    // Paths in a scenario are relative to the file itself, not to a link to it.
    let real = scope::really(path);
    let directory = real.parent().unwrap_or(real);
    let scope = trial.scope.clone();
    let reading = Reading::new(environment, &scope, permit);
    let (session, beside) = match &trial.scenario.session {
        SessionReference::Inline => (Session::default(), directory),
        SessionReference::File(written) => {
            let path = written.resolve(&environment.home, &directory)?;
            let SessionFile { session, document, warnings } =
                reading.parse((PathUse::Session, &path), parse_session)?;
            // A warning quotes lines of the file.
            if trial.scope.holds(&path) {
                trial.warnings.extend(warnings.into_iter().map(|one| (document.sources(), one)));
            }
            trial.named.push((PathUse::Session, path.clone()));
            (session, path.parent().unwrap_or(path))
        }
    };
    let (found, named) = find(environment, &session, (&beside, &reading))?;
    trial.named.extend(named);
    let FilesRead { beyond, parsed } = reading.end();
    trial.named.extend(beyond);
    let trial = Trial { session, found, parsed, ..trial };
    trial.has_its_skills()?;
    trial.bounded()
}

impl Trial {
    /// The version of the agent that is started: the one that the command line asks for, or that of the session. `None`
    /// is the program on the search path.
    #[must_use]
    pub fn release<'a>(&'a self, asked: Option<&'a AgentChoice>) -> Option<&'a AgentRelease> {
        asked.map(|asked| &asked.release).or(self.session.agent.as_ref())
    }

    /// A scenario about a skill that the agent does not get would test something else.
    fn has_its_skills(&self) -> Result<(), LoadError> {
        let mut known = known_skills(&self.found);
        match self.scenario.skills.iter().find(|skill| !known.contains(skill)) {
            None => Ok(()),
            Some(missing) => {
                known.sort();
                Err(LoadError::Unfit(format!(
                    "`skills` names `{missing}`, which the session does not have; there are {known:?}"
                )))
            }
        }
    }

    /// The trial, unless it asks for more than a user can review.
    pub(super) fn bounded(self) -> Result<Self, LoadError> {
        let count = self.wishes(&SandboxChoice::default(), TrialUse::Run).list().len();
        if count > Wishes::MOST {
            return Err(LoadError::Unfit(format!(
                "`{}` asks for {count} things beyond its own directory; the most is {}",
                self.scope.suite,
                Wishes::MOST
            )));
        }
        Ok(self)
    }
}

/// The names under which a scenario can be about the skills that were found.
pub(super) fn known_skills(found: &NamedFiles) -> Vec<String> {
    let mut known: Vec<String> = found.skills.iter().map(|(name, _)| name.to_string()).collect();
    for (plugin, path) in &found.plugins {
        known.push(plugin.to_string());
        let entries = fs::read_dir(path.child("skills")).into_iter().flatten().flatten();
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            known.extend([format!("{plugin}:{name}"), name]);
        }
    }
    known
}

/// Reads a scenario and no file that it names: the result can be judged, not run.
///
/// # Errors
/// All errors in it.
pub fn load_scenario_alone(environment: &HostEnvironment, path: &AbsPath) -> Result<Trial, LoadError> {
    let text = scope::read(environment, path)?;
    let scope = Scope::of_file(path, environment);
    let alone = scenario_alone(text, scope).map_err(|error| match scope::leads_away(path) {
        true => LoadError::Beyond { what: "scenario", path: path.clone() },
        false => error,
    });
    Ok(Trial { file: Some(path.clone()), ..alone? })
}

/// The trial of a scenario's text, without the files that it names.
pub(crate) fn scenario_alone(text: DocumentText, scope: Scope) -> Result<Trial, LoadError> {
    let bytes = text.bytes.clone();
    let (file, (rules, checks)) = parse_scenario(text, |parts, faults| {
        let rules = parse_rules(parts.answers, faults);
        let checks = parse_checks(parts.assert, &parts.expect_denied, parts.lane, faults);
        rules.zip(checks)
    })?;
    let ScenarioFile { scenario, document, warnings } = file;
    let checks = checks.requiring(scenario.requires_capabilities.iter().map(ToString::to_string).collect());
    let reported: Vec<_> = warnings.into_iter().map(|one| (document.sources(), one)).collect();
    let (session, found) = (Session::default(), NamedFiles::default());
    Ok(Trial {
        scenario,
        session,
        checks,
        rules,
        file: None,
        text: bytes,
        described: None,
        warnings: reported,
        found,
        cost: None,
        time: None,
        untracked: Untracked::LeftOut,
        scope,
        named: Vec::new(),
        parsed: Vec::new(),
        hosts_from: HostsFrom::Session,
    })
}

/// Reads an answer policy.
///
/// # Errors
/// All errors in it.
pub fn load_policy(environment: &HostEnvironment, path: &AbsPath) -> Result<Vec<Rule>, LoadError> {
    let document = parse_document(scope::read(environment, path)?)?;
    let mut faults = document.faults();
    parse_policy(document.root(), &mut faults)
        .ok_or_else(|| LoadError::Invalid { sources: document.sources(), diagnostics: faults.list })
}

/// Resolves the paths that a session names, and lists every path that it uses.
///
/// # Errors
/// If something is missing, or is not what it should be.
pub(super) fn find(
    environment: &HostEnvironment,
    session: &Session,
    (beside, reading): (&AbsPath, &Reading<'_>),
) -> Result<(NamedFiles, Vec<(PathUse, AbsPath)>), LoadError> {
    if let Some(release) = &session.agent {
        known_agent(&release.name)
            .map_err(|error| LoadError::Unfit(format!("`agent` names `{release}`: {error}")))?;
    }
    let resolve = |path: &PathText| path.resolve(&environment.home, beside);
    let mut found = NamedFiles::default();
    let mut named = Vec::new();
    for directory in &session.folders {
        let path = resolve(&directory.from)?;
        named.push((PathUse::Directory, path.clone()));
        found.directories.push((path, super::stage::DirectoryAccess::of(directory.mode)));
    }
    for project in &session.projects {
        let path = resolve(&project.from)?;
        named.push((PathUse::Project, path.clone()));
        found.projects.push((project.uuid.clone(), path));
    }
    for upload in &session.uploads {
        let path = resolve(upload)?;
        named.push((PathUse::Upload, path.clone()));
        found.uploads.push(path);
    }
    for path in &session.skills {
        let path = resolve(path)?;
        reading.ask(&skill_paths(&path))?;
        skills(&path, &mut found.skills)?;
    }
    named.extend(found.skills.iter().flat_map(|(_, path)| skill_paths(path)));
    for path in session.plugins.local_plugins.iter().chain(&session.plugins.remote_plugins) {
        let path = resolve(path)?;
        let name = plugin_name(&path, reading)?;
        push_once("the plugin", &mut found.plugins, name, path)?;
    }
    let local = &found.plugins[..session.plugins.local_plugins.len()];
    for (name, path) in marketplace_plugins((session, local), &resolve, (reading, &mut named))? {
        push_once("the plugin", &mut found.plugins, name, path)?;
    }
    for (_, path) in &found.plugins {
        named.extend(plugin_paths(path));
    }
    if let Some(path) = &session.mcp.config {
        let path = resolve(path)?;
        let parse = |text| parse_mcp_config(text, &session.mcp.enabled);
        found.servers = reading.parse((PathUse::McpConfig, &path), parse)?;
        named.push((PathUse::McpConfig, path));
    }
    Ok((found, named))
}

/// The paths that are used of a skill: the directory, and the file that belljar itself reads.
pub(super) fn skill_paths(skill: &AbsPath) -> [(PathUse, AbsPath); 2] {
    [(PathUse::Skill, skill.clone()), (PathUse::Skill, skill.child("SKILL.md"))]
}

/// Like [`skill_paths`] for a plugin, with the files in which it may declare MCP servers.
pub(super) fn plugin_paths(plugin: &AbsPath) -> Vec<(PathUse, AbsPath)> {
    let profiles = Harnesses::built_in().list().into_iter().map(Harness::profile);
    let files = profiles.flat_map(|of| of.plugin_mcp_files.iter().chain([&of.plugin_file]));
    let files = files.map(|file| plugin.child(file));
    std::iter::once(plugin.clone()).chain(files).map(|path| (PathUse::Plugin, path)).collect()
}
