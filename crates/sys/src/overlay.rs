//! An overlay that only one command and its children see.
//!
//! The command gets a mount namespace of its own (and, unless it is the superuser's, a user namespace in which it
//! is the same user) before it is executed, and the overlay is mounted there. Nothing has to be unmounted: the
//! mount ends with the last process that sees it, however that process ends.
//!
//! The mount forbids what would make the upper layer depend on anything but names and bytes: no redirects, no
//! metadata-only copies, no index. Its marks are `user.overlay.*` for every user, so that the upper layer reads the
//! same whether root or another user made it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::PipeFlags;

use crate::beneath::status_of;
use crate::mounts::{Identity, MountError, identity};
use crate::userns::{Maps, enter, unshare};

/// The extended attribute that marks a directory which hides everything below it, as these overlays write it.
pub const OPAQUE: &CStr = c"user.overlay.opaque";

/// The same mark as an overlay without `userxattr` writes it.
pub const OPAQUE_TRUSTED: &CStr = c"trusted.overlay.opaque";

/// The value of the mark.
pub const OPAQUE_VALUE: &[u8] = b"y";

/// Why a command could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// One of the directories cannot be used.
    #[error("cannot use {} for an overlay", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: MountError,
    },
    /// The path has a NUL in it.
    #[error("the path {path:?} has a NUL in it")]
    Nul {
        /// The path.
        path: PathBuf,
    },
    /// No pipe for the child's report.
    #[error("cannot open a pipe to a new process")]
    Pipe(#[source] Errno),
}

/// The directories of an overlay. Upper and work must be on one file system; all four must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlaySpec {
    lower: Layer,
    upper: Layer,
    work: Layer,
    target: CString,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    path: CString,
    identity: Identity,
}

impl OverlaySpec {
    /// Looks at the directories. The child compares: it mounts these and not others that took their names.
    ///
    /// # Errors
    /// Fails if one of them is not there.
    pub fn new(lower: &Path, upper: &Path, work: &Path, target: &Path) -> Result<Self, OverlayError> {
        let layer = |path: &Path| {
            let identity =
                identity(path).map_err(|cause| OverlayError::Directory { path: path.to_owned(), cause })?;
            Ok(Layer { path: text(path)?, identity })
        };
        Ok(OverlaySpec {
            lower: layer(lower)?,
            upper: layer(upper)?,
            work: layer(work)?,
            target: text(target)?,
        })
    }

    /// The same with directories that were looked at before, as [`OverlaySpec::layers`] gave them.
    ///
    /// # Errors
    /// Fails if a path has a NUL in it.
    pub fn exactly(layers: [(&Path, Identity); 3], target: &Path) -> Result<Self, OverlayError> {
        let layer = |(path, identity): (&Path, Identity)| Ok(Layer { path: text(path)?, identity });
        let [lower, upper, work] = layers;
        Ok(OverlaySpec {
            lower: layer(lower)?,
            upper: layer(upper)?,
            work: layer(work)?,
            target: text(target)?,
        })
    }

    /// The lower, the upper and the working directory.
    #[must_use]
    pub fn layers(&self) -> [(&CStr, Identity); 3] {
        [&self.lower, &self.upper, &self.work].map(|layer| (layer.path.as_c_str(), layer.identity))
    }

    /// Where it appears.
    #[must_use]
    pub fn target(&self) -> &CStr {
        &self.target
    }

    /// Mounts it in the mount namespace of the caller, who may mount there.
    ///
    /// # Errors
    /// Names the step that failed.
    pub fn mount(&self) -> Result<(), (OverlayStep, Errno)> {
        mount_layers(self)
    }
}

fn text(path: &Path) -> Result<CString, OverlayError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_nul| OverlayError::Nul { path: path.to_owned() })
}

/// The steps in the child, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayStep {
    /// The namespaces.
    Namespaces,
    /// No mount of ours shows outside.
    Private,
    /// Opening the layers, each the same as before.
    Layers,
    /// The mount.
    Mount,
}

const STEPS: [OverlayStep; 4] =
    [OverlayStep::Namespaces, OverlayStep::Private, OverlayStep::Layers, OverlayStep::Mount];

