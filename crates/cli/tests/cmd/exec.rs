mod early;
mod leaving;
mod limits;
mod sources;

use crate::stage::{DEADLINE, Stage};
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{require, wait};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn exec(stage: &Stage, args: &[&str]) -> Finished {
    stage.run(&[&["exec", "--yes", "--"], args].concat())
}

fn sh(stage: &Stage, script: &str) -> Finished {
    exec(stage, &["sh", "-c", script])
}

#[track_caller]
fn assert_prints(found: &Finished, expected: &str) {
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), expected), "{}", found.stderr);
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    require!(Bwrap);
    let stage = Stage::new();
    for (script, status) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        assert_eq!(sh(&stage, script).status.code(), Some(status), "{script}");
    }
    let missing = exec(&stage, &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(missing.stderr, "error: `no-such-program` was not found in the sandbox\n");
    stage.write("project/data.txt", "x");
    assert_eq!(exec(&stage, &["./data.txt"]).status.code(), Some(126));
    assert_eq!(exec(&stage, &["/usr"]).status.code(), Some(126));
}

#[test]
fn no_shell_sees_the_words() {
    require!(Bwrap);
    let stage = Stage::new();
    let odd = ["a b", "$(id)", "'\"", "x\ny", "*", ""];
    let found = exec(&stage, &[&["printf", "<%s>"], odd.as_slice()].concat());
    assert_prints(&found, "<a b><$(id)><'\"><x\ny><*><>");
}

#[test]
fn nothing_of_the_machine_is_there() {
    require!(Bwrap);
    let stage = Stage::new();
    stage.write("home/.ssh/id_ed25519", "secret");
    stage.write("outside.txt", "secret");
    let found = sh(
        &stage,
        "ls -A /; ls -A .. ; ls -A $HOME; cat ../outside.txt ../home/.ssh/id_ed25519; env | cut -d= -f1 | sort | tr '\\n' ' '",
    );
    assert!(!found.stdout.contains("secret"), "{}", found.stdout);
    for name in ["root", "srv", "mnt", "sys", "boot"] {
        assert!(!found.stdout.lines().any(|line| line == name), "/{name} is there: {}", found.stdout);
    }
    assert!(!found.stdout.contains("XDG_CONFIG_HOME"), "the environment is the plan's: {}", found.stdout);
    let ancestors = sh(&stage, "ls -A ..");
    assert_prints(&ancestors, "project\n");
}

#[test]
fn the_project_is_at_its_own_path_and_can_be_written() {
    require!(Bwrap);
    let stage = Stage::new();
    assert_prints(
        &sh(&stage, "pwd; echo hi > made; touch /x 2>/dev/null || echo closed"),
        &format!("{}\nclosed\n", stage.path("project").display()),
    );
    assert_eq!(fs::read_to_string(stage.path("project/made")).unwrap(), "hi\n");
    assert!(
        !stage
            .path("data/belljar")
            .join("instances")
            .read_dir()
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
            .join("host")
            .exists()
    );
}

#[test]
fn paths_with_any_bytes() {
    require!(Bwrap);
    let stage = Stage::new();
    for name in [&b"with space"[..], b"new\nline", b"q'uo\"te$(x)", b"not\xffutf8"] {
        let directory = stage.path("project").join(OsStr::from_bytes(name));
        fs::create_dir(&directory).unwrap();
        let mut command = stage.command(&["exec", "--", "sh", "-c", "echo here > it; pwd | wc -c"]);
        let found = stage.finish(command.current_dir(&directory));
        assert_eq!(found.status.code(), Some(0), "{name:?}: {}", found.stderr);
        assert_eq!(fs::read_to_string(directory.join("it")).unwrap(), "here\n");
    }
}

#[test]
fn a_home_that_is_a_link() {
    require!(Bwrap);
    let stage = Stage::new();
    symlink(stage.path("home"), stage.path("link-to-home")).unwrap();
    let mut command = stage.command(&["exec", "--", "sh", "-c", "echo $HOME"]);
    let found = stage.finish(command.env("HOME", stage.path("link-to-home")).env_remove("XDG_DATA_HOME"));
    assert_prints(&found, "/home/agent\n");
    assert!(stage.path("home/.local/share/belljar/instances").is_dir());
}

