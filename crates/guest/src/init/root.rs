//! The root of the command, built from the parts that the spec lists.
//!
//! Before it stands the guest sees the machine, and nothing but the guest runs here. Afterwards the machine is gone, for
//! the guest too, and the guest is the user whom the spec names, in a namespace that has no power over these mounts.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use belljar_contract::{
    Access, GuestGround, GuestLayer, GuestOverlay, GuestPart, GuestRoot, GuestSource, GuestSpec, GuestStep,
    OsText,
};
use belljar_sys::mounts::Identity;
use belljar_sys::overlay::OverlaySpec;
use belljar_sys::root::{Root, Source, Writing};
use belljar_sys::userns;

use super::Refusal;

/// Builds it and goes there; takes the content of the files from what came with the spec.
pub(super) fn build(spec: &GuestSpec, attached: &mut Vec<OwnedFd>) -> Result<(), Refusal> {
    let (ground, parts, user, bounds) = match &spec.root {
        GuestRoot::AsFound => return Ok(()),
        GuestRoot::Built { ground, parts, user, bounds } => (ground, parts, *user, *bounds),
    };
    let missing = "the content of the files was not attached";
    let contents = attached.pop().ok_or_else(|| Refusal::because(GuestStep::Spec, missing))?;
    let mut bytes = Vec::new();
    File::from(contents).read_to_end(&mut bytes).map_err(|error| Refusal::new(GuestStep::Spec, &error))?;
    if let GuestGround::Container { overlays } = ground {
        userns::take_mounts().map_err(|cause| Refusal::new(GuestStep::Root, &MountsError { cause }))?;
        overlays.iter().try_for_each(mount)?;
    }
    let root = Root::begin(bounds.tmpfs).map_err(refused)?;
    let mut building = Building { root: &root, ground, parts, contents: &bytes, pid_max: bounds.pid_max };
    for part in parts {
        building.make(part)?;
    }
    root.enter().map_err(refused)?;
    userns::become_user(user).map_err(|cause| Refusal::new(GuestStep::Root, &UserError { user, cause }))
}

fn refused(error: belljar_sys::root::RootError) -> Refusal {
    Refusal::new(GuestStep::Root, &error)
}

fn path(text: &OsText) -> &Path {
    Path::new(OsStr::from_bytes(text.as_bytes()))
}

struct Building<'a> {
    root: &'a Root,
    ground: &'a GuestGround,
    parts: &'a [GuestPart],
    /// The content of the files that are still to be created.
    contents: &'a [u8],
    pid_max: Option<u32>,
}

impl Building<'_> {
    fn make(&mut self, part: &GuestPart) -> Result<(), Refusal> {
        let root = self.root;
        match part {
            GuestPart::Found { at } => {
                let others = self.parts.iter().filter(|other| *other != part);
                let taken: Vec<&Path> = others.map(|other| path(other.at())).collect();
                root.found(path(at), &taken)
            }
            GuestPart::Directory { at, mode } => root.directory(path(at), *mode),
            GuestPart::Link { at, to } => root.link(path(at), path(to)),
            GuestPart::File { at, length } => root.file(path(at), self.content(*length)?),
            GuestPart::Memory { at, mode } => root.memory(path(at), *mode),
            GuestPart::Processes { at } => match self.ground {
                GuestGround::Namespaces => root.processes(path(at), self.pid_max),
                GuestGround::Container { .. } => root.shown_processes(path(at)),
            },
            GuestPart::Devices { at } => root.devices(path(at)),
            GuestPart::Mask { at } => root.mask(path(at)),
            GuestPart::Bind { from, is, at, access } => {
                root.bind(path(from), source(*is), path(at), writing(*access))
            }
        }
        .map_err(refused)
    }

    /// Takes the content of the next file.
    fn content(&mut self, length: u64) -> Result<&[u8], Refusal> {
        let split = usize::try_from(length).ok().and_then(|length| self.contents.split_at_checked(length));
        let short = "the content of the files is shorter than they are";
        let (own, rest) = split.ok_or_else(|| Refusal::because(GuestStep::Spec, short))?;
        self.contents = rest;
        Ok(own)
    }
}

/// Whether a limited file system in memory has no room left, for bytes or for names.
pub(super) fn is_full(spec: &GuestSpec) -> bool {
    let GuestRoot::Built { parts, bounds, .. } = &spec.root else { return false };
    let memory =
        parts.iter().filter(|part| matches!(part, GuestPart::Memory { .. } | GuestPart::Devices { .. }));
    let full =
        |at: &Path| rustix::fs::statvfs(at).is_ok_and(|found| found.f_bfree == 0 || found.f_ffree == 0);
    bounds.tmpfs.is_some() && (full(Path::new("/")) || memory.map(|part| path(part.at())).any(full))
}

fn source(source: GuestSource) -> Source {
    match source {
        GuestSource::System => Source::System,
        GuestSource::Mounted => Source::Shown,
        GuestSource::Exactly { device, inode } => Source::Exactly(Identity { device, inode }),
    }
}

fn writing(access: Access) -> Writing {
    match access {
        Access::ReadOnly => Writing::Refused,
        Access::ReadWrite => Writing::Allowed,
    }
}

/// Mounts an overlay where the root takes the project, or its repository, from.
fn mount(overlay: &GuestOverlay) -> Result<(), Refusal> {
    let GuestOverlay { lower, upper, work, at } = overlay;
    let layer = |layer: &GuestLayer| Identity { device: layer.device, inode: layer.inode };
    let layers = [lower, upper, work].map(|one| (path(&one.path), layer(one)));
    let spec =
        OverlaySpec::exactly(layers, path(at)).map_err(|error| Refusal::new(GuestStep::Root, &error))?;
    spec.mount().map_err(|(step, cause)| Refusal::new(GuestStep::Root, &LayersError { step, cause }))
}

#[derive(Debug, thiserror::Error)]
#[error("the overlay cannot be mounted: the step {step:?} failed")]
struct LayersError {
    step: belljar_sys::overlay::OverlayStep,
    #[source]
    cause: belljar_sys::Errno,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot mount in the container: user namespaces are refused in it")]
struct MountsError {
    #[source]
    cause: belljar_sys::Errno,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot become user {user}")]
struct UserError {
    user: u32,
    #[source]
    cause: belljar_sys::Errno,
}
