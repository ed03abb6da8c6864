//! The manifest of a run: the digest of every file in its directory, sealed with a key.
//!
//! It is written last. The chain of the log shows what happened to a log; the manifest shows what happened to any file
//! since the run ended. The seal is made by the caller with a key that is not in the directory, so that a file cannot be
//! replaced together with its digest.

use crate::disk::{open_regular, read_bounded, write_atomically};
use crate::error::{ReadError, WriteError};
use belljar_contract::{AbsPath, Digest, RunId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Version of `manifest.json`. A larger one is not verified.
const MANIFEST_FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const MANIFEST_MAX: u64 = 64 << 20;
/// The lock has no content. The workspace of `--keep` is not evidence; people work in it.
const LEFT_OUT: [&str; 3] = [MANIFEST, "lock", "workspace"];

/// Computes the keyed digest of a manifest's content.
pub type Seal<'a> = &'a dyn Fn(&[u8]) -> Digest;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    run: RunId,
    files: BTreeMap<String, Digest>,
    seal: Digest,
}

/// A file of a run's directory that is not as it was when the run ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RecordChange {
    pub file: String,
    pub how: RecordChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordChangeKind {
    Changed,
    Missing,
    Added,
    /// It cannot be read, or is not a regular file.
    Unreadable,
    /// The manifest itself is missing: the run was cut short, or is older than manifests.
    NoManifest,
    /// The manifest does not have the seal that this machine's key makes.
    OtherSeal,
}

impl fmt::Display for RecordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match self.how {
            RecordChangeKind::Changed => write!(f, "`{file}` was changed after the run"),
            RecordChangeKind::Missing => write!(f, "`{file}` was removed after the run"),
            RecordChangeKind::Added => write!(f, "`{file}` was added after the run"),
            RecordChangeKind::Unreadable => write!(f, "`{file}` cannot be read"),
            RecordChangeKind::NoManifest => {
                write!(f, "`{file}` is missing: the run was cut short, or an older belljar recorded it")
            }
            RecordChangeKind::OtherSeal => {
                write!(f, "`{file}` was changed after the run, or written on another machine")
            }
        }
    }
}

/// Writes the manifest of a run that has ended.
///
/// # Errors
/// When a file cannot be read or the manifest cannot be written.
pub fn write_manifest(directory: &AbsPath, run: &RunId, seal: Seal<'_>) -> Result<(), WriteError> {
    let failed = |path: &AbsPath, cause| WriteError::Write { path: path.clone(), cause };
    let mut files = BTreeMap::new();
    for name in names(directory).map_err(|cause| failed(directory, cause))? {
        let path = directory.child(&name);
        let digest = digest(&path).and_then(|found| found.ok_or(io::ErrorKind::NotFound.into()));
        files.insert(name, digest.map_err(|cause| failed(&path, cause))?);
    }
    let seal = seal(&content(MANIFEST_FORMAT, run, &files));
    let manifest = Manifest { format: MANIFEST_FORMAT, run: run.clone(), files, seal };
    // All keys are strings, so serialising does not fail.
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
    let path = directory.child(MANIFEST);
    write_atomically(&path, text.as_bytes()).map_err(|cause| failed(&path, cause))
}

/// Compares every file with the manifest. `seal` is `None` where this machine has no key.
///
/// # Errors
/// When the directory cannot be read.
pub fn check_manifest(
    directory: &AbsPath,
    run: &RunId,
    seal: Option<Seal<'_>>,
) -> Result<Vec<RecordChange>, ReadError> {
    check(directory, run, seal, &|_name| true)
}

fn check(
    directory: &AbsPath,
    run: &RunId,
    seal: Option<Seal<'_>>,
    is_read: &dyn Fn(&str) -> bool,
) -> Result<Vec<RecordChange>, ReadError> {
    let manifest = match read(directory, run, seal) {
        Ok(manifest) => manifest,
        Err(how) => return Ok(vec![RecordChange { file: MANIFEST.to_owned(), how }]),
    };
    let here = names(directory).map_err(|cause| ReadError::Read { path: directory.clone(), cause })?;
    let mut out: Vec<RecordChange> = manifest
        .files
        .iter()
        .filter(|(name, _)| is_read(name))
        .filter_map(|(name, digest)| Some((name, compare(directory, name, *digest)?)))
        .map(|(file, how)| RecordChange { file: file.clone(), how })
        .collect();
    let added = here.into_iter().filter(|name| !manifest.files.contains_key(name));
    out.extend(added.map(|file| RecordChange { file, how: RecordChangeKind::Added }));
    out.sort();
    Ok(out)
}

/// The same without reading files that have not changed since the manifest was written, as the file system says:
/// thousands of runs are listed so. The file `always` is read.
///
/// # Errors
/// When the directory cannot be read.
pub fn check_recent(
    directory: &AbsPath,
    run: &RunId,
    (seal, always): (Option<Seal<'_>>, &str),
) -> Result<Vec<RecordChange>, ReadError> {
    let sealed_at = changed_at(&directory.child(MANIFEST));
    let is_older = |path: &AbsPath| changed_at(path).zip(sealed_at).is_some_and(|(file, seal)| file < seal);
    check(directory, run, seal, &|name| name == always || !is_older(&directory.child(name)))
}

/// When the content or the attributes of a regular file last changed: seconds and nanoseconds.
fn changed_at(path: &AbsPath) -> Option<(i64, i64)> {
    let about = fs::symlink_metadata(path).ok()?;
    about.is_file().then(|| (about.ctime(), about.ctime_nsec()))
}

fn read(directory: &AbsPath, run: &RunId, seal: Option<Seal<'_>>) -> Result<Manifest, RecordChangeKind> {
    let bytes = match read_bounded(directory.child(MANIFEST).as_path(), MANIFEST_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(RecordChangeKind::NoManifest),
        Err(_) => return Err(RecordChangeKind::Unreadable),
    };
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|_foreign| RecordChangeKind::OtherSeal)?;
    let Manifest { format, run: of, files, seal: found } = &manifest;
    let expected = seal.map(|seal| seal(&content(*format, of, files)));
    if *format != MANIFEST_FORMAT || of != run || expected != Some(*found) {
        return Err(RecordChangeKind::OtherSeal);
    }
    Ok(manifest)
}

