//! Runs one stage on one side: the same prober, started directly or by belljar.

use super::scene::{ATTEMPTS, SYSTEM_PATH, Scene};
use super::stranger;
use super::table::{ProbeStage, Row};
use super::{ProveError, Side};
use belljar_contract::{AttemptRequest, ProbeFinding};
use belljar_sandbox::ENGINE_VARIABLE;
use belljar_sys::process::{self, Prepare};
use belljar_sys::pty::Pair;
use rustix::process::{Resource, Rlimit};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Longer than all attempts of a stage take.
const STAGE_TIME: Duration = Duration::from_secs(240);
/// The number of descriptors that the caller leaves open.
const OPEN_FILES: u64 = 10_000;
/// How long a process that must end may take.
pub(super) const END_TIME: Duration = Duration::from_millis(1500);
const OUTPUT_LIMIT: u64 = 16 << 20;

/// The result of a stage.
pub(super) struct StageRun {
    pub findings: BTreeMap<String, ProbeFinding>,
    pub status: Option<i32>,
    /// The standard error of the supervisor.
    pub stderr: String,
}

pub(super) fn run(
    side: &Side<'_>,
    scene: &Scene,
    rows: &[&Row],
    stage: ProbeStage,
) -> Result<StageRun, ProveError> {
    let mut requests = Vec::new();
    for row in rows {
        requests.push(AttemptRequest { id: row.id.clone(), attempt: scene.attempt(row)? });
    }
    let file = scene.project.join(ATTEMPTS);
    let failed = |cause| ProveError::Scene { path: file.clone(), cause };
    fs::write(&file, serde_json::json!(requests).to_string()).map_err(failed)?;
    let mut arguments =
        vec!["probe".to_owned(), "--attempts".to_owned(), file.to_string_lossy().into_owned()];
    arguments.extend(context(side, scene));
    let mut command = side.command(scene, &arguments, stage);
    if let (ProbeStage::Egress, Ok(outside)) = (stage, &scene.outside) {
        outside.enter(&mut command, &scene.project)?;
    }
    let _asked = Asked::for_stage(stage, scene).map_err(failed)?;
    let late = (stage == ProbeStage::Plain).then(|| LateFile::promise(scene));
    let pair = if stage == ProbeStage::Terminal {
        let pair = Pair::open().map_err(|error| failed(std::io::Error::other(error)))?;
        command.stdin(pair.terminal.try_clone().map_err(failed)?).own_session().stdin_is_terminal();
        Some(pair)
    } else {
        let input =
            if stage == ProbeStage::Directory { scene.home.as_path() } else { Path::new("/dev/null") };
        command.stdin(fs::File::open(input).map_err(failed)?);
        None
    };
    if stage == ProbeStage::Plain {
        command.keeps(open_files(scene));
    }
    // Last, because earlier settings can change credentials, which clears the parent-death signal.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).dies_with_spawner();
    let child = command.spawn().map_err(failed)?;
    // The command's closure holds copies of descriptors.
    drop(command);
    let (stdout, stderr, status) = collect(child);
    drop((pair, late));
    let findings = stdout
        .lines()
        // Input of a terminal is echoed, and may precede the finding on the same line.
        .filter_map(|line| serde_json::from_str::<ProbeFinding>(line.get(line.find('{')?..)?).ok())
        .map(|finding| (finding.probe.clone(), finding))
        .collect();
    Ok(StageRun { findings, status, stderr })
}

