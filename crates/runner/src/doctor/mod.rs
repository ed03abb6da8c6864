//! Examines a machine by trying what it can enforce.

mod agents;
mod fixes;
mod kernel;
mod programs;
mod sandboxes;

pub use fixes::launch_hints;
pub(crate) use programs::first_line;

use crate::environment::HostEnvironment;
use crate::store::leftovers::{DOCTOR_PREFIX, Scratch};
use belljar_contract::{AbsPath, Checkup, CheckupState, GUEST_PROTOCOL, ImageName};
use kernel::{guard, landlock_abi, limits, namespaces, overlay, seccomp};
use programs::version;
use sandboxes::{containers, image_checkup, sandbox};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

/// The versions of everything that a sandbox consists of.
#[must_use]
pub fn versions(environment: &HostEnvironment, own: &str) -> Value {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let bwrap = environment.program("bwrap").and_then(|program| version(&program, &["--version"]));
    json!({"belljar": own, "guest": environment.guest.digest(), "bubblewrap": bwrap, "kernel": kernel})
}

/// Examines the machine, and the images that the manifests name.
#[must_use]
pub fn examine(environment: &HostEnvironment, own: &AbsPath, images: &[ImageName]) -> Vec<Checkup> {
    let scratch = Scratch::temporary(DOCTOR_PREFIX).ok();
    let scratch_path = scratch.as_ref().map(Scratch::path);
    let mut out = vec![
        bubblewrap(environment),
        namespaces(environment),
        guest(environment, scratch_path),
        sandbox(environment, own, scratch_path),
        containers(environment, own, scratch_path),
        seccomp(),
        landlock_abi(),
        guard(),
        limits(),
        overlay(environment),
    ];
    out.extend(agents::checkups(environment));
    let git = "repositories inside the sandbox have no git";
    out.extend([program(environment, "git", git, "apt install git"), terminal()]);
    out.extend(directories(environment));
    out.extend(images.iter().map(|image| image_checkup(environment, image, scratch_path)));
    out
}

fn good(id: impl Into<Cow<'static, str>>, seen: impl Into<String>) -> Checkup {
    let id = id.into();
    Checkup { id, state: CheckupState::Good, seen: seen.into(), loses: String::new(), fix: Vec::new() }
}

fn missing(
    id: impl Into<Cow<'static, str>>,
    state: CheckupState,
    seen: impl Into<String>,
    loses: &str,
    fix: Vec<String>,
) -> Checkup {
    Checkup { id: id.into(), state, seen: seen.into(), loses: loses.to_owned(), fix }
}

fn bubblewrap(environment: &HostEnvironment) -> Checkup {
    let id = "bubblewrap";
    let Some(found) = environment.program("bwrap") else {
        let fix = vec![
            "sudo apt install bubblewrap".to_owned(),
            "or: sudo dnf install bubblewrap, sudo pacman -S bubblewrap".to_owned(),
        ];
        return missing(
            id,
            CheckupState::Bad,
            "not on PATH",
            "only `--backend host` works, which does not isolate",
            fix,
        );
    };
    match version(&found, &["--version"]) {
        Some(version) => good(id, format!("{version}, {found}")),
        None => missing(
            id,
            CheckupState::Bad,
            format!("{found} does not print its version"),
            "it may not be bubblewrap",
            vec![format!("{found} --version")],
        ),
    }
}

/// Unpacks the guest to a temporary directory and starts it.
fn guest(environment: &HostEnvironment, scratch: Option<&Path>) -> Checkup {
    let id = "guest";
    let bad = |seen: String, fix: &str| {
        missing(id, CheckupState::Bad, seen, "no sandbox can be finished", vec![fix.to_owned()])
    };
    let Some(scratch) = scratch.and_then(|path| AbsPath::new(path).ok()) else {
        return bad("no temporary directory to unpack it in".to_owned(), "df -h /tmp");
    };
    let program = environment.guest.below(&scratch);
    if let Err(error) = program.unpack() {
        return bad(format!("{error}: {}", error.cause), "df -h /tmp");
    }
    match version(program.path(), &["--version"]) {
        Some(line) if line.ends_with(&format!("protocol {GUEST_PROTOCOL}")) => good(id, line),
        Some(line) => bad(
            format!("{line}, but belljar speaks protocol {GUEST_PROTOCOL}"),
            "build belljar again: guest and belljar must come from the same build",
        ),
        None => bad(
            format!("`{}` does not run", program.path()),
            "set TMPDIR to a directory that is not mounted with noexec",
        ),
    }
}

fn program(environment: &HostEnvironment, name: &'static str, loses: &str, fix: &str) -> Checkup {
    match environment.program(name) {
        Some(path) => good(name, version(&path, &["--version"]).unwrap_or_else(|| path.to_string())),
        None => missing(name, CheckupState::Absent, "not on PATH", loses, vec![format!("sudo {fix}")]),
    }
}

fn terminal() -> Checkup {
    let id = "terminal";
    match belljar_sys::pty::Pair::open() {
        Ok(_) => good(id, "a pseudo-terminal was opened"),
        Err(error) => missing(
            id,
            CheckupState::Absent,
            error.to_string(),
            "interactive runs fail",
            vec!["mount -t devpts devpts /dev/pts; sysctl kernel.pty.max".to_owned()],
        ),
    }
}

/// Fewer free bytes do not suffice for the record of a short run.
const ROOM: usize = 1 << 20;

/// Whether belljar's directories can be written and have room, and their file systems.
fn directories(environment: &HostEnvironment) -> Vec<Checkup> {
    let HostEnvironment { config, data, state, runtime, .. } = environment;
    let pairs = [
        ("configuration directory", config),
        ("data directory", data),
        ("state directory", state),
        ("runtime directory", runtime),
    ];
    let check = |(id, path): (&'static str, &AbsPath)| {
        // A full file system still creates an empty file.
        let tried = tempfile::tempfile_in(existing(path.as_path()))
            .and_then(|mut file| file.write_all(&vec![0; ROOM]));
        match tried {
            Ok(_) => good(id, format!("{}, {}", environment.shown(path), file_system(path.as_path()))),
            Err(error) => {
                let full = matches!(
                    error.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                );
                let fix = vec![if full {
                    format!(
                        "free at least 1 MiB in the file system of `{path}`; `belljar gc` deletes unused state"
                    )
                } else {
                    format!("make `{path}` writable, or set its XDG variable to a writable directory")
                }];
                missing(
                    id,
                    CheckupState::Bad,
                    format!("`{path}` cannot be written: {error}"),
                    "belljar cannot keep its files",
                    fix,
                )
            }
        }
    };
    pairs.into_iter().map(check).collect()
}

/// The path, or its nearest existing parent: a check creates nothing permanent.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"))
}

/// The type of the file system, by the longest mount point above the path.
fn file_system(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let kinds = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = kinds.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.len());
    above.map_or("an unknown file system".to_owned(), |(_, kind)| kind.to_owned())
}
