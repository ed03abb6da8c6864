//! The program that a run starts: of the search path, or a version that belljar keeps.

use super::store::InstalledAgent;
use crate::environment::HostEnvironment;
use crate::plan::agent_version::agent_version;
use belljar_contract::{AbsPath, AgentVersion};

/// The program of an agent, as planning found it.
#[derive(Debug)]
pub enum AgentProgram {
    /// The program on the search path, if there is one.
    OnPath(Option<AbsPath>),
    Kept(Box<InstalledAgent>),
}

impl AgentProgram {
    #[must_use]
    pub fn path(&self) -> Option<&AbsPath> {
        match self {
            Self::OnPath(found) => found.as_ref(),
            Self::Kept(installed) => Some(&installed.program),
        }
    }

    /// The version: of a kept one, what it was installed as; of one on the search path, what it reports. One of the
    /// project is not asked.
    pub(crate) fn version(&self, environment: &HostEnvironment) -> Option<AgentVersion> {
        match self {
            Self::OnPath(found) => {
                let asked = found.as_ref().filter(|path| !environment.is_of_the_project(path))?;
                agent_version(&environment.state, asked)
            }
            Self::Kept(installed) => AgentVersion::parse(installed.description.version.as_str()),
        }
    }
}