/// Makes belljar test a skill in a foreign repository, one with an agent that lets a process forge its frames, and a
/// scenario that asks for a file of the user. The effects are observed on the host alone; the output of belljar or the
/// agent shows that the attempt was made.
pub(super) fn tried(side: &Side<'_>, scene: &Scene, rows: &[&Row]) -> Result<StageRun, ProveError> {
    let Side::Inside { own, path, engine, backend, .. } = side else {
        return run(side, scene, rows, ProbeStage::Stranger);
    };
    let failed = |cause| ProveError::Scene { path: scene.project.clone(), cause };
    let belljar = |arguments: &[&OsStr]| {
        // outside: prove-belljar
        let mut command = Command::new(own.as_path());
        command.args(arguments).args(["--backend", backend.name()]).current_dir(scene.home.join("empty"));
        command.env_clear().envs(scene.environment(&stranger::path(&scene.home, path)));
        command.envs(engine.iter().map(|engine| (ENGINE_VARIABLE, engine)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).dies_with_spawner();
        command.spawn().map(collect).map_err(failed)
    };
    let skill = |name: &str| {
        let (directory, script) = (scene.home.join(name), scene.home.join("script.json"));
        let [verb, task, option] = ["skill", "go", "--script"].map(OsStr::new);
        belljar(&[verb, directory.as_os_str(), task, option, script.as_os_str()])
    };
    let (_, refused, _) = skill(stranger::CRAFTED)?;
    let (_, mut stderr, status) = skill(stranger::PLAIN)?;
    let scenario = scene.home.join(stranger::GREEDY);
    let (_, asked, _) = belljar(&[OsStr::new("test"), OsStr::new("--scripted"), scenario.as_os_str()])?;
    let finding = |row: &&Row| {
        let detail = match row.id.as_str() {
            stranger::REPOSITORY => refused.contains(".gitignore").then_some("belljar read the repository"),
            stranger::SCENARIO if stranger::recorded(&scene.home, &scene.secret) => {
                Some("the agent read the file")
            }
            stranger::SCENARIO => {
                asked.contains("id_ed25519").then_some("belljar named the file that it asks for")
            }
            _ => stranger::recorded(&scene.home, stranger::HONEST).then_some("the agent ran"),
        };
        let outcome = belljar_contract::ProbeOutcome::Open;
        Some((row.id.clone(), ProbeFinding { probe: row.id.clone(), outcome, detail: detail?.to_owned() }))
    };
    let findings = rows.iter().filter_map(finding).collect();
    stderr.push_str(&refused);
    stderr.push_str(&asked);
    Ok(StageRun { findings, status, stderr })
}

/// The targets of the guest's own probes.
fn context(side: &Side<'_>, scene: &Scene) -> Vec<String> {
    // Inside, process 1 is the supervisor's.
    let trace = if side.is_isolated() { "1".to_owned() } else { scene.pid.to_string() };
    let segment = scene.segment.as_ref().map_or(0, belljar_sys::segment::Segment::key).to_string();
    let pairs = [
        ("--key", scene.key.clone()),
        ("--abstract", scene.abstract_name.clone()),
        ("--pid", scene.pid.to_string()),
        ("--trace", trace),
        ("--segment", segment),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// As many copies of a secret file as the limit allows to be open.
fn open_files(scene: &Scene) -> Vec<OwnedFd> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(OPEN_FILES + 1000).min(OPEN_FILES + 1000);
    if limit.current.is_some_and(|current| current < most) {
        // If the limit cannot be raised, fewer files are opened; one is enough.
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })
            .ok();
    }
    let count = most.saturating_sub(1000).clamp(1, OPEN_FILES);
    let file = scene.home.join(".ssh/id_ed25519");
    (0..count).map_while(|_| fs::File::open(&file).ok().map(OwnedFd::from)).collect()
}

/// Both outputs and the status; a child that does not end in time is killed and has no status.
pub(super) fn collect(mut child: Child) -> (String, String, Option<i32>) {
    let stdout = child.stdout.take().map(follow);
    let stderr = child.stderr.take().map(follow);
    let status = process::end_in_time(&mut child, STAGE_TIME).and_then(|status| status.code());
    // If isolation is missing, a surviving process may keep the outputs open forever.
    let until = Instant::now() + END_TIME;
    let text = |chunks: Option<Receiver<Vec<u8>>>| {
        let mut bytes = Vec::new();
        while let Some(Ok(chunk)) =
            chunks.as_ref().map(|chunks| chunks.recv_timeout(until.saturating_duration_since(Instant::now())))
        {
            bytes.extend(chunk);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    (text(stdout), text(stderr), status)
}

/// The chunks of an output as they arrive, up to a limit.
fn follow(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut buffer, mut left) = (vec![0; 64 << 10], OUTPUT_LIMIT);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            left = left.saturating_sub(count as u64);
            if left == 0 || send.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receive
}

/// Starts a process with the mark, waits until it exists, and kills its supervisor. Returns whether the process
/// existed.
pub(super) fn kill_supervisor(side: &Side<'_>, scene: &Scene, row: &Row) -> Result<bool, ProveError> {
    let failed = |cause| ProveError::Scene { path: scene.project.clone(), cause };
    let mark = scene.mark(row);
    let script = format!("sleep {mark}; true");
    let mut command = side.shell(scene, &script);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.dies_with_spawner().spawn().map_err(failed)?;
    let until = Instant::now() + Duration::from_secs(20);
    let mut there = false;
    while !there && Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        there = !sleepers(&mark).is_empty();
        std::thread::sleep(Duration::from_millis(5));
    }
    // It has ended already, or ends now.
    child.kill().ok();
    child.wait().ok();
    Ok(there)
}

/// The processes of this machine that sleep for exactly this duration, by their exact command line.
pub(super) fn sleepers(mark: &str) -> Vec<i32> {
    let wanted = format!("sleep\0{mark}\0");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(wanted.as_bytes()))
        })
        .collect()
}

