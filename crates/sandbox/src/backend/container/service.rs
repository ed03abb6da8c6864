//! Podman as belljar's own engine: it serves in belljar's runtime directory, and ends when it has been idle for a while.
//! The containers that it started go on without it.

use super::engine::{Engine, EnginePlaces, ServiceEnd};
use super::error::EngineError;
use belljar_contract::AbsPath;
use belljar_sys::cgroup::{CgroupMode, Hierarchy};
use belljar_sys::process::Prepare;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Resource};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// It ends after this many seconds without a request.
const IDLE_SECONDS: &str = "60";
/// The same for one that serves a single command. Podman without root runs as a child of what is started here, which the kernel
/// does not end with it.
const IDLE_SECONDS_OF_ONE: &str = "5";
/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// The kernel takes no longer one.
const SOCKET_LONGEST: usize = 107;
/// How often is looked whether it listens.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Where the programs are that podman makes the network of a build with; users' own paths often lack these.
const ADMINISTRATION: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Variables that podman needs; nothing else of the environment is handed on.
const HANDED_ON: [&str; 13] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "STORAGE_DRIVER",
];

/// Whether podman served here before.
pub(super) fn was_used(places: &EnginePlaces) -> bool {
    places.runtime.child("engine").as_path().is_dir()
}

/// Returns the podman that serves already, or starts one.
pub(super) fn start(podman: &AbsPath, places: &EnginePlaces) -> Result<Engine, EngineError> {
    let directory = places.runtime.child("engine");
    let make = |path: &AbsPath, cause| EngineError::Make { path: path.as_path().to_owned(), cause };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|cause| make(&directory, cause))?;
    let socket = directory.child("podman.sock");
    if socket.as_bytes().len() > SOCKET_LONGEST {
        let message = format!("the path of its socket would be too long: {socket}");
        return Err(EngineError::Service { message });
    }
    if let Ok(engine) = Engine::at(socket.as_path()) {
        return Ok(engine);
    }
    // One at a time: two would take the socket from each other.
    let lock = directory.child("lock");
    let held = File::options().create(true).append(true).open(&lock).map_err(|cause| make(&lock, cause))?;
    rustix::fs::flock(&held, FlockOperation::LockExclusive).map_err(|errno| make(&lock, errno.into()))?;
    if let Ok(engine) = Engine::at(socket.as_path()) {
        return Ok(engine);
    }
    fs::remove_file(&socket).ok();
    let log = directory.child("log");
    let stderr = File::create(&log).map_err(|cause| make(&log, cause))?;
    // outside: podman-service
    let mut command = Command::new(podman.as_path());
    let idle = match places.service {
        ServiceEnd::WhenIdle => IDLE_SECONDS,
        ServiceEnd::WithCaller => IDLE_SECONDS_OF_ONE,
    };
    command.args(["system", "service", "--time", idle]).arg(format!("unix://{socket}"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let handed = places.variables.iter().filter(|(name, _)| HANDED_ON.iter().any(|known| name == *known));
    command.envs(handed.map(|(name, value)| (name, value)));
    command.env("PATH", path(places.variable("PATH")));
    if let Some(settings) = settings(places) {
        let path = directory.child("containers.conf");
        fs::write(&path, settings).map_err(|cause| make(&path, cause))?;
        command.env("CONTAINERS_CONF", path.as_path());
    }
    command.current_dir("/").own_session();
    if places.service == ServiceEnd::WithCaller {
        command.dies_with_spawner();
    }
    let child = command.spawn().map_err(|cause| EngineError::Service { message: cause.to_string() })?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    wait(socket.as_path(), log.as_path(), pid)
}

/// The user's path without its relative entries, and what it lacks at its end.
fn path(users: Option<&OsString>) -> OsString {
    let split = |path| std::env::split_paths(path).filter(|entry| entry.is_absolute()).collect();
    let users: Vec<PathBuf> = users.map(split).unwrap_or_default();
    let more = ADMINISTRATION.iter().map(PathBuf::from).filter(|one| !users.contains(one));
    let all: Vec<PathBuf> = users.iter().cloned().chain(more).collect();
    std::env::join_paths(all).unwrap_or_default()
}

fn wait(socket: &Path, log: &Path, pid: Option<Pid>) -> Result<Engine, EngineError> {
    let silent = |message: &str| {
        let said = fs::read_to_string(log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join("; ");
        EngineError::Service { message: if said.is_empty() { message.to_owned() } else { said } }
    };
    let process =
        pid.and_then(|pid| belljar_sys::process::open(pid).ok()).ok_or_else(|| silent("it ended at once"))?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Ok(engine) = Engine::at(socket) {
            return Ok(engine);
        }
        // Until it ends, or it is time to look again.
        let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        if rustix::event::poll(&mut polled, Some(&LOOK)).is_ok_and(|ready| ready > 0) {
            return Err(silent("it ended at once"));
        }
    }
    Err(silent("it does not listen"))
}

/// Settings without which podman starts nothing on this machine; the user's own come first.
fn settings(places: &EnginePlaces) -> Option<String> {
    if places.variable("CONTAINERS_CONF").is_some() {
        return None;
    }
    let hybrid = Hierarchy::detect().is_ok_and(|found| found.mode() == CgroupMode::Hybrid);
    // crun refuses groups of both versions at once, runc does not mind.
    let runtime =
        places.runc.as_ref().filter(|_| hybrid).map(
            |_| "[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
        );
    let limits = ulimits();
    if runtime.is_none() && limits.is_none() {
        return None;
    }
    Some(format!("{}{}", limits.unwrap_or_default(), runtime.unwrap_or_default()))
}

/// The superuser's podman raises limits, which takes a capability that the superuser of a container may lack.
fn ulimits() -> Option<String> {
    if !rustix::process::geteuid().is_root() || may_raise_limits() {
        return None;
    }
    let hard = |resource| rustix::process::getrlimit(resource).maximum.unwrap_or(1 << 20);
    let most = fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let (files, processes) = (hard(Resource::Nofile), hard(Resource::Nproc).min(most.unwrap_or(32768)));
    Some(format!(
        "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc={processes}:{processes}\"]\n"
    ))
}

/// Whether this process has `CAP_SYS_RESOURCE`.
fn may_raise_limits() -> bool {
    const BIT: u32 = 24;
    let status: io::Result<String> = fs::read_to_string("/proc/self/status");
    let effective = status.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    effective.is_some_and(|set| set >> BIT & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::path;
    use std::ffi::OsString;

    #[test]
    fn what_administers_is_found_after_everything_else() {
        let of = |text: &str| path(Some(&OsString::from(text))).into_string().unwrap();
        assert_eq!(of("/opt/bin:/usr/bin"), "/opt/bin:/usr/bin:/usr/local/sbin:/usr/sbin:/sbin");
        assert_eq!(of("/usr/sbin:/bin"), "/usr/sbin:/bin:/usr/local/sbin:/sbin");
        assert_eq!(path(None), "/usr/local/sbin:/usr/sbin:/sbin");
    }
}