#[test]
fn closed_streams_and_many_descriptors() {
    require!(Bwrap);
    let stage = Stage::new();
    let binary = env!("CARGO_BIN_EXE_belljar");
    let run = |script: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-c", script, binary])
            .current_dir(stage.path("project"))
            .env_clear()
            .envs(stage.environment());
        stage.finish(&mut command)
    };
    assert_prints(&run("\"$0\" exec -- sh -c 'cat; echo rc=$?' <&-"), "rc=0\n");
    assert_eq!(run("\"$0\" exec -- sh -c 'echo x' >&- 2>&-").status.code(), Some(0));
    let many = "ulimit -n 12000 2>/dev/null || ulimit -n $(ulimit -H -n); for i in $(seq 3 10003); do eval \"exec $i</dev/null\" 2>/dev/null || break; done; \"$0\" exec -- sh -c 'ls /proc/self/fd | wc -l'";
    let found = run(many);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let count: u32 = found.stdout.trim().parse().unwrap();
    assert!(count <= 4, "0, 1, 2 and the one that lists: {count}");
}

#[test]
fn what_is_left_running_is_ended_with_the_command() {
    require!(Bwrap);
    let stage = Stage::new();
    let (one, other) = (number(1), number(2));
    let found = sh(
        &stage,
        &format!(
            "trap '' TERM; (trap '' TERM; setsid nohup sleep {one} >/dev/null 2>&1 &) ; sleep {other} & echo begun"
        ),
    );
    assert_prints(&found, "begun\n");
    [one, other].iter().for_each(|number| assert_gone(number));
}

/// A time to sleep that no other process of this machine sleeps.
fn number(of: u32) -> String {
    format!("97{of}{}", std::process::id())
}

/// The processes of this machine whose last argument is this one.
fn survivors(last: &str) -> Vec<u32> {
    let has = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.strip_suffix(b"\0")
            .is_some_and(|line| line.rsplit(|byte| *byte == 0).next() == Some(last.as_bytes()))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has).collect()
}

/// The kernel takes a moment to end a namespace.
#[track_caller]
fn assert_gone(last: &str) {
    let gone = wait::for_end(|| survivors(last));
    assert!(gone.is_ok(), "left behind: {:?}", survivors(last));
}

/// Ended with the test, also with one that fails.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts a command that says when it runs, then sends belljar a signal and waits for everything to be gone.
fn ended_by(signal: &str) -> Option<i32> {
    let stage = Stage::new();
    let mark = &format!("{signal}-{}", std::process::id());
    // Each says that it runs, and reads what nobody writes.
    let waits = format!("sh -c 'echo begun; read -r line <&3; read -r line <&3' {mark}");
    let script = format!("exec 3<&0; trap '' TERM HUP; {waits} & (setsid {waits} &); {waits}; {waits}");
    let mut child = Ended(
        stage
            .command(&["exec", "--", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let child = &mut child.0;
    let _input = child.stdin.take();
    let mut begun = [0; 18];
    child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"begun\nbegun\nbegun\n");
    assert_eq!(survivors(mark).len(), 3, "the processes can be seen while they run");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_gone(mark);
    status.code()
}

#[test]
fn sigterm_and_sighup_end_everything() {
    require!(Bwrap);
    assert_eq!(ended_by("TERM"), Some(143));
    assert_eq!(ended_by("HUP"), Some(129));
}

#[test]
fn sigkill_of_belljar_ends_everything() {
    require!(Bwrap);
    assert_eq!(ended_by("KILL"), None);
}

#[test]
fn sigint_reaches_the_command_which_may_go_on() {
    require!(Bwrap);
    let stage = Stage::new();
    let mut child = stage
        .command(&[
            "exec",
            "--",
            "bash",
            "-c",
            "trap 'echo caught; exit 9' INT; echo begun; while :; do sleep 0.05; done",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), rest.as_str()), (Some(9), "caught\n"));
}

#[test]
fn a_time_limit_ends_what_ignores_it() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nlimits = { time = \"1s\" }\n");
    let number = number(3);
    let found = sh(&stage, &format!("trap '' TERM; while :; do sleep {number}; done"));
    assert!(found.stderr.contains("the time limit of 1s was reached"), "{}", found.stderr);
    assert!(matches!(found.status.code(), Some(137 | 143)), "{:?}", found.status);
    assert_gone(&number);
}

