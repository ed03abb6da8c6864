//! A folder that is tried without a scenario: a skill, folders of skills, a plugin, a marketplace.

use super::load::{
    Found, LoadError, MARKETPLACE_FILE, Trial, find, plugin_name, plugin_paths, skill_paths, skills,
};
use super::scope::{Permit, Reading, Scope};
use super::stage::FolderAccess;
use super::wishes::HostsFrom;
use crate::planning::Surroundings;
use belljar_contract::{AbsPath, HostPattern, Lane, LibraryName, PathUse};
use belljar_plan::{PathText, PluginReference, Scenario, Session, SessionReference, parse_marketplace};
use belljar_verdict::Checks;

/// What is tried, and with what.
#[derive(Debug, Clone)]
pub struct Subject {
    /// A skill, a folder of skills, a plugin or a marketplace.
    pub folder: AbsPath,
    pub plugins: Vec<AbsPath>,
    /// Marketplaces whose plugins can be enabled.
    pub marketplaces: Vec<AbsPath>,
    /// Plugins of marketplaces, as `name@marketplace`.
    pub enabled: Vec<String>,
    /// Files that the user gives.
    pub uploads: Vec<AbsPath>,
    /// Folders that the agent works on.
    pub folders: Vec<AbsPath>,
    /// Hosts that it may reach.
    pub hosts: Vec<String>,
    pub model: Option<String>,
    /// What the agent is told.
    pub prompt: String,
}

/// A trial of a folder.
///
/// # Errors
/// When the folder is none of what can be tried, or what goes with it is not there.
pub fn load_subject(
    surroundings: &Surroundings,
    subject: Subject,
    permit: Permit<'_>,
) -> Result<Trial, LoadError> {
    let Subject { folder, plugins, mut marketplaces, enabled, uploads, folders, hosts, model, prompt } =
        subject;
    if prompt.trim().is_empty() {
        return Err(LoadError::Unfit("the prompt is empty".to_owned()));
    }
    // What the command line names is the user's own word.
    let further = plugins.iter().chain(&marketplaces).chain(&uploads).chain(&folders);
    let scope = Scope::of_named(&folder, further);
    let reading = Reading::new(surroundings, &scope, permit);
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut session = Session { model, ..Session::default() };
    for host in hosts {
        let pattern =
            HostPattern::parse(&host).map_err(|error| LoadError::Unfit(format!("`{host}`: {error}")))?;
        session.extra_allow.push(pattern);
    }
    let mut enabled: Vec<PluginReference> = enabled
        .iter()
        .map(|text| text.parse().map_err(|error| LoadError::Unfit(format!("`{text}`: {error}"))))
        .collect::<Result<_, _>>()?;
    let mut own_skills: Vec<(LibraryName, AbsPath)> = Vec::new();
    let mut own_plugins = plugins;
    let listed = folder.child(MARKETPLACE_FILE);
    if listed.as_path().is_file() {
        // Whoever names a marketplace and no plugin of it means all of them.
        let market = reading.parse((PathUse::Marketplace, &listed), parse_marketplace)?;
        if !enabled.iter().any(|wanted| wanted.marketplace == market.name) {
            enabled.extend(market.plugins.iter().map(|plugin| PluginReference {
                plugin: plugin.name.clone(),
                marketplace: market.name.clone(),
            }));
        }
        marketplaces.push(folder);
    } else if is_plugin(&folder) {
        own_plugins.insert(0, folder);
    } else {
        skills(&folder, &mut own_skills)?;
    }
    session.plugins.enabled = enabled;
    session.plugins.local_marketplaces = marketplaces.into_iter().map(PathText::Absolute).collect();
    let (found, mut named) = find(surroundings, &session, (&surroundings.directory, &reading))?;
    named.extend(own_skills.iter().flat_map(|(_, path)| skill_paths(path)));
    for path in &own_plugins {
        named.extend(plugin_paths(path)?);
    }
    let mut found = Found { skills: own_skills, uploads, ..found };
    found.folders = folders.into_iter().map(|path| (path, FolderAccess::ReadWrite)).collect();
    for path in own_plugins {
        found.plugins.push((plugin_name(&path, &reading)?, path));
    }
    let scenario = Scenario {
        name,
        baseline: None,
        session: SessionReference::Inline,
        fidelity: None,
        lane: Lane::Local,
        prompt,
        timeout: None,
        on_unanswered: None,
        skills: Vec::new(),
        requires_capabilities: Vec::new(),
        allow_host_writes: false,
    };
    let checks = Checks::none(Lane::Local);
    named.extend(reading.permitted());
    let trial = Trial {
        scenario,
        session,
        checks,
        rules: Vec::new(),
        file: None,
        warnings: Vec::new(),
        found,
        cost: None,
        scope,
        named,
        hosts_from: HostsFrom::CommandLine,
    };
    trial.bounded()
}

/// A folder with a plugin's own file, or with the folders that only plugins have. One with a `SKILL.md` is a skill,
/// whatever else lies in it.
fn is_plugin(folder: &AbsPath) -> bool {
    let has = |name: &str| folder.child(name).as_path().exists();
    !has("SKILL.md")
        && (has(".claude-plugin/plugin.json")
            || ["skills", "commands", "agents", "hooks"].iter().any(|name| has(name)))
}
