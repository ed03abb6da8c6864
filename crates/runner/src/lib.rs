//! Runs commands and tests in sandboxes: reads manifests and facts of the host, makes plans, launches them, and keeps
//! what they leave.
//!
//! The caller gathers environment variables, directories and the terminal, and passes them in as a [`HostEnvironment`].

pub mod agents;
pub mod changes;
mod doctor;
mod dotenv;
mod egress;
mod environment;
mod git;
mod launch;
mod plan;
mod prove;
mod schemas;
mod session;
mod store;
pub mod suite;
pub mod tape;

pub use belljar_egress::proxy::{EgressMode, Reach};
pub use belljar_egress::script::script_reference;
pub use belljar_plan::{
    BOTTLE_NAME, ByHand, Compiled, ExplainedValue, GivenMount, GivenVariable, GivenWord, Imported, LayerText,
    Origin, Rigour, why,
};
pub use belljar_sandbox::{
    BackendError, BuiltImage, Engine, EngineError, FromError, Image, ImageAct, ImageNews, Rebuild, Waiting,
};
pub use belljar_session::Harnesses;
pub use belljar_session::decider::{
    AnswerFlagError, GivenAnswers, Rule, Unanswered, allow_tool_rule, deny_tool_rule,
    parse_answer_flag as answer_rule,
};
pub use belljar_sys::names::without_modules as names_without_modules;
pub use belljar_verdict::reference as checks_reference;
pub use changes::layers::{About, Layer, LayerEntry, LayerError, kept_in};
pub use doctor::{examine, launch_hints, versions};
pub use dotenv::{DotenvBeside, DotenvError, DotenvInside, DotenvRequest, PrivateValues};
pub use egress::{Denied, EgressError};
pub use environment::HostEnvironment;
pub use launch::early::start_early;
pub use launch::engine::{engine_places, remove_build_leftovers};
pub use launch::guest_program::{GuestImage, GuestProgram, UnpackError};
pub use launch::memory::guard_secrets;
pub use launch::workspace::WorkspaceError;
pub use launch::{
    Ask, CommandOutcome, LaunchFacts, Model, Report, RunError, RunRequest, RunSubject, ScenarioUsed, Spent,
    Stdio, lowered, refused_limits, run,
};
pub use plan::agreements::{Agreement, AgreementError, AgreementStanding, Agreements, Terms};
pub use plan::allowances::Allowances;
pub use plan::arguments::{AgentWords, Continued, WordsError};
pub use plan::init::{ImportFailure, StartingError, import, starting, write_new};
pub use plan::manifests::MANIFEST_NAME;
pub use plan::planned::{Checked, Planned, PlanningError};
pub use plan::planner::Planner;
pub use plan::project::find as find_project;
pub use plan::shared_values::SharedFile;
pub use prove::{LeakRow, LeakVerdict, Leaks, ProveError, ProveRequest, Proved, leaks, prove};
pub use schemas::SchemaKind;
pub use session::conversation::{
    ConversationRequest, ConversationTimes, Deciders, ExternalDecider, ModelCalls, ModelLine, Pending, React,
    Spoken, Stopper, Then,
};
pub use session::supervise::Ending;
pub use session::terminal::{ask_hidden, is_interactive};
pub use store::findings::{FindingsEntry, FindingsError, FindingsStore};
pub use store::instances::{HeldInstance, InstanceEntry, InstanceError, Instances, ProjectState};
pub use store::journal::JournalError;
pub use store::keeper::{KeptError, Rest, kept};
pub use store::kept_run::{KeptRun, KeptRunError};
pub use store::leftovers::remove_leftovers;
pub use store::locks::{Holder, SessionLock, SessionLockError};
pub use store::names::{ClaimedName, NameClaimError, NameWish, RunNames, fresh_run_id};
pub use store::runs::{FindRunError, RunRow, RunRowEnd, find_run, list_runs};
pub use store::runtime::{Orphan, RunDirectory, RuntimeDirectory, RuntimeError};
pub use store::sweep::{SweepError, SweepMode, SweepOutcome, SweepRequest, Swept, SweptKind, sweep};
