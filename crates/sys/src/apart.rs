//! A network and a view of a few files of one's own, for chosen children of this process.
//!
//! The namespaces are made by a forked child, which opens the sockets that listen there and hands everything out. A
//! socket belongs to the network that it was made in, so this process receives its traffic without being in it.
//! The child stays, as the one process of ours in that network, until the value is dropped.

use crate::message::{self, Bounds, MAX_DESCRIPTORS};
use crate::network;
use crate::process::{OwnedChild, die_with, exit_now, fork};
use crate::userns::{self, Maps};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Making namespaces takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// User, mounts and network.
const NAMESPACES: usize = 3;
const ERROR_LIMIT: usize = 4096;

/// Why the namespaces could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ApartError {
    /// One of the steps failed in the child, with its message.
    #[error("cannot make a separate network: {0}")]
    Refused(String),
    /// No child could be forked, or it ended without a message.
    #[error("cannot make a separate network")]
    Silent(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The addresses, files and sockets of the new namespaces.
#[derive(Debug, Default)]
pub struct ApartSpec {
    /// Addresses that lead back to it, beside the loopback's own.
    pub ranges: Vec<(Ipv4Addr, u8)>,
    /// Bind mounts of files and directories: source and target.
    pub over: Vec<(PathBuf, PathBuf)>,
    /// Addresses of TCP listeners.
    pub tcp: Vec<SocketAddr>,
    /// Addresses of UDP sockets.
    pub udp: Vec<SocketAddr>,
}

/// The namespaces, and the sockets that listen in them.
#[derive(Debug)]
pub struct Apart {
    /// The TCP listeners, in the order of the spec.
    pub tcp: Vec<TcpListener>,
    /// The UDP sockets, in the order of the spec.
    pub udp: Vec<UdpSocket>,
    user: OwnedFd,
    mounts: OwnedFd,
    network: OwnedFd,
    _keeper: OwnedChild,
}

impl Apart {
    /// Makes the namespaces. The child then runs `stay` in them; it is killed with this value, or with this process.
    ///
    /// To be called while this process has one thread: the child goes on in a copy of it.
    ///
    /// # Errors
    /// Where the kernel grants no namespaces.
    pub fn make(spec: &ApartSpec, stay: impl FnOnce()) -> Result<Self, ApartError> {
        let silent = |cause: Errno| ApartError::Silent(Box::new(cause));
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(silent)?;
        let parent = rustix::process::getpid();
        let Some(child) = fork().map_err(silent)? else {
            // Unwinding out of here would run the parent's code a second time, in the child.
            let lived = catch_unwind(AssertUnwindSafe(|| {
                if die_with(parent).is_ok() && hand_out(spec, theirs.as_fd()) {
                    drop((ours, theirs));
                    stay();
                }
            }));
            exit_now(if lived.is_ok() { 0 } else { 101 });
        };
        let keeper = OwnedChild::new(child);
        drop(theirs);
        let bounds = Bounds { bytes: ERROR_LIMIT, descriptors: MAX_DESCRIPTORS, within: Some(PATIENCE) };
        let received = message::receive(ours.as_fd(), bounds);
        let received = received.map_err(|error| ApartError::Silent(Box::new(error)))?;
        if received.descriptors.len() != NAMESPACES + spec.tcp.len() + spec.udp.len() {
            return Err(ApartError::Refused(String::from_utf8_lossy(&received.body).into_owned()));
        }
        let mut all = received.descriptors.into_iter();
        let (Some(user), Some(mounts), Some(network)) = (all.next(), all.next(), all.next()) else {
            return Err(ApartError::Refused("it has no namespaces".to_owned()));
        };
        let tcp = all.by_ref().take(spec.tcp.len()).map(TcpListener::from).collect();
        let udp = all.map(UdpSocket::from).collect();
        Ok(Self { tcp, udp, user, mounts, network, _keeper: keeper })
    }
}

/// Sends all descriptors, or an error message; returns whether it sent descriptors.
fn hand_out(spec: &ApartSpec, to: BorrowedFd<'_>) -> bool {
    let made = build(spec);
    let (message, descriptors) = match &made {
        Ok(descriptors) => (String::new(), descriptors.iter().map(AsFd::as_fd).collect()),
        Err(message) => (message.clone(), Vec::new()),
    };
    message::send(to, message.as_bytes(), &descriptors).is_ok() && made.is_ok()
}

fn build(spec: &ApartSpec) -> Result<Vec<OwnedFd>, String> {
    let others = libc::CLONE_NEWNS | libc::CLONE_NEWNET;
    // Root without the capability, as in a container, needs a user namespace like any other user.
    let as_root = rustix::process::geteuid().is_root() && userns::unshare(others).is_ok();
    if !as_root {
        userns::enter(&Maps::own(), others).map_err(|(step, errno)| format!("{step:?}: {errno}"))?;
    }
    let text = |what: &str, cause: &dyn std::fmt::Display| format!("{what}: {cause}");
    network::bring_loopback_up().map_err(|error| text("loopback", &error))?;
    for (range, prefix) in &spec.ranges {
        network::add_local_range(*range, *prefix).map_err(|error| text("addresses", &error))?;
    }
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|errno| text("mounts", &errno))?;
    for (from, to) in &spec.over {
        rustix::mount::mount_bind(from, to).map_err(|errno| text(&to.to_string_lossy(), &errno))?;
    }
    let mut all = Vec::new();
    for name in ["user", "mnt", "net"] {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(format!("/proc/self/ns/{name}"), flags, Mode::empty());
        all.push(opened.map_err(|errno| text(name, &errno))?);
    }
    for at in &spec.tcp {
        all.push(TcpListener::bind(at).map_err(|error| text(&at.to_string(), &error))?.into());
    }
    for at in &spec.udp {
        all.push(UdpSocket::bind(at).map_err(|error| text(&at.to_string(), &error))?.into());
    }
    Ok(all)
}

/// A command that runs in these namespaces.
pub trait Enter {
    /// Makes the child enter the namespaces and work in `directory`, which overrides an earlier working directory.
    ///
    /// # Errors
    /// Fails if descriptors are used up, or the directory has a NUL in it.
    fn enters(&mut self, place: &Apart, directory: &Path) -> std::io::Result<&mut Self>;
}

impl Enter for Command {
    fn enters(&mut self, place: &Apart, directory: &Path) -> std::io::Result<&mut Self> {
        let directory = CString::new(directory.as_os_str().as_bytes())?;
        // Entering the user namespace that one is in is an error.
        let own = rustix::fs::stat("/proc/self/ns/user")?;
        let there = rustix::fs::fstat(&place.user)?;
        let user = (own.st_ino != there.st_ino).then(|| place.user.try_clone()).transpose()?;
        let (mounts, network) = (place.mounts.try_clone()?, place.network.try_clone()?);
        let enter = move || {
            // The first brings the capabilities that the others want.
            if let Some(user) = &user {
                move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
            }
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
            Ok(rustix::process::chdir(&directory)?)
        };
        // SAFETY: the closure makes system calls on values that it owns, and allocates nothing.
        Ok(unsafe { self.pre_exec(enter) })
    }
}
