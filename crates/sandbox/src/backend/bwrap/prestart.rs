//! A sandbox that waits for its plan: bubblewrap makes the namespaces, and the guest in them waits for its specification.
//!
//! How it is started does not depend on the plan, so it can be started while the plan is being made. Until the specification
//! comes the guest alone runs in it, and does nothing. Dropping it ends it and leaves nothing behind.

use super::lower;
use crate::backend::LaunchError;
use crate::backend::shared::guest_root::{begin_overlay, hold_bytes, open_source};
use crate::backend::shared::source_identities::SourceIdentities;
use crate::workspace::Overlay;
use belljar_contract::{AbsPath, Launch, LaunchArgument, OsText};
use belljar_sys::fds;
use belljar_sys::message;
use belljar_sys::mounts::Identity;
use belljar_sys::process::{OwnedChild, Prepare};
use belljar_sys::spawn::{ControllingTerminal, Program, SpawnError, Stream};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The umask of bubblewrap itself; the command gets the plan's.
const UMASK: u32 = 0o022;

/// How long an unused sandbox may take to end: as long as a start on a busy machine.
pub(super) const LEAVING: Duration = Duration::from_secs(5);

/// How a sandbox is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    /// The path of bubblewrap.
    pub program: OsText,
    /// The arguments of bubblewrap.
    pub arguments: Vec<LaunchArgument>,
    /// The guest and its arguments.
    pub command: Vec<LaunchArgument>,
}

/// A sandbox of bubblewrap that was started before there was a plan.
#[derive(Debug)]
pub struct Waiting {
    opening: Opening,
    guest: (AbsPath, Identity),
    /// Taken by the launch that uses it.
    begun: Option<Begun>,
}

/// A sandbox whose guest waits for its specification.
#[derive(Debug)]
pub(super) struct Begun {
    /// The process of bubblewrap.
    pub bwrap: OwnedChild,
    /// The read end of its standard error.
    pub stderr: File,
    /// The socket to the guest.
    pub control: OwnedFd,
}

/// A sandbox that was never sealed and is ending. Dropping it waits for the end.
#[derive(Debug)]
pub(in crate::backend) struct Leaving {
    bwrap: OwnedChild,
    /// Kept open: writing to a closed pipe would end the writer.
    _stderr: File,
}

impl Waiting {
    /// Starts one. It suits every plan that keeps no changes in an overlay.
    ///
    /// # Errors
    /// Names the step that failed.
    pub fn begin(bwrap: &AbsPath, guest: &AbsPath, is: Identity) -> Result<Self, LaunchError> {
        let own = BTreeMap::from([(guest.clone(), is)]);
        let identities = SourceIdentities { own, ..SourceIdentities::default() };
        let opening = lower::opening(bwrap, guest);
        let begun = Begun::start(&opening, &[], &identities)?;
        Ok(Self { opening, guest: (guest.clone(), is), begun: Some(begun) })
    }

    /// Returns the sandbox that was started early, where the launch asks for the same, or a new one and the early one, which is
    /// ending then.
    pub(super) fn for_launch(
        mut earlier: Option<Self>,
        launch: &Launch,
        overlays: &[Overlay],
        identities: &SourceIdentities,
    ) -> Result<(Begun, Option<Leaving>), LaunchError> {
        let opening = Opening {
            program: launch.program.clone(),
            arguments: launch.arguments.clone(),
            command: launch.command.clone(),
        };
        let fits = |earlier: &&mut Self| overlays.is_empty() && earlier.is(&opening, identities);
        if let Some(begun) = earlier.as_mut().filter(fits).and_then(|earlier| earlier.begun.take()) {
            return Ok((begun, None));
        }
        let leaving = earlier.and_then(Self::leave);
        Ok((Begun::start(&opening, overlays, identities)?, leaving))
    }

    /// Begins to end it.
    pub(in crate::backend) fn leave(mut self) -> Option<Leaving> {
        self.begun.take().map(Begun::leave)
    }

    /// Whether it was started with the same arguments and the same guest program.
    fn is(&self, opening: &Opening, identities: &SourceIdentities) -> bool {
        let (path, is) = &self.guest;
        self.opening == *opening && identities.expected(path).is_ok_and(|expected| expected == *is)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.begun.take().map(Begun::leave));
    }
}

impl Begun {
    fn start(
        opening: &Opening,
        overlays: &[Overlay],
        identities: &SourceIdentities,
    ) -> Result<Self, LaunchError> {
        let (control, theirs) = fds::stream_pair().map_err(LaunchError::talk)?;
        message::ask_for_senders(control.as_fd()).map_err(LaunchError::talk)?;
        let mut opener = Opener { identities, control: theirs.as_raw_fd(), kept: Vec::new() };
        let mut arguments: Vec<u8> = Vec::new();
        for argument in &opening.arguments {
            arguments.extend(opener.bytes(argument)?);
            arguments.push(0);
        }
        let by_descriptor = hold_bytes("arguments", &arguments)?;
        let mut argv = vec![
            opening.program.as_bytes().to_vec(),
            b"--args".to_vec(),
            by_descriptor.as_raw_fd().to_string().into_bytes(),
        ];
        for argument in &opening.command {
            argv.push(opener.bytes(argument)?);
        }
        let mut kept = opener.kept;
        kept.extend([by_descriptor, theirs]);
        let (bwrap, stderr) = match overlays {
            [] => start(&argv, kept)?,
            overlays => start_in_overlays(&argv, kept, overlays, identities)?,
        };
        Ok(Self { bwrap, stderr, control })
    }

