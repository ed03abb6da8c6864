//! The policy as data: what is refused, with which answer, and why.

use rustix::io::Errno;

/// One refusal. Several entries for the same call are alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name of the call.
    pub call: &'static str,
    /// Its number on this processor.
    pub number: i64,
    /// Under which arguments it is refused.
    pub when: When,
    /// The answer to the caller.
    pub answer: Answer,
    /// Why it is refused.
    pub why: &'static str,
}

/// Under which arguments an entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// If all the checks hold.
    Arguments(&'static [Check]),
}

/// A check of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Which argument, from 0.
    pub argument: u8,
    /// The condition on its low 32 bits.
    pub is: Is,
}

/// A comparison of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// The value is this.
    Equal(u32),
    /// The value is anything but this.
    Not(u32),
    /// The bits of the mask are exactly these.
    Masked {
        /// The bits to look at.
        mask: u32,
        /// The value that they must have.
        value: u32,
    },
    /// The bits of the mask are anything but these.
    MaskedNot {
        /// The bits to look at.
        mask: u32,
        /// The value that they must not have.
        value: u32,
    },
}

/// The answer to the caller of a refused call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// `EPERM`.
    NotPermitted,
    /// `ENOSYS`, so that a library falls back to the older call.
    NotImplemented,
    /// The holder of the filter's listener is asked.
    Ask,
}

impl Answer {
    /// The errno of the answer; `None` if the listener decides.
    #[must_use]
    pub const fn errno(self) -> Option<Errno> {
        match self {
            Answer::NotPermitted => Some(Errno::PERM),
            Answer::NotImplemented => Some(Errno::NOSYS),
            Answer::Ask => None,
        }
    }
}

/// Every refusal.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Every refusal where no process may reach into another: [`entries`] and those that write to the memory of another process,
/// take its descriptors or attach to it.
pub fn apart_entries() -> impl Iterator<Item = &'static Entry> {
    entries().chain(APART.iter())
}

/// Calls that create, open for writing, move or truncate a file, for a filter with a listener; and `openat2`, which only
/// the threads that answer may use ([`entries`] refuses it).
pub fn guard_entries() -> impl Iterator<Item = &'static Entry> {
    GUARD.iter().chain(GUARD_OLD).chain(SETUID.iter().filter(|entry| entry.number == libc::SYS_openat2))
}

/// Calls that look as if they belonged here, each with the reason why [`entries`] lets it through.
pub fn kept() -> impl Iterator<Item = (&'static str, &'static str)> {
    KEPT.iter().copied()
}

const fn refuse(call: &'static str, number: i64, why: &'static str) -> Entry {
    Entry { call, number, when: When::Always, answer: Answer::NotPermitted, why }
}

const fn refuse_if(call: &'static str, number: i64, checks: &'static [Check], why: &'static str) -> Entry {
    Entry { call, number, when: When::Arguments(checks), answer: Answer::NotPermitted, why }
}

const fn equal(argument: u8, value: u32) -> Check {
    Check { argument, is: Is::Equal(value) }
}

const fn not(argument: u8, value: u32) -> Check {
    Check { argument, is: Is::Not(value) }
}

const fn no_type(kind: i32) -> Check {
    Check { argument: 1, is: Is::MaskedNot { mask: 0b1111, value: kind as u32 } }
}

const fn bit(argument: u8, flag: i32) -> Check {
    Check { argument, is: Is::Masked { mask: flag as u32, value: flag as u32 } }
}

const TABLES: &[&[Entry]] =
    &[SOCKETS, NAMESPACES, MOUNTS, SETUID, KEYS, KERNEL_SURFACE, MACHINE, TERMINAL, PERSONALITY, PROCESSOR];

const UNIX: u32 = libc::AF_UNIX as u32;
const INET: u32 = libc::AF_INET as u32;
const INET6: u32 = libc::AF_INET6 as u32;
const NETLINK: u32 = libc::AF_NETLINK as u32;

