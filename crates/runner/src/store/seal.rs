//! The seal of a run's manifest: a digest with the key of this machine, which is in no run's directory and in no
//! sandbox.

use crate::store::machine_key::{MachineKey, keyed, machine_key, read_key};
use belljar_contract::{AbsPath, Digest, RunId};
use belljar_record::{ReadError, RecordChange, WriteError, check_manifest, check_recent, write_manifest};

/// Keeps these digests apart from all others that are made with the key.
const PURPOSE: &[u8] = b"belljar run manifest\n";

fn seal(key: &MachineKey, content: &[u8]) -> Digest {
    Digest::of(&keyed(&key[..], &[PURPOSE, content]))
}

/// Writes the manifest of a run that has ended.
pub(crate) fn seal_run(directory: &AbsPath, run: &RunId, state: &AbsPath) -> Result<(), WriteError> {
    let key = machine_key(state).map_err(|cause| WriteError::Write { path: directory.clone(), cause })?;
    write_manifest(directory, run, &|content| seal(&key, content))
}

/// Verifies manifests. The key is read once.
pub(crate) struct Seals {
    key: Option<MachineKey>,
}

impl Seals {
    pub fn new(state: &AbsPath) -> Self {
        // Without a key, or with one that others can read, no manifest is verified.
        Self { key: read_key(state).ok().flatten() }
    }

    /// The files of a run that are not as they were when it ended.
    pub fn check(&self, directory: &AbsPath, run: &RunId) -> Result<Vec<RecordChange>, ReadError> {
        match &self.key {
            Some(key) => check_manifest(directory, run, Some(&|content| seal(key, content))),
            None => check_manifest(directory, run, None),
        }
    }

    /// The same by the times of the files; only `always`, and files that are newer than the manifest, are read.
    pub fn check_recent(
        &self,
        directory: &AbsPath,
        run: &RunId,
        always: &str,
    ) -> Result<Vec<RecordChange>, ReadError> {
        match &self.key {
            Some(key) => check_recent(directory, run, (Some(&|content| seal(key, content)), always)),
            None => check_recent(directory, run, (None, always)),
        }
    }
}
