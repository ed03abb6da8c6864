//! Examines a machine by trying what it can enforce.

mod agents;
mod fixes;

pub use fixes::launch_hints;

use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use crate::launch::interpreter::interpreter;
use crate::store::leftovers::{DOCTOR_PREFIX, MARK, OVERLAY_PREFIX, Scratch, mark};
use belljar_contract::{AbsPath, Checkup, CheckupState, GUEST_PROTOCOL, ImageName, with_causes};
use belljar_sandbox::{ENGINE_VARIABLE, Engine, EnginePlaces, ServiceEnd, wanted_of_images};
use belljar_session::Harnesses;
use belljar_sys::cgroup::{self, Controller, Mode};
use belljar_sys::mounts::OverlaySupport;
use belljar_sys::process::Prepare;
use belljar_sys::userns::{self, Userns};
use belljar_sys::{landlock, mounts, process};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longer than a program takes to print its version, or a sandbox to be built.
const PATIENCE: Duration = Duration::from_secs(30);
const OUTPUT_LIMIT: u64 = 64 << 10;

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

fn namespaces(environment: &HostEnvironment) -> Checkup {
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

/// The places of engines; a service that is started for the check leaves no file in belljar's own directories. Podman's own are
/// the user's: it keeps the first ones that it is given, for every later call.
fn places_of_its_own(environment: &HostEnvironment, scratch: Option<&Path>) -> EnginePlaces {
    let mut places = engine_places(environment);
    if let Some(scratch) = scratch.and_then(|path| AbsPath::new(path.join("run")).ok()) {
        places.runtime = scratch;
        places.service = ServiceEnd::WithCaller;
    }
    places
}

/// Tests the engine with a container that has the flags of a real run. A plan may not need it.
fn containers(environment: &HostEnvironment, own: &AbsPath, scratch: Option<&Path>) -> Checkup {
    let id = "containers";
    let loses = "`backend = \"container\"` is refused";
    let engine = Engine::find(&places_of_its_own(environment, scratch));
    let named = engine.and_then(|engine| Ok((engine.version()?, engine.socket().as_os_str().to_owned())));
    let (version, socket) = match named {
        Ok(found) => found,
        Err(error) => {
            let fix = error.hint().into_iter().collect();
            return missing(id, CheckupState::Absent, with_causes(&error), loses, fix);
        }
    };
    let subject = SandboxCheck {
        id,
        backend: "container",
        variables: vec![(ENGINE_VARIABLE, socket)],
        state: CheckupState::Absent,
        loses,
    };
    let built = tried(environment, own, scratch, &subject);
    match built.state {
        CheckupState::Good => good(id, format!("{version}; built and sealed one")),
        CheckupState::Absent | CheckupState::Bad => {
            Checkup { seen: format!("{version}: {}", built.seen), ..built }
        }
    }
}

/// What an image of the user lacks for an agent. No program of it runs.
fn image_checkup(environment: &HostEnvironment, image: &ImageName, scratch: Option<&Path>) -> Checkup {
    let id = "image";
    let program = &Harnesses::built_in().usual().profile().program;
    let agent = environment.program_inside(program).map(|agent| interpreter(agent.as_path()));
    let wanted = wanted_of_images(&agent.unwrap_or_default());
    let lacks = Engine::find(&places_of_its_own(environment, scratch))
        .and_then(|engine| engine.image_lacks(image, &wanted));
    match lacks {
        Ok(lacks) if lacks.is_empty() => good(id, format!("`{image}` has what an agent needs")),
        Ok(lacks) => {
            let what: Vec<&str> = lacks.iter().map(|want| want.what.as_str()).collect();
            let loses: Vec<&str> = lacks.iter().map(|want| want.loses.as_str()).collect();
            let seen = format!("`{image}` has no {}", what.join(", no "));
            let fix = vec!["use an image that has it, or add it to this one".to_owned()];
            missing(id, CheckupState::Absent, seen, &loses.join("; "), fix)
        }
        Err(error) => {
            let loses = "agents that name it do not start";
            missing(id, CheckupState::Absent, with_causes(&error), loses, error.hint().into_iter().collect())
        }
    }
}

/// The kind of sandbox to test, and the consequence of a failure.
struct SandboxCheck<'a> {
    id: &'static str,
    backend: &'a str,
    variables: Vec<(&'a str, std::ffi::OsString)>,
    state: CheckupState,
    loses: &'a str,
}

fn sandbox(environment: &HostEnvironment, own: &AbsPath, scratch: Option<&Path>) -> Checkup {
    let loses = "no command can run in a sandbox";
    let variables = Vec::new();
    let subject =
        SandboxCheck { id: "a sandbox", backend: "bwrap", variables, state: CheckupState::Bad, loses };
    tried(environment, own, scratch, &subject)
}

/// Builds a sandbox with the flags of a real run, with an empty home and project.
fn tried(
    environment: &HostEnvironment,
    own: &AbsPath,
    scratch: Option<&Path>,
    subject: &SandboxCheck<'_>,
) -> Checkup {
    let SandboxCheck { id, backend, variables, state, loses } = subject;
    let (id, state) = (*id, *state);
    let place = scratch.map(|path| (path.join("home"), path.join("home/project")));
    let made = place.as_ref().is_some_and(|(_, project)| std::fs::create_dir_all(project).is_ok());
    let Some((home, project)) = place.filter(|_| made) else {
        return missing(
            id,
            state,
            "no temporary directory to build it in",
            "",
            vec!["df -h /tmp".to_owned()],
        );
    };
    let path = environment.outside_path();
    // outside: doctor-sandbox
    let mut command = Command::new(own.as_path());
    command
        .args(["exec", "--backend", backend, "--", "true"])
        .current_dir(project)
        .env_clear()
        .env("HOME", home)
        .env("PATH", path)
        .env(MARK, mark());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    match output(command) {
        Some((true, _, _)) => good(id, "built and sealed one, with the flags of a real run"),
        Some((false, _, stderr)) => {
            let strip = |line: &str, prefix: &str| line.trim().strip_prefix(prefix).map(str::to_owned);
            let causes: Vec<String> = stderr
                .lines()
                .filter_map(|line| strip(line, "error: ").or_else(|| strip(line, "caused by: ")))
                .collect();
            let fix = stderr.lines().filter_map(|line| strip(line, "hint: ")).collect();
            missing(id, state, causes.join(": "), loses, fix)
        }
        None => missing(id, state, "it took too long, or could not be tested", loses, Vec::new()),
    }
}

fn seccomp() -> Checkup {
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

fn landlock_abi() -> Checkup {
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

fn guard() -> Checkup {
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

fn limits() -> Checkup {
    let id = "limits";
    let loses = "a plan that asks for such a limit is refused";
    match cgroup::probe() {
        Ok(support) => {
            let mode = match support.mode {
                Mode::V1 => "control groups version 1",
                Mode::Hybrid => "control groups version 1 and 2",
                Mode::V2 => "control groups version 2",
                Mode::Absent => "no control groups",
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

fn overlay(environment: &HostEnvironment) -> Checkup {
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

/// Whether belljar's directories can be written, and their file systems.
fn directories(environment: &HostEnvironment) -> Vec<Checkup> {
    let pairs = [("configuration directory", &environment.config), ("data directory", &environment.data)];
    let check = |(id, path): (&'static str, &AbsPath)| {
        let tried = tempfile::tempfile_in(existing(path.as_path()));
        match tried {
            Ok(_) => good(id, format!("{}, {}", environment.shown(path), file_system(path.as_path()))),
            Err(error) => {
                let fix =
                    vec![format!("make `{path}` writable, or set its XDG variable to a writable directory")];
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

/// The first line that a program prints for these arguments.
fn version(program: &AbsPath, arguments: &[&str]) -> Option<String> {
    // outside: doctor-version
    let mut command = Command::new(program.as_path());
    // The output must not depend on the user's environment.
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    first_line(command)
}

/// The first line of a command's output, if the command succeeds.
pub(crate) fn first_line(command: Command) -> Option<String> {
    let (success, stdout, _) = output(command)?;
    let line = stdout.lines().next()?.trim().to_owned();
    (success && !line.is_empty()).then_some(line)
}

/// The success and both outputs; `None` if it cannot be started or does not end.
fn output(mut command: Command) -> Option<(bool, String, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.dies_with_spawner().spawn().ok()?;
    let (stdout, stderr) = (child.stdout.take()?, child.stderr.take()?);
    let read = |stream: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes that were read before an error count.
            stream.take(OUTPUT_LIMIT).read_to_end(&mut bytes).ok();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let status = process::end_in_time(&mut child, PATIENCE)?;
    Some((status.success(), stdout.join().ok()?, stderr.join().ok()?))
}
