//! From a scenario's file to a trial that can be staged: everything that can be wrong with the files is told here, before
//! anything happens.

use super::scope::{self, Permit, Reading, Scope};
use super::wishes::{HostsFrom, TrialUse};
use crate::planning::{PlanningError, Surroundings};
use belljar_contract::{AbsPath, AskedWalls, Diagnostic, LibraryName, PathUse, Sources, Usd, Wishes};
use belljar_plan::{
    DocumentError, DocumentText, McpEntry, PathText, PluginSource, Scenario, ScenarioFile, Session,
    SessionFile, SessionReference, parse_document, parse_marketplace, parse_mcp_config, parse_scenario,
    parse_session,
};
use belljar_session::Harnesses;
use belljar_session::decider::{Rule, parse_policy, parse_rules};
use belljar_verdict::{Checks, parse_checks};
use std::fs;

/// What a plugin says of itself.
const PLUGIN_FILE: &str = ".claude-plugin/plugin.json";
/// What a marketplace lists.
pub(super) const MARKETPLACE_FILE: &str = ".claude-plugin/marketplace.json";

/// Why there is no trial.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
    /// The files are not what they should be.
    #[error("the files cannot be used")]
    Invalid { sources: Sources, diagnostics: Vec<Diagnostic> },
    /// Something that the files name is not what it should be.
    #[error("{what} `{path}` {why}")]
    Named {
        /// What it was to be.
        what: &'static str,
        path: AbsPath,
        why: String,
    },
    /// A file beyond the suite is not what it should be. Nothing of its text is told.
    #[error("`{path}` cannot be used as {what}; it lies beyond the suite, so its text is not shown")]
    Beyond {
        /// What it was to be.
        what: &'static str,
        /// Where the suite looks for it.
        path: AbsPath,
    },
    /// The files name a file beyond the suite, and it may not be read. It was not opened.
    #[error("`{}` asks for a file beyond its own directory, and no agreement covers it", wishes.suite)]
    Asks {
        /// What is asked for, as far as it is known.
        wishes: Box<Wishes>,
    },
    /// What does not fit together.
    #[error("{0}")]
    Unfit(String),
    /// A path that no file system has.
    #[error("a path cannot be used")]
    Path(#[from] belljar_contract::PathError),
    #[error(transparent)]
    Planning(#[from] Box<PlanningError>),
}

impl From<DocumentError> for LoadError {
    fn from(DocumentError { sources, diagnostics }: DocumentError) -> Self {
        Self::Invalid { sources, diagnostics }
    }
}

/// A trial: what is said to the agent, what it gets, who answers it and what must hold.
#[derive(Debug)]
pub struct Trial {
    pub scenario: Scenario,
    /// What the agent gets.
    pub session: Session,
    pub checks: Checks,
    /// Who answers, first of all.
    pub rules: Vec<Rule>,
    /// The file, where there is one.
    pub file: Option<AbsPath>,
    /// What is worth knowing about the files.
    pub warnings: Vec<(Sources, Diagnostic)>,
    /// Paths of the session, found.
    pub found: Found,
    /// What the model may cost; nothing says it but who runs the trial.
    pub cost: Option<Usd>,
    /// What is the suite's own.
    pub scope: Scope,
    /// Every file and directory that the files name, as they name it.
    pub named: Vec<(PathUse, AbsPath)>,
    /// Who wrote down the hosts that can be reached.
    pub hosts_from: HostsFrom,
}

/// What the session names, as absolute paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Folders to work with, and whether they may be changed.
    pub folders: Vec<(AbsPath, super::stage::FolderAccess)>,
    /// Files that the user gave.
    pub uploads: Vec<AbsPath>,
    /// Skills by their names.
    pub skills: Vec<(LibraryName, AbsPath)>,
    /// Plugins by their names.
    pub plugins: Vec<(LibraryName, AbsPath)>,
    pub servers: Vec<McpEntry>,
}

/// Reads a scenario and its session. Files beyond the suite are read with a permit only.
///
/// # Errors
/// Everything that is wrong with them, and [`LoadError::Asks`] where there is no permit.
pub fn load_scenario(
    surroundings: &Surroundings,
    path: &AbsPath,
    permit: Permit<'_>,
) -> Result<Trial, LoadError> {
    let mut trial = load_scenario_alone(surroundings, path)?;
    // What a scenario names lies beside the file itself, not beside a link to it.
    let real = scope::really(path);
    let folder = real.parent().unwrap_or(real);
    let scope = trial.scope.clone();
    let reading = Reading::new(surroundings, &scope, permit);
    let (session, beside) = match &trial.scenario.session {
        SessionReference::Inline => (Session::default(), folder),
        SessionReference::File(written) => {
            let path = written.resolve(&surroundings.home, &folder)?;
            let SessionFile { session, document, warnings } =
                reading.parse((PathUse::Session, &path), parse_session)?;
            // A warning shows the line that it is about.
            if trial.scope.holds(&path) {
                trial.warnings.extend(warnings.into_iter().map(|one| (document.sources(), one)));
            }
            trial.named.push((PathUse::Session, path.clone()));
            (session, path.parent().unwrap_or(path))
        }
    };
    let (found, named) = find(surroundings, &session, (&beside, &reading))?;
    trial.named.extend(named);
    trial.named.extend(reading.permitted());
    Trial { session, found, ..trial }.bounded()
}

