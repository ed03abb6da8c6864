//! The exchanges of a run in progress: one line each. Requests are ranges of a text, answers are stored by digest.

use super::error::TapeWriteError;
use super::packed::{PackedRequest, Packer};
use super::requests::REQUESTS_MAX;
use super::{BODIES, EXCHANGES, REQUESTS, TEXT};
use crate::disk::make_private;
use crate::writer::new_file;
use belljar_contract::{
    AbsPath, BodyRef, Digest, EXCHANGE_LINE, Exchange, TAPE_BYTES, TAPE_EXCHANGES, TAPE_REQUEST,
    TAPE_UNFOLDED,
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

/// What fits on a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapeLimits {
    /// All files together.
    pub bytes: u64,
    pub exchanges: u64,
    /// All requests together, each as it was sent.
    pub unfolded: u64,
}

impl Default for TapeLimits {
    /// Those of the format.
    fn default() -> Self {
        Self { bytes: TAPE_BYTES, exchanges: TAPE_EXCHANGES, unfolded: TAPE_UNFOLDED }
    }
}

/// Stores exchanges. Its input must already be redacted.
#[derive(Debug)]
pub struct ExchangeLog {
    directory: AbsPath,
    lines: File,
    requests: File,
    text: File,
    packer: Packer,
    known: BTreeSet<Digest>,
    left: TapeLimits,
    limits: TapeLimits,
    /// Bytes that the list of requests may still have.
    list: u64,
    /// Whether a part was not written. The text is not what the packer takes it for then.
    broken: bool,
}

impl ExchangeLog {
    /// Starts in a directory that does not exist yet.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(directory: AbsPath, limits: TapeLimits) -> Result<Self, TapeWriteError> {
        let bodies = directory.child(BODIES);
        make_private(bodies.as_path()).map_err(|cause| TapeWriteError::Write { path: bodies, cause })?;
        let file = |name: &str| {
            let path = directory.child(name);
            new_file(&path).map_err(|error| TapeWriteError::Write { path, cause: io::Error::other(error) })
        };
        Ok(Self {
            lines: file(EXCHANGES)?,
            requests: file(REQUESTS)?,
            text: file(TEXT)?,
            directory,
            packer: Packer::default(),
            known: BTreeSet::new(),
            left: limits,
            limits,
            list: REQUESTS_MAX,
            broken: false,
        })
    }

    /// Stores a request; equal ones are stored once.
    ///
    /// # Errors
    /// When it cannot be written, or the tape would be too large.
    pub fn request(&mut self, bytes: &[u8]) -> Result<BodyRef, TapeWriteError> {
        let body = BodyRef::of(bytes);
        if self.known.contains(&body.digest) {
            return Ok(body);
        }
        let too_large = |limit: String| Err(TapeWriteError::TooLarge { limit });
        if body.bytes > TAPE_REQUEST {
            return too_large(format!("{TAPE_REQUEST} bytes in a request"));
        }
        let Some(unfolded) = self.left.unfolded.checked_sub(body.bytes) else {
            return too_large(format!("{} bytes in all requests together", self.limits.unfolded));
        };
        if self.broken {
            return Err(self.failed(TEXT, io::Error::other("an earlier request was not written")));
        }
        self.broken = true;
        let (ranges, fresh) = self.packer.pack(bytes);
        let line =
            self.line_of(REQUESTS, &PackedRequest { digest: body.digest, bytes: body.bytes, ranges })?;
        let Some(list) = self.list.checked_sub(line.len() as u64) else {
            return too_large(format!("{REQUESTS_MAX} bytes in the list of requests"));
        };
        self.room((fresh.len() + line.len()) as u64)?;
        self.text.write_all(&fresh).map_err(|cause| self.failed(TEXT, cause))?;
        self.requests.write_all(line.as_bytes()).map_err(|cause| self.failed(REQUESTS, cause))?;
        (self.left.unfolded, self.list, self.broken) = (unfolded, list, false);
        self.known.insert(body.digest);
        Ok(body)
    }

    /// Stores the body of an answer; equal ones are stored once.
    ///
    /// # Errors
    /// As [`ExchangeLog::request`].
    pub fn answer(&mut self, bytes: &[u8]) -> Result<BodyRef, TapeWriteError> {
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
    /// As [`ExchangeLog::request`].
    pub fn line(&mut self, exchange: &Exchange) -> Result<(), TapeWriteError> {
        let line = self.line_of(EXCHANGES, exchange)?;
        if line.len() > EXCHANGE_LINE {
            return Err(TapeWriteError::TooLarge { limit: format!("{EXCHANGE_LINE} bytes in a line") });
        }
        let Some(exchanges) = self.left.exchanges.checked_sub(1) else {
            return Err(TapeWriteError::TooLarge { limit: format!("{} exchanges", self.limits.exchanges) });
        };
        self.room(line.len() as u64)?;
        self.left.exchanges = exchanges;
        self.lines.write_all(line.as_bytes()).map_err(|cause| self.failed(EXCHANGES, cause))
    }

    fn line_of(&self, part: &str, of: &impl Serialize) -> Result<String, TapeWriteError> {
        let line = serde_json::to_string(of).map_err(|error| self.failed(part, io::Error::other(error)))?;
        Ok(line + "\n")
    }

    fn failed(&self, part: &str, cause: io::Error) -> TapeWriteError {
        TapeWriteError::Write { path: self.directory.child(part), cause }
    }

    fn room(&mut self, more: u64) -> Result<(), TapeWriteError> {
        let left = self.left.bytes.checked_sub(more);
        let limit = || TapeWriteError::TooLarge { limit: format!("{} bytes", self.limits.bytes) };
        self.left.bytes = left.ok_or_else(limit)?;
        Ok(())
    }
}
