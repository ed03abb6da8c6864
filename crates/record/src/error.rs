//! What can go wrong with a run's folder, by what was attempted.

use belljar_contract::AbsPath;
use std::io;

/// Why something could not be recorded. The run itself is not at fault.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A directory could not be made.
    #[error("cannot make the directory `{path}`")]
    Make {
        /// The directory.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file could not be written: the disk is full, for instance.
    #[error("cannot write `{path}`")]
    Write {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// There is a folder of that name.
    #[error("there is a run `{path}` already")]
    Exists {
        /// The folder.
        path: AbsPath,
    },
    /// An event that no reader would take back.
    #[error("an event of {bytes} bytes does not fit in a line of `{path}`, which has at most {limit}")]
    TooLong {
        /// The log.
        path: AbsPath,
        /// How long it would be.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A file that no reader would take back.
    #[error("`{path}` would be larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: AbsPath,
        /// How long it may be.
        limit: u64,
    },
}

/// Why a run could not be read back. A run that is cut short or was changed can be read; it says so itself.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file could not be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file that is none of ours.
    #[error("`{path}` was not written by belljar")]
    Foreign {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: serde_json::Error,
    },
    /// A file of a later belljar.
    #[error("`{path}` has format {found}; this belljar reads up to {known}, a newer one is needed")]
    Newer {
        /// The file.
        path: AbsPath,
        /// Its format.
        found: u64,
        /// The latest known.
        known: u32,
    },
    /// A file larger than any that is written.
    #[error("`{path}` is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: AbsPath,
        /// The limit.
        limit: u64,
    },
}

/// Why a run's folder was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The run is going on.
    #[error("the run `{path}` is still going on")]
    Running {
        /// The folder.
        path: AbsPath,
    },
    /// It could not be removed.
    #[error("cannot remove `{path}`")]
    Remove {
        /// The folder.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
}
