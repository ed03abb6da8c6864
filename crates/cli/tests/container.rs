//! The backend `container` with a real podman.

mod docker;
pub mod from;
mod images;
mod registry;
mod verbs;

use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program, run_within};
use belljar_testkit::require;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Containers take their time where everything else runs as well.
const DEADLINE: Duration = Duration::from_secs(120);

/// How many containers are asked for in the same moment.
const AT_ONCE: usize = 50;

/// One engine for all tests of this file: a podman that serves for as long as somebody asks, which this process does until
/// it ends. Its socket lies in a directory that the next run of the tests finds again.
pub fn engine() -> &'static PathBuf {
    static ENGINE: OnceLock<(PathBuf, UnixStream)> = OnceLock::new();
    let (socket, _held) = ENGINE.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("engine-{}", user()));
        let home = directory.join("state/belljar/run");
        std::fs::create_dir_all(&home).unwrap();
        let mut list = Command::new(env!("CARGO_BIN_EXE_belljar"));
        list.args(["image", "build"]).env_clear().current_dir("/");
        list.env("HOME", std::env::var_os("HOME").unwrap()).env("PATH", std::env::var_os("PATH").unwrap());
        list.env("XDG_STATE_HOME", directory.join("state")).env("BELLJAR_ENGINE", "podman");
        let built = run_within(&mut list, DEADLINE).unwrap();
        assert!(built.status.success(), "{built:?}");
        let own = home.join("engine/podman.sock");
        let socket = if own.exists() { own } else { PathBuf::from("/run/podman/podman.sock") };
        let mut held = UnixStream::connect(&socket).unwrap();
        // A question that is answered for as long as somebody listens.
        held.write_all(b"GET /v1.40/events HTTP/1.1\r\nHost: engine\r\n\r\n").unwrap();
        (socket, held)
    });
    socket
}

fn user() -> String {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_owned()
}

fn command(stage: &Stage, options: &[&str], args: &[&str]) -> Command {
    let all = [&["exec", "--yes", "--backend", "container"], options, &["--"], args].concat();
    let mut command = stage.command(&all);
    command.env("BELLJAR_ENGINE", engine());
    command
}

fn exec(stage: &Stage, args: &[&str]) -> Finished {
    run_within(&mut command(stage, &[], args), DEADLINE).unwrap()
}

fn sh(stage: &Stage, script: &str) -> Finished {
    exec(stage, &["sh", "-c", script])
}

/// Asks the engine, as belljar would not.
fn podman(args: &[&str]) -> String {
    let url = format!("unix://{}", engine().display());
    let output = Command::new("podman").args(["--url", &url]).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The containers that a project's runs have left.
fn containers_of(run: &str) -> String {
    podman(&["ps", "-a", "--filter", &format!("name={run}"), "--format", "{{.Names}}"])
}

#[track_caller]
fn assert_prints(found: &Finished, expected: &str) {
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), expected), "{}", found.stderr);
}

#[test]
fn status_signals_streams_and_words_are_passed_on() {
    require!(Podman);
    let stage = Stage::new();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        assert_eq!(sh(&stage, script).status.code(), Some(status), "{script}");
    }
    let missing = exec(&stage, &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(127), "{}", missing.stderr);
    let odd = ["a b", "$(id)", "x\ny", ""];
    assert_prints(&exec(&stage, &[&["printf", "<%s>"], odd.as_slice()].concat()), "<a b><$(id)><x\ny><>");
    let mut cat = command(&stage, &[], &["cat"]);
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through\n");
}