/// `socket(family, type, protocol)`. The type is in the low four bits; the others are flags.
macro_rules! internet {
    ($family:expr) => {
        [
            refuse_if(
                "socket",
                libc::SYS_socket,
                &[equal(0, $family), no_type(libc::SOCK_STREAM), no_type(libc::SOCK_DGRAM)],
                RAW,
            ),
            refuse_if(
                "socket",
                libc::SYS_socket,
                &[
                    equal(0, $family),
                    not(2, 0),
                    not(2, libc::IPPROTO_TCP as u32),
                    not(2, libc::IPPROTO_UDP as u32),
                    not(2, libc::IPPROTO_MPTCP as u32),
                ],
                PROTOCOL,
            ),
        ]
    };
}

const RAW: &str = "only stream and datagram: raw packets forge addresses";
const PROTOCOL: &str =
    "only TCP, UDP and MPTCP: SCTP, ICMP and the rest are kernel surface that no tool needs";
const INET_RULES: [Entry; 2] = internet!(INET);
const INET6_RULES: [Entry; 2] = internet!(INET6);

const SOCKETS: &[Entry] = &[
    refuse_if(
        "socket",
        libc::SYS_socket,
        &[not(0, UNIX), not(0, INET), not(0, INET6), not(0, NETLINK)],
        "every other family is a way past the network namespace (vsock), to kernel crypto (alg) or to the link",
    ),
    INET_RULES[0],
    INET_RULES[1],
    INET6_RULES[0],
    INET6_RULES[1],
    refuse_if(
        "socket",
        libc::SYS_socket,
        &[equal(0, NETLINK), not(2, libc::NETLINK_ROUTE as u32)],
        "name resolution lists addresses through the route protocol; the others are configuration and audit",
    ),
    refuse_if("socketpair", libc::SYS_socketpair, &[not(0, UNIX)], "no other family has a use for pairs"),
];

macro_rules! new_namespace {
    ($call:literal, $number:expr, $flag:ident, $why:expr) => {
        refuse_if($call, $number, &[bit(0, libc::$flag)], $why)
    };
}

const IN_USERNS: &str =
    "a user namespace hands out every capability over itself: most kernel escapes begin there";
const IN_NAMESPACE: &str = "a new namespace is a new view of what was closed";
const CLONE: i64 = libc::SYS_clone;
const UNSHARE: i64 = libc::SYS_unshare;

const NAMESPACES: &[Entry] = &[
    Entry {
        call: "clone3",
        number: libc::SYS_clone3,
        when: When::Always,
        answer: Answer::NotImplemented,
        why: "its flags are in memory, where a filter cannot look; the C library falls back to clone",
    },
    new_namespace!("clone", CLONE, CLONE_NEWUSER, IN_USERNS),
    new_namespace!("clone", CLONE, CLONE_NEWNS, IN_NAMESPACE),
    new_namespace!("clone", CLONE, CLONE_NEWCGROUP, IN_NAMESPACE),
    new_namespace!("clone", CLONE, CLONE_NEWUTS, IN_NAMESPACE),
    new_namespace!("clone", CLONE, CLONE_NEWIPC, IN_NAMESPACE),
    new_namespace!("clone", CLONE, CLONE_NEWPID, IN_NAMESPACE),
    new_namespace!("clone", CLONE, CLONE_NEWNET, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWUSER, IN_USERNS),
    new_namespace!("unshare", UNSHARE, CLONE_NEWNS, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWCGROUP, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWUTS, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWIPC, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWPID, IN_NAMESPACE),
    new_namespace!("unshare", UNSHARE, CLONE_NEWNET, IN_NAMESPACE),
    // In `clone` this bit is part of the exit signal, so only `unshare` can ask for it.
    new_namespace!("unshare", UNSHARE, CLONE_NEWTIME, IN_NAMESPACE),
    refuse("setns", libc::SYS_setns, "entering a namespace leaves the sandbox"),
];

const MOUNT_WHY: &str = "mounts isolate the file system";

