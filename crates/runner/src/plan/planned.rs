//! What planning gives: a plan with what is shown beside it, or an error.

use crate::agents::{AgentProgram, ChooseError, HeldAgent};
use crate::dotenv::DotenvInside;
use crate::environment::HostEnvironment;
use crate::git::UserFiles;
use crate::plan::arguments::HarnessFlags;
use crate::plan::shared_values::SharedFile;
use belljar_contract::{
    AbsPath, AgentName, AgentUsed, AgentVersion, AgentVersions, DefaultLimit, Diagnostic, Entering, OpenNeed,
    PathError, Sources,
};
use belljar_plan::{Compiled, ManifestError, SelectionError};
use belljar_sandbox::SourceIdentity;
use belljar_session::HarnessError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why no plan could be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    /// The command needs a manifest, and none was found.
    #[error("no manifest was found")]
    NoManifest {
        /// The paths that were tried.
        looked: Vec<String>,
    },
    /// A file exists but cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
    /// The manifests, or files that they refer to, are invalid.
    #[error("the manifest is not valid")]
    Invalid { sources: Sources, diagnostics: Vec<Diagnostic> },
    /// The named agent does not exist, or an agent must be named.
    #[error("{}", .0.message)]
    Selection(SelectionError),
    /// A path contains a NUL byte.
    #[error("a path is not valid")]
    Path(#[from] PathError),
    /// A `.env` file lies in a directory that is mounted.
    #[error(transparent)]
    Dotenv(#[from] DotenvInside),
    /// A profile that is shipped with belljar is invalid.
    #[error("a profile shipped with belljar is invalid")]
    Harness(#[from] HarnessError),
}

impl From<ManifestError> for PlanningError {
    fn from(ManifestError { sources, diagnostics, partial: _ }: ManifestError) -> Self {
        PlanningError::Invalid { sources, diagnostics }
    }
}

/// A plan, with the facts that the caller shows beside it.
#[derive(Debug)]
pub struct Planned {
    /// The plan and its reasons.
    pub compiled: Compiled,
    /// The plan without what is given by hand; `None` if nothing is.
    pub(crate) of_manifests: Option<Box<Planned>>,
    /// The texts that reasons and warnings point into.
    pub sources: Sources,
    pub warnings: Vec<Diagnostic>,
    /// Whether the plan needs an agreement: the project's own manifest takes part, or the user's manifest refers to a
    /// file of the project.
    pub needs_agreement: bool,
    /// Where the model's credential was found, if anywhere.
    pub credential_found: Option<String>,
    /// The address of the model's provider, if it is not the default.
    pub upstream: Option<String>,
    /// The name that the agent is given on the command line; the built-in agent has none.
    pub called: Option<AgentName>,
    /// The agent's program, or why the version that is named, or the wrapper on the search path, cannot be used.
    pub program: Result<AgentProgram, Arc<ChooseError>>,
    /// What records say about the program.
    pub agent: AgentUsed,
    /// The project's repository, if it lies outside the project.
    pub repository: Option<AbsPath>,
    /// Files of the project that other agents of the manifests run or read outside the sandbox: a run of this agent
    /// must not change them either.
    pub used_by_others: Vec<AbsPath>,
    /// The user's own files that git reads: programs that they name run in every project.
    pub git_files: UserFiles,
    /// The identities of the mount sources, taken when the plan was made, or why one has none: the launch compares them.
    pub identities: BTreeMap<AbsPath, SourceIdentity>,
    /// The flags of the agent that belljar uses or looks for.
    pub(crate) flags: HarnessFlags,
    /// The arguments with which the agent speaks its protocol, including those of every ability.
    pub conversation_arguments: Vec<String>,
    /// The versions of the agent that belljar was tested with.
    pub versions: AgentVersions,
    /// Values that enter the sandbox as secrets, by name.
    pub entering: Vec<Entering>,
    /// Limits that apply on this machine without being declared.
    pub defaults: Vec<DefaultLimit>,
    /// What nothing enforces, without a sandbox.
    pub open: Vec<OpenNeed>,
    /// Files of the user's own configuration that are shared with the sandbox, and whose values are secrets.
    pub shared_files: Vec<SharedFile>,
}

impl Planned {
    /// What the manifests alone ask for. An agreement is about this: what is given by hand needs none, and none comes
    /// from it.
    #[must_use]
    pub fn of_manifests(&self) -> &Planned {
        self.of_manifests.as_deref().unwrap_or(self)
    }

    /// The keys of the values that are given by hand.
    #[must_use]
    pub fn given_by_hand(&self) -> Vec<&str> {
        let given = self.compiled.reasons.iter().filter(|reason| reason.is_given_by_hand());
        given.map(|reason| reason.key.as_str()).collect()
    }

    /// Keeps the version that belljar keeps from being removed, for as long as the result lives.
    ///
    /// # Errors
    /// If the version that is named is not installed, or its program was altered since, or the program on the search path
    /// is a wrapper around an unknown one.
    pub fn hold_agent(&self, environment: &HostEnvironment) -> Result<Option<HeldAgent>, Arc<ChooseError>> {
        match &self.program {
            Ok(AgentProgram::OnPath(_)) => Ok(None),
            Ok(AgentProgram::Kept(installed)) => {
                let held =
                    installed.hold().and_then(|held| installed.verify(&environment.state).map(|()| held));
                held.map(Some).map_err(|error| Arc::new(error.into()))
            }
            Err(error) => Err(Arc::clone(error)),
        }
    }

    /// The version of the agent's program. One on the search path is asked for it.
    pub(crate) fn agent_version(&self, environment: &HostEnvironment) -> Option<AgentVersion> {
        self.program.as_ref().ok().and_then(|program| program.version(environment))
    }

    /// The path of the agent's program, if it was found.
    #[must_use]
    pub fn program_found(&self) -> Option<&AbsPath> {
        self.program.as_ref().ok().and_then(AgentProgram::path)
    }
}

/// The result of [`Planner::check`].
#[derive(Debug)]
pub struct Checked {
    pub sources: Sources,
    pub diagnostics: Vec<Diagnostic>,
    /// How many agents there are.
    pub agents: usize,
    /// How many library entries there are.
    pub library: usize,
    /// The files that were read.
    pub files: Vec<String>,
}
