//! The policy as data: which calls are refused or handed to a listener, and why. Everything else is allowed.

use super::{Action, Check, Entry, Is, When};

/// Every refusal.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    STANDARD.iter().flat_map(|table| table.iter())
}

/// Every refusal where no process may reach into another: [`entries`] and those that write to the memory of another process,
/// take its descriptors or attach to it.
pub fn apart_entries() -> impl Iterator<Item = &'static Entry> {
    entries().chain(APART)
}

/// Calls that make, open for writing, move or shorten a file, for a filter with a listener; and `openat2`, which the process that
/// answers them needs itself, so that [`entries`] cannot refuse it there.
pub fn guard_entries() -> impl Iterator<Item = &'static Entry> {
    GUARD.iter().chain(GUARD_OLD).chain(SETUID.iter().filter(|entry| entry.number == libc::SYS_openat2))
}

/// Calls that look as if they should be refused, each with the reason why [`entries`] allows it.
pub fn allowed() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALLOWED.iter().copied()
}

/// An entry: the action, the call, the arguments that it matches (without `if` all), and the reason.
macro_rules! entry {
    ($action:ident $call:ident, $why:expr) => {
        entry!(@ $action $call When::Always, $why)
    };
    ($action:ident $call:ident if $checks:tt, $why:expr) => {
        entry!(@ $action $call When::Arguments(&$checks), $why)
    };
    (@ $action:ident $call:ident $when:expr, $why:expr) => {
        Entry {
            call: stringify!($call).split_at("SYS_".len()).1,
            number: numbers::$call,
            when: $when,
            action: Action::$action,
            why: $why,
        }
    };
}

/// The numbers of the calls. Those that not every C library knows are the same on all processors.
#[allow(non_upper_case_globals, reason = "they are named as in the C library")]
mod numbers {
    pub use libc::*;

    /// Since Linux 6.6.
    pub const SYS_fchmodat2: i64 = 452;
    /// Since Linux 6.15.
    pub const SYS_open_tree_attr: i64 = 467;
}

const fn equal(argument: u8, value: u32) -> Check {
    Check { argument, is: Is::Equal(value) }
}

const fn not(argument: u8, value: u32) -> Check {
    Check { argument, is: Is::Not(value) }
}

const fn masked(argument: u8, mask: u32, value: u32) -> Check {
    Check { argument, is: Is::Masked { mask, value } }
}

const fn bit(argument: u8, flag: i32) -> Check {
    masked(argument, flag as u32, flag as u32)
}

const STANDARD: &[&[Entry]] = &[
    SOCKETS,
    INTERNET,
    NAMESPACES,
    MOUNTS,
    SETUID,
    KEYS,
    KERNEL_SURFACE,
    MACHINE,
    TERMINAL,
    PERSONALITY,
    PROCESSOR,
];

const UNIX: u32 = libc::AF_UNIX as u32;
const INET: u32 = libc::AF_INET as u32;
const INET6: u32 = libc::AF_INET6 as u32;
const NETLINK: u32 = libc::AF_NETLINK as u32;

/// `socket(family, type, protocol)`.
const SOCKETS: &[Entry] = &[
    entry!(Deny SYS_socket if [not(0, UNIX), not(0, INET), not(0, INET6), not(0, NETLINK)],
        "every other family leads past the network namespace (vsock), to kernel crypto (alg) or to the link"),
    entry!(Deny SYS_socket if [equal(0, NETLINK), not(2, libc::NETLINK_ROUTE as u32)],
        "name resolution lists addresses through the route protocol; the others are configuration and audit"),
    entry!(Deny SYS_socketpair if [not(0, UNIX)], "no other family has a use for pairs"),
];

const RAW_WHY: &str = "only stream and datagram: raw packets forge addresses";
const PROTOCOL_WHY: &str =
    "only TCP, UDP and MPTCP: SCTP, ICMP and the rest are kernel surface that no tool needs";

/// The type of a socket is in the low four bits of its argument; the others are flags. Every value but `SOCK_STREAM` (1) and
/// `SOCK_DGRAM` (2) is 0, 3, or has bit 2 or 3 set.
const TYPE: u32 = 0b1111;