/// Whether none of them is left in time; remaining ones are killed.
pub(super) fn none_left(mark: &str) -> bool {
    let until = Instant::now() + END_TIME;
    loop {
        let left = sleepers(mark);
        if left.is_empty() {
            return true;
        }
        if Instant::now() >= until {
            for pid in left.into_iter().filter_map(rustix::process::Pid::from_raw) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The contents of a manifest for the duration of a stage, and the previous contents.
struct Asked(Option<(std::path::PathBuf, Option<String>)>);

impl Asked {
    fn for_stage(stage: ProbeStage, scene: &Scene) -> std::io::Result<Self> {
        let (file, before, text) = match stage {
            // In the user's own manifest: that of a project is not agreed to, and would be refused for that reason
            // alone.
            ProbeStage::Misspelt => {
                let file = scene.home.join(".config/belljar/belljar.toml");
                let own = fs::read_to_string(&file)?;
                let text = format!("{own}\n[agents.prove.mountz]\n");
                (file, Some(own), text)
            }
            ProbeStage::Widened => {
                let other = scene.home.join("other");
                let text = format!("[agents.prove]\nmounts = [{{ source = \"{}\" }}]\n", other.display());
                (scene.project.join("belljar.toml"), None, text)
            }
            ProbeStage::Idle
            | ProbeStage::Plain
            | ProbeStage::Directory
            | ProbeStage::Terminal
            | ProbeStage::Killed
            | ProbeStage::Egress
            | ProbeStage::Unbuilt
            | ProbeStage::Filled
            | ProbeStage::Crowded
            | ProbeStage::Stranger => return Ok(Self(None)),
        };
        fs::write(&file, text)?;
        Ok(Self(Some((file, before))))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some((file, before)) = &self.0 else { return };
        // The scene's removal removes it at the latest.
        before.as_ref().map_or_else(|| fs::remove_file(file), |text| fs::write(file, text)).ok();
    }
}

/// Writes a secret when a probe asks for it, long after the sandbox was built.
struct LateFile(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl LateFile {
    fn promise(scene: &Scene) -> Self {
        let (end, ended) = std::sync::mpsc::channel();
        let (asked, written) = (scene.project.join(".late-asked"), scene.project.join(".late-written"));
        let (secret, file) = (scene.secret.clone(), scene.home.join("late-secret"));
        let thread = std::thread::spawn(move || {
            let pause = Duration::from_millis(5);
            while matches!(ended.recv_timeout(pause), Err(std::sync::mpsc::RecvTimeoutError::Timeout)) {
                if asked.exists() {
                    // If it cannot be written, the probe finds nothing on either side.
                    fs::write(&file, &secret).and_then(|()| fs::write(&written, "")).ok();
                    return;
                }
            }
        });
        Self(Some((end, thread)))
    }
}

impl Drop for LateFile {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            // The thread only waits for the end or for the probe.
            thread.join().ok();
        }
    }
}

impl Side<'_> {
    fn is_isolated(&self) -> bool {
        matches!(self, Side::Inside { isolated: true, .. })
    }

    /// The command that starts the prober with these arguments.
    fn command(&self, scene: &Scene, arguments: &[String], stage: ProbeStage) -> Command {
        match self {
            Side::Host { guest } => {
                // Its parent has the secret in its environment and on its command line, like a careless supervisor.
                // outside: prove-probe
                let mut command = Command::new("sh");
                command.args(["-c", "\"$@\"; exit $?", &scene.entering]).arg(guest.as_path());
                command.args(arguments).current_dir(&scene.project).env_clear();
                command.envs(scene.environment(std::ffi::OsStr::new(SYSTEM_PATH)));
                if stage == ProbeStage::Egress {
                    command.envs(scene.careless_egress_environment());
                }
                command
            }
            Side::Inside { own, guest, path, engine, .. } => {
                // outside: prove-belljar
                let mut command = Command::new(own.as_path());
                command.arg("exec");
                // The question about a widened manifest is the subject of that stage.
                if stage != ProbeStage::Widened {
                    command.arg("--yes");
                }
                command.args([stage.agent(), "--"]).arg(guest.as_path());
                command.args(arguments).current_dir(&scene.project).env_clear().envs(scene.environment(path));
                if stage == ProbeStage::Egress {
                    command.envs(scene.egress_environment());
                }
                command.envs(engine.iter().map(|engine| (ENGINE_VARIABLE, engine)));
                if stage == ProbeStage::Unbuilt {
                    let empty = scene.home.join("empty");
                    command.env(ENGINE_VARIABLE, empty.join("engine.sock")).env("PATH", empty);
                }
                command
            }
        }
    }

    fn shell(&self, scene: &Scene, script: &str) -> Command {
        let (mut command, path, engine) = match self {
            // outside: prove-probe
            Side::Host { .. } => (Command::new("sh"), std::ffi::OsStr::new(SYSTEM_PATH), &None),
            Side::Inside { own, path, engine, .. } => {
                // outside: prove-belljar
                let mut command = Command::new(own.as_path());
                command.args(["exec", "--yes", "prove", "--", "sh"]);
                (command, path.as_os_str(), engine)
            }
        };
        command.args(["-c", script]).current_dir(&scene.project).env_clear().envs(scene.environment(path));
        command.envs(engine.iter().map(|engine| (ENGINE_VARIABLE, engine)));
        command
    }
}