#[test]
fn it_is_the_same_sandbox_as_with_bubblewrap() {
    require!(Podman, Bwrap);
    let stage = Stage::new();
    stage.write("home/.ssh/id_ed25519", "secret");
    stage.write("outside.txt", "secret");
    let script = "ls -A /; ls -A ..; ls -lnA / | cut -c1-10; ls -ldn $HOME /tmp /run/belljar | cut -d' ' -f1,3,4; id; \
        env | cut -d= -f1 | sort; cat /etc/passwd /etc/hosts /proc/self/uid_map; \
        grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status; ls -A /dev | sort; ls /proc/1/root 2>&1; \
        cat ../outside.txt ../home/.ssh/id_ed25519 2>/dev/null; cat /proc/keys /proc/key-users 2>&1 | wc -c; \
        hostname; ls /sys 2>&1; touch /x /usr/x 2>&1; echo made > made; cat made";
    let container = sh(&stage, script);
    let bubblewrap =
        run_within(&mut stage.command(&["exec", "--yes", "--", "sh", "-c", script]), DEADLINE).unwrap();
    assert_eq!(container.status.code(), Some(0), "{}", container.stderr);
    assert!(!container.stdout.contains("secret"), "{}", container.stdout);
    assert_eq!(container.stdout, bubblewrap.stdout, "{}", container.stderr);
    assert_eq!(std::fs::read_to_string(stage.path("project/made")).unwrap(), "made\n");
}

#[test]
fn there_is_no_network_and_nothing_secret_for_the_engine() {
    require!(Podman);
    let stage = Stage::with("[agents.a]\nharness = \"claude-code\"\n[agents.a.env]\nTOKEN = \"${CANARY}\"\n");
    let mut sleeping =
        command(&stage, &[], &["sh", "-c", "echo $TOKEN; cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat"]);
    sleeping.env("CANARY", "canary-value-4711");
    let mut child = sleeping.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let run = format!("a-{}", child.id());
    let until = Instant::now() + DEADLINE;
    while !containers_of(&run).contains(&run) && Instant::now() < until {}
    let name = containers_of(&run).trim().to_owned();
    let shown = podman(&["inspect", &name]);
    assert!(shown.contains("belljar.supervisor"), "{shown}");
    assert!(!shown.contains("canary-value-4711"), "{shown}");
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "canary-value-4711\n    lo\n");
    assert_eq!(containers_of(&run), "", "nothing is left behind");
}

#[test]
fn limits_hold_or_are_refused() {
    require!(Podman, Root, Cgroups);
    let limits =
        "[agents.a]\nharness = \"claude-code\"\n[agents.a.limits]\nmemory = \"128M\"\npids = 40\ncpu = 0.5\n";
    let stage = Stage::with(limits);
    let script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; echo not reached";
    let crowded = sh(&stage, script);
    assert!(!crowded.stdout.contains("not reached"), "{}", crowded.stdout);
    let hungry = sh(&stage, "head -c 400M /dev/zero | tail -c 300M | wc -c");
    assert_ne!(hungry.stdout.trim(), "314572800", "{}", hungry.stderr);
}

