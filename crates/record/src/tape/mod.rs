//! Tapes on disk: complete or absent, and read only if every byte is the one that was written.
//!
//! While a run is recorded its exchanges go to an [`ExchangeLog`] in the run's own folder. A [`TapeDraft`] makes a tape of
//! them under another name and puts it in its place in one step. A [`Tape`] is one that was read and found whole; its
//! bodies stay on the disk until they are wanted.

mod draft;
mod error;
mod log;
mod reader;

pub use draft::{Listed, TapeDraft};
pub use error::{TapeFault, TapeWriteError};
pub use log::ExchangeLog;
pub use reader::{Tape, TapeFailure, read_exchange};

/// The name of the manifest.
pub const HEAD: &str = "tape.json";
/// The name of the list of exchanges.
pub const EXCHANGES: &str = "exchanges.jsonl";
/// The folder of the bodies.
pub const BODIES: &str = "bodies";
/// What a tape's folder is called, after the name of its scenario.
pub const SUFFIX: &str = ".tape";
/// The longest manifest.
pub(crate) const HEAD_MAX: u64 = 8 << 20;
