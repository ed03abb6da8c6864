//! What the kernel of this machine can enforce.

use super::{existing, fixes, good, missing};
use crate::environment::HostEnvironment;
use crate::store::leftovers::{OVERLAY_PREFIX, Scratch};
use belljar_contract::{Checkup, CheckupState};
use belljar_sys::cgroup::{self, CgroupMode, Controller};
use belljar_sys::mounts::OverlaySupport;
use belljar_sys::userns::{self, Userns};
use belljar_sys::{landlock, mounts};

pub(super) fn namespaces(environment: &HostEnvironment) -> Checkup {
    let id = "user namespaces";
    let bwrap = environment.program("bwrap").map_or("/usr/bin/bwrap".to_owned(), |path| path.to_string());
    match userns::probe() {
        Ok(Userns::Works) => good(id, "made one with mount, pid, network, ipc and uts namespaces"),
        // A profile for bubblewrap alone is enough; the check of the sandbox shows whether there is one.
        Ok(Userns::Refused { step, errno, reason }) => missing(
            id,
            CheckupState::Absent,
            format!("{} ({step:?}: {errno})", fixes::describe(reason)),
            "belljar itself cannot make one; bubblewrap may still be allowed to",
            fixes::fix(reason, &bwrap),
        ),
        Err(error) => {
            missing(id, CheckupState::Absent, format!("could not be tested: {error}"), "", Vec::new())
        }
    }
}

pub(super) fn seccomp() -> Checkup {
    let id = "seccomp";
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split_whitespace().any(|action| action == "errno") {
        return good(id, "system calls can be filtered");
    }
    missing(
        id,
        CheckupState::Bad,
        "the kernel has no filters (CONFIG_SECCOMP_FILTER)",
        "no sandbox can be sealed",
        vec!["use a kernel of your distribution".to_owned()],
    )
}

pub(super) fn landlock_abi() -> Checkup {
    let id = "Landlock";
    match landlock::kernel_abi() {
        0 => missing(
            id,
            CheckupState::Absent,
            "the kernel has none",
            "one layer of isolation less behind the namespaces",
            vec!["add landlock to the kernel's lsm= list, Linux 5.13 or later".to_owned()],
        ),
        abi if abi < 6 => missing(
            id,
            CheckupState::Absent,
            format!("ABI {abi}"),
            "signals and abstract sockets are kept in by the namespaces alone",
            vec!["Linux 6.12 or later".to_owned()],
        ),
        abi => good(id, format!("ABI {abi}")),
    }
}

pub(super) fn guard() -> Checkup {
    let id = "guard";
    let Some(lacks) = belljar_sandbox::guard_lacks() else {
        return good(
            id,
            "files that this machine would execute are held back in a project that is changed in place",
        );
    };
    missing(
        id,
        CheckupState::Absent,
        format!("it lacks {lacks}"),
        "`workspace = \"overlay\"` is the default; `direct` has to be agreed to",
        vec!["Linux 6.2 or later, with landlock in the kernel's lsm= list".to_owned()],
    )
}

pub(super) fn limits() -> Checkup {
    let id = "limits";
    let loses = "a plan that asks for such a limit is refused";
    match cgroup::probe() {
        Ok(support) => {
            let mode = match support.mode {
                CgroupMode::V1 => "control groups version 1",
                CgroupMode::Hybrid => "control groups version 1 and 2",
                CgroupMode::V2 => "control groups version 2",
                CgroupMode::Absent => "no control groups",
            };
            let all = [Controller::Memory, Controller::Pids, Controller::Cpu];
            let names = |held: bool| {
                let wanted = all.iter().filter(|controller| support.holds.contains(controller) == held);
                wanted
                    .map(|controller| format!("{controller:?}").to_lowercase())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            if names(false).is_empty() {
                return good(id, format!("{mode}; held: {}; {}", names(true), default_processes()));
            }
            let held = if names(true).is_empty() { "none".to_owned() } else { names(true) };
            let fix = vec![
                "run belljar in a delegated group: systemd-run --user --scope -p Delegate=yes belljar …"
                    .to_owned(),
            ];
            missing(
                id,
                CheckupState::Absent,
                format!("{mode}; held: {held}; not held: {}; {}", names(false), default_processes()),
                loses,
                fix,
            )
        }
        Err(error) => missing(id, CheckupState::Absent, error.to_string(), loses, Vec::new()),
    }
}

/// The default limit on the number of processes.
fn default_processes() -> String {
    match belljar_sandbox::default_process_limit(belljar_sandbox::Capacity::here()) {
        Ok(mechanism) => format!("processes by default: {mechanism}"),
        Err(why) => format!("processes are not limited by default: {why}"),
    }
}

pub(super) fn overlay(environment: &HostEnvironment) -> Checkup {
    let id = "overlay";
    let loses = "`workspace = \"overlay\"` is refused";
    // On the file system of the instances: not every file system can be an upper layer.
    let place = existing(environment.data.as_path());
    let scratch = Scratch::make(place, OVERLAY_PREFIX);
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            return missing(id, CheckupState::Absent, format!("not tested: {error}"), loses, Vec::new());
        }
    };
    match mounts::probe_overlay(scratch.path()) {
        Ok(OverlaySupport::Works) => good(id, "an unprivileged overlay was mounted"),
        Ok(OverlaySupport::Refused(errno)) => missing(
            id,
            CheckupState::Absent,
            format!("refused: {errno}"),
            loses,
            vec![
                "Linux 5.11 or later, and a file system that can be an upper layer (ext4, xfs, btrfs, tmpfs)"
                    .to_owned(),
            ],
        ),
        Ok(OverlaySupport::NoUserNamespace) => {
            missing(id, CheckupState::Absent, "no user namespace to test it in", loses, Vec::new())
        }
        Err(error) => missing(id, CheckupState::Absent, error.to_string(), loses, Vec::new()),
    }
}
