//! `prove`, `doctor` and the backend `host`, on the real binary.

mod weak;

use belljar_testkit::require;
use belljar_testkit::require::Prerequisite;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A user with an empty home and project.
struct User {
    directory: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        // Not in /tmp, which is private inside for reasons of its own.
        let directory = tempfile::Builder::new().prefix("belljar-t-").tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir_all(directory.path().join("home/p")).unwrap();
        User { directory }
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn belljar(&self, path: &str, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_belljar"))
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", path)
            .current_dir(self.home().join("p"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A directory with these scripts in it, as a `PATH`.
    fn programs(&self, scripts: &[(&str, &str)]) -> String {
        let directory = self.directory.path().join("bin");
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in scripts {
            let file = directory.join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        directory.to_str().unwrap().to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The verdicts of `prove --json`, by probe; and what was seen inside.
fn verdicts(output: &Output) -> BTreeMap<String, (String, String)> {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr));
    });
    let rows = value["data"]["rows"].as_array().unwrap_or_else(|| panic!("{value:#}"));
    let row = |row: &Value| {
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        (word("id"), (word("verdict"), row["inside"].to_string()))
    };
    rows.iter().map(row).collect()
}

/// The page that says what is not covered.
const NOT_COVERED: &str = include_str!("../../../../docs/security.md");

/// Rows that nothing stops in `direct`, and that belljar reports.
const REPORTED: [&str; 2] = ["executed.escaping-link", "report.buried"];

#[test]
fn the_sandbox_of_a_real_run_holds_and_the_controls_work() {
    require!(Bwrap, Git);
    sandbox_holds(&["prove", "--json"], &REPORTED);
}

/// With an overlay: the guard of `direct` has tests of its own in containers.
#[test]
fn the_sandbox_of_a_container_holds_and_the_controls_work() {
    require!(Podman, Git);
    sandbox_holds(&["prove", "--backend", "container", "--workspace", "overlay", "--json"], &[]);
}

fn sandbox_holds(args: &[&str], in_the_project: &[&str]) {
    let user = User::new();
    let output = user.belljar(SYSTEM_PATH, args);
    let verdicts = verdicts(&output);
    let bad: Vec<_> = verdicts
        .iter()
        .filter(|(_, (verdict, _))| matches!(verdict.as_str(), "open" | "broken" | "unseen"))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(verdicts.values().filter(|(verdict, _)| verdict == "closed").count() > 40);
    // A link that leads out is there when a run in `direct` ends: nothing prevents it.
    let reported: Vec<&str> = verdicts
        .iter()
        .filter(|(_, (verdict, _))| verdict == "reported")
        .map(|(id, _)| id.as_str())
        .collect();
    assert_eq!(reported, in_the_project, "{verdicts:#?}");
    // What is not closed is in the list of what is not covered.
    let listed = |id: &str| NOT_COVERED.contains(&format!("`{id}`"));
    let not_closed = |verdict: &str| !matches!(verdict, "closed" | "works");
    let unlisted: Vec<_> =
        verdicts.iter().filter(|(id, (verdict, _))| not_closed(verdict) && !listed(id)).collect();
    assert!(unlisted.is_empty(), "docs/security.md does not list {unlisted:#?}");
    for control in [
        "control.write",
        "control.git-status",
        "control.git-commit",
        "control.mktemp",
        "control.allowed-page",
        "control.allowed-socks",
        "control.allowed-direct",
        "control.allowed-path",
        "control.credential",
    ] {
        assert_eq!(verdicts[control].0, "works");
    }
    // Open ones are never hidden: the status says so.
    let open = verdicts.values().any(|(verdict, _)| verdict == "open");
    assert_eq!(output.status.code(), Some(i32::from(open)));
    let left: Vec<_> = std::fs::read_dir(user.home().join(".local/share/belljar"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(left.is_empty(), "the scenes are removed: {left:?}");
}

#[test]
fn a_backend_that_is_not_here_is_named_beside_the_others() {
    let user = User::new();
    let page = user.home().join("page.html");
    let nothing = user.programs(&[]);
    let args = ["prove", "--all", "--json", "--html", page.to_str().unwrap()];
    let output = user.belljar(&nothing, &args);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let backends = value["data"]["backends"].as_array().unwrap();
    let names: Vec<&str> = backends.iter().map(|one| one["backend"].as_str().unwrap()).collect();
    assert_eq!(names, ["bwrap", "container"]);
    assert!(backends[0]["absent"].as_str().unwrap().contains("bubblewrap is not installed"), "{value:#}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>bwrap</h2><p>not on this machine"), "{page}");
    assert!(!page.contains("<script") && page.ends_with("</html>\n"), "{page}");
    if backends[1]["absent"].is_string() {
        assert_eq!(output.status.code(), Some(4), "{value:#}");
    }
}

#[test]
fn without_a_sandbox_nearly_everything_is_open() {
    require!(Git);
    let user = User::new();
    let output = user.belljar(SYSTEM_PATH, &["prove", "--backend", "host", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let verdicts = verdicts(&output);
    for id in [
        "files.ssh-key",
        "persist.shell-start",
        "processes.signal",
        "sockets.loopback",
        "network.address",
        "network.lookup",
        "refused.no-sandbox",
    ] {
        assert_eq!(verdicts[id].0, "open", "{id}: {:?}", verdicts[id]);
    }
    // What it does enforce, it does.
    for id in ["environment.secrets", "environment.ssh-agent", "files.descriptors"] {
        assert_eq!(verdicts[id].0, "closed", "{id}: {:?}", verdicts[id]);
    }
}

/// An ordinary user's bubblewrap cannot do without a user namespace, and that alone keeps this closed.
const BEHIND_A_USER_NAMESPACE: &str = "processes.environment";

#[test]
fn every_probe_can_fail() {
    require!(Bwrap, Git);
    let sound = verdicts(&User::new().belljar(SYSTEM_PATH, &["prove", "--json"]));
    let weakened = |weakening: &weak::Weakening| {
        let user = User::new();
        let path = format!("{}:{SYSTEM_PATH}", user.programs(&[("bwrap", &weak::wrapper(weakening))]));
        let output = user.belljar(&path, &["prove", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{}: {}", weakening.name, text(&output.stdout));
        verdicts(&output)
    };
    // Side by side: most of the time is spent waiting for processes that must not end.
    let all: Vec<(&weak::Weakening, _)> = std::thread::scope(|scope| {
        let runs: Vec<_> = weak::WEAKENINGS.iter().map(|one| (one, scope.spawn(|| weakened(one)))).collect();
        runs.into_iter().map(|(one, run)| (one, run.join().unwrap())).collect()
    });
    let mut missed = Vec::new();
    for (weakening, weak) in &all {
        // What is closed on the bare host shows nothing here either.
        let must = weakening.red.iter().filter(|id| sound[**id].0 != "proves-nothing");
        let must = must.filter(|id| **id != BEHIND_A_USER_NAMESPACE || Prerequisite::Root.probe().is_ok());
        for id in must.filter(|id| weak[**id].0 != "open") {
            missed.push(format!("{} must open {id}: {:?}", weakening.name, weak[*id]));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    // What is refused before bubblewrap is started no argument of its takes out: that is seen to
    // fail without a sandbox, and below.
    let walled = |(id, (verdict, inside)): &(&String, &(String, String))| {
        let outside = OUTSIDE.iter().any(|(known, _)| known == id);
        verdict == "closed" && !outside && !inside.contains("the launch was refused")
    };
    let closed = sound.iter().filter(walled).map(|(id, _)| id);
    let never: Vec<_> = closed.filter(|id| all.iter().all(|(_, weak)| weak[*id].0 != "open")).collect();
    assert!(never.is_empty(), "never seen to fail: {never:?}");
}

/// Proves with a belljar that starts, in its own place, a program which first takes out what would be refused.
///
/// The place is covered in a mount namespace: the prover runs from a descriptor that was opened before.
fn proved_by(user: &User, careless: &str) -> BTreeMap<String, (String, String)> {
    let own = user.directory.path().join("belljar");
    belljar_testkit::process::copy_program(Path::new(env!("CARGO_BIN_EXE_belljar")), &own).unwrap();
    let script = format!("#!/bin/sh\n{careless}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_belljar"));
    let instead = format!("{}/instead", user.programs(&[("instead", &script)]));
    let covered = "exec 9< \"$0\"; mount --bind \"$1\" \"$0\"; exec /proc/self/fd/9 prove --json";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", covered])
        .arg(&own)
        .arg(instead)
        .env_clear()
        .env("HOME", user.home())
        .env("PATH", SYSTEM_PATH)
        .current_dir(user.home().join("p"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    verdicts(&output)
}

#[test]
fn a_launch_that_is_not_refused_is_seen() {
    require!(Bwrap, UserNs);
    let all = ["refused.unknown-key", "refused.widened"];
    let cases = [
        ("true", &[][..]),
        // Passes over keys that it does not know.
        ("sed -i /mountz/d \"$HOME/.config/belljar/belljar.toml\"", &["refused.unknown-key"]),
        // Takes what a project asks for as agreed to.
        ("[ ! -e belljar.toml ] || @BELLJAR@ trust prove --yes >&2", &["refused.widened"]),
    ];
    let runs: Vec<_> = std::thread::scope(|scope| {
        let run = |careless: &str| {
            let careless = careless.replace("@BELLJAR@", env!("CARGO_BIN_EXE_belljar"));
            proved_by(&User::new(), &careless)
        };
        let runs: Vec<_> = cases.iter().map(|(careless, _)| scope.spawn(move || run(careless))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for ((careless, red), verdicts) in cases.iter().zip(runs) {
        for id in all {
            let expected = if red.contains(&id) { "open" } else { "closed" };
            assert_eq!(verdicts[id].0, expected, "{careless}: {id}: {:?}", verdicts[id]);
        }
    }
}

/// Rows about what belljar itself does outside, each with a belljar that is careless about it.
const OUTSIDE: [(&str, &str); 4] = [
    // Asks the host's git about a stranger's directory.
    (
        "outside.stranger-repository",
        "case $1 in skill) git -C \"$2\" ls-files --others --exclude-standard >/dev/null 2>&1 ;; esac",
    ),
    // Gives a scenario what it asks for.
    ("outside.stranger-scenario", "case $1 in test) set -- \"$@\" --yes ;; esac"),
    // Takes down whatever is written to the agent's output.
    (
        "evidence.forged-frame",
        "case $1 in skill) @BELLJAR@ \"$@\"; status=$?; for file in \"$HOME\"/.local/state/belljar/runs/*/frames.jsonl; \
         do echo forged-evidence.forged-frame >> \"$file\"; done; exit $status ;; esac",
    ),
    // Prints what it reads.
    (
        "report.erased",
        "case $1 in exec) @BELLJAR@ \"$@\"; status=$?; printf 'erased.txt \\033[2J\\n' >&2; exit $status ;; esac",
    ),
];

#[test]
fn what_belljar_does_outside_is_seen_where_it_is_careless() {
    require!(Bwrap, UserNs, Git);
    let runs: Vec<_> = std::thread::scope(|scope| {
        let run = |careless: &str| {
            proved_by(&User::new(), &careless.replace("@BELLJAR@", env!("CARGO_BIN_EXE_belljar")))
        };
        let runs: Vec<_> = OUTSIDE.iter().map(|(_, careless)| scope.spawn(move || run(careless))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for ((id, _), verdicts) in OUTSIDE.iter().zip(runs) {
        assert_eq!(verdicts[*id].0, "open", "{id}: {:?}", verdicts[*id]);
    }
}

#[test]
fn what_is_not_reported_is_open() {
    require!(Bwrap, UserNs, Git);
    // Says nothing at the end.
    let verdicts = proved_by(&User::new(), "exec 2>/dev/null");
    for id in REPORTED {
        assert_eq!(verdicts[id].0, "open", "{id}: {:?}", verdicts[id]);
    }
}

#[test]
fn a_backend_that_builds_nothing_is_no_proof() {
    let user = User::new();
    let path = user.programs(&[("sh", "#!/bin/sh\n")]);
    let output = user.belljar(&path, &["prove"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("bubblewrap is not installed"), "{}", text(&output.stderr));
}

#[test]
fn a_start_without_bubblewrap_is_refused_and_names_the_fix() {
    let user = User::new();
    let path = user.programs(&[]);
    for args in [&["exec", "--", "/bin/true"][..], &["shell"], &["run", "--", "-p", "hello"]] {
        let output = user.belljar(&path, args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("bubblewrap is not installed"), "{stderr}");
        assert!(stderr.contains("hint: apt install bubblewrap"), "{stderr}");
    }
    let output = user.belljar(&path, &["doctor"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).contains("NO   bubblewrap"), "{}", text(&output.stdout));
}

#[test]
fn a_start_without_namespaces_carries_the_diagnosis() {
    let user = User::new();
    let messages = [
        "setting up uid map: Permission denied",
        "No permissions to create new namespace, likely because the kernel does not allow it",
        "Creating new namespace failed: Operation not permitted",
        "loopback: Failed RTM_NEWADDR: Operation not permitted",
    ];
    for message in messages {
        let script = format!("#!/bin/sh\necho 'bwrap: {message}' >&2\nexit 1\n");
        let path = format!("{}:{SYSTEM_PATH}", user.programs(&[("bwrap", &script)]));
        let output = user.belljar(&path, &["exec", "--", "true"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
        assert!(stderr.contains("namespaces"), "{stderr}");
        assert!(stderr.contains("`belljar doctor` checks"), "{stderr}");
        let output = user.belljar(&path, &["doctor"]);
        assert_eq!(output.status.code(), Some(4));
        assert!(text(&output.stdout).contains(message), "{}", text(&output.stdout));
    }
    // Other complaints of bubblewrap get no advice that would mislead.
    let script = "#!/bin/sh\necho 'bwrap: Unknown option --bind-fd' >&2\nexit 1\n";
    let path = format!("{}:{SYSTEM_PATH}", user.programs(&[("bwrap", script)]));
    let stderr = text(&user.belljar(&path, &["exec", "--", "true"]).stderr);
    assert!(stderr.contains("Unknown option") && !stderr.contains("doctor"), "{stderr}");
}

/// In a user namespace of one's own the limit can be set to nothing, as an administrator would.
#[test]
fn a_machine_without_user_namespaces_is_diagnosed() {
    require!(Bwrap, UserNs);
    let user = User::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let inside = |args: &[&str]| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_belljar")])
            .args(args)
            .env_clear()
            .env("HOME", user.home())
            .env("PATH", SYSTEM_PATH)
            .current_dir(user.home().join("p"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = inside(&["exec", "--", "true"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("user.max_user_namespaces = 0"), "{stderr}");
    assert!(stderr.contains("sysctl -w user.max_user_namespaces=15000"), "{stderr}");
    let output = inside(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = value["data"]["checks"].as_array().unwrap();
    let state = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap()["state"].clone();
    assert_eq!(state("a sandbox"), "bad");
    assert_eq!(state("user namespaces"), "absent");
    assert_eq!(state("bubblewrap"), "good");
}

/// The filter of a sandbox refuses namespaces to whatever runs in it, as a container's does.
#[test]
fn a_start_inside_a_sandbox_explains_why_it_cannot() {
    require!(Bwrap);
    let user = User::new();
    let programs = user.directory.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_belljar"));
    belljar_testkit::process::copy_program(own, &programs.join("belljar")).unwrap();
    let manifest = format!(
        "[agents.a]\nharness = \"claude-code\"\nmounts = [{{ source = \"{}\" }}]\n",
        programs.display()
    );
    std::fs::create_dir_all(user.home().join(".config/belljar")).unwrap();
    std::fs::write(user.home().join(".config/belljar/belljar.toml"), manifest).unwrap();
    let inner = programs.join("belljar");
    let output = user.belljar(SYSTEM_PATH, &["exec", "--", inner.to_str().unwrap(), "exec", "--", "true"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("this is a container or a sandbox already"), "{stderr}");
    let output = user.belljar(SYSTEM_PATH, &["exec", "--", inner.to_str().unwrap(), "doctor"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("NO   a sandbox"), "{}", text(&output.stdout));
}

#[test]
fn a_sound_machine_with_the_agent_is_found_sound() {
    require!(Bwrap);
    let user = User::new();
    let agent = ("claude", "#!/bin/sh\necho 9.9.9 '(Agent)'\n");
    let path = format!("{}:{SYSTEM_PATH}", user.programs(&[agent]));
    let output = user.belljar(&path, &["doctor", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{value:#}");
    assert_eq!(value["data"]["honoured"], true);
    let checks = value["data"]["checks"].as_array().unwrap();
    let agent = checks.iter().find(|check| check["id"] == "agent claude-code").unwrap();
    assert!(agent["seen"].as_str().unwrap().starts_with("9.9.9"), "{agent}");
    assert!(!user.home().join(".config").exists() && !user.home().join(".local").exists(), "nothing stays");
    let output = user.belljar(SYSTEM_PATH, &["doctor"]);
    assert_eq!(output.status.code(), Some(4), "no agent, nothing to run");
}

#[test]
fn the_host_backend_runs_and_says_what_is_open() {
    let user = User::new();
    let script = "echo $HOME; test -f $HOME/.claude.json && exit 7";
    let output = user.belljar(SYSTEM_PATH, &["exec", "--backend", "host", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let home = user.home().join(".local/share/belljar/instances");
    assert!(text(&output.stdout).starts_with(home.to_str().unwrap()), "{}", text(&output.stdout));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("NOT isolated") && stderr.contains("network"), "{stderr}");
    assert_eq!(
        user.belljar(SYSTEM_PATH, &["exec", "--backend", "host", "--", "nope"]).status.code(),
        Some(127)
    );
    let output = user.belljar(SYSTEM_PATH, &["exec", "--backend", "host", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(126));
    let output = user.belljar(SYSTEM_PATH, &["exec", "--backend", "host", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn a_plan_shows_who_asked_for_the_backend_and_what_is_open() {
    let user = User::new();
    let output = user.belljar(SYSTEM_PATH, &["plan", "--backend", "host", "--why", "backend"]);
    assert_eq!(text(&output.stdout), "backend = host\n  given by hand: --backend, for this run\n");
    let output = user.belljar(SYSTEM_PATH, &["plan", "--backend", "host", "--lowered", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let open: Vec<&str> = value["data"]["open"]
        .as_array()
        .unwrap()
        .iter()
        .map(|unmet| unmet["need"].as_str().unwrap())
        .collect();
    assert!(open.contains(&"files") && open.contains(&"network"), "{open:?}");
    let held = value["data"]["controls"].as_array().unwrap();
    assert!(held.iter().any(|control| control["need"] == "environment"));
}

#[test]
fn without_isolation_a_mount_elsewhere_is_refused_by_name() {
    let user = User::new();
    std::fs::create_dir_all(user.home().join("data")).unwrap();
    let manifest = "[agents.a]\nharness = \"claude-code\"\nbackend = \"host\"\n\
                    mounts = [{ source = \"~/data\", target = \"/data\" }]\n";
    std::fs::create_dir_all(user.home().join(".config/belljar")).unwrap();
    std::fs::write(user.home().join(".config/belljar/belljar.toml"), manifest).unwrap();
    let output = user.belljar(SYSTEM_PATH, &["exec", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("`/data`"), "{}", text(&output.stderr));
}

#[test]
fn gc_removes_what_an_interrupted_proof_left() {
    let user = User::new();
    let scenes = user.home().join(".local/share/belljar/prove");
    for name in ["scene-old", "scene-new", "other"] {
        std::fs::create_dir_all(scenes.join(name)).unwrap();
    }
    for name in ["scene-old", "other"] {
        let done = Command::new("touch").args(["-d", "2 hours ago"]).arg(scenes.join(name)).status();
        assert!(done.unwrap().success());
    }
    let output = user.belljar(SYSTEM_PATH, &["gc"]);
    assert!(text(&output.stdout).contains("scene-old"), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!scenes.join("scene-old").exists());
    assert!(scenes.join("scene-new").exists() && scenes.join("other").exists(), "one may be under way");
}

/// A row of `prove --leaks`: canary, found without a sandbox, found inside, verdict.
type Canary = (String, bool, bool, String);

fn canaries(user: &User, args: &[&str]) -> (Option<i32>, Vec<Canary>) {
    let output =
        user.belljar(&crate::cmd::agent_path(), &[&["prove", "--leaks", "--json"][..], args].concat());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| {
        let found = |side: &str| row[side].as_bool().unwrap();
        (text(&row["canary"]), found("outside"), found("inside"), text(&row["verdict"]))
    };
    let rows = value["data"]["leaks"]["rows"].as_array().unwrap_or_else(|| panic!("{value:#}"));
    (output.status.code(), rows.iter().map(row).collect())
}

#[test]
fn no_canary_of_the_user_reaches_the_model_and_each_could() {
    require!(Agent, Bwrap);
    let user = User::new();
    let (status, rows) = canaries(&user, &[]);
    assert_eq!((status, rows.len()), (Some(0), 11), "{rows:#?}");
    for (canary, outside, inside, verdict) in &rows {
        let control = canary == "project";
        let wanted = (true, control, if control { "control" } else { "sealed" });
        assert_eq!((*outside, *inside, verdict.as_str()), wanted, "{canary}");
    }
    // Without a sandbox every one of them is found, and that is a failure.
    let (status, rows) = canaries(&user, &["--backend", "host"]);
    assert_eq!(status, Some(1), "{rows:#?}");
    assert!(
        rows.iter()
            .all(|(canary, _, inside, verdict)| *inside && (canary == "project" || verdict == "leaks"))
    );
    let left = user.home().join(".local/share/belljar/prove");
    assert!(!left.exists(), "nothing is left behind");
}