const MOUNTS: &[Entry] = &[
    refuse("mount", libc::SYS_mount, MOUNT_WHY),
    refuse("umount2", libc::SYS_umount2, MOUNT_WHY),
    refuse("pivot_root", libc::SYS_pivot_root, MOUNT_WHY),
    refuse("chroot", libc::SYS_chroot, MOUNT_WHY),
    refuse("move_mount", libc::SYS_move_mount, MOUNT_WHY),
    refuse("open_tree", libc::SYS_open_tree, MOUNT_WHY),
    refuse("open_tree_attr", OPEN_TREE_ATTR, MOUNT_WHY),
    refuse("fsopen", libc::SYS_fsopen, MOUNT_WHY),
    refuse("fsconfig", libc::SYS_fsconfig, MOUNT_WHY),
    refuse("fsmount", libc::SYS_fsmount, MOUNT_WHY),
    refuse("fspick", libc::SYS_fspick, MOUNT_WHY),
    refuse("mount_setattr", libc::SYS_mount_setattr, MOUNT_WHY),
    refuse("name_to_handle_at", libc::SYS_name_to_handle_at, HANDLE_WHY),
    refuse("open_by_handle_at", libc::SYS_open_by_handle_at, HANDLE_WHY),
    refuse("fanotify_init", libc::SYS_fanotify_init, "watches whole file systems, beyond the mounts inside"),
    refuse("quotactl", libc::SYS_quotactl, "administers the host's file systems"),
    refuse("quotactl_fd", libc::SYS_quotactl_fd, "administers the host's file systems"),
    refuse("swapon", libc::SYS_swapon, "administers the host's memory"),
    refuse("swapoff", libc::SYS_swapoff, "administers the host's memory"),
];

const HANDLE_WHY: &str = "file handles open files by number, past every mount";
/// Since Linux 6.15; the same number on all processors.
const OPEN_TREE_ATTR: i64 = 467;

/// Inside, set-user-ID bits have no effect; on the host the file is the user's, and the bit counts.
const SETUID_WHY: &str =
    "a file left in the project would run on the host with its owner's rights for every user";
const S_ISUID: i32 = libc::S_ISUID as i32;
/// Without `O_DIRECTORY`, which is part of the flag as programs know it.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Since Linux 6.6; the same number on all processors.
const FCHMODAT2: i64 = 452;

const SETUID: &[Entry] = &[
    refuse_if("fchmod", libc::SYS_fchmod, &[bit(1, S_ISUID)], SETUID_WHY),
    refuse_if("fchmodat", libc::SYS_fchmodat, &[bit(2, S_ISUID)], SETUID_WHY),
    refuse_if("fchmodat2", FCHMODAT2, &[bit(2, S_ISUID)], SETUID_WHY),
    refuse_if("mknodat", libc::SYS_mknodat, &[bit(2, S_ISUID)], SETUID_WHY),
    // The mode counts only where a file is made; elsewhere the register may hold anything.
    refuse_if("openat", libc::SYS_openat, &[bit(2, libc::O_CREAT), bit(3, S_ISUID)], SETUID_WHY),
    refuse_if("openat", libc::SYS_openat, &[bit(2, TMPFILE), bit(3, S_ISUID)], SETUID_WHY),
    Entry {
        call: "openat2",
        number: libc::SYS_openat2,
        when: When::Always,
        answer: Answer::NotImplemented,
        why: "its mode is in memory, where a filter cannot look; programs fall back to openat",
    },
];

const KEYS_WHY: &str = "keys cross namespaces, and the key service has had exploitable bugs";

const KEYS: &[Entry] = &[
    refuse("add_key", libc::SYS_add_key, KEYS_WHY),
    refuse("request_key", libc::SYS_request_key, KEYS_WHY),
    refuse("keyctl", libc::SYS_keyctl, KEYS_WHY),
];

const URING_WHY: &str = "its operations pass by every filter, and its code has a long list of faults";