/// Returns, after a failed spawn, which step failed.
#[derive(Debug)]
pub struct Preparation {
    report: OwnedFd,
}

impl Preparation {
    /// The step that failed in the child; `None` if it was none of them.
    #[must_use]
    pub fn failed_step(&self) -> Option<OverlayStep> {
        let mut byte = [0];
        // No report and no step are the same to the caller: the error of the spawn has the errno.
        match rustix::io::read(&self.report, &mut byte) {
            Ok(1) => STEPS.get(usize::from(byte[0])).copied(),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Lets the command run where the overlays are mounted on their targets.
///
/// The working directory of the command is entered before, so it is never inside the overlay.
///
/// # Errors
/// Fails if descriptors are used up.
pub fn prepare(command: &mut Command, specs: Vec<OverlaySpec>) -> Result<Preparation, OverlayError> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (report, reporting) = rustix::pipe::pipe_with(flags).map_err(OverlayError::Pipe)?;
    let maps = (!crate::beneath::is_superuser()).then(Maps::own);
    let step = move || {
        mount(maps.as_ref(), &specs).map_err(|(step, cause)| {
            // The spawn fails anyway, and with the cause; only the step would be unknown.
            rustix::io::write(&reporting, &[step as u8]).ok();
            cause.into()
        })
    };
    // SAFETY: the closure makes system calls on strings and descriptors that were made before the fork; it formats
    // into an array on its stack and allocates nothing.
    unsafe { command.pre_exec(step) };
    Ok(Preparation { report })
}

fn mount(maps: Option<&Maps>, specs: &[OverlaySpec]) -> Result<(), (OverlayStep, Errno)> {
    match maps {
        Some(maps) => enter(maps, libc::CLONE_NEWNS).map_err(|(_, cause)| cause),
        None => unshare(libc::CLONE_NEWNS),
    }
    .map_err(|cause| (OverlayStep::Namespaces, cause))?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change(c"/", private).map_err(|cause| (OverlayStep::Private, cause))?;
    specs.iter().try_for_each(mount_layers)
}

/// Allocates nothing.
fn mount_layers(spec: &OverlaySpec) -> Result<(), (OverlayStep, Errno)> {
    // Opened here and not before: the kernel wants layers of the caller's own mount namespace.
    let open = |layer| open_same(layer).map_err(|cause| (OverlayStep::Layers, cause));
    let (lower, upper, work) = (open(&spec.lower)?, open(&spec.upper)?, open(&spec.work)?);
    let mut options = Options::new();
    options.text(b"userxattr,redirect_dir=nofollow,metacopy=off,index=off,lowerdir=");
    options.descriptor(lower.as_fd());
    options.text(b",upperdir=");
    options.descriptor(upper.as_fd());
    options.text(b",workdir=");
    options.descriptor(work.as_fd());
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount(c"overlay", &*spec.target, c"overlay", flags, Some(options.as_text()))
        .map_err(|cause| (OverlayStep::Mount, cause))
}

fn open_same(layer: &Layer) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&*layer.path, flags, Mode::empty())?;
    if status_of(opened.as_fd())?.identity == layer.identity { Ok(opened) } else { Err(Errno::STALE) }
}

/// The options of the mount. Layers are named by descriptor: a path would have to be escaped twice, could lead
/// elsewhere by now, and would show in the mount table inside the sandbox.
struct Options {
    bytes: [u8; 256],
    length: usize,
}

impl Options {
    fn new() -> Self {
        Options { bytes: [0; 256], length: 0 }
    }

    fn text(&mut self, text: &[u8]) {
        for byte in text {
            // The last byte stays the NUL. What is written is known and far shorter than the array.
            if self.length + 1 < self.bytes.len() {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
    }

    fn descriptor(&mut self, descriptor: BorrowedFd<'_>) {
        self.text(b"/proc/self/fd/");
        let mut digits = [0; 10];
        let mut first = digits.len();
        let mut number = descriptor.as_raw_fd().unsigned_abs();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[first..]);
    }

    fn as_text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}
