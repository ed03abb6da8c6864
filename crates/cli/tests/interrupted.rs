//! Verbs that are ended in the middle leave nothing that the next command or `gc` does not find.
//!
//! Processes are found by what they hold of the stage: an environment, a command line, a program or a working directory
//! below it. Moments are drawn from a seed, so that a failure can be repeated.

use crate::stage::Stage;
use belljar_testkit::{require, wait};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What ends a command in the middle.
const SIGNALS: [&str; 4] = ["INT", "KILL", "TERM", "HUP"];
/// Where `prove` and `doctor` make something outside the stage.
const ELSEWHERE: [&str; 6] =
    ["/tmp", "/var/tmp", "/dev/shm", "/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"];

/// Numbers that are the same each time.
struct Moments(u64);

impl Moments {
    fn next(&mut self, below: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        below.mul_f64((self.0 >> 33) as f64 / f64::from(1_u32 << 31))
    }
}

/// A user whose places are all below the stage.
fn user() -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path("tmp")).unwrap();
    stage
}

fn start(stage: &Stage, args: &[&str]) -> Child {
    let mut command = stage.command(args);
    command.env("TMPDIR", stage.path("tmp")).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let said = fs::File::create(stage.path("said")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

/// Ends it; its status, where it had one.
fn end(child: &mut Child, signal: &str) -> Option<i32> {
    // One that has ended by itself is as good.
    Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    child.wait().unwrap().code()
}

/// The processes that hold something of the stage. Those of an engine's own are not belljar's to end.
fn processes(stage: &Stage) -> Vec<u32> {
    let mark = stage.path("");
    let holds = |process: &u32| {
        let (mark, process) = (mark.to_str().unwrap(), Path::new("/proc").join(process.to_string()));
        let text = |name: &str| {
            String::from_utf8_lossy(&fs::read(process.join(name)).unwrap_or_default()).into_owned()
        };
        let link = |name: &str| fs::read_link(process.join(name)).unwrap_or_default();
        text("environ").contains(mark)
            || text("cmdline").contains(mark)
            || ["exe", "cwd"].iter().any(|name| link(name).starts_with(mark))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(holds).collect()
}

/// All processes of the stage end by themselves.
#[track_caller]
pub fn assert_no_process(stage: &Stage, when: &str) {
    let ended = wait::for_end(|| processes(stage));
    let shown = |process: u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        format!("{process}: {}", String::from_utf8_lossy(&line).replace('\0', " "))
    };
    let left = || processes(stage).into_iter().map(shown).collect::<Vec<_>>();
    assert!(ended.is_ok(), "{when}: {:#?}", left());
}

/// Names of belljar's outside the stage that were not there before and whose maker has ended.
fn elsewhere(before: &[PathBuf]) -> Vec<PathBuf> {
    let maker_runs = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let pid = name.split('.').nth(1).and_then(|digits| u32::from_str_radix(digits, 36).ok());
        pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
    };
    let mut now = names();
    now.retain(|path| !before.contains(path) && !maker_runs(path));
    now
}

fn names() -> Vec<PathBuf> {
    let entries = |place: &&str| fs::read_dir(place).into_iter().flatten().flatten();
    let paths = ELSEWHERE.iter().flat_map(entries).map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let ours = ["belljar-prove-", "belljar-doctor-", "belljar-probe-"];
        // Those of another belljar, whose tests may run on this machine, do not tell who made them.
        ours.iter().any(|prefix| name.starts_with(prefix)) && name.contains('.')
    };
    paths.filter(ours).collect()
}

/// Everything below some directories of the stage.
fn below(stage: &Stage, names: &[&str]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open: Vec<PathBuf> = names.iter().map(|name| stage.path(name)).collect();
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            out.push(entry.path());
        }
    }
    out
}

fn gc(stage: &Stage) {
    let mut command = stage.command(&["gc"]);
    command.env("TMPDIR", stage.path("tmp")).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let found = stage.finish(&mut command);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
}