const KERNEL_SURFACE: &[Entry] = &[
    refuse("io_uring_setup", libc::SYS_io_uring_setup, URING_WHY),
    refuse("io_uring_enter", libc::SYS_io_uring_enter, URING_WHY),
    refuse("io_uring_register", libc::SYS_io_uring_register, URING_WHY),
    refuse("bpf", libc::SYS_bpf, "programs inside the kernel"),
    refuse("perf_event_open", libc::SYS_perf_event_open, "measures other processes and the kernel"),
    refuse(
        "userfaultfd",
        libc::SYS_userfaultfd,
        "stops the kernel in the middle of a copy: makes races winnable",
    ),
    refuse("lookup_dcookie", libc::SYS_lookup_dcookie, "profiler remnant that names paths by number"),
    refuse("nfsservctl", libc::SYS_nfsservctl, "remnant of the NFS server"),
    refuse("vhangup", libc::SYS_vhangup, "hangs up a terminal for everyone"),
];

const MODULE_WHY: &str = "code inside the kernel";
const CLOCK_WHY: &str = "the clock is the host's";

const MACHINE: &[Entry] = &[
    refuse("init_module", libc::SYS_init_module, MODULE_WHY),
    refuse("finit_module", libc::SYS_finit_module, MODULE_WHY),
    refuse("delete_module", libc::SYS_delete_module, MODULE_WHY),
    refuse("kexec_load", libc::SYS_kexec_load, MODULE_WHY),
    refuse("kexec_file_load", libc::SYS_kexec_file_load, MODULE_WHY),
    refuse("reboot", libc::SYS_reboot, "the machine is the host's"),
    refuse("settimeofday", libc::SYS_settimeofday, CLOCK_WHY),
    refuse("clock_settime", libc::SYS_clock_settime, CLOCK_WHY),
    refuse("adjtimex", libc::SYS_adjtimex, CLOCK_WHY),
    refuse("clock_adjtime", libc::SYS_clock_adjtime, CLOCK_WHY),
    refuse("acct", libc::SYS_acct, "writes a record of every process of the host"),
    refuse("syslog", libc::SYS_syslog, "the kernel's log holds addresses and the host's business"),
    refuse("sethostname", libc::SYS_sethostname, "the name was set before the sandbox was closed"),
    refuse("setdomainname", libc::SYS_setdomainname, "the name was set before the sandbox was closed"),
];

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const TERMINAL: &[Entry] = &[
    refuse_if("ioctl", libc::SYS_ioctl, &[equal(1, TIOCSTI)], "types into the terminal, as if the user had"),
    refuse_if("ioctl", libc::SYS_ioctl, &[equal(1, TIOCLINUX)], "pastes into the console"),
    refuse_if(
        "ioctl",
        libc::SYS_ioctl,
        &[equal(1, TIOCSETD)],
        "loads line disciplines: old drivers, many faults",
    ),
];

/// Everything but: the plain personality, the 32-bit and old-version names, no randomisation (debuggers and the
/// thread sanitizer run themselves again with it), and the question which one is set.
const PERSONALITY: &[Entry] = &[refuse_if(
    "personality",
    libc::SYS_personality,
    &[not(0, 0), not(0, 8), not(0, 0x2_0000), not(0, 0x2_0008), not(0, 0x4_0000), not(0, u32::MAX)],
    "the other values weaken memory protection",
)];

#[cfg(target_arch = "x86_64")]
const PROCESSOR: &[Entry] = &[
    refuse_if("chmod", libc::SYS_chmod, &[bit(1, S_ISUID)], SETUID_WHY),
    refuse_if("creat", libc::SYS_creat, &[bit(1, S_ISUID)], SETUID_WHY),
    refuse_if("mknod", libc::SYS_mknod, &[bit(1, S_ISUID)], SETUID_WHY),
    refuse_if("open", libc::SYS_open, &[bit(1, libc::O_CREAT), bit(2, S_ISUID)], SETUID_WHY),
    refuse_if("open", libc::SYS_open, &[bit(1, TMPFILE), bit(2, S_ISUID)], SETUID_WHY),
    refuse("iopl", libc::SYS_iopl, "ports of the machine"),
    refuse("ioperm", libc::SYS_ioperm, "ports of the machine"),
    refuse(
        "modify_ldt",
        libc::SYS_modify_ldt,
        "segments of 16-bit programs, a repeated source of kernel faults",
    ),
    refuse("uselib", libc::SYS_uselib, "loader of a format that is gone"),
];
#[cfg(not(target_arch = "x86_64"))]
const PROCESSOR: &[Entry] = &[];

