//! The agent that a user names, and the version of it that is installed.

use super::store::{AgentStore, AgentStoreError, InstalledAgent};
use super::version::{AgentWish, PublishedVersion, VersionWish};
use crate::environment::HostEnvironment;
use crate::plan::agent_version::agent_version;
use belljar_contract::{AbsPath, AgentVersion, Harness, HarnessProfile, nearest};
use belljar_session::Harnesses;

/// Why no program is found for what a user named.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    #[error("belljar knows no agent `{name}`")]
    Unknown { name: String, near: Option<String>, known: Vec<String> },
    /// A tag is resolved by the registry alone.
    #[error("`{wish}` is not a version")]
    NotAVersion { wish: AgentWish },
    #[error("{name}@{version} is not installed")]
    NotInstalled { name: String, version: PublishedVersion },
    #[error("`{program}` is not on your PATH, and no version was named")]
    NotOnPath { name: String, program: String },
    #[error(transparent)]
    Store(#[from] AgentStoreError),
}

impl ChooseError {
    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { near: Some(near), .. } => Some(format!("did you mean `{near}`?")),
            Self::Unknown { near: None, known, .. } => Some(format!("known are: {}", known.join(", "))),
            Self::NotAVersion { wish } => {
                Some(format!("name a version, as in `{}@2.1.0`; `belljar agent list` lists them", wish.name))
            }
            Self::NotInstalled { name, version } => Some(format!("belljar agent install {name}@{version}")),
            Self::NotOnPath { name, .. } => Some(format!("belljar agent install {name}")),
            Self::Store(AgentStoreError::Damaged { path, .. }) => {
                Some(format!("remove `{path}` and install it again"))
            }
            Self::Store(AgentStoreError::Use { .. } | AgentStoreError::InUse { .. }) => None,
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
    let store = AgentStore::new(&environment.data);
    let found = store.find((&profile.name, &profile.program), version)?;
    let name = || profile.name.clone();
    found.ok_or_else(|| ChooseError::NotInstalled { name: name(), version: version.clone() })
}

/// The program on the search path, with the version that it reports. One of the project is not asked.
///
/// # Errors
/// If none is on the search path.
pub fn agent_on_path(
    environment: &HostEnvironment,
    name: &str,
) -> Result<(AbsPath, Option<AgentVersion>), ChooseError> {
    let profile = known_agent(name)?;
    let found = environment
        .program_inside(&profile.program)
        .ok_or_else(|| ChooseError::NotOnPath { name: name.to_owned(), program: profile.program.clone() })?;
    let asked = Some(&found).filter(|found| !environment.is_of_the_project(found));
    let version = asked.and_then(|found| agent_version(&environment.state, found));
    Ok((found, version))
}
