//! Digests of the files that a session names, as a stage would have them. Nothing is copied.

use super::NamedFiles;
use super::originals::{Original, Permitted};
use super::stage::{PROJECTS, StageError, UPLOADS, own_names};
use super::stage_copy::{base_name, free_name};
use crate::git::{Shared, Untracked, UserFiles, shared_files};
use crate::tape::{lone_file, tree};
use belljar_contract::{AbsPath, Digest, TapeTrees};
use std::collections::BTreeMap;

/// The digest of a skill or a plugin.
///
/// # Errors
/// If it may not be read, or its files cannot be listed or read.
pub(crate) fn library_digest(
    (from, permitted): (&AbsPath, Permitted<'_>),
    (user, untracked): (&UserFiles, Untracked),
    covered: TapeTrees,
) -> Result<Digest, StageError> {
    let original = Original::open("the directory", (from, permitted))?;
    let shared = shared_files(&original.real, user, untracked);
    let digest = match shared.map_err(|cause| StageError::Shared { path: from.clone(), cause })? {
        Shared::Everything => tree((&original.place(), None), covered),
        Shared::Files { files, left_out: _ } => {
            let names = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
            tree((&original.place(), Some(&names)), covered)
        }
    };
    digest.map_err(|cause| StageError::Read { path: from.clone(), cause })
}

/// The digests of the uploads, directories and projects, by their places in the workspace.
///
/// # Errors
/// If one of them may not or cannot be read.
pub(crate) fn input_digests(
    found: &NamedFiles,
    permitted: Permitted<'_>,
    covered: TapeTrees,
) -> Result<BTreeMap<String, Digest>, StageError> {
    let mut taken = own_names();
    let mut out = BTreeMap::new();
    for (path, _access) in &found.directories {
        let name = free_name(&mut taken, &base_name("a directory", path)?);
        out.insert(name, input("the directory", (path, permitted), covered)?);
    }
    for (uuid, path) in &found.projects {
        out.insert(format!("{PROJECTS}/{uuid}"), input("the project", (path, permitted), covered)?);
    }
    for path in &found.uploads {
        let name = base_name("an upload", path)?;
        out.insert(format!("{UPLOADS}/{name}"), input("the upload", (path, permitted), covered)?);
    }
    Ok(out)
}

fn input(
    what: &'static str,
    (path, permitted): (&AbsPath, Permitted<'_>),
    covered: TapeTrees,
) -> Result<Digest, StageError> {
    let original = Original::open(what, (path, permitted))?;
    let read = |cause| StageError::Read { path: path.clone(), cause };
    let digest = match original.metadata().map_err(read)?.is_dir() {
        true => tree((&original.place(), None), covered),
        false => lone_file(&original.place()),
    };
    digest.map_err(read)
}
