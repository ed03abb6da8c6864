//! The probes.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use belljar_sys::raw::{self, PlainCall};
use belljar_sys::{Errno, fds};

use super::{Outcome, Seen, answered, in_child, open_if, unsupported};

/// Names and numbers that some probes look for; the caller has created them on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeContext {
    /// The description of a key in the caller's session keyring.
    pub key: String,
    /// The key of a System V segment of the host.
    pub segment: i32,
    /// A process of the host.
    pub pid: Option<i32>,
    /// The process to trace: inside, the first process.
    pub trace: Option<i32>,
    /// The name of an abstract socket of the host.
    pub abstract_name: String,
}

impl Default for ProbeContext {
    fn default() -> Self {
        let name = || "belljar-probe".to_owned();
        ProbeContext { key: name(), segment: 0x6265_6c6c, pid: None, trace: None, abstract_name: name() }
    }
}

pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) attempt: fn(&ProbeContext) -> Seen,
}

macro_rules! probes {
    ($($name:literal => $attempt:expr),* $(,)?) => {
        &[$(Probe { name: $name, attempt: $attempt }),*]
    };
}

// Numbers that the standard library and rustix have no names for.
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_NETLINK: i32 = 16;
const AF_PACKET: i32 = 17;
const AF_ALG: i32 = 38;
const AF_VSOCK: i32 = 40;
const SOCK_STREAM: i32 = 1;
const SOCK_DGRAM: i32 = 2;
const SOCK_RAW: i32 = 3;
const SOCK_SEQPACKET: i32 = 5;
const IPPROTO_ICMP: i32 = 1;
const IPPROTO_SCTP: i32 = 132;
const NETLINK_GENERIC: i32 = 16;
const CLONE_NEWUSER: i32 = 0x1000_0000;
const CLONE_NEWNET: i32 = 0x4000_0000;
const READ_IMPLIES_EXEC: u32 = 0x0040_0000;

pub(super) const PROBES: &[Probe] = probes! {
    "io_uring" => |_| answered(raw::try_plain(PlainCall::IoUringSetup), &[Errno::FAULT]),
    "bpf" => |_| answered(raw::try_plain(PlainCall::Bpf), &[Errno::INVAL, Errno::FAULT]),
    "perf_event" => |_| answered(raw::try_plain(PlainCall::PerfEventOpen), &[Errno::FAULT]),
    "userfaultfd" => |_| in_child(|| raw::try_plain(PlainCall::Userfaultfd).map(drop), &[]),
    "clone3" => |_| answered(raw::try_clone3(), &[Errno::INVAL, Errno::FAULT]),
    "keyctl" => |_| answered(raw::try_plain(PlainCall::KeyringId), &[]),
    "session_key" => session_key,
    "socket_vsock" => |_| answered(raw::try_socket(AF_VSOCK, SOCK_STREAM, 0), &[Errno::AFNOSUPPORT]),
    "socket_packet" => |_| answered(raw::try_socket(AF_PACKET, SOCK_RAW, 0), &[]),
    "socket_alg" => |_| answered(raw::try_socket(AF_ALG, SOCK_SEQPACKET, 0), &[Errno::AFNOSUPPORT]),
    "socket_raw" => |_| answered(raw::try_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), &[]),
    "socket_raw6" => |_| answered(raw::try_socket(AF_INET6, SOCK_RAW, IPPROTO_ICMP), &[]),
    "socket_sctp" => |_| answered(raw::try_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP), &[Errno::PROTONOSUPPORT]),
    "socket_netlink" => |_| answered(raw::try_socket(AF_NETLINK, SOCK_DGRAM, NETLINK_GENERIC), &[]),
    "unshare_user" => |_| in_child(|| raw::try_plain(PlainCall::Unshare(CLONE_NEWUSER)).map(drop), &[]),
    "unshare_net" => |_| in_child(|| raw::try_plain(PlainCall::Unshare(CLONE_NEWNET)).map(drop), &[]),
    "clone_user" => |_| answered(raw::try_clone_newuser(), &[]),
    "mount" => |_| answered(raw::try_plain(PlainCall::Mount), &[Errno::FAULT]),
    "fsopen" => |_| answered(raw::try_plain(PlainCall::Fsopen), &[Errno::FAULT]),
    "setns" => |_| answered(raw::try_plain(PlainCall::Setns), &[Errno::BADF]),
    "personality" => |_| in_child(|| raw::try_plain(PlainCall::Personality(READ_IMPLIES_EXEC)).map(drop), &[]),
    "terminal_input_stdin" => |_| terminal_input(std::io::stdin().as_fd(), 0),
    "terminal_input_stdin_high_bits" => |_| terminal_input(std::io::stdin().as_fd(), 1),
    "terminal_input_tty" => terminal_input_tty,
    "x32" => |_| answered(raw::try_plain(PlainCall::X32Getppid), &[]),
    "int80" => int80,
    "abstract_socket" => abstract_socket,
    "segment" => |context| answered(raw::try_plain(PlainCall::Shmget(context.segment)), &[]),
    "trace_init" => trace,
    "host_process" => host_process,
    "descriptors" => descriptors,
    "capabilities_effective" => |_| status("CapEff", "0000000000000000"),
    "capabilities_bounding" => |_| status("CapBnd", "0000000000000000"),
    "no_new_privileges" => |_| status("NoNewPrivs", "1"),
    "filter" => |_| status("Seccomp", "2"),
    "control_unix" => |_| answered(raw::try_socket(AF_UNIX, SOCK_STREAM, 0), &[]),
    "control_tcp" => |_| answered(raw::try_socket(AF_INET, SOCK_STREAM, 0), &[]),
    "control_udp6" => |_| answered(raw::try_socket(AF_INET6, SOCK_DGRAM, 0), &[]),
    "control_route" => |_| answered(raw::try_socket(AF_NETLINK, SOCK_RAW, 0), &[]),
};

