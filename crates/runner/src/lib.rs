//! The one place where everything meets: files are read, facts are gathered, plans are made.
//!
//! The environment, the home and the terminal belong to the caller; they come in as [`Surroundings`].

mod agreements;
mod doctor;
mod facts;
mod launching;
mod manifests;
mod planning;
mod project;
mod prove;
mod starting;
mod supervise;
mod terminal;

pub use agreements::{Agreement, AgreementError, Agreements, Standing};
pub use belljar_plan::{Compiled, Imported, LayerText, Origin, Reason, Rigour, json_schema, why};
pub use belljar_report as report;
pub use belljar_sandbox::BackendError;
pub use doctor::{examine, launch_hints, versions};
pub use launching::{Ask, Model, Outcome, RunError, RunRequest, lowered, run};
pub use manifests::MANIFEST_NAME;
pub use planning::{Checked, Planned, Planner, PlanningError, Surroundings};
pub use project::find as find_project;
pub use prove::{ProveError, ProveRequest, Proved, prove};
pub use starting::{ImportFailure, StartingError, import, starting, write_new};
pub use supervise::Ending;
pub use terminal::ask_hidden;
