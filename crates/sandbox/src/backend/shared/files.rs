//! The files of the instance that are made on the host before a launch.

use crate::backend::LaunchError;
use belljar_contract::{AbsPath, FileContent, Made, RunFiles, SHARED_FILE_MAX};
use belljar_sys::regular::read_regular;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Deeper than any skill or plugin.
const DEPTH: usize = 64;

/// Makes one file, directory, link or copy. An existing one is used, or replaced where the plan gives its content.
pub(in crate::backend) fn make(made: &Made, run_files: &RunFiles) -> Result<(), LaunchError> {
    let failed = |cause| LaunchError::Make { path: made.path().clone(), cause };
    match made {
        Made::Directory(path) | Made::Fresh(path) => directory(path).map_err(failed),
        Made::File(path) => parent(path)
            .and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop))
            .map_err(failed),
        Made::Written { at, content } => {
            let bytes = content_bytes(&at.to_string(), content, run_files)?;
            replaced(at)
                .and_then(|()| OpenOptions::new().create_new(true).write(true).mode(0o600).open(at))
                .and_then(|mut file| file.write_all(&bytes))
                .map_err(failed)
        }
        Made::Link { at, to } => {
            replaced(at).and_then(|()| std::os::unix::fs::symlink(to, at)).map_err(failed)
        }
        Made::Copy { at, from } => {
            replaced(at).and_then(|()| copy(from.as_path(), at.as_path(), DEPTH)).map_err(failed)
        }
    }
}

fn directory(path: &AbsPath) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn parent(path: &AbsPath) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| directory(&parent))
}

/// Makes the parent and removes what is at the path. A link is removed, never followed.
fn replaced(path: &AbsPath) -> io::Result<()> {
    parent(path)?;
    match path.as_path().symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies files, directories and links as they are. Skills hold no pipes or devices; one is an error.
fn copy(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    let found = from.symlink_metadata()?;
    if found.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if found.is_file() {
        return fs::copy(from, to).map(drop);
    }
    if !found.is_dir() || depth == 0 {
        return Err(io::Error::other(format!("`{}` cannot be copied", from.display())));
    }
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
    }
    Ok(())
}

/// Puts together the content of a file.
pub(super) fn content_bytes(
    name: &str,
    content: &FileContent,
    run_files: &RunFiles,
) -> Result<Vec<u8>, LaunchError> {
    match content {
        FileContent::Text(text) => Ok(text.clone().into_bytes()),
        FileContent::JsonFrom { source, members, base } => {
            let failed = |cause| LaunchError::Content { name: name.to_owned(), cause };
            let text = read_regular(source.as_path(), SHARED_FILE_MAX).map_err(failed)?;
            let theirs: serde_json::Value = serde_json::from_slice(&text)
                .map_err(|error| failed(io::Error::other(format!("`{source}` is not JSON: {error}"))))?;
            let mut object = base.clone();
            for member in members {
                if let Some(value) = theirs.get(member) {
                    object[member] = value.clone();
                }
            }
            Ok(object.to_string().into_bytes())
        }
        FileContent::Trust(_)
        | FileContent::Git(_)
        | FileContent::SshKnownHosts { .. }
        | FileContent::SshPublicKey { .. } => run_files.get(content).map(<[u8]>::to_vec).ok_or_else(|| {
            let cause = io::Error::other("it was not made for this run");
            LaunchError::Content { name: name.to_owned(), cause }
        }),
    }
}
