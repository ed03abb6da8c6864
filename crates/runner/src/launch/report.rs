//! What comes of a launch.

use crate::changes::KeptSummary;
use crate::egress::Denied;
use crate::session::supervise::Ending;
use belljar_contract::{AbsPath, Destination, ExitCode, Finding, ReachedLimit, TapeValues};
use belljar_egress::script::Transcript;
use belljar_egress::tape::{ReplayReport, Taped};

/// How the command ended.
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

/// A run that is over.
#[derive(Debug)]
pub struct Report {
    /// How the command ended.
    pub outcome: Outcome,
    /// The directory of the run. Agents have one, and every command with egress services.
    pub directory: Option<AbsPath>,
    /// What could not be recorded or examined.
    pub record_errors: Vec<String>,
    /// What the run left in the project that this machine would execute, or that leads out of it.
    pub planted: Vec<Finding>,
    /// The name under which that list is kept.
    pub findings: Option<String>,
    /// What it changed, where that is kept beside the project.
    pub kept: Option<KeptSummary>,
    /// Destinations that were refused.
    pub denied: Vec<Denied>,
    /// Destinations to propose as rules, where refusals are kept.
    pub needed: Vec<Destination>,
    /// Problems with the model that only the user can solve, each with a hint.
    pub warnings: Vec<(String, String)>,
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