const INTERNET: &[Entry] = &[
    entry!(Deny SYS_socket if [equal(0, INET), masked(1, TYPE, 0)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET), masked(1, TYPE, 3)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET), bit(1, 0b0100)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET), bit(1, 0b1000)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET), not(2, 0), not(2, TCP), not(2, UDP), not(2, MPTCP)], PROTOCOL_WHY),
    entry!(Deny SYS_socket if [equal(0, INET6), masked(1, TYPE, 0)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET6), masked(1, TYPE, 3)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET6), bit(1, 0b0100)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET6), bit(1, 0b1000)], RAW_WHY),
    entry!(Deny SYS_socket if [equal(0, INET6), not(2, 0), not(2, TCP), not(2, UDP), not(2, MPTCP)], PROTOCOL_WHY),
];

const TCP: u32 = libc::IPPROTO_TCP as u32;
const UDP: u32 = libc::IPPROTO_UDP as u32;
const MPTCP: u32 = libc::IPPROTO_MPTCP as u32;

const USERNS_WHY: &str =
    "a user namespace grants every capability over itself: most kernel escapes begin there";
const NAMESPACE_WHY: &str = "a new namespace is a new view of what was closed";

const NAMESPACES: &[Entry] = &[
    entry!(Absent SYS_clone3,
        "its flags are in memory, where a filter cannot look; the C library falls back to clone"),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWUSER)], USERNS_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWNS)], NAMESPACE_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWCGROUP)], NAMESPACE_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWUTS)], NAMESPACE_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWIPC)], NAMESPACE_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWPID)], NAMESPACE_WHY),
    entry!(Deny SYS_clone if [bit(0, libc::CLONE_NEWNET)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWUSER)], USERNS_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWNS)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWCGROUP)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWUTS)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWIPC)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWPID)], NAMESPACE_WHY),
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWNET)], NAMESPACE_WHY),
    // In `clone` this bit is part of the exit signal, so only `unshare` can ask for it.
    entry!(Deny SYS_unshare if [bit(0, libc::CLONE_NEWTIME)], NAMESPACE_WHY),
    entry!(Deny SYS_setns, "entering a namespace leaves the sandbox"),
];

const MOUNT_WHY: &str = "the mounts are what isolates the host's files";
const HANDLE_WHY: &str = "file handles open files by number, past every mount";

const MOUNTS: &[Entry] = &[
    entry!(Deny SYS_mount, MOUNT_WHY),
    entry!(Deny SYS_umount2, MOUNT_WHY),
    entry!(Deny SYS_pivot_root, MOUNT_WHY),
    entry!(Deny SYS_chroot, MOUNT_WHY),
    entry!(Deny SYS_move_mount, MOUNT_WHY),
    entry!(Deny SYS_open_tree, MOUNT_WHY),
    entry!(Deny SYS_open_tree_attr, MOUNT_WHY),
    entry!(Deny SYS_fsopen, MOUNT_WHY),
    entry!(Deny SYS_fsconfig, MOUNT_WHY),
    entry!(Deny SYS_fsmount, MOUNT_WHY),
    entry!(Deny SYS_fspick, MOUNT_WHY),
    entry!(Deny SYS_mount_setattr, MOUNT_WHY),
    entry!(Deny SYS_name_to_handle_at, HANDLE_WHY),
    entry!(Deny SYS_open_by_handle_at, HANDLE_WHY),
    entry!(Deny SYS_fanotify_init, "watches whole file systems, beyond the mounts inside"),
    entry!(Deny SYS_quotactl, "administers the host's file systems"),
    entry!(Deny SYS_quotactl_fd, "administers the host's file systems"),
    entry!(Deny SYS_swapon, "administers the host's memory"),
    entry!(Deny SYS_swapoff, "administers the host's memory"),
];

/// Inside, set-user-ID bits have no effect; on the host the file is the user's, and the bit counts.
const SETUID_WHY: &str = "a file left in the project would run on the host as its owner, for every user";
const S_ISUID: i32 = libc::S_ISUID as i32;
/// Without `O_DIRECTORY`, which is part of the flag as programs know it.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