    /// Closes the socket. The guest ends by itself when the other end of its socket is closed, and bubblewrap with it. If
    /// bubblewrap were killed before it has written the user mapping of its child, the child would wait for that for ever.
    pub fn leave(self) -> Leaving {
        let Self { bwrap, stderr, control: _closed } = self;
        Leaving { bwrap, _stderr: stderr }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.bwrap.ends_within(LEAVING);
    }
}

/// Starts bubblewrap, without an environment and with the descriptors under their numbers. It has a session of its own: the
/// user's Ctrl-C reaches the command through belljar, and not bubblewrap. Our copies of the descriptors, the guest's end of
/// the socket among them, are closed on return: the guest's end of the socket must close when the guest ends.
fn start(argv: &[Vec<u8>], kept: Vec<OwnedFd>) -> Result<(OwnedChild, File), LaunchError> {
    let failed = |cause| LaunchError::Spawn { program: program_of(argv), cause };
    let arguments: Vec<CString> = argv
        .iter()
        .map(|argument| CString::new(argument.as_slice()))
        .collect::<Result<_, _>>()
        .map_err(|nul| failed(nul.into()))?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
    let (stderr, theirs) = std::io::pipe().map_err(failed)?;
    let borrowed: Vec<BorrowedFd<'_>> = kept.iter().map(AsFd::as_fd).collect();
    // outside: bwrap
    let program = Program {
        file: arguments.first().map(CString::as_c_str).unwrap_or_default(),
        arguments: &arguments,
        environment: &[],
        // The working directory may belong to anyone; the guest enters the one that the plan names.
        directory: c"/",
        stdio: [Stream::From(null.as_fd()), Stream::From(null.as_fd()), Stream::From(theirs.as_fd())],
        keeps: &borrowed,
        terminal: ControllingTerminal::Absent,
        limits: &[],
        umask: UMASK,
    };
    let pid = program.spawn().map_err(|error| match error {
        SpawnError::Child { cause, .. } | SpawnError::Fork(cause) => failed(cause.into()),
    })?;
    Ok((OwnedChild::new(pid), File::from(OwnedFd::from(stderr))))
}

/// The same in a mount namespace with the overlays. The kernel makes a user namespace only for a process that shares
/// its memory with no other, so this one is copied.
fn start_in_overlays(
    argv: &[Vec<u8>],
    kept: Vec<OwnedFd>,
    overlays: &[Overlay],
    identities: &SourceIdentities,
) -> Result<(OwnedChild, File), LaunchError> {
    let mut arguments = argv.iter().map(|argument| OsStr::from_bytes(argument));
    // outside: bwrap
    let mut command = Command::new(arguments.next().unwrap_or_default());
    command.current_dir("/");
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.own_session().keeps(kept);
    let specs = overlays.iter().map(|overlay| begin_overlay(overlay, identities));
    let specs = specs.collect::<Result<_, _>>()?;
    let preparation = belljar_sys::overlay::prepare(&mut command, specs)?;
    let spawned = command.spawn();
    // The command's closure holds our copies of the descriptors, the guest's end of the socket among them.
    drop(command);
    let failed = |cause| match preparation.failed_step() {
        Some(step) => LaunchError::OverlayStep { step, cause },
        None => LaunchError::Spawn { program: program_of(argv), cause },
    };
    let mut child = spawned.map_err(failed)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (Some(pid), Some(stderr)) = (pid, child.stderr.take()) else {
        return Err(failed(std::io::ErrorKind::Other.into()));
    };
    Ok((OwnedChild::new(pid), File::from(OwnedFd::from(stderr))))
}

fn program_of(argv: &[Vec<u8>]) -> OsText {
    argv.first().and_then(|program| OsText::new(program.clone()).ok()).unwrap_or_default()
}

/// Turns arguments into bytes, and keeps the descriptors that they name.
struct Opener<'a> {
    identities: &'a SourceIdentities,
    control: RawFd,
    kept: Vec<OwnedFd>,
}

impl Opener<'_> {
    fn bytes(&mut self, argument: &LaunchArgument) -> Result<Vec<u8>, LaunchError> {
        match argument {
            LaunchArgument::Text(text) => Ok(text.as_bytes().to_vec()),
            LaunchArgument::Control => Ok(self.control.to_string().into_bytes()),
            LaunchArgument::Program(path) => {
                let (descriptor, _identity) = open_source(path, self.identities)?;
                let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
                self.kept.push(descriptor);
                Ok(path.into_bytes())
            }
        }
    }
}
