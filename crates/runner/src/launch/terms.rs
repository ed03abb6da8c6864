//! What is asked of a launch, and what comes of it.

use crate::changes::KeptSummary;
use crate::egress::{Denied, OutwardError};
use crate::environment::HostEnvironment;
use crate::launch::guest_program::UnpackError;
use crate::launch::workspace::WorkspaceError;
use crate::plan::agreements::AgreementError;
use crate::plan::planner::Planned;
use crate::session::conversation::TalkRequest;
use crate::session::supervise::{Ending, SuperviseError};
use crate::session::terminal::TerminalError;
use crate::store::instances::InstanceError;
use crate::store::journal::JournalError;
use crate::store::locks::SessionLockError;
use crate::suite::FilesWatch;
use crate::tape::{ReplayModel, Taping};
use belljar_contract::{
    AbsPath, Destination, Errand, Event, ExitCode, Finding, ReachedLimit, RunName, TapeValues,
};
use belljar_egress::proxy::{Mode, Reach};
use belljar_egress::script::{LoadScriptError, MAX_FILE_BYTES, ParseScriptError, Script, Transcript};
use belljar_egress::tape::{ReplayReport, Taped};
use belljar_sandbox::{BackendError, LaunchError, Waiting};

/// Asks the user for a value, without showing what is typed.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> std::io::Result<String>;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be honoured.
    #[error(transparent)]
    Unmet(#[from] BackendError),
    /// A value of the environment could not be found.
    #[error("cannot find the value of `{name}`: {what}")]
    Value {
        /// The variable.
        name: String,
        /// Where it was looked for; never the value.
        what: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The terminal.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    /// The program that finishes the sandbox is not there.
    #[error(transparent)]
    Guest(#[from] UnpackError),
    /// The sandbox could not be built.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The project cannot be kept as the plan wants it.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// What the user allowed in the project cannot be read.
    #[error(transparent)]
    Allowed(#[from] AgreementError),
    /// The project's own state cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Another run goes on with the same conversation.
    #[error(transparent)]
    Session(#[from] SessionLockError),
    /// The run cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A conversation was requested for a command that keeps no record.
    #[error("a conversation needs a record, and this command keeps none")]
    UnrecordedConversation,
    /// The way out cannot be had.
    #[error(transparent)]
    Outward(#[from] OutwardError),
    /// The key of the digests on a tape can neither be read nor made.
    #[error("cannot use the key for tapes in belljar's state directory")]
    TapeKey(#[source] std::io::Error),
    /// The command got out of sight.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}

/// Who answers when the agent speaks to its model.
#[derive(Debug, Clone)]
pub enum Model {
    /// Nobody: the errand is not an agent.
    Absent,
    /// The model itself, with the user's credential, which stays outside.
    Live,
    /// A script is played; no key, no tokens.
    Script(Script),
    /// A tape is replayed; no key, no tokens, unless a drift is to be answered by the model itself.
    Replay(ReplayModel),
}

impl Model {
    /// Reads a script.
    ///
    /// # Errors
    /// When the file cannot be read, or is no script.
    pub fn script(path: &AbsPath) -> Result<Self, LoadScriptError> {
        Script::load(path.as_path()).map(Model::Script)
    }

    /// Plays a script that was read.
    ///
    /// # Errors
    /// When it is none.
    pub fn script_text(text: &[u8]) -> Result<Self, ParseScriptError> {
        Script::parse(text).map(Model::Script)
    }

    /// The most bytes that a script has.
    pub const LONGEST_SCRIPT: u64 = MAX_FILE_BYTES;
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The command ran and ended.
    Ended(Ending),
    /// The command could not be executed.
    NotExecuted {
        /// The file or name.
        what: String,
        /// 126 or 127.
        exit: ExitCode,
    },
}

impl Outcome {
    /// The status that belljar ends with: the command's own.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Outcome::Ended(Ending::Own(end) | Ending::TimeLimit(end)) => end.status(),
            Outcome::Ended(Ending::Stopped(signal)) => {
                128_u8.saturating_add(u8::try_from(*signal).unwrap_or(127))
            }
            Outcome::Ended(Ending::Lost | Ending::Unguarded | Ending::Dismissed) => {
                ExitCode::LaunchFailed.code()
            }
            Outcome::NotExecuted { exit, .. } => exit.code(),
        }
    }
}

/// What is to be done, and how.
pub struct RunRequest<'a> {
    /// The plan.
    pub planned: &'a Planned,
    /// The user's side of the world.
    pub environment: &'a HostEnvironment,
    /// What to start.
    pub errand: &'a Errand,
    /// What is worth knowing before it starts.
    pub notice: Option<String>,
    /// The name of the run, and no other; otherwise the agent's, with a number where that is taken.
    pub name: Option<RunName>,
    /// Who answers for the model.
    pub model: Model,
    /// Whether what is refused is remembered for a proposal.
    pub mode: Mode,
    /// Whether what the rules allow is dialled.
    pub reach: Reach,
    /// Asks the user for a value.
    pub ask: Ask<'a>,
    /// Who stands at the command's streams.
    pub attendant: Attendant,
    /// A sandbox that was started while the plan was being made.
    pub waiting: Option<Waiting>,
    /// The workspace whose files are listed at the end.
    pub files: Option<FilesWatch>,
    /// Whether the exchanges with the model are kept.
    pub taping: Taping,
    /// Told of everything that is recorded, as it happens and redacted like the record.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// Who stands at the standard streams of a command.
pub enum Attendant {
    /// The user.
    User,
    /// belljar itself, in the agent's protocol.
    Talk(Box<TalkRequest>),
}

/// A run that is over.
#[derive(Debug)]
pub struct Report {
    /// How it went.
    pub outcome: Outcome,
    /// The folder of the run; agents leave one, and whatever had a way out.
    pub folder: Option<AbsPath>,
    /// What could not be recorded, or not be looked at.
    pub trouble: Vec<String>,
    /// What the run left in the project that this machine would execute, or that leads out of it.
    pub planted: Vec<Finding>,
    /// The name under which that list is kept.
    pub findings: Option<String>,
    /// What it changed, where that is kept beside the project.
    pub kept: Option<KeptSummary>,
    /// What it could not reach.
    pub denied: Vec<Denied>,
    /// What rules would have to name, where that was to be learnt.
    pub needed: Vec<Destination>,
    /// What only the user can mend, each with the way out.
    pub troubles: Vec<(String, String)>,
    /// What the model used.
    pub spent: Option<Spent>,
    /// What the scripted model was asked, where one played.
    pub transcript: Option<Transcript>,
    /// The exchanges that were kept, or why they are not whole; where they were to be.
    pub taped: Option<Result<Taped, String>>,
    /// How the replay of a tape went.
    pub replayed: Option<ReplayReport>,
    /// Limits that were reached.
    pub reached: Vec<ReachedLimit>,
    /// Keyed digests of the values that were redacted, where a tape is to be made.
    pub values: Option<TapeValues>,
}

/// What the model used in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Tokens that it read, those from its cache included.
    pub input_tokens: u64,
    /// Tokens that it wrote.
    pub output_tokens: u64,
    /// Money, in millionths of a US dollar.
    pub cost_micros: u64,
}
