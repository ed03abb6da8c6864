//! The exchanges of a run in progress: one line each, with bodies stored by digest.

use super::error::TapeWriteError;
use super::{BODIES, EXCHANGES};
use crate::disk::make_private;
use crate::writer::new_file;
use belljar_contract::{AbsPath, BodyRef, EXCHANGE_LINE, Exchange, TAPE_BYTES, TAPE_EXCHANGES};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

/// Stores exchanges. Its input must already be redacted.
#[derive(Debug)]
pub struct ExchangeLog {
    directory: AbsPath,
    lines: File,
    count: u64,
    bytes: u64,
}

impl ExchangeLog {
    /// Starts in a directory that does not exist yet.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(directory: AbsPath) -> Result<Self, TapeWriteError> {
        let bodies = directory.child(BODIES);
        make_private(bodies.as_path()).map_err(|cause| TapeWriteError::Write { path: bodies, cause })?;
        let path = directory.child(EXCHANGES);
        let lines = new_file(&path)
            .map_err(|error| TapeWriteError::Write { path, cause: io::Error::other(error) })?;
        Ok(Self { directory, lines, count: 0, bytes: 0 })
    }

    /// Stores a body; equal bodies are stored once.
    ///
    /// # Errors
    /// When it cannot be written, or the tape would be too large.
    pub fn body(&mut self, bytes: &[u8]) -> Result<BodyRef, TapeWriteError> {
        let body = BodyRef::of(bytes);
        let path = self.directory.child(BODIES).child(&body.digest.hex());
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(body),
            made => made.map_err(|cause| TapeWriteError::Write { path: path.clone(), cause })?,
        };
        self.room(body.bytes)?;
        file.write_all(bytes).map_err(|cause| TapeWriteError::Write { path, cause })?;
        Ok(body)
    }

    /// Stores an exchange whose bodies were stored before.
    ///
    /// # Errors
    /// When it cannot be written, or the tape would be too large.
    pub fn line(&mut self, exchange: &Exchange) -> Result<(), TapeWriteError> {
        let path = self.directory.child(EXCHANGES);
        let failed = |cause| TapeWriteError::Write { path: path.clone(), cause };
        let line = serde_json::to_string(exchange).map_err(|error| failed(io::Error::other(error)))? + "\n";
        if line.len() > EXCHANGE_LINE {
            return Err(TapeWriteError::TooLarge { limit: format!("{EXCHANGE_LINE} bytes in a line") });
        }
        if self.count >= TAPE_EXCHANGES {
            return Err(TapeWriteError::TooLarge { limit: format!("{TAPE_EXCHANGES} exchanges") });
        }
        self.room(line.len() as u64)?;
        self.count += 1;
        self.lines.write_all(line.as_bytes()).map_err(failed)
    }

    fn room(&mut self, more: u64) -> Result<(), TapeWriteError> {
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > TAPE_BYTES {
            return Err(TapeWriteError::TooLarge { limit: format!("{TAPE_BYTES} bytes") });
        }
        Ok(())
    }
}
