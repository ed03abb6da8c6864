//! Whether this user can make namespaces: found out by doing it in a forked child, and if not, why.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::process::{Ended, ProcessError, in_child};

/// The outcome of the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Userns {
    /// A user namespace with mount, pid, network, ipc and uts namespaces was made and mapped.
    Works,
    /// It was not.
    Refused {
        /// Where it stopped.
        step: UserNamespaceStep,
        /// The kernel's answer.
        errno: Errno,
        /// The likely reason.
        reason: Reason,
    },
}

/// The steps of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserNamespaceStep {
    /// `unshare(CLONE_NEWUSER)`.
    Unshare,
    /// Writing the maps of users and groups.
    Map,
    /// The other namespaces, with the capabilities that the first one gave.
    Namespaces,
}

/// Why user namespaces are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Debian's switch: `kernel.unprivileged_userns_clone = 0`.
    CloneSwitch,
    /// `user.max_user_namespaces = 0`.
    MaxIsZero,
    /// Ubuntu's switch: `kernel.apparmor_restrict_unprivileged_userns = 1`.
    AppArmor,
    /// A system-call filter is in force: this is a container or a sandbox already.
    Filtered,
    /// Namespaces are nested to the limit, or the limit of this user is reached.
    Exhausted,
    /// None of the known ones.
    Unknown,
}

/// The settings of the machine about user namespaces; `None` if the file is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// `kernel.unprivileged_userns_clone`.
    pub unprivileged_userns_clone: Option<i64>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<i64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restrict: Option<i64>,
    /// The `Seccomp` line of this process.
    pub seccomp: Option<i64>,
}

impl Switches {
    /// Reads them.
    #[must_use]
    pub fn read() -> Self {
        // A switch that cannot be read is a switch that is not there; nothing is granted on it.
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = std::fs::read_to_string("/proc/self/status").ok();
        let seccomp = status.as_deref().and_then(|status| {
            status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()
        });
        Switches {
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            apparmor_restrict: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            seccomp,
        }
    }

    /// The likely reason for a failure.
    #[must_use]
    pub fn explain(&self, step: UserNamespaceStep, errno: Errno) -> Reason {
        let Switches { unprivileged_userns_clone, max_user_namespaces, apparmor_restrict, seccomp } = *self;
        if max_user_namespaces == Some(0) {
            Reason::MaxIsZero
        } else if unprivileged_userns_clone == Some(0) && step == UserNamespaceStep::Unshare {
            Reason::CloneSwitch
        } else if apparmor_restrict == Some(1) && matches!(errno, Errno::PERM | Errno::ACCESS) {
            Reason::AppArmor
        } else if seccomp == Some(2) {
            Reason::Filtered
        } else if matches!(errno, Errno::NOSPC | Errno::USERS) {
            Reason::Exhausted
        } else {
            Reason::Unknown
        }
    }
}

/// Tries it, in a child that ends at once.
///
/// # Errors
/// Fails if no child could be forked.
pub fn probe() -> Result<Userns, ProcessError> {
    let maps = Maps::own();
    let others =
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // The status of the child carries the step and the errno: all errnos of these calls are below 64.
    let ended = in_child(move || match enter(&maps, others) {
        Ok(()) => 0,
        Err((step, errno)) => (step as u8) << 6 | u8::try_from(errno.raw_os_error()).unwrap_or(0).min(63),
    })?;
    let Ended::Exited(status) = ended else {
        let switches = Switches::read();
        let (step, errno) = (UserNamespaceStep::Unshare, Errno::PERM);
        return Ok(Userns::Refused { step, errno, reason: switches.explain(step, errno) });
    };
    if status == 0 {
        return Ok(Userns::Works);
    }
    let step = match status >> 6 {
        0 => UserNamespaceStep::Unshare,
        1 => UserNamespaceStep::Map,
        _ => UserNamespaceStep::Namespaces,
    };
    let errno = Errno::from_raw_os_error(if status & 63 == 63 { libc::EUSERS } else { status & 63 });
    Ok(Userns::Refused { step, errno, reason: Switches::read().explain(step, errno) })
}

/// The maps that make the caller the same user inside, prepared before the fork.
pub(crate) struct Maps {
    user: CString,
    group: CString,
}

impl Maps {
    pub(crate) fn own() -> Self {
        let line = |id: u32| CString::new(format!("{id} {id} 1\n")).unwrap_or_default();
        Maps {
            user: line(rustix::process::geteuid().as_raw()),
            group: line(rustix::process::getegid().as_raw()),
        }
    }

    /// The caller is this user inside, and of the group of the same number.
    fn to(user: u32) -> Self {
        let line = |id: u32| CString::new(format!("{user} {id} 1\n")).unwrap_or_default();
        Maps {
            user: line(rustix::process::geteuid().as_raw()),
            group: line(rustix::process::getegid().as_raw()),
        }
    }
}

/// Moves the calling process, which must have one thread, into a user namespace within its own, in which it is `user`
/// and of the group of the same number. What it could do to the namespaces that it was in before, it cannot any more.
///
/// # Errors
/// Fails where namespaces are used up.
pub fn become_user(user: u32) -> Result<(), Errno> {
    enter(&Maps::to(user), 0).map_err(|(_step, errno)| errno)
}

/// Moves the calling process, which must have one thread, into a user namespace in which it is user 0, and into a copy of
/// the mounts that belongs to it: there it may mount, whatever it may outside.
///
/// # Errors
/// Fails where namespaces are refused or used up.
pub fn take_mounts() -> Result<(), Errno> {
    enter(&Maps::to(0), libc::CLONE_NEWNS).map_err(|(_step, errno)| errno)
}

/// Moves the calling process, which must have one thread, into a new user namespace and then into `others`.
/// Allocates nothing.
pub(crate) fn enter(maps: &Maps, others: libc::c_int) -> Result<(), (UserNamespaceStep, Errno)> {
    unshare(libc::CLONE_NEWUSER).map_err(|errno| (UserNamespaceStep::Unshare, errno))?;
    let map = || {
        let [groups, user, group] = open_maps()?;
        put(&groups, c"deny")?;
        put(&user, &maps.user)?;
        put(&group, &maps.group)
    };
    map().map_err(|errno| (UserNamespaceStep::Map, errno))?;
    unshare(others).map_err(|errno| (UserNamespaceStep::Namespaces, errno))
}

pub(crate) fn unshare(flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: `unshare` takes flags by value. The flags used here are namespaces only; none of them splits memory
    // or descriptors that other code relies on.
    let answer = unsafe { libc::unshare(flags) };
    crate::raw::check(answer.into()).map(drop)
}

/// The files that take the maps of the caller.
///
/// They belong to the superuser while a process is not dumpable, so that an ordinary user could not open them; they are
/// opened in a moment in which it is, and written after it.
fn open_maps() -> Result<[OwnedFd; 3], Errno> {
    let before = rustix::process::dumpable_behavior()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let open =
        |path: &std::ffi::CStr| rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let opened = (open(c"/proc/self/setgroups"), open(c"/proc/self/uid_map"), open(c"/proc/self/gid_map"));
    rustix::process::set_dumpable_behavior(before)?;
    Ok([opened.0?, opened.1?, opened.2?])
}

fn put(file: &OwnedFd, content: &std::ffi::CStr) -> Result<(), Errno> {
    rustix::io::write(file, content.to_bytes()).map(drop)
}
