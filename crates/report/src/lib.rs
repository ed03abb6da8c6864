//! Renders results as text for people. Pure: nothing is printed here.

mod diagnostics;
mod difference;
mod findings_page;
mod judgement_page;
mod live;
mod moment;
mod open;
mod plan_page;
mod proof_page;
mod proofs_page;
mod result_page;
mod run_page;
mod runs_page;
mod style;
mod table;
mod trace_page;
mod unified;

pub use diagnostics::render_diagnostics;
pub use difference::{ValueChange, changes, render_changes};
pub use findings_page::{FINDING_LINES, FindingsShown, render_findings};
pub use judgement_page::{Shown, conclusion_word, dollars, footer, judge_part, render_judgement, seconds};
pub use live::{Detail, gist, live_text};
pub use moment::decisive_moment;
pub use open::render_open;
pub use plan_page::{PlanPage, render_plan};
pub use proof_page::{render_checkups, render_proof};
pub use proofs_page::{Proven, proofs_html, render_proofs};
pub use result_page::{Moment, render_result, render_summary};
pub use run_page::{RunTrace, StepKind, TraceStep, TraceVerdict, render_run, trace_steps, verdict_word};
pub use runs_page::{RunLine, render_runs, status_word};
pub use style::Style;
pub use table::{human_size, render_table};
pub use trace_page::{FileChanges, Trace, TracePart, changes as file_changes, render_trace};
pub use unified::{FileVersions, patch_text, render_difference};
