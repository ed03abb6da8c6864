//! Raw system calls, for what no safe wrapper covers and for probes that must try a call as it is.

use rustix::io::Errno;

/// Turns the answer of a libc function into a value or the errno.
///
/// # Errors
/// `-1` means that the call failed; the reason is in `errno`.
pub fn check(answer: libc::c_long) -> Result<libc::c_long, Errno> {
    if answer == -1 { Err(last_errno()) } else { Ok(answer) }
}

/// The reason for the last failure in this thread.
#[must_use]
pub fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Errno::from_raw_os_error(code)
}

/// A system call that takes at most three plain integers and no pointer, tried as it is.
///
/// Meant for calls that are expected to be refused. Only numbers listed in [`PlainCall`] are accepted, so a
/// safe caller can neither reach memory nor end a process with it.
///
/// # Errors
/// The kernel's answer, whatever it is.
pub fn try_plain(call: PlainCall) -> Result<i64, Errno> {
    let (number, [first, second, third]) = call.numbers();
    // SAFETY: every `PlainCall` names a call whose arguments are integers or null pointers that the kernel checks
    // itself; none writes to memory of this process.
    let answer = unsafe { libc::syscall(number, first, second, third, 0, 0, 0) };
    check(answer)
}

/// The calls that [`try_plain`] can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainCall {
    /// `io_uring_setup(8, NULL)`: `EFAULT` where io_uring is reachable.
    IoUringSetup,
    /// `bpf(BPF_MAP_CREATE, NULL, 0)`.
    Bpf,
    /// `perf_event_open(NULL)`: `EFAULT` where reachable.
    PerfEventOpen,
    /// `userfaultfd(UFFD_USER_MODE_ONLY)`.
    Userfaultfd,
    /// `unshare(flags)`.
    Unshare(i32),
    /// `mount(NULL, NULL, NULL)`: `EFAULT` where reachable.
    Mount,
    /// `fsopen(NULL)`: `EFAULT` where reachable.
    Fsopen,
    /// `setns(-1, 0)`: `EBADF` where reachable.
    Setns,
    /// `keyctl(KEYCTL_GET_KEYRING_ID, @s)`.
    KeyringId,
    /// `shmget(key, 1, 0)`: finds a segment that exists, never makes one.
    Shmget(i32),
    /// `ptrace(PTRACE_SEIZE, pid)`; the kernel detaches when the caller ends.
    PtraceSeize(i32),
    /// `kill(pid, 0)`.
    KillZero(i32),
    /// `personality(value)`.
    Personality(u32),
    /// `getppid()`, the cheapest call there is, to time a filter with.
    Getppid,
    /// `getppid()` by its x32 number: `ENOSYS` where the kernel has no x32.
    X32Getppid,
}

impl PlainCall {
    fn numbers(self) -> (libc::c_long, [libc::c_long; 3]) {
        const UFFD_USER_MODE_ONLY: libc::c_long = 1;
        const SESSION_KEYRING: libc::c_long = -3;
        const PTRACE_SEIZE: libc::c_long = 0x4206;
        const X32_BIT: libc::c_long = 0x4000_0000;
        match self {
            PlainCall::IoUringSetup => (libc::SYS_io_uring_setup, [8, 0, 0]),
            PlainCall::Bpf => (libc::SYS_bpf, [0, 0, 0]),
            PlainCall::PerfEventOpen => (libc::SYS_perf_event_open, [0, 0, -1]),
            PlainCall::Userfaultfd => {
                (libc::SYS_userfaultfd, [UFFD_USER_MODE_ONLY | libc::O_CLOEXEC as libc::c_long, 0, 0])
            }
            PlainCall::Unshare(flags) => (libc::SYS_unshare, [flags.into(), 0, 0]),
            PlainCall::Mount => (libc::SYS_mount, [0, 0, 0]),
            PlainCall::Fsopen => (libc::SYS_fsopen, [0, 0, 0]),
            PlainCall::Setns => (libc::SYS_setns, [-1, 0, 0]),
            PlainCall::KeyringId => (libc::SYS_keyctl, [0, SESSION_KEYRING, 0]),
            PlainCall::Shmget(key) => (libc::SYS_shmget, [key.into(), 1, 0]),
            PlainCall::PtraceSeize(pid) => (libc::SYS_ptrace, [PTRACE_SEIZE, pid.into(), 0]),
            PlainCall::KillZero(pid) => (libc::SYS_kill, [pid.into(), 0, 0]),
            PlainCall::Personality(value) => (libc::SYS_personality, [value.into(), 0, 0]),
            PlainCall::Getppid => (libc::SYS_getppid, [0; 3]),
            PlainCall::X32Getppid => (libc::SYS_getppid | X32_BIT, [0; 3]),
        }
    }
}

