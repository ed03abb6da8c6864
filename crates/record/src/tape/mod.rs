//! Tapes on disk: complete or absent, and accepted only if every byte is unchanged.
//!
//! While a run is recorded, its exchanges go to an [`ExchangeLog`] in the run's directory. A [`TapeDraft`] makes a
//! tape of them under a temporary name and renames it in one step. A [`Tape`] is a verified tape; its bodies stay on
//! disk until they are needed.

mod draft;
mod error;
mod log;
mod packed;
mod reader;
mod requests;
mod target;

pub use draft::{Listed, TapeDraft};
pub use error::{TapeFault, TapeWriteError};
pub use log::{ExchangeLog, TapeLimits};
pub use reader::{Tape, TapeFailure, read_exchange};
pub use target::check_target;

/// The file name of the manifest.
pub const HEAD: &str = "tape.json";
/// The file name of the list of exchanges.
pub const EXCHANGES: &str = "exchanges.jsonl";
/// The file name of the list of requests, each as ranges of their text.
pub const REQUESTS: &str = "requests.jsonl";
/// The file name of the text that the requests share.
pub const TEXT: &str = "requests.text";
/// The name of the directory of bodies: of answers, and of requests that are kept whole.
pub const BODIES: &str = "bodies";
/// The suffix of a tape's directory; the prefix is the name of its scenario.
pub const SUFFIX: &str = ".tape";
/// The maximum size of a manifest in bytes.
pub(crate) const HEAD_MAX: u64 = 8 << 20;
