//! What can be wrong with a tape, each by its name.

use belljar_contract::{AbsPath, Digest};
use std::io;

/// Why a tape is not believed.
#[derive(Debug, thiserror::Error)]
pub enum TapeFault {
    /// Something of it cannot be read.
    #[error("`{part}` cannot be read")]
    Read {
        /// What.
        part: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It is none of ours.
    #[error("it was not written by belljar: {why}")]
    Foreign {
        /// How that is seen.
        why: String,
    },
    /// It is of a later belljar.
    #[error("it has format {found}; this belljar reads up to {known}, a newer one is needed")]
    Newer {
        /// Its format.
        found: u64,
        /// The latest known.
        known: u32,
    },
    /// A file is missing.
    #[error("`{part}` is missing")]
    Missing {
        /// Which.
        part: String,
    },
    /// A body is missing.
    #[error("exchange {seq} has no body: `bodies/{hex}` is missing", hex = digest.hex())]
    MissingBody {
        /// The exchange.
        seq: u64,
        /// The body.
        digest: Digest,
    },
    /// A file ends too early.
    #[error("`{part}` is truncated: it has {found} bytes of {wanted}")]
    Truncated {
        /// Which.
        part: String,
        /// Its length.
        found: u64,
        /// What it was.
        wanted: u64,
    },
    /// A file was changed.
    #[error("`{part}` was edited: its digest is not the one that was written down")]
    Edited {
        /// Which.
        part: String,
    },
    /// Exchanges stand in another order.
    #[error("`exchanges.jsonl` was reordered: line {line} has exchange {seq}")]
    Reordered {
        /// The line.
        line: u64,
        /// The exchange that stands there.
        seq: u64,
    },
    /// An exchange stands there twice.
    #[error("`exchanges.jsonl` has exchange {seq} twice, again in line {line}")]
    Duplicated {
        /// The line.
        line: u64,
        /// The exchange.
        seq: u64,
    },
    /// A line is none.
    #[error("line {line} of `exchanges.jsonl` is not an exchange: {why}")]
    Line {
        /// The line.
        line: u64,
        /// Why.
        why: String,
    },
    /// There is a file that it does not list.
    #[error("`{part}` does not belong to it")]
    Stray {
        /// Which.
        part: String,
    },
    /// It is larger than any that is written.
    #[error("it is too large: more than {limit}")]
    TooLarge {
        /// Of what.
        limit: String,
    },
}

impl TapeFault {
    /// A stable word for machines.
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
            Self::Stray { .. } => "stray",
            Self::TooLarge { .. } => "too-large",
        }
    }

    /// Whether evidence is gone, rather than wrong.
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
            | Self::Stray { .. }
            | Self::TooLarge { .. } => false,
        }
    }
}

/// Why a tape was not written. What was there before is there still.
#[derive(Debug, thiserror::Error)]
pub enum TapeWriteError {
    /// A file or folder cannot be made or moved.
    #[error("cannot write `{path}`")]
    Write {
        /// Which.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Another one records to the same place.
    #[error("`{path}` is being recorded by someone else")]
    Busy {
        /// Their draft.
        path: AbsPath,
    },
    /// Something else has the name.
    #[error("`{path}` is in the way, and is no tape")]
    InTheWay {
        /// What.
        path: AbsPath,
    },
    /// It does not fit.
    #[error("the recording does not fit on a tape: more than {limit}")]
    TooLarge {
        /// Of what.
        limit: String,
    },
    /// It cannot be read back.
    #[error("the tape that was written cannot be read back")]
    ReadBack(#[source] TapeFault),
}
