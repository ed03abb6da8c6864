//! Finds the skills and plugins that a session names, and those of its marketplaces.

use super::load::{LoadError, plugin_paths, profile};
use super::scope::Reading;
use belljar_contract::{AbsPath, LibraryName, MountSource, PathUse, Plan};
use belljar_plan::{PathText, PluginReference, PluginSource, Session, parse_document, parse_marketplace};
use belljar_session::SkillPlace;
use std::fs;
use std::io;

pub(super) type Resolve<'a> = &'a dyn Fn(&PathText) -> Result<AbsPath, belljar_contract::PathError>;

/// The plugins of marketplaces that a session enables.
pub(super) fn marketplace_plugins(
    (session, local): (&Session, &[(LibraryName, AbsPath)]),
    resolve: Resolve<'_>,
    (reading, named): (&Reading<'_>, &mut Vec<(PathUse, AbsPath)>),
) -> Result<Vec<(LibraryName, AbsPath)>, LoadError> {
    let mut markets = Vec::new();
    for path in &session.plugins.local_marketplaces {
        let path = resolve(path)?;
        let file = path.child(&profile().marketplace_file);
        reading.ask(&[(PathUse::Marketplace, path.clone())])?;
        let market = reading.parse((PathUse::Marketplace, &file), parse_marketplace)?;
        named.extend([(PathUse::Marketplace, path.clone()), (PathUse::Marketplace, file)]);
        markets.push((market, path));
    }
    let mut out = Vec::new();
    for wanted in &session.plugins.enabled {
        let market = markets.iter().find(|(market, _)| market.name == wanted.marketplace);
        if market.is_none() && wanted.is_local() {
            is_local_plugin(wanted, local)?;
            continue;
        }
        let Some((market, directory)) = market else {
            let file = &profile().marketplace_file;
            let own = markets.iter().filter(|(_, path)| reading.scope.holds(&path.child(file)));
            let known: Vec<&str> = own.map(|(market, _)| market.name.as_str()).collect();
            return Err(LoadError::Unfit(format!(
                "`{}@{}` is enabled, and no marketplace is called `{}`; there are {known:?}",
                wanted.plugin, wanted.marketplace, wanted.marketplace
            )));
        };
        let Some(plugin) = market.plugins.iter().find(|plugin| plugin.name == wanted.plugin) else {
            return Err(LoadError::Named {
                what: "the marketplace",
                path: directory.clone(),
                why: format!("has no plugin `{}`", wanted.plugin),
            });
        };
        let path = match &plugin.source {
            PluginSource::Directory(below) => directory.join(below)?,
            PluginSource::Elsewhere => {
                return Err(LoadError::Unfit(format!(
                    "`{wanted}` is not local; clone it and name its directory instead"
                )));
            }
        };
        out.push((plugin.name.clone(), path));
    }
    Ok(out)
}

/// `NAME@local` names a plugin of `local_plugins`, which the agent has in any case.
pub(super) fn is_local_plugin(
    wanted: &PluginReference,
    local: &[(LibraryName, AbsPath)],
) -> Result<(), LoadError> {
    if local.iter().any(|(name, _)| *name == wanted.plugin) {
        return Ok(());
    }
    let names: Vec<String> = local.iter().map(|(name, _)| format!("`{name}`")).collect();
    Err(LoadError::Unfit(format!(
        "`enabled` names `{wanted}`, and no directory of `local_plugins` has a plugin of that name; they have {}",
        names.join(", ")
    )))
}

/// Lists a skill, or the skills in a directory.
///
/// # Errors
/// If the directory is neither.
pub fn skills(path: &AbsPath, out: &mut Vec<(LibraryName, AbsPath)>) -> Result<(), LoadError> {
    let wrong = |why: &str| LoadError::Named { what: "the skill", path: path.clone(), why: why.to_owned() };
    if path.child("SKILL.md").as_path().is_file() {
        let name = path.file_name().and_then(|name| LibraryName::new(name.to_str()?).ok());
        let name = name.ok_or_else(|| wrong("has a directory name that is not a valid name for a skill"))?;
        return push_once("the skill", out, name, path.clone());
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(wrong("is a file; name the directory that contains it"));
        }
        Err(_gone) => return Err(wrong("does not exist")),
    };
    let mut below: Vec<AbsPath> = entries
        .flatten()
        .filter_map(|entry| AbsPath::new(entry.path()).ok())
        .filter(|path| path.child("SKILL.md").as_path().is_file())
        .collect();
    below.sort();
    if below.is_empty() {
        return Err(wrong("has no SKILL.md, and none of its subdirectories has one"));
    }
    below.iter().try_for_each(|path| skills(path, out))
}

/// The name in a plugin's manifest, or that of its directory.
///
/// # Errors
/// If neither is a valid name.
pub(super) fn plugin_name(path: &AbsPath, reading: &Reading<'_>) -> Result<LibraryName, LoadError> {
    reading.ask(&plugin_paths(path))?;
    let wrong = |why: &str| LoadError::Named { what: "the plugin", path: path.clone(), why: why.to_owned() };
    if !path.as_path().is_dir() {
        return Err(wrong("is not a directory"));
    }
    let manifest = path.child(&profile().plugin_file);
    let named = match manifest.as_path().is_file() {
        false => None,
        true => {
            let document = reading.parse((PathUse::Plugin, &manifest), parse_document)?;
            document.root().to_value()["name"].as_str().map(str::to_owned)
        }
    };
    let directory = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = named.or_else(directory).and_then(|name| LibraryName::new(name).ok());
    name.ok_or_else(|| wrong("has no valid name for a plugin"))
}

pub(super) fn push_once(
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

/// The directories of skills as the agent sees them, so that their use is noticed. Names of a plugin's skills have the
/// plugin's name as prefix.
pub(crate) fn skill_places(plan: &Plan) -> Vec<SkillPlace> {
    let inside = |source: &AbsPath| {
        let mount = plan.mounts.iter().find(|mount| mount.source == MountSource::Host(source.clone()));
        mount.map(|mount| mount.target.clone())
    };
    let own = plan.skills.iter().filter_map(|skill| {
        let directories = vec![inside(&skill.source)?.to_string()];
        Some(SkillPlace { name: skill.name.to_string(), directories })
    });
    let of_plugins = plan.plugins.iter().flat_map(|plugin| {
        let skills = plugin.source.child("skills");
        let entries = fs::read_dir(&skills).into_iter().flatten().flatten();
        let place = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let directory = inside(&plugin.source)?.child("skills").child(&name);
            Some(SkillPlace {
                name: format!("{}:{name}", plugin.name),
                directories: vec![directory.to_string()],
            })
        };
        entries.filter_map(place).collect::<Vec<_>>()
    });
    own.chain(of_plugins).collect()
}
