//! The one place where everything meets: files are read, facts are gathered, plans are made.
//!
//! The environment, the home and the terminal belong to the caller; they come in as [`Surroundings`].

mod agent_version;
mod agreed_files;
mod agreements;
mod allowances;
pub mod aside;
mod console;
mod doctor;
mod early;
mod engine;
mod entering;
mod facts;
mod findings;
mod git;
mod guard;
mod guest_program;
mod instances;
mod interpreter;
mod journal;
mod kept;
mod launching;
mod layers;
mod leftovers;
mod locks;
mod machine_key;
mod manifests;
mod names;
mod outward;
mod planning;
mod project;
mod prompt;
mod prove;
mod questions;
mod runtime;
mod screen;
mod shared_values;
mod starting;
mod supervise;
mod sweep;
mod talk;
pub mod tape;
mod terminal;
pub mod trial;
mod values;
mod workspace;

pub use agreements::{Agreement, AgreementError, Agreements, Standing, Terms};
pub use allowances::Allowances;
pub use belljar_egress::proxy::{Mode as EgressMode, Reach};
pub use belljar_plan::{
    Compiled, Imported, LayerText, Origin, Reason, Rigour, json_schema, scenario_schema, session_schema, why,
};
pub use belljar_record as record;
pub use belljar_report as report;
pub use belljar_sandbox::{
    BackendError, BuiltImage, Engine, EngineError, FromError, Image, ImageAct, ImageNews, Rebuild, Waiting,
};
pub use belljar_session::decider::{
    parse_answer_flag as answer_rule, policy_schema as answer_policy_schema, rule_schema,
};
pub use belljar_sys::names::without_modules as names_without_modules;
pub use belljar_verdict::{reference as checks_reference, schema as checks_schema};
pub use doctor::{examine, launch_hints, versions};
pub use early::start_early;
pub use engine::{engine_places, remove_build_leftovers};
pub use findings::{FindingsEntry, FindingsError, FindingsStore};
pub use guard::guard_secrets;
pub use guest_program::{GuestImage, GuestProgram, UnpackError};
pub use instances::{HeldInstance, InstanceEntry, InstanceError, Instances, ProjectState};
pub use journal::JournalError;
pub use kept::{KeptError, Rest, kept};
pub use launching::{
    Ask, Attendant, Model, Outcome, Report, RunError, RunRequest, Spent, lowered, refused_limits, run,
};
pub use layers::{About, Layer, LayerEntry, LayerError, kept_in};
pub use leftovers::remove_leftovers;
pub use locks::{Holder, SessionLock, SessionLockError};
pub use manifests::MANIFEST_NAME;
pub use names::{ClaimedName, NameClaimError, NameWish, RunNames, fresh_run_id};
pub use outward::{Denied, OutwardError};
pub use planning::{Checked, Planned, Planner, PlanningError, Surroundings};
pub use project::find as find_project;
pub use prove::{LeakRow, LeakVerdict, Leaks, ProveError, ProveRequest, Proved, leaks, prove};
pub use runtime::{Orphan, RunDirectory, RuntimeDirectory, RuntimeError};
pub use shared_values::SharedFile;
pub use starting::{ImportFailure, StartingError, import, starting, write_new};
pub use supervise::Ending;
pub use sweep::{SweepError, SweepMode, SweepOutcome, SweepRequest, Swept, SweptKind, sweep};
pub use talk::{
    Deciders, ModelCalls, ModelLine, Outside, Pending, React, Spoken, Stopper, TalkRequest, TalkTimes, Then,
};
pub use terminal::{ask_hidden, is_interactive};
pub use workspace::WorkspaceError;
