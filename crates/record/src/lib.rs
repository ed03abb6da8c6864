//! The run store: one directory per run, written during the run and readable at any time.
//!
//! ```text
//! runs/20261115-223043-reviewer-1a2b3c4d/
//!   lock            locked while the writer is alive
//!   run.json        plan, versions and host, known at the start
//!   events.jsonl    the events, one per line, chained
//!   frames.jsonl    the frames of a conversation, if there was one
//!   model.jsonl     requests to the model and its answers, as digests
//!   agent.stderr    the agent's standard error
//!   artifacts/      files that the agent wrote, created when needed
//!   scenario.yaml   the scenario as it was used, if there was one
//!   session.yaml    the session that the command line described, if it did
//!   result.json     status and metrics; absent if the run did not end in order
//!   summary.json    what the run was, and its verdict
//!   manifest.json   digests of all of these files, sealed
//! ```
//! A directory gets its name only once `lock` is held and `run.json` is complete, so that a reader can tell an active
//! run from an interrupted one.
//!
//! Every text is redacted before it is written, not when it is shown: a secret that never reaches the disk cannot leak
//! from it.

mod cassette;
mod disk;
mod error;
mod line;
mod listing;
mod manifest;
mod reader;
mod redact;
mod store;
mod summary;
pub mod tape;
mod writer;

pub use cassette::{CASSETTE_FORMATS, Cassette, CassetteFault, CassetteFile};
pub use disk::{Size, measure, remove_tree, write_atomically};
pub use error::{ReadError, RemoveError, WriteError};
pub use line::{LINE_MAX, LOG_MAX};
pub use manifest::{RecordChange, RecordChangeKind, Seal, check_manifest, check_recent, write_manifest};
pub use reader::RunReader;
pub use redact::{Redact, redact_value, redacted_event};
pub use store::{RunEntry, RunPlace, RunState, RunStore, is_running};
pub use summary::{SUMMARY, write_summary};
pub use writer::{AgentStderr, FrameLog, RunWriter, SCENARIO, SESSION, STDERR_MAX};