#[test]
fn the_end_of_the_supervisor_is_the_end_of_the_container() {
    require!(Podman);
    let stage = Stage::new();
    let mut child = command(&stage, &[], &["sh", "-c", "echo up; exec sleep 4711"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let run = format!("default-{}", child.id());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    assert!(containers_of(&run).contains(&run));
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + DEADLINE;
    while !containers_of(&run).is_empty() {
        assert!(Instant::now() < until, "the container outlived its supervisor");
    }
}

#[test]
fn a_container_without_a_supervisor_is_swept() {
    require!(Podman);
    let stage = Stage::new();
    assert_prints(&exec(&stage, &["true"]), "");
    let owner =
        format!("belljar.owner={} {}", user(), std::fs::read_link("/proc/self/ns/pid").unwrap().display());
    let image = podman(&["images", "--format", "{{.ID}}", "--filter", "reference=localhost/belljar/base"]);
    let image = image.lines().next().unwrap().to_owned();
    let name = format!("belljar-swept-{}", std::process::id());
    let args = ["create", "--name", &name, "--label", &owner, "--label", "belljar.supervisor=1:0"];
    let args =
        [args.as_slice(), &["--label", "belljar.run=lost", "--network", "none", &image, "/x"]].concat();
    let until = Instant::now() + DEADLINE;
    loop {
        podman(&args);
        let mut gc = stage.command(&["gc", "--json"]);
        let gc = run_within(gc.env("BELLJAR_ENGINE", engine()), DEADLINE).unwrap();
        assert_eq!(gc.status.code(), Some(0), "{gc:?}");
        assert_eq!(containers_of(&name), "");
        if gc.stdout.contains("\"container\"") {
            break;
        }
        // The start of another test's run sweeps, too, and was first.
        assert!(Instant::now() < until, "{}", gc.stdout);
    }
}

#[test]
fn many_at_once() {
    require!(Podman);
    let stage = Stage::new();
    let children: Vec<_> = (0..AT_ONCE)
        .map(|number| {
            let mut one = command(&stage, &[], &["sh", "-c", &format!("echo {number}")]);
            one.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{number}\n"), "{errors}");
    }
}

#[test]
fn what_cannot_be_done_is_named_with_the_remedy() {
    require!(Podman);
    let stage = Stage::new();
    let mut unreachable = stage.command(&["exec", "--yes", "--backend", "container", "--", "true"]);
    unreachable.env("BELLJAR_ENGINE", stage.path("no.sock"));
    let found = stage.finish(&mut unreachable);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains("no.sock` cannot be reached"), "{}", found.stderr);
    assert!(found.stderr.contains("hint: start it"), "{}", found.stderr);
    let mut absent = stage.command(&["exec", "--yes", "--backend", "container", "--", "true"]);
    absent.env("BELLJAR_ENGINE", "docker").env("PATH", stage.path("home"));
    let found = stage.finish(&mut absent);
    if !Path::new("/var/run/docker.sock").exists() {
        assert_eq!(found.status.code(), Some(125), "{found:?}");
        assert!(found.stderr.contains("no container engine was found"), "{}", found.stderr);
        assert!(found.stderr.contains("/var/run/docker.sock` is not there"), "{}", found.stderr);
    }
}

/// A stage that belongs to a user whom the machine knows, and who has a home of his own here.
fn of_a_user() -> Stage {
    let stage = Stage::new();
    copy_program(Path::new(env!("CARGO_BIN_EXE_belljar")), &stage.path("belljar")).unwrap();
    for name in ["", "project", "home", "config", "config/belljar", "data"] {
        chown(stage.path(name), Some(65534), Some(65534)).unwrap();
    }
    stage
}

/// Executes something as that user, with a podman of his own.
fn without_root(stage: &Stage, options: &[&str], args: &[&str]) -> Finished {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(stage.path("belljar"));
    command.args(["exec", "--yes", "--backend", "container"]).args(options).arg("--").args(args);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    run_within(command.env("BELLJAR_ENGINE", "podman"), DEADLINE).unwrap()
}

#[test]
fn podman_without_root_builds_the_same_and_a_limit_that_it_ignores_is_refused() {
    require!(Podman, Root);
    let stage = of_a_user();
    let run = |args: &[&str]| without_root(&stage, &[], args);
    let script =
        "id -u; echo made > made; grep CapEff /proc/self/status; tail -n +3 /proc/net/dev | cut -d: -f1";
    let found = run(&["sh", "-c", script]);
    assert_prints(&found, "1000\nCapEff:\t0000000000000000\n    lo\n");
    assert_eq!(std::fs::metadata(stage.path("project/made")).unwrap().uid(), 65534);
    // With control groups of version 1 such an engine limits nothing.
    let bomb = "i=0; while [ $i -lt 5000 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; echo unbounded";
    let found = run(&["sh", "-c", bomb]);
    assert!(!found.stdout.contains("unbounded"), "{found:?}");
    assert!(found.stderr.contains("the process limit of 4096 was reached (limits.pids)"), "{}", found.stderr);
    if Path::new("/sys/fs/cgroup/memory").is_dir() {
        let limited = "[agents.a]\nharness = \"claude-code\"\n[agents.a.limits]\nmemory = \"128M\"\n";
        stage.write("project/belljar.toml", limited);
        let refused = run(&["true"]);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(refused.stderr.contains("a limit does not hold"), "{}", refused.stderr);
    }
}

/// Podman keeps the directories of its first start: those of a check that ends must not become the user's.
#[test]
fn doctor_gives_podman_no_directory_of_its_own() {
    require!(Podman, Root);
    let stage = of_a_user();
    let run = |program: &Path, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(args);
        command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
        command.env_remove("XDG_RUNTIME_DIR").env("BELLJAR_ENGINE", "podman");
        run_within(&mut command, DEADLINE).unwrap()
    };
    let belljar = stage.path("belljar");
    let doctor = run(&belljar, &["doctor", "--json"]);
    assert!(doctor.stdout.contains("\"containers\""), "{doctor:?}");
    run(&belljar, &["gc"]);
    let info = run(Path::new("/usr/bin/podman"), &["info", "--format", "{{.Store.RunRoot}}"]);
    assert_eq!(info.status.code(), Some(0), "{info:?}");
    assert!(!info.stdout.contains("belljar"), "{info:?}");
}

#[test]
fn changes_are_kept_in_an_overlay_or_made_to_a_copy() {
    require!(Podman);
    for mode in ["overlay", "copy"] {
        let stage = Stage::with(&format!("[agents.a]\nharness = \"claude-code\"\nworkspace = \"{mode}\"\n"));
        stage.write("project/old.txt", "old\n");
        let found = sh(&stage, "cat old.txt; echo new > old.txt; echo more > more.txt; cat old.txt more.txt");
        assert_prints(&found, "old\nnew\nmore\n");
        assert_eq!(std::fs::read_to_string(stage.path("project/old.txt")).unwrap(), "old\n", "{mode}");
        assert!(!stage.path("project/more.txt").exists(), "{mode}");
        if mode == "overlay" {
            let listed = stage.run(&["diff", "--json"]);
            assert!(listed.stdout.contains("old.txt") && listed.stdout.contains("more.txt"), "{listed:?}");
        }
    }
}

#[test]
fn the_repository_of_a_linked_worktree_is_overlaid_too() {
    use crate::repositories::{git, repository};
    require!(Podman, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let (project, tree) = (stage.path("project"), stage.path("tree"));
        git(&project, &["worktree", "add", "-q", "-b", "work", tree.to_str().unwrap()]);
        let script = "git branch -qD old && echo x > $(git rev-parse --git-common-dir)/commondir";
        let args = ["exec", "--yes", "--backend", "container", "a", "--", "sh", "-c", script];
        let found = stage.finish(stage.command(&args).current_dir(&tree));
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        assert!(found.stderr.contains("1 ref moved"), "{}", found.stderr);
        assert!(!project.join(".git/commondir").exists());
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "main\nold\nwork");
    }
}