const MAKES_WHY: &str = "makes a name, or writes to a file, that the host may execute later";

/// Opening only to read is let through; so is `O_PATH`, which sets none of these bits.
const WRITES: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | TMPFILE) as u32;

const fn ask(call: &'static str, number: i64) -> Entry {
    Entry { call, number, when: When::Always, answer: Answer::Ask, why: MAKES_WHY }
}

macro_rules! ask_to_write {
    ($call:literal, $number:expr, $flags:literal) => {
        Entry {
            call: $call,
            number: $number,
            when: When::Arguments(&[Check {
                argument: $flags,
                is: Is::MaskedNot { mask: WRITES, value: 0 },
            }]),
            answer: Answer::Ask,
            why: MAKES_WHY,
        }
    };
}

const GUARD: &[Entry] = &[
    ask_to_write!("openat", libc::SYS_openat, 2),
    ask("mkdirat", libc::SYS_mkdirat),
    ask("mknodat", libc::SYS_mknodat),
    ask("symlinkat", libc::SYS_symlinkat),
    ask("linkat", libc::SYS_linkat),
    ask("renameat2", libc::SYS_renameat2),
    ask("truncate", libc::SYS_truncate),
];

/// Calls that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const GUARD_OLD: &[Entry] = &[
    ask_to_write!("open", libc::SYS_open, 1),
    ask("creat", libc::SYS_creat),
    ask("mkdir", libc::SYS_mkdir),
    ask("mknod", libc::SYS_mknod),
    ask("symlink", libc::SYS_symlink),
    ask("link", libc::SYS_link),
    ask("rename", libc::SYS_rename),
    ask("renameat", libc::SYS_renameat),
];
#[cfg(not(target_arch = "x86_64"))]
const GUARD_OLD: &[Entry] = &[ask("renameat", libc::SYS_renameat)];

const FORGE_WHY: &str = "a tool could write frames of the protocol in the agent's name";

/// As in `linux/ptrace.h`; the C libraries disagree about their type.
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;

/// `PTRACE_TRACEME` stays: a debugger works on the programs that it starts.
const APART: &[Entry] = &[
    refuse_if("ptrace", libc::SYS_ptrace, &[equal(0, PTRACE_ATTACH)], FORGE_WHY),
    refuse_if("ptrace", libc::SYS_ptrace, &[equal(0, PTRACE_SEIZE)], FORGE_WHY),
    refuse("process_vm_writev", libc::SYS_process_vm_writev, FORGE_WHY),
    refuse("pidfd_getfd", libc::SYS_pidfd_getfd, FORGE_WHY),
];

const KEPT: &[(&str, &str)] = &[
    (
        "ptrace",
        "debuggers and sanitizers need it; it reaches only processes of the same pid namespace, and init is not dumpable; in a conversation with an agent it attaches to no running process",
    ),
    ("process_vm_readv", "asks the same permission as ptrace, and reaches no further"),
    (
        "process_vm_writev",
        "asks the same permission as ptrace, and reaches no further; refused in a conversation with an agent",
    ),
    (
        "pidfd_getfd",
        "asks the same permission as ptrace, and reaches no further; refused in a conversation with an agent",
    ),
    ("seccomp", "a program may confine itself further; a filter cannot be taken off"),
    ("landlock_restrict_self", "a program may confine itself further"),
    ("memfd_create", "package managers and just-in-time compilers use it; it opens nothing"),
];