const SETUID: &[Entry] = &[
    entry!(Deny SYS_fchmod if [bit(1, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_fchmodat if [bit(2, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_fchmodat2 if [bit(2, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_mknodat if [bit(2, S_ISUID)], SETUID_WHY),
    // The mode counts only where a file is made; elsewhere the register may hold anything.
    entry!(Deny SYS_openat if [bit(2, libc::O_CREAT), bit(3, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_openat if [bit(2, TMPFILE), bit(3, S_ISUID)], SETUID_WHY),
    entry!(Absent SYS_openat2,
        "its mode is in memory, where a filter cannot look; programs fall back to openat"),
];

const KEYS_WHY: &str = "keys cross namespaces, and the key service has had holes before";

const KEYS: &[Entry] = &[
    entry!(Deny SYS_add_key, KEYS_WHY),
    entry!(Deny SYS_request_key, KEYS_WHY),
    entry!(Deny SYS_keyctl, KEYS_WHY),
];

const URING_WHY: &str = "its operations bypass every filter, and its code has a long list of faults";

const KERNEL_SURFACE: &[Entry] = &[
    entry!(Deny SYS_io_uring_setup, URING_WHY),
    entry!(Deny SYS_io_uring_enter, URING_WHY),
    entry!(Deny SYS_io_uring_register, URING_WHY),
    entry!(Deny SYS_bpf, "loads programs into the kernel"),
    entry!(Deny SYS_perf_event_open, "measures other processes and the kernel"),
    entry!(Deny SYS_userfaultfd, "stops the kernel in the middle of a copy: makes races winnable"),
    entry!(Deny SYS_lookup_dcookie, "a remnant of a profiler that names paths by number"),
    entry!(Deny SYS_nfsservctl, "a remnant of the NFS server"),
    entry!(Deny SYS_vhangup, "hangs up a terminal for everyone"),
];

const MODULE_WHY: &str = "loads code into the kernel";
const CLOCK_WHY: &str = "the clock is the host's";
const NAME_WHY: &str = "the name was set before the sandbox was sealed";

const MACHINE: &[Entry] = &[
    entry!(Deny SYS_init_module, MODULE_WHY),
    entry!(Deny SYS_finit_module, MODULE_WHY),
    entry!(Deny SYS_delete_module, MODULE_WHY),
    entry!(Deny SYS_kexec_load, MODULE_WHY),
    entry!(Deny SYS_kexec_file_load, MODULE_WHY),
    entry!(Deny SYS_reboot, "the machine is the host's"),
    entry!(Deny SYS_settimeofday, CLOCK_WHY),
    entry!(Deny SYS_clock_settime, CLOCK_WHY),
    entry!(Deny SYS_adjtimex, CLOCK_WHY),
    entry!(Deny SYS_clock_adjtime, CLOCK_WHY),
    entry!(Deny SYS_acct, "writes a record of every process of the host"),
    entry!(Deny SYS_syslog, "the kernel's log holds addresses and messages about the host"),
    entry!(Deny SYS_sethostname, NAME_WHY),
    entry!(Deny SYS_setdomainname, NAME_WHY),
];

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const TERMINAL: &[Entry] = &[
    entry!(Deny SYS_ioctl if [equal(1, TIOCSTI)], "types into the terminal, as if the user had"),
    entry!(Deny SYS_ioctl if [equal(1, TIOCLINUX)], "pastes into the console"),
    entry!(Deny SYS_ioctl if [equal(1, TIOCSETD)], "loads line disciplines: old drivers, many faults"),
];

/// Allowed are the plain personality, the 32-bit and old-version names, no randomisation (debuggers and the thread sanitizer run
/// themselves again with it), and the question which one is set.
const PERSONALITY: &[Entry] = &[entry!(Deny SYS_personality
    if [not(0, 0), not(0, 8), not(0, 0x2_0000), not(0, 0x2_0008), not(0, 0x4_0000), not(0, u32::MAX)],
    "the other values weaken memory protection")];

#[cfg(target_arch = "x86_64")]
const PROCESSOR: &[Entry] = &[
    entry!(Deny SYS_chmod if [bit(1, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_creat if [bit(1, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_mknod if [bit(1, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_open if [bit(1, libc::O_CREAT), bit(2, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_open if [bit(1, TMPFILE), bit(2, S_ISUID)], SETUID_WHY),
    entry!(Deny SYS_iopl, "gives access to the ports of the machine"),
    entry!(Deny SYS_ioperm, "gives access to the ports of the machine"),
    entry!(Deny SYS_modify_ldt, "segments of 16-bit programs, a repeated source of kernel faults"),
    entry!(Deny SYS_uselib, "loads a program format that is gone"),
];
#[cfg(not(target_arch = "x86_64"))]
const PROCESSOR: &[Entry] = &[];

const MAKES_WHY: &str = "makes a name, or writes to a file, that the host may execute later";

/// Opening to read is allowed, and so is opening a path alone, which has none of these bits.
const GUARD: &[Entry] = &[
    entry!(Notify SYS_openat if [bit(2, libc::O_WRONLY)], MAKES_WHY),
    entry!(Notify SYS_openat if [bit(2, libc::O_RDWR)], MAKES_WHY),
    entry!(Notify SYS_openat if [bit(2, libc::O_CREAT)], MAKES_WHY),
    entry!(Notify SYS_openat if [bit(2, libc::O_TRUNC)], MAKES_WHY),
    entry!(Notify SYS_openat if [bit(2, TMPFILE)], MAKES_WHY),
    entry!(Notify SYS_mkdirat, MAKES_WHY),
    entry!(Notify SYS_mknodat, MAKES_WHY),
    entry!(Notify SYS_symlinkat, MAKES_WHY),
    entry!(Notify SYS_linkat, MAKES_WHY),
    entry!(Notify SYS_renameat, MAKES_WHY),
    entry!(Notify SYS_renameat2, MAKES_WHY),
    entry!(Notify SYS_truncate, MAKES_WHY),
];

/// Calls that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const GUARD_OLD: &[Entry] = &[
    entry!(Notify SYS_open if [bit(1, libc::O_WRONLY)], MAKES_WHY),
    entry!(Notify SYS_open if [bit(1, libc::O_RDWR)], MAKES_WHY),
    entry!(Notify SYS_open if [bit(1, libc::O_CREAT)], MAKES_WHY),
    entry!(Notify SYS_open if [bit(1, libc::O_TRUNC)], MAKES_WHY),
    entry!(Notify SYS_open if [bit(1, TMPFILE)], MAKES_WHY),
    entry!(Notify SYS_creat, MAKES_WHY),
    entry!(Notify SYS_mkdir, MAKES_WHY),
    entry!(Notify SYS_mknod, MAKES_WHY),
    entry!(Notify SYS_symlink, MAKES_WHY),
    entry!(Notify SYS_link, MAKES_WHY),
    entry!(Notify SYS_rename, MAKES_WHY),
];
#[cfg(not(target_arch = "x86_64"))]
const GUARD_OLD: &[Entry] = &[];

const FORGE_WHY: &str = "a tool could write frames of the protocol in the agent's name";

/// As in `linux/ptrace.h`; the C libraries disagree about their type.
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;

/// `PTRACE_TRACEME` stays: a debugger works on the programs that it starts.
const APART: &[Entry] = &[
    entry!(Deny SYS_ptrace if [equal(0, PTRACE_ATTACH)], FORGE_WHY),
    entry!(Deny SYS_ptrace if [equal(0, PTRACE_SEIZE)], FORGE_WHY),
    entry!(Deny SYS_process_vm_writev, FORGE_WHY),
    entry!(Deny SYS_pidfd_getfd, FORGE_WHY),
];

const AS_PTRACE: &str =
    "asks the same permission as ptrace, and reaches no further; refused in a conversation with an agent";

const ALLOWED: &[(&str, &str)] = &[
    (
        "ptrace",
        "debuggers and sanitizers need it; it reaches only processes of the same pid namespace, and init is not dumpable; in a conversation with an agent it attaches to no running process",
    ),
    ("process_vm_readv", "asks the same permission as ptrace, and reaches no further"),
    ("process_vm_writev", AS_PTRACE),
    ("pidfd_getfd", AS_PTRACE),
    ("seccomp", "a program may confine itself further; a filter cannot be taken off"),
    ("landlock_restrict_self", "a program may confine itself further"),
    ("memfd_create", "package managers and just-in-time compilers use it; it opens nothing"),
];
