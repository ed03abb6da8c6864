//! Errors of writing, reading and removing a run's directory.

use belljar_contract::AbsPath;
use std::io;

/// Why something could not be recorded. The run itself is not affected.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A directory could not be made.
    #[error("cannot make the directory `{path}`")]
    Make {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// A file could not be written, for instance because the disk is full.
    #[error("cannot write `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    #[error("the run `{path}` already exists")]
    Exists { path: AbsPath },
    /// An event that readers would reject.
    #[error("an event of {bytes} bytes does not fit in a line of `{path}`, which has at most {limit}")]
    TooLong {
        path: AbsPath,
        /// The length of the line.
        bytes: usize,
        /// The maximum length of a line.
        limit: usize,
    },
    /// A file that readers would reject.
    #[error("`{path}` would be larger than {limit} bytes")]
    TooLarge {
        path: AbsPath,
        /// The maximum size in bytes.
        limit: u64,
    },
}

/// Why a run could not be read. An incomplete or changed run can be read; [`belljar_contract::Run`] says so.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file could not be read.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// A file that belljar did not write.
    #[error("`{path}` was not written by belljar")]
    Foreign {
        path: AbsPath,
        #[source]
        cause: serde_json::Error,
    },
    /// A file of a later version of belljar.
    #[error("`{path}` has format {found}; this belljar reads up to {known}, a newer one is needed")]
    Newer {
        path: AbsPath,
        found: u64,
        /// The newest format that this version reads.
        known: u32,
    },
    #[error("`{path}` is larger than {limit} bytes")]
    TooLarge { path: AbsPath, limit: u64 },
}

/// Why a run's directory was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("the run `{path}` is still active")]
    Running { path: AbsPath },
    /// It could not be removed.
    #[error("cannot remove `{path}`")]
    Remove {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}
