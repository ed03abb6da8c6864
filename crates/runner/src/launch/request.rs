//! The request for a launch.

use super::facts::LaunchFacts;
use crate::environment::HostEnvironment;
use crate::plan::planned::Planned;
use crate::session::conversation::ConversationRequest;
use crate::suite::{FilesWatch, Judge};
use crate::tape::{ReplayModel, Taping};
use belljar_contract::{AbsPath, Digest, Event, RunName, RunVerb, TimeSpan, Unmet, Workload};
use belljar_egress::proxy::{EgressMode, Reach};
use belljar_egress::script::{MAX_FILE_BYTES, Script};
use belljar_egress::tape::OnDrift;
use belljar_sandbox::Waiting;
use std::collections::BTreeMap;

/// Asks the user for a value, without showing what is typed.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> std::io::Result<String>;

/// Answers the agent's requests to its model.
#[derive(Debug, Clone)]
pub enum Model {
    /// No model: the command is not an agent.
    Absent,
    /// The provider, with the user's credential, which stays outside the sandbox.
    Live,
    /// A script, without a key and without tokens.
    Script(Script),
    /// A tape. It needs no key and no tokens, unless the provider is to answer a drift.
    Replay(ReplayModel),
}

impl Model {
    /// Whether a judge can be asked: a tape without its answers has none to give.
    pub(crate) fn has_judge(&self) -> bool {
        match self {
            Model::Absent => false,
            Model::Live | Model::Script(_) => true,
            Model::Replay(replay) => replay.on_drift == OnDrift::Live || replay.was_judged(),
        }
    }

    /// The largest script that is read, in bytes.
    pub const LONGEST_SCRIPT: u64 = MAX_FILE_BYTES;
}

/// What a run is for, as its record says.
#[derive(Debug, Clone)]
pub struct RunSubject {
    pub verb: RunVerb,
    pub scenario: Option<ScenarioUsed>,
}

impl RunSubject {
    /// A run without a scenario.
    #[must_use]
    pub const fn of(verb: RunVerb) -> Self {
        Self { verb, scenario: None }
    }
}

/// The scenario of a run, and what it tests.
#[derive(Debug, Clone)]
pub struct ScenarioUsed {
    pub name: String,
    /// `None` for a skill that is tried without a scenario.
    pub file: Option<AbsPath>,
    pub text: Vec<u8>,
    /// The session that the command line described, with absolute paths; `None` where the scenario names its own.
    pub session: Option<Vec<u8>>,
    /// Digests of the skills' directories, by name.
    pub skills: BTreeMap<String, Digest>,
    /// Digests of the plugins' directories, by name.
    pub plugins: BTreeMap<String, Digest>,
}

/// A command to run in a sandbox.
pub struct RunRequest<'a> {
    /// The plan, which was agreed to.
    pub planned: &'a Planned,
    /// The facts that were gathered before the plan was agreed to.
    pub facts: LaunchFacts,
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    pub workload: &'a Workload,
    pub subject: RunSubject,
    /// A line that is printed and recorded before the command starts.
    pub notice: Option<String>,
    /// The name of the run. By default it is the agent's, with a number if that is taken.
    pub name: Option<RunName>,
    pub model: Model,
    /// Whether refused destinations are collected to propose rules.
    pub mode: EgressMode,
    /// Whether allowed destinations are connected to at all.
    pub reach: Reach,
    /// Ends the command after this time, whatever the plan says.
    pub time: Option<TimeSpan>,
    /// Receives the needs that the backend leaves open, if any, before a value is asked for or anything is started.
    pub open: &'a mut dyn FnMut(&[Unmet]),
    /// Asks the user for a value.
    pub ask: Ask<'a>,
    /// Who uses the command's standard streams.
    pub stdio: Stdio,
    /// A sandbox that was started while the plan was being made.
    pub waiting: Option<Waiting>,
    /// The workspace whose files are listed at the end.
    pub files: Option<FilesWatch>,
    /// Asked about the run once the agent has ended.
    pub judge: Option<Judge>,
    /// Whether the exchanges with the model are recorded.
    pub taping: Taping,
    /// Receives every event as it happens, redacted like the record.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// Who uses the standard streams of a command.
pub enum Stdio {
    /// The user's terminal or pipes.
    User,
    /// belljar itself, in the agent's protocol.
    Conversation(Box<ConversationRequest>),
}