fn session_key(context: &ProbeContext) -> Seen {
    match std::ffi::CString::new(context.key.as_str()) {
        Ok(description) => answered(raw::try_key_search(&description), &[]),
        Err(_) => unsupported("the name of the key has a NUL in it"),
    }
}

fn terminal_input(terminal: std::os::fd::BorrowedFd<'_>, extra: u32) -> Seen {
    if !belljar_sys::pty::is_terminal(terminal) {
        return unsupported("not a terminal");
    }
    answered(raw::try_terminal_input(terminal, extra), &[])
}

fn terminal_input_tty(_: &ProbeContext) -> Seen {
    match File::open("/dev/tty") {
        Ok(terminal) => terminal_input(terminal.as_fd(), 0),
        Err(error) => (Outcome::Closed { errno: error.raw_os_error() }, format!("/dev/tty: {error}")),
    }
}

#[cfg(target_arch = "x86_64")]
fn int80(_: &ProbeContext) -> Seen {
    in_child(|| raw::try_int80_getpid().map(drop), &[])
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: &ProbeContext) -> Seen {
    unsupported("not on this processor")
}

fn abstract_socket(context: &ProbeContext) -> Seen {
    let connected = SocketAddr::from_abstract_name(&context.abstract_name)
        .and_then(|address| UnixStream::connect_addr(&address));
    match connected {
        Ok(_) => (Outcome::Open, "connected".to_owned()),
        Err(error) => (Outcome::Closed { errno: error.raw_os_error() }, error.to_string()),
    }
}

/// In a child, whose end lets go of the traced process.
fn trace(context: &ProbeContext) -> Seen {
    let Some(target) = context.trace else { return unsupported("no process was named") };
    in_child(move || raw::try_plain(PlainCall::PtraceSeize(target)).map(drop), &[])
}

fn host_process(context: &ProbeContext) -> Seen {
    match context.pid {
        Some(pid) => answered(raw::try_plain(PlainCall::KillZero(pid)), &[]),
        None => unsupported("no process was named"),
    }
}

fn descriptors(_: &ProbeContext) -> Seen {
    match fds::open_numbers() {
        Ok(numbers) => {
            let more: Vec<_> = numbers.into_iter().filter(|number| *number > 2).collect();
            open_if(
                !more.is_empty(),
                format!("{} above 2: {:?}", more.len(), more.iter().take(8).collect::<Vec<_>>()),
            )
        }
        Err(error) => unsupported(&error.to_string()),
    }
}

/// A line of `/proc/self/status` that must have one value.
fn status(name: &str, closed: &str) -> Seen {
    let text = match std::fs::read_to_string("/proc/self/status") {
        Ok(text) => text,
        Err(error) => return unsupported(&error.to_string()),
    };
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    match value {
        Some(value) => open_if(value != closed, format!("{name} {value}")),
        None => unsupported("the kernel does not say"),
    }
}