/// Asks for a socket of the given family, type and protocol and closes it again.
///
/// # Errors
/// The kernel's answer.
pub fn try_socket(family: i32, kind: i32, protocol: i32) -> Result<(), Errno> {
    // SAFETY: `socket` takes three integers and touches no memory of ours.
    let answer = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    let number = check(answer.into())?;
    // SAFETY: the kernel just returned this descriptor and nothing else in the process knows its number.
    let socket = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number as i32) };
    drop(socket);
    Ok(())
}

/// Searches the session keyring for a key of type `user` and gives its serial number.
///
/// # Errors
/// `ENOKEY` if the key does not exist, `EPERM` under the filter.
pub fn try_key_search(description: &std::ffi::CStr) -> Result<i64, Errno> {
    const KEYCTL_SEARCH: libc::c_long = 10;
    const SESSION_KEYRING: libc::c_long = -3;
    // SAFETY: both strings are NUL-terminated and outlive the call, which only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_SEARCH,
            SESSION_KEYRING,
            c"user".as_ptr(),
            description.as_ptr(),
            0,
        )
    };
    check(answer)
}

/// Adds a key of type `user` to the session keyring.
///
/// # Errors
/// The kernel's answer.
pub fn try_key_add(description: &std::ffi::CStr, payload: &[u8]) -> Result<i64, Errno> {
    const SESSION_KEYRING: libc::c_long = -3;
    // SAFETY: the strings are NUL-terminated, `payload` is as long as stated, and the call only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            description.as_ptr(),
            payload.as_ptr(),
            payload.len(),
            SESSION_KEYRING,
        )
    };
    check(answer)
}

/// Restricts a key to its possessors: other processes of the owner do not even see it listed.
///
/// # Errors
/// The kernel's answer.
pub fn try_key_possessors_only(serial: i64) -> Result<(), Errno> {
    const KEYCTL_SETPERM: libc::c_long = 5;
    const POSSESSOR_ALL: libc::c_long = 0x3f00_0000;
    // SAFETY: the call takes integers only and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, serial, POSSESSOR_ALL) };
    check(answer).map(drop)
}

/// Pushes one byte into the input queue of a terminal (`TIOCSTI`), with `extra` in the upper half of the request
/// number, where a filter that compares 64 bits would not look.
///
/// # Errors
/// `EPERM` under the filter, `ENOTTY` if the descriptor is not a terminal, `EIO` if the kernel has it disabled.
pub fn try_terminal_input(terminal: std::os::fd::BorrowedFd<'_>, extra: u32) -> Result<(), Errno> {
    let byte: u8 = 0;
    let request = libc::c_long::from(extra) << 32 | libc::TIOCSTI as libc::c_long;
    let number = std::os::fd::AsRawFd::as_raw_fd(&terminal);
    // SAFETY: TIOCSTI reads one byte from the pointer, which points at a live local; the descriptor is borrowed
    // for the call.
    let answer = unsafe { libc::syscall(libc::SYS_ioctl, number, request, &raw const byte) };
    check(answer).map(drop)
}

/// `clone3` with arguments that no kernel accepts: `EINVAL` if the call is reachable, `ENOSYS` under the filter.
///
/// # Errors
/// Always.
pub fn try_clone3() -> Result<i64, Errno> {
    // SAFETY: with a size of zero the kernel refuses before it reads the (null) arguments.
    let answer = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0usize) };
    check(answer)
}

/// Clones a child into a new user namespace and reaps it.
///
/// # Errors
/// The kernel's answer.
pub fn try_clone_newuser() -> Result<(), Errno> {
    let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has its own copy of memory, and with a null stack it goes on where the
    // parent is, as after `fork`; it exits at once below.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match rustix::process::Pid::from_raw(check(answer)? as i32) {
        None => crate::process::exit_now(0),
        Some(child) => {
            crate::process::wait_for(child).ok();
            Ok(())
        }
    }
}

/// Calls `getpid` through the 32-bit gate. A filter that ends the process for it ends the caller.
///
/// # Errors
/// The kernel's answer.
#[cfg(target_arch = "x86_64")]
pub fn try_int80_getpid() -> Result<i64, Errno> {
    const GETPID_32: i64 = 20;
    let mut answer = GETPID_32;
    // SAFETY: the gate takes the number in eax and no argument for `getpid`; it preserves all registers but the
    // answer in rax and r8 to r11, which are declared, and touches no memory.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") answer,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
            options(nostack)
        );
    }
    if answer < 0 { Err(Errno::from_raw_os_error(-answer as i32)) } else { Ok(answer) }
}
