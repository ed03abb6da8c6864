//! Versions of agents that belljar keeps itself: fetched from the registry of npm packages, verified, and stored beside
//! each other.
//!
//! - [`settings`] and [`npmrc`]: the user's settings of npm and of the network.
//! - [`metadata`]: the versions of a package, and the package of a platform.
//! - [`integrity`] and [`unpack`]: an archive, verified, and the program in it.
//! - [`store`]: what is installed.
//! - [`program`]: the program that a run starts.
//! - [`wrapper`]: the program behind a wrapper on the search path.

mod choose;
mod install;
mod integrity;
mod metadata;
mod npmrc;
mod program;
mod settings;
pub(crate) mod store;
mod unpack;
mod version;
mod wrapper;

pub(crate) use choose::{Absence, absence, kept_agent};
pub use choose::{
    ChooseError, MissingAgent, agent_on_path, exact_version, installed_agent, known_agent, missing_agents,
};
pub use install::{InstallError, InstallNews, Installed, available_versions, install_agent};
pub use integrity::Integrity;
pub use metadata::{AvailableVersion, Platform};
pub use program::AgentProgram;
pub use settings::SettingsError;
pub use store::{AgentDescription, AgentStore, AgentStoreError, HeldAgent, InstalledAgent};
pub use unpack::ArchiveError;
pub use version::{AgentWish, VersionWish};
pub(crate) use wrapper::program_on_path;
pub use wrapper::{FoundProgram, WrapperError};

use crate::environment::HostEnvironment;
use std::time::SystemTime;

/// Removes what interrupted installations left. If an entry cannot be removed, `gc` reports it later.
pub fn remove_unfinished_installs(environment: &HostEnvironment) {
    AgentStore::new(&environment.data).sweep(SystemTime::now());
}
