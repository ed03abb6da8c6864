//! The root as the guest receives it: sources are opened and identified, the contents of files are put together.

use super::source_identities::SourceIdentities;
use super::{etc, files};
use crate::backend::LaunchError;
use crate::workspace::Overlay;
use belljar_contract::{
    AbsPath, BindSource, ContainerImage, GuestBounds, GuestGround, GuestLayer, GuestOverlay, GuestPart,
    GuestRoot, GuestSource, OsText, RootPart, RunFiles,
};
use belljar_sys::fds;
use belljar_sys::mounts::{self, Identity};
use belljar_sys::overlay::OverlaySpec;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A root that can be sent to the guest.
#[derive(Debug)]
pub(in crate::backend) struct PreparedRoot {
    /// The parts of the root in the guest's protocol.
    pub root: GuestRoot,
    /// The contents of the files, one after the other.
    pub contents: OwnedFd,
    /// The sources that were identified, still open.
    pub sources: Vec<OwnedFd>,
}

/// Where the sources of a root are, and what they must be.
#[derive(Debug)]
pub(in crate::backend) struct RootSources<'a> {
    /// What the guest builds the root in.
    pub ground: GuestGround,
    /// The image of the container, if there is one: it decides where the sources are in the container.
    pub image: Option<&'a ContainerImage>,
    /// What the sources must be.
    pub identities: &'a SourceIdentities,
    /// The contents of files that the plan names without one.
    pub run_files: &'a RunFiles,
}

/// Opens the sources, compares them with what they must be, and puts the contents together.
pub(in crate::backend) fn prepare(
    sources: RootSources<'_>,
    parts: &[RootPart],
    bounds: GuestBounds,
) -> Result<PreparedRoot, LaunchError> {
    let RootSources { ground, image, identities, run_files } = sources;
    let mut preparation =
        Preparation { image, identities, run_files, contents: Vec::new(), sources: Vec::new() };
    let parts = parts.iter().map(|part| preparation.part(part)).collect::<Result<_, _>>()?;
    let Preparation { image: _, identities: _, run_files: _, contents, sources } = preparation;
    let contents = hold_bytes("the files inside", &contents)?;
    let root = GuestRoot::Built { ground, parts, user: etc::USER, bounds };
    Ok(PreparedRoot { root, contents, sources })
}

/// Makes the layers of an overlay. The lower one is the project or its repository, and must be what it was when the user
/// agreed.
pub(in crate::backend) fn begin_overlay(
    overlay: &Overlay,
    identities: &SourceIdentities,
) -> Result<OverlaySpec, LaunchError> {
    let spec = overlay.begin()?;
    let [(lower, found), _upper, _work] = spec.layers();
    let failed =
        |error| LaunchError::Content { name: "the overlay".to_owned(), cause: std::io::Error::other(error) };
    let path = AbsPath::new(OsStr::from_bytes(lower.to_bytes())).map_err(failed)?;
    if identities.expected(&path)? == found { Ok(spec) } else { Err(LaunchError::Changed { path }) }
}

/// The layers of an overlay, which the guest mounts where it finds them in the container.
pub(in crate::backend) fn layers(
    overlay: &Overlay,
    image: &ContainerImage,
    identities: &SourceIdentities,
) -> Result<GuestOverlay, LaunchError> {
    let spec = begin_overlay(overlay, identities)?;
    let text = |path: &CStr| {
        let placed = AbsPath::new(OsStr::from_bytes(path.to_bytes())).map(|path| image.place(&path));
        placed.map(|path| text(&path)).unwrap_or_default()
    };
    let layer = |(path, Identity { device, inode }): (&CStr, Identity)| GuestLayer {
        path: text(path),
        device,
        inode,
    };
    let [lower, upper, work] = spec.layers().map(layer);
    Ok(GuestOverlay { lower, upper, work, at: text(spec.target()) })
}

struct Preparation<'a> {
    image: Option<&'a ContainerImage>,
    identities: &'a SourceIdentities,
    run_files: &'a RunFiles,
    contents: Vec<u8>,
    sources: Vec<OwnedFd>,
}

impl Preparation<'_> {
    fn part(&mut self, part: &RootPart) -> Result<GuestPart, LaunchError> {
        Ok(match part {
            RootPart::Image { at } => GuestPart::Found { at: text(at) },
            RootPart::Directory { at, mode } => GuestPart::Directory { at: text(at), mode: *mode },
            RootPart::Link { at, to } => GuestPart::Link { at: text(at), to: to.clone() },
            RootPart::File { at, content } => {
                let bytes = files::content_bytes(&at.to_string(), content, self.run_files)?;
                self.contents.extend_from_slice(&bytes);
                GuestPart::File { at: text(at), length: bytes.len() as u64 }
            }
            RootPart::Memory { at, mode } => GuestPart::Memory { at: text(at), mode: *mode },
            RootPart::Processes { at } => GuestPart::Processes { at: text(at) },
            RootPart::Devices { at } => GuestPart::Devices { at: text(at) },
            RootPart::Mask { at } => GuestPart::Mask { at: text(at) },
            RootPart::Bind { from, at, access } => GuestPart::Bind {
                from: text(&self.place(from.path())),
                is: self.source(from)?,
                at: text(at),
                access: *access,
            },
        })
    }

    fn place(&self, path: &AbsPath) -> AbsPath {
        self.image.map_or_else(|| path.clone(), |image| image.place(path))
    }

    fn source(&mut self, source: &BindSource) -> Result<GuestSource, LaunchError> {
        Ok(match source {
            BindSource::System(_) => GuestSource::System,
            BindSource::Mounted(_) => GuestSource::Mounted,
            BindSource::Host(path) => {
                let (opened, Identity { device, inode }) = open_source(path, self.identities)?;
                self.sources.push(opened);
                GuestSource::Exactly { device, inode }
            }
        })
    }
}

/// A path has no NUL.
fn text(path: &AbsPath) -> OsText {
    OsText::new(path.as_bytes()).unwrap_or_default()
}

/// Opens exactly this path and compares it with what it must be. No component of it may be a symbolic link, so that nothing
/// can be exchanged between the plan and the launch.
pub(in crate::backend) fn open_source(
    path: &AbsPath,
    identities: &SourceIdentities,
) -> Result<(OwnedFd, Identity), LaunchError> {
    let failed = |cause| LaunchError::Source { path: path.clone(), cause };
    let expected = identities.expected(path)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened =
        rustix::fs::openat2(rustix::fs::CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|errno| failed(errno.into()))?;
    let found = mounts::identity_of(opened.as_fd()).map_err(|error| failed(std::io::Error::other(error)))?;
    if found == expected { Ok((opened, found)) } else { Err(LaunchError::Changed { path: path.clone() }) }
}

/// Puts bytes into a sealed file in memory.
pub(in crate::backend) fn hold_bytes(name: &str, bytes: &[u8]) -> Result<OwnedFd, LaunchError> {
    let failed = |error| LaunchError::Content { name: name.to_owned(), cause: std::io::Error::other(error) };
    fds::sealed_memfd("belljar", bytes).map_err(failed)
}
