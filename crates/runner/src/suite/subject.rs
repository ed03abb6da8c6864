//! A directory that is tested without a scenario: a skill, a directory of skills, a plugin, a marketplace.

use super::load::{LoadError, NamedFiles, Trial, find, plugin_paths, profile, skill_paths};
use super::plugins::{plugin_name, skills};
use super::requests::HostsFrom;
use super::scope::{FilesRead, Permit, Reading, Scope};
use super::stage::DirectoryAccess;
use crate::environment::HostEnvironment;
use crate::git::Untracked;
use belljar_contract::{AbsPath, HostPattern, Lane, LibraryName, PathUse};
use belljar_plan::{
    FolderMode, PathText, PluginReference, Scenario, Session, SessionReference, parse_marketplace,
};
use belljar_verdict::Checks;
use serde_json::{Map, Value, json};

/// The tested directory, and everything that the command line adds to it.
#[derive(Debug, Clone)]
pub struct Subject {
    /// A skill, a directory of skills, a plugin or a marketplace.
    pub directory: AbsPath,
    pub plugins: Vec<AbsPath>,
    /// Marketplaces whose plugins can be enabled.
    pub marketplaces: Vec<AbsPath>,
    /// Plugins of marketplaces, as `name@marketplace`.
    pub enabled: Vec<String>,
    /// Files that the user provides.
    pub uploads: Vec<AbsPath>,
    /// Directories that the agent works on.
    pub directories: Vec<AbsPath>,
    /// Hosts that the agent may reach.
    pub hosts: Vec<String>,
    pub model: Option<String>,
    /// The message to the agent.
    pub prompt: String,
}

/// Loads the trial of a directory.
///
/// # Errors
/// If the directory cannot be tested, or something that was named is missing.
pub fn load_subject(
    environment: &HostEnvironment,
    subject: Subject,
    permit: Permit<'_>,
) -> Result<Trial, LoadError> {
    let Subject { directory, plugins, mut marketplaces, enabled, uploads, directories, hosts, model, prompt } =
        subject;
    if prompt.trim().is_empty() {
        return Err(LoadError::Unfit("the prompt is empty".to_owned()));
    }
    // Paths on the command line are the user's own decision.
    let further = plugins.iter().chain(&marketplaces).chain(&uploads).chain(&directories);
    let scope = Scope::of_named(&directory, further);
    let reading = Reading::new(environment, &scope, permit);
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
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
    let listed = directory.child(&profile().marketplace_file);
    if listed.as_path().is_file() {
        // A marketplace without a named plugin stands for all of its plugins.
        let market = reading.parse((PathUse::Marketplace, &listed), parse_marketplace)?;
        if !enabled.iter().any(|wanted| wanted.marketplace == market.name) {
            enabled.extend(market.plugins.iter().map(|plugin| PluginReference {
                plugin: plugin.name.clone(),
                marketplace: market.name.clone(),
            }));
        }
        marketplaces.push(directory);
    } else if is_plugin(&directory) {
        own_plugins.insert(0, directory);
    } else {
        skills(&directory, &mut own_skills)?;
    }
    session.plugins.enabled = enabled;
    session.plugins.local_marketplaces = marketplaces.iter().cloned().map(PathText::Absolute).collect();
    let (found, mut named) = find(environment, &session, (&environment.directory, &reading))?;
    named.extend(own_skills.iter().flat_map(|(_, path)| skill_paths(path)));
    for path in &own_plugins {
        named.extend(plugin_paths(path));
    }
    let mut found = NamedFiles { skills: own_skills, uploads, ..found };
    found.directories =
        directories.into_iter().map(|path| (path, DirectoryAccess::ReadWriteDelete)).collect();
    let described = described(&session, &found, (&own_plugins, &marketplaces));
    for path in own_plugins {
        found.plugins.push((plugin_name(&path, &reading)?, path));
    }
    // JSON is YAML, too.
    let text = format!("{:#}\n", json!({"name": name, "prompt": prompt})).into_bytes();
    let scenario = Scenario {
        name,
        session: SessionReference::Inline,
        fidelity: None,
        lane: Lane::Local,
        prompt,
        timeout: None,
        on_unanswered: None,
        skills: Vec::new(),
        requires_capabilities: Vec::new(),
    };
    let checks = Checks::none(Lane::Local);
    let FilesRead { beyond, parsed } = reading.end();
    named.extend(beyond);
    let trial = Trial {
        scenario,
        session,
        checks,
        rules: Vec::new(),
        file: None,
        text,
        described: Some(described),
        warnings: Vec::new(),
        found,
        cost: None,
        time: None,
        untracked: Untracked::LeftOut,
        scope,
        named,
        parsed,
        hosts_from: HostsFrom::CommandLine,
    };
    trial.bounded()
}

/// The session that would give the agent the same, as text. Keys without a value are left out.
fn described(
    session: &Session,
    found: &NamedFiles,
    (plugins, marketplaces): (&[AbsPath], &[AbsPath]),
) -> Vec<u8> {
    let some = |value: Value| Some(value).filter(|value| value != &json!([]));
    let within = |members: Vec<(&str, Option<Value>)>| {
        let members: Map<String, Value> =
            members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        (!members.is_empty()).then_some(Value::Object(members))
    };
    let skills: Vec<&AbsPath> = found.skills.iter().map(|(_, path)| path).collect();
    let enabled: Vec<String> = session.plugins.enabled.iter().map(ToString::to_string).collect();
    let hosts: Vec<String> = session.extra_allow.iter().map(ToString::to_string).collect();
    let folder = |(from, _access): &(AbsPath, DirectoryAccess)| json!({"from": from, "mode": FolderMode::ReadWriteDelete.name()});
    let folders: Vec<Value> = found.directories.iter().map(folder).collect();
    let all = within(vec![
        ("model", session.model.as_ref().map(|model| json!(model))),
        ("skills", within(vec![("local", some(json!(skills)))])),
        (
            "plugins",
            within(vec![
                ("local_plugins", some(json!(plugins))),
                ("local_marketplaces", some(json!(marketplaces))),
                ("enabled", some(json!(enabled))),
            ]),
        ),
        ("uploads", some(json!(found.uploads))),
        ("folders", some(json!(folders))),
        ("egress", within(vec![("extra_allow", some(json!(hosts)))])),
    ]);
    // JSON is YAML, too.
    format!("{:#}\n", all.unwrap_or_else(|| json!({}))).into_bytes()
}

/// Whether a directory has a plugin's manifest, or subdirectories that only plugins have. A directory with a `SKILL.md`
/// is a skill, whatever else it contains.
fn is_plugin(directory: &AbsPath) -> bool {
    let has = |name: &str| directory.child(name).as_path().exists();
    !has("SKILL.md")
        && (has(&profile().plugin_file)
            || ["skills", "commands", "agents", "hooks"].iter().any(|name| has(name)))
}
