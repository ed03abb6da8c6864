//! The agent that a user names, and the version of it that is installed.

use super::store::{AgentStore, AgentStoreError, InstalledAgent};
use super::version::{AgentWish, VersionWish};
use super::wrapper::{FoundProgram, WrapperError, program_on_path};
use crate::environment::HostEnvironment;
use crate::plan::agent_version::agent_version;
use belljar_contract::{
    AgentRelease, AgentVersion, Harness, HarnessProfile, PublishedVersion, nearest, with_causes,
};
use belljar_session::Harnesses;
use std::collections::BTreeSet;

/// Why no program is found for what a user named.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    #[error("belljar knows no agent `{name}`")]
    Unknown { name: String, near: Option<String>, known: Vec<String> },
    /// A tag is resolved by the registry alone.
    #[error("`{wish}` is not a version")]
    NotAVersion { wish: AgentWish },
    #[error("{} {} not installed", releases(missing, ", "), if missing.len() == 1 { "is" } else { "are" })]
    NotInstalled { missing: Vec<MissingAgent> },
    #[error("`{program}` is not on your PATH, and no version was named")]
    NotOnPath { name: String, program: String },
    #[error(transparent)]
    Wrapper(#[from] WrapperError),
    #[error(transparent)]
    Store(#[from] AgentStoreError),
}

/// A version that is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingAgent {
    pub release: AgentRelease,
    /// The nearest version that is installed.
    pub near: Option<PublishedVersion>,
}

/// The names of missing versions.
fn releases(missing: &[MissingAgent], between: &str) -> String {
    missing.iter().map(|one| one.release.to_string()).collect::<Vec<_>>().join(between)
}

impl ChooseError {
    /// The remedies.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Unknown { near: Some(near), .. } => vec![format!("did you mean `{near}`?")],
            Self::Unknown { near: None, known, .. } => vec![format!("known are: {}", known.join(", "))],
            Self::NotAVersion { wish } => {
                vec![format!("name a version, as in `{}@2.1.0`; `belljar agent list` lists them", wish.name)]
            }
            Self::NotInstalled { missing } => {
                let near = |one: &MissingAgent| {
                    let MissingAgent { release, near } = one;
                    let name = &release.name;
                    near.as_ref().map(|near| format!("installed is {name}@{near}, not {release}"))
                };
                let install = format!("belljar agent install {}", releases(missing, " "));
                std::iter::once(install).chain(missing.iter().filter_map(near)).collect()
            }
            Self::NotOnPath { name, program } => vec![format!(
                "put `{program}` on PATH, or name a version that `belljar agent install {name}` keeps"
            )],
            Self::Wrapper(error) => error.hints(),
            Self::Store(error) => error.hint().into_iter().collect(),
        }
    }
}

/// The profile of the agent that a user names.
///
/// # Errors
/// If there is none of this name.
pub fn known_agent(name: &str) -> Result<&'static HarnessProfile, ChooseError> {
    let harnesses = Harnesses::built_in();
    let unknown = || {
        let known: Vec<String> =
            harnesses.list().iter().map(|harness| harness.profile().name.clone()).collect();
        let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        ChooseError::Unknown { name: name.to_owned(), near, known }
    };
    harnesses.named(name).map(Harness::profile).ok_or_else(unknown)
}

/// The exact version of a wish.
///
/// # Errors
/// If the agent is not known, or the wish names no version.
pub fn exact_version(wish: &AgentWish) -> Result<(&'static HarnessProfile, &PublishedVersion), ChooseError> {
    let profile = known_agent(&wish.name)?;
    match &wish.version {
        Some(VersionWish::Exact(version)) => Ok((profile, version)),
        Some(VersionWish::Tag(_)) | None => Err(ChooseError::NotAVersion { wish: wish.clone() }),
    }
}

/// The installed version that a wish names.
///
/// # Errors
/// See [`ChooseError`].
pub fn installed_agent(
    environment: &HostEnvironment,
    wish: &AgentWish,
) -> Result<InstalledAgent, ChooseError> {
    let (profile, version) = exact_version(wish)?;
    kept_agent(environment, &AgentRelease { name: profile.name.clone(), version: version.clone() })
}

/// A version that belljar keeps.
///
/// # Errors
/// See [`ChooseError`].
pub(crate) fn kept_agent(
    environment: &HostEnvironment,
    release: &AgentRelease,
) -> Result<InstalledAgent, ChooseError> {
    let profile = known_agent(&release.name)?;
    let (store, names) = (AgentStore::new(&environment.data), (&*profile.name, &*profile.program));
    let Some(found) = store.find(names, &release.version)? else {
        let installed: Vec<PublishedVersion> =
            store.list(names)?.into_iter().flatten().map(|one| one.description.version).collect();
        let near = release.version.nearest(installed.iter()).cloned();
        return Err(ChooseError::NotInstalled {
            missing: vec![MissingAgent { release: release.clone(), near }],
        });
    };
    Ok(found)
}

/// The versions of these that are not installed.
///
/// # Errors
/// If an agent is not known, or the store cannot be used.
pub fn missing_agents<'r>(
    environment: &HostEnvironment,
    wanted: impl IntoIterator<Item = &'r AgentRelease>,
) -> Result<Vec<MissingAgent>, ChooseError> {
    let mut all = Vec::new();
    for release in wanted.into_iter().collect::<BTreeSet<_>>() {
        match kept_agent(environment, release) {
            Ok(_installed) => {}
            Err(ChooseError::NotInstalled { missing }) => all.extend(missing),
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// What keeps a version from being started, for `check`; `None` if belljar keeps it. An agent that is not known is a fault
/// of its own.
pub(crate) fn absence(environment: &HostEnvironment, release: &AgentRelease) -> Option<Absence> {
    let error = match kept_agent(environment, release) {
        Ok(_) | Err(ChooseError::Unknown { .. }) => return None,
        Err(error) => error,
    };
    let hints = error.hints();
    let help = hints.iter().map(|hint| match hint.starts_with("belljar ") {
        true => format!("`{hint}`, or `--install` with the run"),
        false => hint.clone(),
    });
    Some(Absence { message: with_causes(&error), help: help.collect::<Vec<_>>().join("; ") })
}

/// Why a version cannot be started, and the remedy.
pub(crate) struct Absence {
    pub message: String,
    pub help: String,
}

/// The program on the search path, with the version that it reports. One of the project is not asked.
///
/// # Errors
/// If none is on the search path, or only a wrapper.
pub fn agent_on_path(
    environment: &HostEnvironment,
    name: &str,
) -> Result<(FoundProgram, Option<AgentVersion>), ChooseError> {
    let profile = known_agent(name)?;
    let found = program_on_path(environment, profile)?
        .ok_or_else(|| ChooseError::NotOnPath { name: name.to_owned(), program: profile.program.clone() })?;
    let asked = Some(&found.path).filter(|found| !environment.is_of_the_project(found));
    let version = asked.and_then(|found| agent_version(&environment.state, found));
    Ok((found, version))
}