impl Trial {
    /// The trial, unless it asks for more than anyone reads.
    pub(super) fn bounded(self) -> Result<Self, LoadError> {
        let count = self.wishes(&AskedWalls::default(), TrialUse::Run).list().len();
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

/// Reads a scenario and nothing that it names: it can be judged, not run.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_scenario_alone(surroundings: &Surroundings, path: &AbsPath) -> Result<Trial, LoadError> {
    let text = scope::read(surroundings, path)?;
    let scope = Scope::of_file(path, surroundings);
    // A stranger's link could lead to any file of the user's, whose lines a fault would quote.
    let beside = |path: &AbsPath| path.parent().map(|folder| scope::really(&folder));
    let leads_away = beside(path) != scope::really(path).parent();
    let alone = scenario_alone(text, scope).map_err(|error| match leads_away {
        true => LoadError::Beyond { what: "scenario", path: path.clone() },
        false => error,
    });
    Ok(Trial { file: Some(path.clone()), ..alone? })
}

/// The trial of a scenario's text, without what it names.
pub(crate) fn scenario_alone(text: DocumentText, scope: Scope) -> Result<Trial, LoadError> {
    let (file, (rules, checks)) = parse_scenario(text, |parts, faults| {
        let rules = parse_rules(parts.answers, faults);
        let checks = parse_checks(parts.assert, &parts.expect_denied, parts.lane, faults);
        rules.zip(checks)
    })?;
    let ScenarioFile { scenario, document, warnings } = file;
    let told: Vec<_> = warnings.into_iter().map(|one| (document.sources(), one)).collect();
    let (session, found) = (Session::default(), Found::default());
    Ok(Trial {
        scenario,
        session,
        checks,
        rules,
        file: None,
        warnings: told,
        found,
        cost: None,
        scope,
        named: Vec::new(),
        hosts_from: HostsFrom::Session,
    })
}

/// Reads an answer policy.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_policy(surroundings: &Surroundings, path: &AbsPath) -> Result<Vec<Rule>, LoadError> {
    let document = parse_document(scope::read(surroundings, path)?)?;
    let mut faults = document.faults();
    parse_policy(document.root(), &mut faults)
        .ok_or_else(|| LoadError::Invalid { sources: document.sources(), diagnostics: faults.list })
}

