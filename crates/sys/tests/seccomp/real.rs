//! Calls that are really made, in a child, with and without the filter.

use belljar_sys::process::{Ended, in_child};
use belljar_sys::raw::{self, PlainCall};
use belljar_sys::seccomp::Filter;
use belljar_sys::{Errno, privs};

/// Where a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    /// Where every user is privileged: what an ordinary one is refused anyway shows nothing of the filter.
    OwnNamespaces,
}

/// The answer to a call that is really made in a child, behind the filter or not.
fn answer(filter: Option<&Filter>, call: fn() -> Result<(), Errno>) -> Result<Option<i32>, i32> {
    answer_at(Place::Here, filter, call)
}

fn answer_at(
    place: Place,
    filter: Option<&Filter>,
    call: fn() -> Result<(), Errno>,
) -> Result<Option<i32>, i32> {
    let own = PlainCall::Unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS);
    let ended = in_child(|| {
        if place == Place::OwnNamespaces && raw::try_plain(own).is_err() {
            return 254;
        }
        if let Some(filter) = filter
            && (privs::no_new_privs().is_err() || filter.install().is_err())
        {
            return 255;
        }
        call().map_or_else(|errno| errno.raw_os_error() as u8, |()| 0)
    });
    match ended.unwrap() {
        Ended::Exited(255) => panic!("the filter was not installed"),
        Ended::Exited(254) => panic!("no namespaces could be made"),
        Ended::Exited(0) => Ok(None),
        Ended::Exited(errno) => Ok(Some(errno)),
        Ended::Killed(signal) => Err(signal),
    }
}

#[test]
fn real_calls_are_open_without_the_filter_and_closed_with_it() {
    let filter = Filter::standard().unwrap();
    let (perm, nosys) = (Ok(Some(1)), Ok(Some(38)));
    type Case = (&'static str, fn() -> Result<(), Errno>, Result<Option<i32>, i32>);
    let cases: [Case; 11] = [
        ("io_uring", || raw::try_plain(PlainCall::IoUringSetup).map(drop), perm),
        ("keyctl", || raw::try_plain(PlainCall::KeyringId).map(drop), perm),
        ("mount", || raw::try_plain(PlainCall::Mount).map(drop), perm),
        ("setns", || raw::try_plain(PlainCall::Setns).map(drop), perm),
        ("perf", || raw::try_plain(PlainCall::PerfEventOpen).map(drop), perm),
        ("unshare", || raw::try_plain(PlainCall::Unshare(libc::CLONE_NEWUSER)).map(drop), perm),
        ("clone", || raw::try_clone_newuser(), perm),
        ("clone3", || raw::try_clone3().map(drop), nosys),
        ("netlink", || raw::try_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC), perm),
        ("personality", || raw::try_plain(PlainCall::Personality(0x40_0000)).map(drop), perm),
        ("int80", || raw::try_int80_getpid().map(drop), Err(libc::SIGSYS)),
    ];
    for (name, call, closed) in cases {
        let without = answer(None, call);
        assert!(without != perm && without != nosys, "{name} is closed on the host: {without:?}");
        assert_eq!(answer(Some(&filter), call), closed, "{name}");
    }
    let fsopen =
        |filter| answer_at(Place::OwnNamespaces, filter, || raw::try_plain(PlainCall::Fsopen).map(drop));
    assert_eq!(fsopen(None), Ok(Some(libc::EFAULT)));
    assert_eq!(fsopen(Some(&filter)), perm);
}

#[test]
fn terminal_input_is_open_without_the_filter_and_closed_with_it() {
    fn on_a_terminal(extra: u32) -> Result<(), Errno> {
        let pair = belljar_sys::pty::Pair::open().map_err(|_none| Errno::NOTTY)?;
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&pair.terminal)?;
        let answer = raw::try_terminal_input(std::os::fd::AsFd::as_fd(&pair.terminal), extra);
        // Closing our end would hang up on this process before it can tell.
        std::mem::forget(pair);
        answer
    }
    let filter = Filter::standard().unwrap();
    let allowed = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
    if allowed.is_ok_and(|allowed| allowed.trim() == "1") {
        assert_eq!(answer(None, || on_a_terminal(0)), Ok(None));
        assert_eq!(answer(None, || on_a_terminal(1)), Ok(None));
    }
    assert_eq!(answer(Some(&filter), || on_a_terminal(0)), Ok(Some(1)));
    assert_eq!(answer(Some(&filter), || on_a_terminal(1)), Ok(Some(1)));
}

#[test]
fn without_no_new_privileges_an_ordinary_user_cannot_install_it() {
    let filter = Filter::standard().unwrap();
    let ended = in_child(|| {
        belljar_sys::caps::drop_all().ok();
        u8::from(filter.install().is_err())
    });
    assert_eq!(ended.unwrap(), Ended::Exited(1));
}
