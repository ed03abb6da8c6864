//! Instances: the state that belljar keeps for each project, outside the project.
//!
//! ```text
//! instances/<key>/
//!   root        the project's canonical root: its bytes and a newline
//!   volume      where the file system that holds it is mounted, in the same form
//!   created     time of creation, in milliseconds since 1970
//!   last-used   empty; its time of change is the last use
//!   lock        shared by every run of the project, exclusive for its removal
//!   sessions/   a lock for each conversation in use
//!   <harness>/  the agent's own state
//! ```

use crate::store::locks::{self, Lock};
use crate::store::runtime::{make_private, make_staging};
use belljar_contract::{AbsPath, Mount, MountSource, Plan, Purpose, WorkspaceMode};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::time::{SystemTime, UNIX_EPOCH};

mod listing;

pub use listing::{InstanceEntry, Instances, ProjectState};

/// The prefix of a directory that is being created.
const MAKING: &str = ".making-";

/// Longer than any path that the kernel accepts.
const SMALL_FILE: u64 = 16 << 10;

/// Why an instance cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error("cannot create `{path}`, which the run needs")]
    Make {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// Something else exists at this path. A link, for example, could lead the sandbox anywhere.
    #[error("`{path}` is {found}, but the run needs {wanted}")]
    Kind { path: AbsPath, found: &'static str, wanted: &'static str },
    /// The plan names a path outside the instance.
    #[error("`{path}` is not part of the instance `{directory}`")]
    Outside { path: AbsPath, directory: AbsPath },
    #[error("the instance `{directory}` belongs to the project `{root}`")]
    OtherProject {
        directory: AbsPath,
        /// The project it names.
        root: AbsPath,
    },
    #[error("cannot remove `{path}`")]
    Remove {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

/// An instance in use by a run. Other runs may use it as well; it cannot be removed.
#[derive(Debug)]
pub struct HeldInstance {
    directory: AbsPath,
    _lock: Lock,
}

impl HeldInstance {
    /// Whether a run needs an instance. A test needs none, unless its plan mounts something of it: its stage is removed
    /// at the end, and the instance would only wait for `gc`.
    #[must_use]
    pub fn is_wanted(plan: &Plan) -> bool {
        let kept = |mount: &Mount| {
            matches!(mount.source, MountSource::InstanceDirectory(_) | MountSource::InstanceFile(_))
        };
        match plan.purpose {
            Purpose::Session => true,
            Purpose::Test => {
                !plan.backend.isolates()
                    || plan.workspace.mode != WorkspaceMode::Direct
                    || plan.mounts.iter().any(kept)
            }
        }
    }

    /// Creates the instance of a plan, if necessary, and everything in it that the plan mounts.
    ///
    /// # Errors
    /// If something cannot be created, or is not what the plan needs; the error names it.
    pub fn prepare(plan: &Plan, now: SystemTime) -> Result<Self, InstanceError> {
        let directory = &plan.instance.directory;
        let failed = |cause| InstanceError::Make { path: directory.clone(), cause };
        let lock = loop {
            make(directory, &plan.instance.root, now).map_err(failed)?;
            match locks::wait_shared(&directory.child("lock")) {
                Ok(lock) => break lock,
                // It was removed since it was created or found, so it is created again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(failed(cause)),
            }
        };
        let held = Self { directory: directory.clone(), _lock: lock };
        held.check_root(&plan.instance.root)?;
        held.touch(now).map_err(failed)?;
        for mount in &plan.mounts {
            match &mount.source {
                MountSource::InstanceDirectory(path) => held.make_source(path, Source::Directory)?,
                MountSource::InstanceFile(path) => held.make_source(path, Source::File)?,
                MountSource::System
                | MountSource::Image
                | MountSource::SyntheticEtc
                | MountSource::Proc
                | MountSource::Devices
                | MountSource::Temporary
                | MountSource::AgentProgram
                | MountSource::Workspace
                | MountSource::Host(_) => {}
            }
        }
        Ok(held)
    }

    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    /// Users and `gc` rely on this file, so it is never left wrong or absent.
    fn check_root(&self, root: &AbsPath) -> Result<(), InstanceError> {
        let path = self.directory.child("root");
        match read_path(&path) {
            Ok(Some(found)) if found == *root => {}
            Ok(Some(found)) => {
                return Err(InstanceError::OtherProject { directory: self.directory.clone(), root: found });
            }
            Ok(None) => {
                replace(&path, &path_text(root)).map_err(|cause| InstanceError::Make { path, cause })?;
            }
            Err(cause) => return Err(InstanceError::Read { path, cause }),
        }
        let (path, volume) = (self.directory.child("volume"), volume(root));
        if read_path(&path).ok().flatten() != volume
            && let Some(volume) = volume
        {
            replace(&path, &path_text(&volume)).map_err(|cause| InstanceError::Make { path, cause })?;
        }
        Ok(())
    }

    fn touch(&self, now: SystemTime) -> io::Result<()> {
        let path = self.directory.child("last-used");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.set_modified(now)
    }

    /// Creates the source of a mount. An agent may have written parts of the instance, so no link is followed.
    fn make_source(&self, path: &AbsPath, last: Source) -> Result<(), InstanceError> {
        let outside = || InstanceError::Outside { path: path.clone(), directory: self.directory.clone() };
        let below = path.relative_to(&self.directory).ok_or_else(outside)?;
        let mut names = below.components().peekable();
        if names.peek().is_none() {
            return Err(outside());
        }
        let mut current = self.directory.clone();
        while let Some(name) = names.next() {
            let Component::Normal(name) = name else { return Err(outside()) };
            current = current.join(name).map_err(|_nul| outside())?;
            let kind = if names.peek().is_some() { Source::Directory } else { last };
            kind.make(&current)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Directory,
    File,
}

impl Source {
    fn make(self, path: &AbsPath) -> Result<(), InstanceError> {
        let (wanted, made) = match self {
            Source::Directory => ("a directory", fs::DirBuilder::new().mode(0o700).create(path)),
            Source::File => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                ("a file", file.map(drop))
            }
        };
        match made {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(InstanceError::Make { path: path.clone(), cause }),
        }
        let found = fs::symlink_metadata(path)
            .map_err(|cause| InstanceError::Read { path: path.clone(), cause })?
            .file_type();
        let found = match self {
            Source::Directory if found.is_dir() => return Ok(()),
            Source::File if found.is_file() => return Ok(()),
            _ if found.is_dir() => "a directory",
            _ if found.is_file() => "a file",
            _ if found.is_symlink() => "a symbolic link",
            Source::Directory | Source::File => "neither a file nor a directory",
        };
        Err(InstanceError::Kind { path: path.clone(), found, wanted })
    }
}

/// Creates the directory with its first files, completely or not at all. An existing directory is not changed.
fn make(directory: &AbsPath, root: &AbsPath, now: SystemTime) -> io::Result<()> {
    if fs::symlink_metadata(directory).is_ok() {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or_else(|| directory.clone());
    make_private(&parent)?;
    let making = make_staging(&parent, MAKING)?;
    let created = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    for (name, content) in
        [("root", path_text(root)), ("created", format!("{created}\n").into_bytes()), ("lock", Vec::new())]
    {
        let path = making.path().join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&content)?;
    }
    match fs::rename(making.path(), directory) {
        Ok(()) => {
            // It was renamed, so the temporary name needs no removal.
            drop(making.keep());
            Ok(())
        }
        // Another run of the project created it first.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) => Err(error),
    }
}

fn path_text(path: &AbsPath) -> Vec<u8> {
    [path.as_bytes(), b"\n"].concat()
}

/// Reads a path that [`path_text`] wrote; the path itself may end with a newline.
fn read_path(path: &AbsPath) -> io::Result<Option<AbsPath>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(SMALL_FILE).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if bytes.pop() != Some(b'\n') {
        return Err(io::Error::other("it does not end with a newline"));
    }
    AbsPath::new(OsString::from_vec(bytes)).map(Some).map_err(io::Error::other)
}

/// Two runs may write at the same time, so each writes a temporary file and renames it.
fn replace(path: &AbsPath, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or_else(|| path.clone());
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// The mount point of the file system that holds `path`: the topmost directory on the same device.
fn volume(path: &AbsPath) -> Option<AbsPath> {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let own = device(path.as_path())?;
    let same = path.as_path().ancestors().take_while(|above| device(above) == Some(own)).last()?;
    AbsPath::new(same).ok()
}