/// The limit of the command line wins in both directions, and needs no new agreement.
#[test]
fn a_time_limit_of_the_command_line_overrides_the_manifest() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nlimits = { time = \"1h\" }\n");
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0));
    let number = number(4);
    let found = stage.run(&["exec", "--timeout", "1s", "--", "sleep", &number]);
    assert!(found.stderr.contains("the time limit of 1s was reached"), "{}", found.stderr);
    assert!(matches!(found.status.code(), Some(137 | 143)), "{:?}", found.status);
    assert_gone(&number);
    stage.write("project/belljar.toml", "[agents.a]\nlimits = { time = \"1s\" }\n");
    let found = stage.run(&["exec", "--yes", "--timeout", "1h", "--", "sleep", "2"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let refused = stage.run(&["exec", "--yes", "--timeout", "soon", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn what_a_projects_manifest_asks_for_needs_a_yes() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\n");
    let refused = stage.run(&["exec", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(refused.stderr.contains("there is no terminal to ask at"), "{}", refused.stderr);
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0));
    assert_eq!(stage.run(&["exec", "--", "true"]).status.code(), Some(0));
    stage.write("project/belljar.toml", "[agents.a]\nhome = \"clean\"\n");
    let changed = stage.run(&["exec", "--", "true"]);
    assert_eq!(changed.status.code(), Some(125));
    assert!(changed.stderr.contains("home\n  - project\n  + clean"), "{}", changed.stderr);
    let dry = stage.run(&["exec", "--dry-run", "--", "true"]);
    assert_eq!(dry.status.code(), Some(0));
    assert!(dry.stdout.contains("Sees, in mount order"), "{}", dry.stdout);
}

#[test]
fn needs_that_cannot_be_met_are_refused_by_name() {
    let stage = Stage::with("[agents.a]\nworkspace = \"copy\"\nbackend = \"host\"\n");
    let found = exec(&stage, &["true"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("cannot honour the plan with the backend host"), "{}", found.stderr);
    let stage = Stage::new();
    let mut command = stage.command(&["exec", "--", "true"]);
    let found = stage.finish(command.env("PATH", "/nowhere"));
    assert_eq!(found.status.code(), Some(125));
    assert!(
        found.stderr.contains("bubblewrap is not installed")
            && found.stderr.contains("apt install bubblewrap"),
        "{}",
        found.stderr
    );
    let named = Stage::new().run(&["exec", "someone", "--", "true"]);
    assert_eq!(named.status.code(), Some(125));
    assert!(named.stderr.contains("no manifest was found"), "{}", named.stderr);
}

#[test]
fn values_of_the_environment_come_from_where_the_manifest_says() {
    require!(Bwrap);
    let manifest = r#"[agents.a.env]
LITERAL = "a $(b) \"c\""
VARIABLE = "${FROM_HERE}"
FILE = { file = "value.txt" }
COMMAND = { command = ["printf", "%s-%s\n", "out", "put"] }
QUESTION = { value = "?really" }
"#;
    let stage = Stage::with(manifest);
    stage.write("project/value.txt", "from a file\n\n");
    let mut command = stage.command(&[
        "exec",
        "--yes",
        "--",
        "sh",
        "-c",
        "printf '<%s>' \"$LITERAL\" \"$VARIABLE\" \"$FILE\" \"$COMMAND\" \"$QUESTION\"",
    ]);
    let found = stage.finish(command.env("FROM_HERE", "here"));
    assert_prints(&found, "<a $(b) \"c\"><here><from a file><out-put><?really>");
    assert!(
        found.stderr.contains("secrets that enter the sandbox: COMMAND (the output of"),
        "{}",
        found.stderr
    );
    for value in ["from a file", "out-put"] {
        assert!(!found.stderr.contains(value), "no value is shown: {}", found.stderr);
    }
}

#[test]
fn what_the_host_leaves_open_is_said_before_a_value_is_found() {
    let manifest = "[agents.a]\nbackend = \"host\"\n[agents.a.env]\nTOKEN = { command = [\"false\"] }\n";
    let found = exec(&Stage::with(manifest), &["true"]);
    assert_eq!(found.status.code(), Some(125));
    let place = |text: &str| found.stderr.find(text).unwrap_or_else(|| panic!("{text}: {}", found.stderr));
    assert!(place("NOT isolated") < place("cannot find the value of `TOKEN`"), "{}", found.stderr);
    assert_eq!(found.stderr.matches("NOT isolated").count(), 1);
}

#[test]
fn declared_mounts_appear_and_vanished_ones_are_named() {
    require!(Bwrap);
    let stage = Stage::with(
        "[agents.a]\nmounts = [{ source = \"../data-set\", target = \"/data\" }, { source = \"../out\", target = \"/out\", mode = \"rw\" }]\n",
    );
    stage.write("data-set/x", "content\n");
    fs::create_dir(stage.path("out")).unwrap();
    let found = sh(&stage, "cat /data/x; echo no > /data/x 2>/dev/null || echo closed; echo yes > /out/y");
    assert_prints(&found, "content\nclosed\n");
    assert_eq!(fs::read_to_string(stage.path("out/y")).unwrap(), "yes\n");
    fs::remove_dir_all(stage.path("out")).unwrap();
    let gone = sh(&stage, "true");
    assert_eq!(gone.status.code(), Some(125));
    assert!(gone.stderr.contains("out` does not exist"), "{}", gone.stderr);
}

#[test]
fn a_project_on_a_read_only_file_system() {
    require!(Bwrap, Root);
    let stage = Stage::new();
    let project = stage.path("project");
    // In a mount namespace of its own, so that nothing is left behind whatever happens.
    let script = "mount -t tmpfs -o ro none \"$1\" && cd \"$1\" && \"$0\" exec -- sh -c 'echo in; touch x 2>/dev/null || echo closed'";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_belljar")]).arg(&project);
    let found = run_within(command.env_clear().envs(stage.environment()), DEADLINE).unwrap();
    assert_prints(&found, "in\nclosed\n");
}

#[test]
fn git_works_in_repositories_worktrees_and_submodules() {
    require!(Bwrap, Git);
    let stage = Stage::new();
    let git = |directory: &Path, args: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"])
            .args(args);
        command.current_dir(directory).env("HOME", stage.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        let done = run_within(&mut command, DEADLINE).unwrap();
        assert!(done.status.success(), "git {args:?}: {}", done.stderr);
    };
    let inside = |directory: &Path| {
        let script = "git status --porcelain && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m inside && git log -1 --format=%s";
        let mut command = stage.command(&["exec", "--", "sh", "-c", script]);
        stage.finish(command.current_dir(directory))
    };
    let (main, tree, sub) = (stage.path("project"), stage.path("elsewhere/tree"), stage.path("super"));
    git(&main, &["init", "-q", "-b", "main"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    assert_prints(&inside(&main), "inside\n");
    fs::create_dir_all(stage.path("elsewhere")).unwrap();
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    assert_prints(&inside(&tree), "inside\n");
    fs::create_dir_all(&sub).unwrap();
    git(&sub, &["init", "-q", "-b", "main"]);
    git(&sub, &["submodule", "add", "-q", main.to_str().unwrap(), "part"]);
    assert_prints(&inside(&sub.join("part")), "inside\n");
    let bare = stage.path("bare.git");
    git(&main, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let mut command = stage.command(&["exec", "--", "git", "log", "-1", "--format=%s"]);
    assert_prints(&stage.finish(command.current_dir(&bare)), "inside\n");
}

#[test]
fn a_project_that_is_deleted_during_the_run() {
    require!(Bwrap);
    let stage = Stage::new();
    let mut child = stage
        .command(&["exec", "--", "sh", "-c", "echo begun; read answer; ls -A | wc -l; exit 4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    fs::remove_dir_all(stage.path("project")).unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
fn programs_that_people_use_work_inside() {
    require!(Bwrap);
    let stage = Stage::new();
    for (program, script) in [
        ("mktemp", "f=$(mktemp) && test -f $f"),
        ("python3", "python3 -c 'import multiprocessing as m; q = m.Queue(); q.put(1); assert q.get() == 1'"),
        (
            "python3",
            "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(s.getsockname()); s.accept()[0].close()'",
        ),
        ("node", "node -e 'require(\"fs\").writeFileSync(\"n\", \"1\")'"),
        ("npm", "npm init -y >/dev/null && test -f package.json"),
        ("perl", "perl -e 'print 1' >/dev/null"),
    ] {
        if !Path::new("/usr/bin").join(program).exists() {
            continue;
        }
        let found = sh(&stage, script);
        assert_eq!(found.status.code(), Some(0), "{program}: {}{}", found.stdout, found.stderr);
    }
}

/// In an empty root there is no C library and no loader.
#[test]
fn what_runs_inside_needs_nothing_of_the_machine() {
    require!(Bwrap);
    let stage = Stage::new();
    assert_eq!(sh(&stage, "true").status.code(), Some(0));
    let unpacked: Vec<_> =
        fs::read_dir(stage.path("data/belljar/guest")).unwrap().map(Result::unwrap).collect();
    assert_eq!(unpacked.len(), 1);
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind"]).arg(unpacked[0].path()).args(["/it", "/it", "--version"]);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("belljar-guest "), "{printed}{}", String::from_utf8_lossy(&output.stderr));
}

/// A stage whose files belong to an ordinary user, and the binary where that user can reach it.
fn ordinary_stage() -> (Stage, PathBuf) {
    let stage = Stage::new();
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let bin = stage.path("bin");
    fs::create_dir(&bin).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_belljar"));
    belljar_testkit::process::copy_program(own, &bin.join("belljar")).unwrap();
    open(&stage.path(""), 0o755);
    for name in ["project", "home", "config", "config/belljar", "data"] {
        assert!(Command::new("chown").arg("4243:4243").arg(stage.path(name)).status().unwrap().success());
    }
    (stage, bin.join("belljar"))
}

/// A command that runs as that user.
fn as_ordinary_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4243", "--regid=4243", "--clear-groups"]).arg(program);
    command
}

/// Everything that another process of the same user would read secrets from.
#[test]
fn the_memory_of_the_supervisor_is_closed_to_its_own_user() {
    require!(Bwrap, Root);
    let (stage, belljar) = ordinary_stage();
    let mut command = as_ordinary_user(belljar);
    command.args(["exec", "--", "sh", "-c", "echo ready; cat"]).current_dir(stage.path("project"));
    command.env_clear().envs(stage.environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut supervisor = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(supervisor.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut other = as_ordinary_user("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Once it answers it is `cat`, and no longer what became `cat`.
    other.stdin.as_mut().unwrap().write_all(b"ready\n").unwrap();
    line.clear();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    for file in ["environ", "maps", "auxv", "fd/"] {
        let read = |pid: u32| {
            let mut command = as_ordinary_user("sh");
            command.arg("-c").arg(format!(
                "if [ -d /proc/{pid}/{file} ]; then ls /proc/{pid}/{file}; else cat /proc/{pid}/{file}; fi"
            ));
            run_within(&mut command, DEADLINE).unwrap()
        };
        let (closed, open) = (read(supervisor.id()), read(other.id()));
        assert!(
            open.status.success() && !open.stdout.is_empty(),
            "{file} of another process: {}",
            open.stderr
        );
        assert!(!closed.status.success() && closed.stdout.is_empty(), "{file}: {}", closed.stdout.len());
        assert!(closed.stderr.contains("Permission denied"), "{file}: {}", closed.stderr);
    }
    // The first byte of memory is never mapped: a process that may read the rest gets another error.
    let memory = |pid: u32| {
        let mut command = as_ordinary_user("head");
        command.args(["-c1", &format!("/proc/{pid}/mem")]);
        run_within(&mut command, DEADLINE).unwrap().stderr
    };
    assert!(memory(supervisor.id()).contains("Permission denied"), "{}", memory(supervisor.id()));
    assert!(memory(other.id()).contains("Input/output error"), "{}", memory(other.id()));
    let limits = fs::read_to_string(format!("/proc/{}/limits", supervisor.id())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
    drop((supervisor.stdin.take(), other.stdin.take()));
    assert!(supervisor.wait().unwrap().success());
    assert!(other.wait().unwrap().success());
}

#[test]
fn an_ordinary_user_gets_the_same() {
    require!(Bwrap, Root);
    let (stage, belljar) = ordinary_stage();
    let script = "id -u; echo made > mine; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '";
    // The first time unpacks the guest; the second finds it, and begins the sandbox before anything else.
    for _ in 0..2 {
        let mut command = as_ordinary_user(&belljar);
        command.args(["exec", "--", "sh", "-c", script]).current_dir(stage.path("project"));
        let found = stage.finish(command.env_clear().envs(stage.environment()));
        assert_prints(&found, "1000\nCapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n");
    }
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(stage.path("project/mine")).unwrap());
    assert_eq!(owner, 4243);
}

/// Root looks into every directory; an ordinary user does not.
#[test]
fn a_directory_that_the_command_closed_is_a_finding() {
    require!(Bwrap, Root);
    let (stage, belljar) = ordinary_stage();
    let run = |args: &[&str]| {
        let mut command = as_ordinary_user(&belljar);
        command.args(args).current_dir(stage.path("project"));
        stage.finish(command.env_clear().envs(stage.environment()))
    };
    let found = run(&["exec", "--", "sh", "-c", "mkdir nr; echo x > nr/.envrc; chmod 0 nr"]);
    assert!(
        found.stderr.contains("nr") && found.stderr.contains("could not be examined"),
        "{}",
        found.stderr
    );
    let found = run(&["findings"]);
    assert!(found.stdout.contains("nr") && found.stdout.contains("may contain anything"), "{found:?}");
}

/// The process that mounts them is a copy of one that other processes of the user cannot look into.
#[test]
fn an_ordinary_user_keeps_changes_aside() {
    require!(Bwrap, Root, UserNs);
    for mode in ["overlay", "copy"] {
        let (stage, belljar) = ordinary_stage();
        stage.write("project/belljar.toml", format!("[agents.a]\nworkspace = \"{mode}\"\n"));
        let mut command = as_ordinary_user(belljar);
        command.args(["exec", "--yes", "--", "sh", "-c", "echo made > mine; cat mine"]);
        let found =
            stage.finish(command.current_dir(stage.path("project")).env_clear().envs(stage.environment()));
        assert_prints(&found, "made\n");
        assert!(!stage.path("project/mine").exists());
    }
}

#[test]
fn what_the_host_would_execute_is_guarded_wherever_it_lies() {
    require!(Bwrap, Git);
    let stage = Stage::new();
    let git = |directory: &Path, args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
        let command = command.current_dir(directory).env("HOME", stage.path("home"));
        assert!(run_within(command, DEADLINE).unwrap().status.success(), "git {args:?}");
    };
    let project = stage.path("project");
    let nested = project.join("vendor/deep/er");
    fs::create_dir_all(&nested).unwrap();
    for directory in [&project, &nested] {
        git(directory, &["init", "-q"]);
        git(directory, &["commit", "-q", "--allow-empty", "-m", "first"]);
    }
    stage.write("project/.envrc", "export A=1\n");
    stage.write("project/.claude/settings.json", "{}\n");
    let tree = stage.path("elsewhere/tree");
    fs::create_dir_all(stage.path("elsewhere")).unwrap();
    git(&project, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    let watched = [
        project.join(".git/config"),
        nested.join(".git/config"),
        project.join(".envrc"),
        project.join(".claude/settings.json"),
    ];
    let before: Vec<Vec<u8>> = watched.iter().map(|path| fs::read(path).unwrap()).collect();
    let attack = "for d in .git vendor/deep/er/.git; do echo evil > $d/hooks/pre-commit; echo evil >> $d/config; git config -f $d/config core.fsmonitor ./x; \
        mv $d gone; rm -rf $d/hooks; umount $d/hooks; done; echo evil > .envrc; rm -f .envrc; echo evil > .claude/settings.json; mv .claude c; true";
    let found = sh(&stage, attack);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    // From a worktree, the repository that it belongs to.
    let line = format!(
        "echo evil > {0}/hooks/pre-commit; echo evil >> {0}/config; true",
        project.join(".git").display()
    );
    let from_tree = stage.finish(stage.command(&["exec", "--", "sh", "-c", &line]).current_dir(&tree));
    assert_eq!(from_tree.status.code(), Some(0), "{}", from_tree.stderr);
    for (path, before) in watched.iter().zip(before) {
        assert_eq!(fs::read(path).unwrap(), before, "{}", path.display());
    }
    for hooks in [project.join(".git/hooks"), nested.join(".git/hooks")] {
        assert!(hooks.is_dir() && !hooks.join("pre-commit").exists());
    }
    // New files are held back and listed; a link that leads out is reported.
    let planted = sh(
        &stage,
        "mkdir -p .vscode new && git init -q new && echo evil > new/.git/hooks/pre-commit; echo 1 > .vscode/tasks.json; echo x > .mcp.json; ln -s $HOME/.bashrc out; echo ordinary > file",
    );
    for part in [
        "held back: create .vscode/tasks.json: ",
        "held back: create .mcp.json: ",
        "held back: create new/.git/hooks/pre-commit: ",
        "out  new; a link that leads out",
    ] {
        assert!(planted.stderr.contains(part), "{part}: {}", planted.stderr);
    }
    for path in [".vscode/tasks.json", ".mcp.json", "new/.git/hooks/pre-commit"] {
        assert!(!project.join(path).exists(), "{path}");
    }
    assert!(!planted.stderr.contains("  file  "), "{}", planted.stderr);
}

#[test]
fn a_copy_leaves_the_project_as_it_is() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"copy\"\n");
    stage.write("project/a.txt", "one\n");
    let found = sh(&stage, "cat a.txt; echo two > a.txt; touch b; pwd");
    assert_prints(&found, &format!("one\n{}\n", stage.path("project").display()));
    assert_eq!(fs::read_to_string(stage.path("project/a.txt")).unwrap(), "one\n");
    assert!(!stage.path("project/b").exists());
    assert_prints(&sh(&stage, "cat a.txt; ls"), "one\na.txt\nbelljar.toml\n");
}

/// Where everything that is mounted is shared, as under systemd: starts a run with an overlay, and counts the
/// overlays that can be seen outside of it, before and meanwhile.
const SHARED_MOUNTS: &str = r#"
mount --make-rshared / && mkfifo go out || exit 1
grep -c ' - overlay ' /proc/self/mountinfo
"$0" exec --yes -- sh -c 'echo begun; read line' <go >out &
exec 3>go 4<out
read begun <&4
grep -c ' - overlay ' /proc/self/mountinfo
echo "$begun"
echo >&3
wait
"#;

#[test]
fn an_overlay_shows_nowhere_but_inside() {
    require!(Bwrap, Root);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", SHARED_MOUNTS]);
    unshare.arg(env!("CARGO_BIN_EXE_belljar"));
    unshare.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    let found = stage.finish(&mut unshare);
    let lines: Vec<_> = found.stdout.lines().collect();
    assert_eq!((lines.len(), lines[2]), (3, "begun"), "{found:?}");
    assert_eq!(lines[0], lines[1], "as many as before");
}

#[test]
fn a_missing_home_is_a_failed_launch() {
    let stage = Stage::new();
    for arguments in [&["exec", "--", "true"][..], &["run"], &["shell"]] {
        let found = stage.finish(stage.command(arguments).env_remove("HOME"));
        assert_eq!(found.status.code(), Some(125), "{arguments:?}: {found:?}");
        assert!(found.stderr.contains("HOME is not set"), "{found:?}");
    }
}