fn compare(directory: &AbsPath, name: &str, expected: Digest) -> Option<RecordChangeKind> {
    // The seal vouches for the names, too.
    match digest(&directory.child(name)) {
        Ok(Some(found)) if found == expected => None,
        Ok(Some(_)) => Some(RecordChangeKind::Changed),
        Ok(None) => Some(RecordChangeKind::Missing),
        Err(_) => Some(RecordChangeKind::Unreadable),
    }
}

fn digest(path: &AbsPath) -> io::Result<Option<Digest>> {
    match open_regular(path.as_path())? {
        Some((mut file, _)) => Digest::of_reader(&mut file).map(Some),
        None => Ok(None),
    }
}

/// What the seal is made of.
fn content(format: u32, run: &RunId, files: &BTreeMap<String, Digest>) -> Vec<u8> {
    // All keys are strings, so serialising does not fail.
    serde_json::to_vec(&(format, run, files)).unwrap_or_default()
}

/// The files below a run's directory, by their paths relative to it.
fn names(directory: &AbsPath) -> io::Result<BTreeSet<String>> {
    let mut out = BTreeSet::new();
    walk(directory.as_path(), "", &mut out)?;
    Ok(out)
}

fn walk(directory: &Path, below: &str, out: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Names of a run's files are UTF-8; another one was added, and is reported under a similar name.
        let name = entry.file_name().to_string_lossy().into_owned();
        if below.is_empty() && LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &path, out)?;
        } else {
            out.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(key: &'static [u8]) -> impl Fn(&[u8]) -> Digest {
        move |content| Digest::of_parts(&[key, content])
    }

    fn stage() -> (tempfile::TempDir, AbsPath, RunId) {
        let base = tempfile::tempdir().unwrap();
        let directory = AbsPath::new(base.path()).unwrap();
        fs::create_dir_all(directory.child("artifacts/files")).unwrap();
        fs::create_dir_all(directory.child("workspace")).unwrap();
        for name in ["lock", "run.json", "artifacts/files/a", "artifacts/files/b", "workspace/x"] {
            fs::write(directory.child(name), name).unwrap();
        }
        let run = RunId::new(7);
        write_manifest(&directory, &run, &keyed(b"key")).unwrap();
        (base, directory, run)
    }

    fn found(directory: &AbsPath, run: &RunId) -> Vec<String> {
        let changes = check_manifest(directory, run, Some(&keyed(b"key"))).unwrap();
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_change_is_named() {
        let (_base, directory, run) = stage();
        assert_eq!(found(&directory, &run), [""; 0]);
        for name in ["lock", "workspace/x", "workspace/y"] {
            fs::write(directory.child(name), "another").unwrap();
        }
        assert_eq!(found(&directory, &run), [""; 0], "these are not covered");
        fs::write(directory.child("run.json"), "another").unwrap();
        fs::write(directory.child("artifacts/new"), "another").unwrap();
        fs::remove_file(directory.child("artifacts/files/a")).unwrap();
        fs::remove_file(directory.child("artifacts/files/b")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.child("artifacts/files/b")).unwrap();
        let expected = [
            "`artifacts/files/a` was removed after the run",
            "`artifacts/files/b` cannot be read",
            "`artifacts/new` was added after the run",
            "`run.json` was changed after the run",
        ];
        assert_eq!(found(&directory, &run), expected);
        let recent = check_recent(&directory, &run, (Some(&keyed(b"key")), "run.json")).unwrap();
        let recent: Vec<String> = recent.iter().map(ToString::to_string).collect();
        assert_eq!(recent, expected, "the times say so, too");
    }

    #[test]
    fn a_manifest_that_was_written_anew_has_another_seal() {
        let (_base, directory, run) = stage();
        fs::write(directory.child("run.json"), "another").unwrap();
        write_manifest(&directory, &run, &keyed(b"a guess")).unwrap();
        let expected = ["`manifest.json` was changed after the run, or written on another machine"];
        assert_eq!(found(&directory, &run), expected);
        let text = fs::read_to_string(directory.child(MANIFEST)).unwrap();
        for wrong in ["", "{}", &text.replace("\"format\": 1", "\"format\": 2")] {
            fs::write(directory.child(MANIFEST), wrong).unwrap();
            assert_eq!(found(&directory, &run), expected, "{wrong}");
        }
        fs::remove_file(directory.child(MANIFEST)).unwrap();
        assert!(found(&directory, &run)[0].starts_with("`manifest.json` is missing"));
    }

    #[test]
    fn the_manifest_of_another_run_and_a_lost_key_do_not_pass() {
        let (_base, directory, run) = stage();
        let other = check_manifest(&directory, &RunId::new(8), Some(&keyed(b"key"))).unwrap();
        assert_eq!(other[0].how, RecordChangeKind::OtherSeal);
        assert_eq!(check_manifest(&directory, &run, None).unwrap()[0].how, RecordChangeKind::OtherSeal);
    }
}
