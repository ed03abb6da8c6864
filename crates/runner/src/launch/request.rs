//! What is asked of a launch.

use crate::environment::HostEnvironment;
use crate::plan::planner::Planned;
use crate::session::conversation::ConversationRequest;
use crate::suite::FilesWatch;
use crate::tape::{ReplayModel, Taping};
use belljar_contract::{AbsPath, Errand, Event, RunName};
use belljar_egress::proxy::{Mode, Reach};
use belljar_egress::script::{LoadScriptError, MAX_FILE_BYTES, ParseScriptError, Script};
use belljar_sandbox::Waiting;

/// Asks the user for a value, without showing what is typed.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> std::io::Result<String>;

/// What answers the agent's requests to its model.
#[derive(Debug, Clone)]
pub enum Model {
    /// Nothing: the command is not an agent.
    Absent,
    /// The provider, with the user's credential, which stays outside the sandbox.
    Live,
    /// A script, without a key and without tokens.
    Script(Script),
    /// A tape. It needs no key and no tokens unless a drift is to be answered by the provider.
    Replay(ReplayModel),
}

impl Model {
    /// Reads a script.
    ///
    /// # Errors
    /// When the file cannot be read or is not a script.
    pub fn script(path: &AbsPath) -> Result<Self, LoadScriptError> {
        Script::load(path.as_path()).map(Model::Script)
    }

    /// Parses the text of a script.
    ///
    /// # Errors
    /// When the text is not a script.
    pub fn script_text(text: &[u8]) -> Result<Self, ParseScriptError> {
        Script::parse(text).map(Model::Script)
    }

    /// The largest script that is read, in bytes.
    pub const LONGEST_SCRIPT: u64 = MAX_FILE_BYTES;
}

/// A command to run in a sandbox.
pub struct RunRequest<'a> {
    /// The plan that was agreed to.
    pub planned: &'a Planned,
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    /// The command.
    pub errand: &'a Errand,
    /// A line that is shown and recorded before the command starts.
    pub notice: Option<String>,
    /// The name of the run. Without one it is the agent's, with a number where that is taken.
    pub name: Option<RunName>,
    /// What answers as the model.
    pub model: Model,
    /// Whether refused destinations are kept for a proposal of rules.
    pub mode: Mode,
    /// Whether allowed destinations are dialled at all.
    pub reach: Reach,
    /// Asks the user for a value.
    pub ask: Ask<'a>,
    /// What owns the command's standard streams.
    pub stdio: Stdio,
    /// A sandbox that was started while the plan was being made.
    pub waiting: Option<Waiting>,
    /// The workspace whose files are listed at the end.
    pub files: Option<FilesWatch>,
    /// Whether the exchanges with the model are kept.
    pub taping: Taping,
    /// Receives every event as it happens, redacted like the record.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// What owns the standard streams of a command.
pub enum Stdio {
    /// The user's terminal or pipes.
    User,
    /// belljar itself, in the agent's protocol.
    Conversation(Box<ConversationRequest>),
}