#[test]
fn the_plan_is_lowered_without_an_engine() {
    let stage = Stage::new();
    let mut lowered = stage.command(&["plan", "--lowered", "--json", "--backend", "container"]);
    lowered.env("PATH", stage.path("home")).env("BELLJAR_ENGINE", "/nowhere");
    let found = stage.finish(&mut lowered);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let value: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let args = value["data"]["arguments"].as_array().unwrap();
    for expected in ["--network", "none", "--read-only", "--cap-drop", "all", "no-new-privileges"] {
        assert!(args.iter().any(|word| word == expected), "{expected}: {args:?}");
    }
    assert!(args.iter().any(|word| word.as_str().unwrap().starts_with("localhost/belljar/base:")));
}

#[test]
fn without_a_word_memory_and_processes_are_limited() {
    require!(Podman);
    let stage = Stage::new();
    let found = sh(&stage, "df -k --output=size / /dev/shm | tail -n +2 | tr -d ' '");
    let sizes: u64 = found.stdout.lines().map(|line| line.parse::<u64>().unwrap()).sum();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let memory: u64 = memory.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(sizes <= memory / 2, "{sizes} of {memory}");
    let found =
        sh(&stage, "i=0; while [ $i -lt 5000 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; echo unbounded");
    assert!(!found.stdout.contains("unbounded"), "{found:?}");
    assert!(found.stderr.contains("the process limit of 4096 was reached (limits.pids)"), "{}", found.stderr);
}
