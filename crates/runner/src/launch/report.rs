//! The result of a launch.

use crate::changes::KeptSummary;
use crate::egress::Denied;
use crate::session::supervise::Ending;
use belljar_contract::{AbsPath, Destination, ExitCode, Finding, ReachedLimit, TapeValues};
use belljar_egress::script::Transcript;
use belljar_egress::tape::{ReplayReport, Taped};
use belljar_record::Redact;

/// How the command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command ran and ended.
    Ended(Ending),
    /// The command could not be executed.
    NotExecuted {
        /// The program that could not be executed.
        what: String,
        /// 126 or 127.
        exit: ExitCode,
    },
}

impl CommandOutcome {
    /// The exit status of belljar: the command's own.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            CommandOutcome::Ended(Ending::Own(end) | Ending::TimeLimit(end)) => end.status(),
            CommandOutcome::Ended(Ending::Stopped(signal)) => {
                128_u8.saturating_add(u8::try_from(*signal).unwrap_or(127))
            }
            CommandOutcome::Ended(Ending::Lost | Ending::Unguarded | Ending::Dismissed) => {
                ExitCode::LaunchFailed.code()
            }
            CommandOutcome::NotExecuted { exit, .. } => exit.code(),
        }
    }
}

/// The report on a run that has ended.
#[derive(Debug)]
pub struct Report {
    pub outcome: CommandOutcome,
    /// The directory of the run. Agents have one, and so has every command with egress services.
    pub directory: Option<AbsPath>,
    /// Why the record was not written to its end.
    pub unrecorded: Option<String>,
    /// Errors of recording and examining the run, among them `unrecorded`.
    pub record_errors: Vec<String>,
    /// Files that the run left in the project and that this machine would execute, and links out of the project.
    pub planted: Vec<Finding>,
    /// The name under which the list of these findings is kept.
    pub findings: Option<String>,
    /// The changes of the run, if they are kept beside the project.
    pub kept: Option<KeptSummary>,
    /// Destinations that were refused.
    pub denied: Vec<Denied>,
    /// Destinations to propose as rules, if refusals were collected.
    pub needed: Vec<Destination>,
    /// Problems with the model that only the user can solve, each with a remedy.
    pub warnings: Vec<(String, String)>,
    pub spent: Option<Spent>,
    /// The requests to the scripted model, if there was one.
    pub transcript: Option<Transcript>,
    /// The exchanges that were recorded, or why they are incomplete, if they were to be recorded.
    pub taped: Option<Result<Taped, String>>,
    /// The result of replaying a tape.
    pub replayed: Option<ReplayReport>,
    /// Limits that were reached.
    pub reached: Vec<ReachedLimit>,
    /// Replaces the secrets of the run in what is still written about it.
    pub redact: Redact,
    /// Keyed digests of the redacted values, if a tape is to be made.
    pub values: Option<TapeValues>,
}

/// The tokens and the cost of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Tokens of input, including those from the cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The cost in millionths of a US dollar.
    pub cost_micros: u64,
}