/// Looks up what a session names: what was found, and every path that it takes.
///
/// # Errors
/// When something is not there, or not what it should be.
pub(super) fn find(
    surroundings: &Surroundings,
    session: &Session,
    (beside, reading): (&AbsPath, &Reading<'_>),
) -> Result<(Found, Vec<(PathUse, AbsPath)>), LoadError> {
    let resolve = |path: &PathText| path.resolve(&surroundings.home, beside);
    let mut found = Found::default();
    let mut named = Vec::new();
    for folder in &session.folders {
        let path = resolve(&folder.from)?;
        named.push((PathUse::Folder, path.clone()));
        found.folders.push((path, super::stage::FolderAccess::of(folder.mode)));
    }
    for project in &session.projects {
        named.push((PathUse::Project, resolve(&project.from)?));
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
    for (name, path) in marketplace_plugins(session, &resolve, (reading, &mut named))? {
        push_once("the plugin", &mut found.plugins, name, path)?;
    }
    for (_, path) in &found.plugins {
        named.extend(plugin_paths(path)?);
    }
    if let Some(path) = &session.mcp.config {
        let path = resolve(path)?;
        let parse = |text| parse_mcp_config(text, &session.mcp.enabled);
        found.servers = reading.parse((PathUse::McpConfig, &path), parse)?;
        named.push((PathUse::McpConfig, path));
    }
    Ok((found, named))
}

/// What is taken of a skill: the directory, and the file that belljar reads itself.
pub(super) fn skill_paths(skill: &AbsPath) -> [(PathUse, AbsPath); 2] {
    [(PathUse::Skill, skill.clone()), (PathUse::Skill, skill.child("SKILL.md"))]
}

/// The same for a plugin, with the files in which it may declare MCP servers.
pub(super) fn plugin_paths(plugin: &AbsPath) -> Result<Vec<(PathUse, AbsPath)>, LoadError> {
    let harnesses = Harnesses::load().map_err(|error| Box::new(PlanningError::from(error)))?;
    let list = harnesses.list();
    let servers = list.iter().flat_map(|harness| &harness.profile().plugin_mcp_files);
    let files = servers.map(String::as_str).chain([PLUGIN_FILE]).map(|file| plugin.child(file));
    Ok(std::iter::once(plugin.clone()).chain(files).map(|path| (PathUse::Plugin, path)).collect())
}

type Resolve<'a> = &'a dyn Fn(&PathText) -> Result<AbsPath, belljar_contract::PathError>;

/// The plugins that a session enables of marketplaces.
fn marketplace_plugins(
    session: &Session,
    resolve: Resolve<'_>,
    (reading, named): (&Reading<'_>, &mut Vec<(PathUse, AbsPath)>),
) -> Result<Vec<(LibraryName, AbsPath)>, LoadError> {
    let mut markets = Vec::new();
    for path in &session.plugins.local_marketplaces {
        let path = resolve(path)?;
        let file = path.child(MARKETPLACE_FILE);
        reading.ask(&[(PathUse::Marketplace, path.clone())])?;
        let market = reading.parse((PathUse::Marketplace, &file), parse_marketplace)?;
        named.extend([(PathUse::Marketplace, path.clone()), (PathUse::Marketplace, file)]);
        markets.push((market, path));
    }
    let mut out = Vec::new();
    for wanted in &session.plugins.enabled {
        let market = markets.iter().find(|(market, _)| market.name == wanted.marketplace);
        let Some((market, folder)) = market else {
            let own = markets.iter().filter(|(_, path)| reading.scope.holds(&path.child(MARKETPLACE_FILE)));
            let known: Vec<&str> = own.map(|(market, _)| market.name.as_str()).collect();
            return Err(LoadError::Unfit(format!(
                "`{}@{}` is enabled, and no marketplace is called `{}`; there are {known:?}",
                wanted.plugin, wanted.marketplace, wanted.marketplace
            )));
        };
        let Some(plugin) = market.plugins.iter().find(|plugin| plugin.name == wanted.plugin) else {
            return Err(LoadError::Named {
                what: "the marketplace",
                path: folder.clone(),
                why: format!("has no plugin `{}`", wanted.plugin),
            });
        };
        let path = match &plugin.source {
            PluginSource::Folder(below) => folder.join(below)?,
            PluginSource::Elsewhere => {
                return Err(LoadError::Unfit(format!(
                    "`{wanted}` would have to be fetched; name its folder instead"
                )));
            }
        };
        out.push((plugin.name.clone(), path));
    }
    Ok(out)
}

/// A folder that is a skill, or one that holds skills.
///
/// # Errors
/// When it is neither.
pub fn skills(path: &AbsPath, out: &mut Vec<(LibraryName, AbsPath)>) -> Result<(), LoadError> {
    let wrong = |why: &str| LoadError::Named { what: "the skill", path: path.clone(), why: why.to_owned() };
    if path.child("SKILL.md").as_path().is_file() {
        let name = path.file_name().and_then(|name| LibraryName::new(name.to_str()?).ok());
        let name = name.ok_or_else(|| wrong("has a folder's name that no skill can have"))?;
        return push_once("the skill", out, name, path.clone());
    }
    let Ok(entries) = fs::read_dir(path) else { return Err(wrong("does not exist")) };
    let mut below: Vec<AbsPath> = entries
        .flatten()
        .filter_map(|entry| AbsPath::new(entry.path()).ok())
        .filter(|path| path.child("SKILL.md").as_path().is_file())
        .collect();
    below.sort();
    if below.is_empty() {
        return Err(wrong("has no SKILL.md, and neither has a folder in it"));
    }
    below.iter().try_for_each(|path| skills(path, out))
}

/// The name that a plugin gives itself, or that of its folder.
///
/// # Errors
/// When neither is a name.
pub(super) fn plugin_name(path: &AbsPath, reading: &Reading<'_>) -> Result<LibraryName, LoadError> {
    reading.ask(&plugin_paths(path)?)?;
    let wrong = |why: &str| LoadError::Named { what: "the plugin", path: path.clone(), why: why.to_owned() };
    if !path.as_path().is_dir() {
        return Err(wrong("is not a folder"));
    }
    let manifest = path.child(PLUGIN_FILE);
    let named = match manifest.as_path().is_file() {
        false => None,
        true => {
            let document = reading.parse((PathUse::Plugin, &manifest), parse_document)?;
            document.root().to_value()["name"].as_str().map(str::to_owned)
        }
    };
    let folder = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = named.or_else(folder).and_then(|name| LibraryName::new(name).ok());
    name.ok_or_else(|| wrong("has no name that a plugin can have"))
}

fn push_once(
    what: &'static str,
    list: &mut Vec<(LibraryName, AbsPath)>,
    name: LibraryName,
    path: AbsPath,
) -> Result<(), LoadError> {
    if list.iter().any(|(known, _)| *known == name) {
        return Err(LoadError::Named { what, path, why: "has the name of another one".to_owned() });
    }
    list.push((name, path));
    Ok(())
}