/// Ends a verb at random moments, and looks at what is left.
fn ended_at_random(args: &[&str], rounds: usize, span: Duration) {
    let (stage, before) = (user(), names());
    let mut moments = Moments(7);
    for round in 0..rounds {
        let signal = SIGNALS[round % SIGNALS.len()];
        let moment = moments.next(span);
        let when = format!("{args:?} ended by SIG{signal} after {moment:?}");
        let mut child = start(&stage, args);
        std::thread::sleep(moment);
        let status = end(&mut child, signal);
        let by_signal = match signal {
            "INT" => Some(130),
            "TERM" => Some(143),
            "HUP" => Some(129),
            _ => None,
        };
        // It may have been done, or not have begun.
        let done = matches!(status, Some(0 | 1 | 3 | 4) | None);
        let said = || fs::read_to_string(stage.path("said")).unwrap();
        assert!(done || status == by_signal, "{when}: {status:?}: {}", said());
        // The keeper ends what belljar started, also when belljar itself was killed.
        assert_no_process(&stage, &when);
        if signal == "KILL" {
            // What an engine had begun for belljar, and directories, are found by `gc`.
            gc(&stage);
        }
        let mut left = below(&stage, &["tmp", "data/belljar/prove"]);
        left.extend(
            below(&stage, &["data"]).into_iter().filter(|path| path.to_string_lossy().contains("/.belljar")),
        );
        left.extend(elsewhere(&before));
        assert!(left.is_empty(), "{when}: {left:#?}");
    }
}

#[test]
fn prove_leaves_nothing_whenever_it_is_ended() {
    require!(Bwrap, Git);
    ended_at_random(&["prove"], 10, Duration::from_secs(5));
}

#[test]
fn doctor_leaves_nothing_whenever_it_is_ended() {
    require!(Bwrap);
    ended_at_random(&["doctor"], 24, Duration::from_millis(900));
}

/// The process that tidies up is killed with the one that is waited for: the next command finds the rest.
#[test]
fn prove_that_lost_its_keeper_is_tidied_up_by_gc() {
    require!(Bwrap, Git);
    let (stage, before) = (user(), names());
    let mut moments = Moments(11);
    let mut found_any = false;
    for _ in 0..6 {
        let mut child = start(&stage, &["prove"]);
        std::thread::sleep(Duration::from_millis(300) + moments.next(Duration::from_secs(4)));
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let keeper = fs::read_to_string(children).unwrap_or_default().trim().to_owned();
        let both = ["-KILL".to_owned(), child.id().to_string(), keeper];
        Command::new("kill").args(both.iter().filter(|word| !word.is_empty())).status().unwrap();
        child.wait().unwrap();
        let dry = stage.finish(stage.command(&["gc", "--dry-run"]).env("TMPDIR", stage.path("tmp")));
        found_any |= dry.stdout.contains("would remove the leftover");
        gc(&stage);
        assert_no_process(&stage, "after gc");
        gc(&stage);
        let mut left = below(&stage, &["tmp", "data/belljar/prove"]);
        left.extend(elsewhere(&before));
        assert!(left.is_empty(), "{left:#?}");
    }
    assert!(found_any, "gc --dry-run names what is left");
}

/// What the agent changes in the overlay: some of it takes long to write.
const CHANGES: &str = "for n in 1 2 3 4 5; do head -c 8000000 /dev/zero > new$n; done; \
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo changed >> old$n; done; rm -f gone*";

