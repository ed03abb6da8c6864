//! Errors of tapes.

use belljar_contract::{AbsPath, Digest};
use std::io;

/// Why a tape is rejected.
#[derive(Debug, thiserror::Error)]
pub enum TapeFault {
    #[error("`{part}` cannot be read")]
    Read {
        part: String,
        #[source]
        cause: io::Error,
    },
    /// It was not written by belljar.
    #[error("it was not written by belljar: {why}")]
    Foreign {
        /// How that is seen.
        why: String,
    },
    /// It was written by a later version of belljar.
    #[error("it has format {found}; this belljar reads up to {known}, a newer one is needed")]
    Newer {
        found: u64,
        /// The newest format that this version reads.
        known: u32,
    },
    /// A file is missing.
    #[error("`{part}` is missing")]
    Missing { part: String },
    /// A body is missing.
    #[error("exchange {seq} has no body: `bodies/{hex}` is missing", hex = digest.hex())]
    MissingBody { seq: u64, digest: Digest },
    /// A file is shorter than recorded.
    #[error("`{part}` is truncated: it has {found} bytes of {wanted}")]
    Truncated {
        part: String,
        found: u64,
        /// The recorded length.
        wanted: u64,
    },
    #[error("`{part}` was edited: its digest does not match")]
    Edited { part: String },
    /// Exchanges are in another order.
    #[error("`exchanges.jsonl` was reordered: line {line} has exchange {seq}")]
    Reordered {
        line: u64,
        /// The exchange on that line.
        seq: u64,
    },
    #[error("`exchanges.jsonl` has exchange {seq} twice, again in line {line}")]
    Duplicated { line: u64, seq: u64 },
    #[error("line {line} of `exchanges.jsonl` is not an exchange: {why}")]
    Line { line: u64, why: String },
    #[error("line {line} of `requests.jsonl` is not a request: {why}")]
    Request { line: u64, why: String },
    /// A file that the tape does not list.
    #[error("`{part}` does not belong to it")]
    Stray { part: String },
    /// It exceeds a limit of the format.
    #[error("it is too large: more than {limit}")]
    TooLarge {
        /// The exceeded limit.
        limit: String,
    },
}

impl TapeFault {
    /// A stable code for machines.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "unreadable",
            Self::Foreign { .. } => "foreign",
            Self::Newer { .. } => "newer",
            Self::Missing { .. } => "missing",
            Self::MissingBody { .. } => "missing-body",
            Self::Truncated { .. } => "truncated",
            Self::Edited { .. } => "edited",
            Self::Reordered { .. } => "reordered",
            Self::Duplicated { .. } => "duplicated",
            Self::Line { .. } => "line",
            Self::Request { .. } => "request",
            Self::Stray { .. } => "stray",
            Self::TooLarge { .. } => "too-large",
        }
    }

    /// Whether something is missing rather than wrong.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Missing { .. } | Self::MissingBody { .. } | Self::Truncated { .. } => {
                true
            }
            Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Edited { .. }
            | Self::Reordered { .. }
            | Self::Duplicated { .. }
            | Self::Line { .. }
            | Self::Request { .. }
            | Self::Stray { .. }
            | Self::TooLarge { .. } => false,
        }
    }
}

/// Why a tape was not written. An old tape is kept.
#[derive(Debug, thiserror::Error)]
pub enum TapeWriteError {
    #[error("cannot write `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    #[error("another process is recording `{path}`")]
    Busy {
        /// The draft of the other process.
        path: AbsPath,
    },
    /// The tape's name is taken by something else.
    #[error("`{path}` exists and is not a tape")]
    InTheWay { path: AbsPath },
    /// A new tape would replace it with the old one.
    #[error("the tape `{path}` has the file `{name}`, which does not belong to it")]
    Foreign { path: AbsPath, name: String },
    #[error("the recording does not fit on a tape: more than {limit}")]
    TooLarge {
        /// The exceeded limit.
        limit: String,
    },
    #[error("the tape that was written cannot be read back")]
    ReadBack(#[source] TapeFault),
}
