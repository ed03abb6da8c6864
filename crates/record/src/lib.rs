//! The run store: one folder a run, written as the run goes and readable at every moment of it.
//!
//! ```text
//! runs/20261115-223043-reviewer-1a2b3c4d/
//!   lock            held by the kernel for as long as the writer lives
//!   run.json        what was known at the start: plan, versions, host
//!   events.jsonl    what happened, a line each, chained
//!   frames.jsonl    the frames of a conversation, where there was one
//!   model.jsonl     what its model was asked and served, as digests
//!   agent.stderr    what the agent complained about
//!   artifacts/      what it wrote, made when wanted
//!   result.json     what was known at the end; its absence says that there was no orderly end
//! ```
//! A folder appears under its name only when `lock` is held and `run.json` is whole, so that whoever finds one can
//! tell a run that is going on from one that was cut short.
//!
//! Every text passes a redactor before it is written, not when it is shown: what never reaches the disk cannot leak
//! from it.

mod cassette;
mod disk;
mod error;
mod line;
mod listing;
mod reader;
mod redact;
mod store;
pub mod tape;
mod writer;

pub use cassette::{CASSETTE_FORMATS, Cassette, CassetteFault, CassetteFile};
pub use disk::{Size, measure, remove_tree, write_atomically};
pub use error::{ReadError, RemoveError, WriteError};
pub use line::{LINE_MAX, LOG_MAX};
pub use reader::RunReader;
pub use redact::{Redact, redact_value, redacted_event};
pub use store::{RunEntry, RunState, RunStore};
pub use writer::{AgentStderr, FrameLog, FrameWay, RunWriter, STDERR_MAX};