#[test]
fn apply_leaves_nothing_unfinished_whenever_it_is_ended() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    let numbered = |name: &str, count: u32| -> Vec<String> {
        (1..=count).map(|number| format!("project/{name}{number}")).collect()
    };
    let unfinished = || -> Vec<PathBuf> {
        let named = |path: &PathBuf| path.to_string_lossy().contains("/.belljar-unfinished-");
        below(&stage, &["project"]).into_iter().filter(named).collect()
    };
    let prepare = || {
        numbered("gone", 9).iter().for_each(|name| stage.write(name, "to be deleted\n"));
        let changed = stage.run(&["exec", "--yes", "--", "sh", "-c", CHANGES]);
        assert_eq!(changed.status.code(), Some(0), "{changed:?}");
    };
    numbered("old", 12).iter().for_each(|name| stage.write(name, "first\n"));
    prepare();
    let began = Instant::now();
    assert_eq!(stage.run(&["apply"]).status.code(), Some(0));
    let (whole, mut moments, mut left) = (began.elapsed(), Moments(3), 0);
    for round in 0..12 {
        prepare();
        let signal = ["KILL", "INT", "KILL", "TERM"][round % 4];
        let mut child = start(&stage, &["apply"]);
        if round % 4 == 0 {
            // In a moment that is known to be a bad one.
            while unfinished().is_empty() && child.try_wait().unwrap().is_none() {}
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            std::thread::sleep(moments.next(whole));
            end(&mut child, signal);
        }
        left += unfinished().len();
        if signal != "KILL" {
            assert_eq!(unfinished(), Vec::<PathBuf>::new(), "SIG{signal} in round {round}");
        }
        // Each of them finds what is left; another apply does so before it goes on.
        match round % 3 {
            0 => assert_eq!(stage.run(&["diff"]).status.code(), Some(0)),
            1 => gc(&stage),
            _ => {}
        }
        if round % 3 != 2 {
            assert_eq!(unfinished(), Vec::<PathBuf>::new(), "round {round}");
        }
        let rest = stage.run(&["apply", "--force"]);
        assert_eq!(rest.status.code(), Some(0), "{rest:?}");
        assert_eq!(unfinished(), Vec::<PathBuf>::new(), "round {round}");
        for name in numbered("old", 12) {
            assert_eq!(fs::read_to_string(stage.path(&name)).unwrap().lines().count(), round + 3, "{name}");
        }
        assert!(numbered("gone", 9).iter().all(|name| !stage.path(name).exists()));
        for name in numbered("new", 5) {
            assert_eq!(fs::metadata(stage.path(&name)).unwrap().len(), 8_000_000);
            fs::remove_file(stage.path(&name)).unwrap();
        }
    }
    assert!(left > 0, "no moment was a bad one");
}

/// A signal that belljar was started with as ignored stays so, as under `nohup`.
#[test]
fn an_ignored_signal_stays_ignored() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    for signal in ["HUP", "INT"] {
        let belljar = env!("CARGO_BIN_EXE_belljar");
        let script = format!("trap '' {signal}; exec {belljar} exec --yes a -- cat");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(stage.path("project")).env_clear();
        command.envs(stage.environment()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"ready\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

/// Names that tell when anything below a directory was made, written or replaced.
fn snapshot(top: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut out = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let found = path.symlink_metadata().unwrap();
        let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
        out.push(format!("{} {} {} {times:?}", path.display(), found.ino(), found.size()));
        if found.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    out.sort();
    out
}

/// Programs that a user has, each of which writes into the home that it is started with.
#[test]
fn prove_touches_nothing_of_the_users_home() {
    require!(Bwrap, Git);
    let stage = user();
    let home = stage.path("home");
    for name in
        [".bashrc", ".rustup/settings.toml", ".cargo/config.toml", ".gitconfig", ".config/x", ".claude.json"]
    {
        stage.write(&format!("home/{name}"), "the user's\n");
    }
    for name in ["rustc", "cargo", "rustup"] {
        let path = format!("programs/{name}");
        stage.write(&path, "#!/bin/sh\necho started > \"$HOME/started\"\nmkdir -p \"$HOME/.rustup\"\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(stage.path(&path), mode).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", stage.path("programs").display());
    let before = snapshot(&home);
    let mut command = stage.command(&["prove"]);
    command.env("PATH", path).env("TMPDIR", stage.path("tmp"));
    // State lies in the home unless a variable says otherwise.
    command.env("XDG_STATE_HOME", stage.path("state")).env("XDG_CACHE_HOME", stage.path("cache"));
    command.env("CARGO_HOME", home.join(".cargo")).env("RUSTUP_HOME", home.join(".rustup"));
    let found = belljar_testkit::process::run_within(&mut command, Duration::from_secs(110)).unwrap();
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    assert_eq!(snapshot(&home), before, "nothing in the user's home was made or written");
    assert_eq!(below(&stage, &["tmp", "state", "cache", "data/belljar"]), Vec::<PathBuf>::new());
}
