//! `belljar instances` and `belljar gc`, as the real program, as root and as an ordinary user.

use belljar_contract::InstanceKey;
use belljar_testkit::require;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// 2024-02-29 12:34:56 UTC.
const LAST_USE: Duration = Duration::from_secs(1_709_210_096);
const ORDINARY: u32 = 65534;

/// A user's home in a directory that anyone can enter, and the program beside it.
struct World {
    base: tempfile::TempDir,
    user: Option<u32>,
}

struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl World {
    fn new(user: Option<u32>) -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
        // Where the build lies may be closed to the other user.
        belljar_testkit::process::copy_program(
            env!("CARGO_BIN_EXE_belljar").as_ref(),
            &base.path().join("belljar"),
        )
        .unwrap();
        let world = Self { base, user };
        for below in ["home", "home/run", "home/data/belljar/instances", "home/projects"] {
            fs::create_dir_all(world.path(below)).unwrap();
        }
        world
    }

    fn path(&self, below: &str) -> PathBuf {
        self.base.path().join(below)
    }

    /// An instance as a run leaves it, of a project that is there.
    fn instance(&self, name: &str) -> PathBuf {
        let root = self.path("home/projects").join(name);
        fs::create_dir_all(&root).unwrap();
        let key = InstanceKey::of(&belljar_contract::AbsPath::new(&root).unwrap());
        let directory = self.path("home/data/belljar/instances").join(key.as_str());
        fs::create_dir_all(directory.join("claude-code/projects")).unwrap();
        fs::write(directory.join("root"), format!("{}\n", root.display())).unwrap();
        fs::write(directory.join("claude-code/projects/memory"), vec![b'x'; 10_000]).unwrap();
        let used = File::create(directory.join("last-used")).unwrap();
        used.set_modified(SystemTime::UNIX_EPOCH + LAST_USE).unwrap();
        directory
    }

    fn run(&self, args: &[&str]) -> Ended {
        if let Some(user) = self.user {
            give(self.base.path(), user);
        }
        let mut command = Command::new(self.path("belljar"));
        command.args(args).current_dir(self.path("home")).env_clear();
        command.env("HOME", self.path("home")).env("XDG_DATA_HOME", self.path("home/data"));
        command.env("XDG_STATE_HOME", self.path("home/state"));
        command.env("XDG_RUNTIME_DIR", self.path("home/run"));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).unwrap().replace(&self.base.path().display().to_string(), "BASE")
        };
        Ended { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

fn lists_and_sweeps(world: &World) {
    let (kept, gone) = (world.instance("kept"), world.instance("gone"));
    fs::remove_dir(world.path("home/projects/gone")).unwrap();
    // An agent may close its own directories.
    fs::set_permissions(gone.join("claude-code"), Permissions::from_mode(0o500)).unwrap();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();

    let listed = world.run(&["instances"]);
    assert_eq!((listed.code, listed.err.as_str()), (0, ""));
    let mut lines: Vec<String> = listed
        .out
        .lines()
        .map(|line| line.replace(&name(&kept), "KEPT").replace(&name(&gone), "GONE"))
        .collect();
    lines[1..].sort();
    assert!(lines[0].starts_with("instance          project          size    last use (UTC)"), "{lines:?}");
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with("GONE  ~/projects/gone  "), "{lines:?}");
    assert!(lines[1].ends_with("K  2024-02-29 12:34  the project is gone"), "{lines:?}");
    assert!(lines[2].starts_with("KEPT  ~/projects/kept  "), "{lines:?}");
    assert!(lines[2].ends_with("K  2024-02-29 12:34"), "{lines:?}");

    let dry = world.run(&["gc", "--dry-run"]);
    assert_eq!(dry.code, 0);
    let at = format!("~/data/belljar/instances/{}", name(&gone));
    let line = format!("would remove the instance of ~/projects/gone: {at} (");
    assert!(dry.out.starts_with(&line) && dry.out.lines().count() == 1, "{}", dry.out);
    assert!(dry.err.ends_with("would be freed; nothing was removed.\n"), "{}", dry.err);
    assert!(gone.exists());

    let wet = world.run(&["gc"]);
    assert_eq!((wet.code, wet.out.lines().count()), (0, 1), "{} {}", wet.out, wet.err);
    assert!(wet.out.starts_with(&format!("removed the instance of ~/projects/gone: {at} (")), "{}", wet.out);
    assert!(!gone.exists() && kept.exists());
    let again = world.run(&["gc"]);
    assert_eq!(
        (again.code, again.out.as_str(), again.err.as_str()),
        (0, "", "There is nothing to remove.\n")
    );
}

#[test]
fn lists_and_sweeps_as_we_are() {
    lists_and_sweeps(&World::new(None));
}

#[test]
fn lists_and_sweeps_as_an_ordinary_user() {
    require!(Root);
    lists_and_sweeps(&World::new(Some(ORDINARY)));
}

#[test]
fn for_machines() {
    let world = World::new(None);
    let none: Value = serde_json::from_str(&world.run(&["instances", "--json"]).out).unwrap();
    assert_eq!(none["data"]["instances"], serde_json::json!([]));
    let directory = world.instance("used");
    let lock = File::create(directory.join("lock")).unwrap();
    lock.lock_shared().unwrap();
    fs::remove_dir(world.path("home/projects/used")).unwrap();
    let listed: Value = serde_json::from_str(&world.run(&["instances", "--json"]).out).unwrap();
    assert_eq!((&listed["ok"], &listed["verb"]), (&true.into(), &"instances".into()));
    let entry = &listed["data"]["instances"][0];
    assert_eq!(entry["root"], "BASE/home/projects/used");
    assert_eq!((&entry["project"], &entry["in_use"]), (&"gone".into(), &true.into()));
    assert_eq!(entry["last_used_ms"], 1_709_210_096_000_u64);
    assert!(entry["bytes"].as_u64().unwrap() >= 10_000);

    let swept: Value = serde_json::from_str(&world.run(&["gc", "--json"]).out).unwrap();
    let item = &swept["data"]["items"][0];
    assert_eq!((&item["kind"], &item["outcome"]), (&"instance".into(), &"kept".into()));
    assert_eq!((&item["why"], &swept["data"]["bytes"]), (&"a run uses it".into(), &0.into()));
    assert!(directory.exists());
}

#[test]
fn nothing_yet() {
    let world = World::new(None);
    fs::remove_dir_all(world.path("home/data")).unwrap();
    let listed = world.run(&["instances"]);
    assert_eq!((listed.code, listed.out.as_str()), (0, ""));
    assert!(listed.err.starts_with("There are no instances yet"), "{}", listed.err);
    assert_eq!(world.run(&["gc", "--runs", "--older-than", "30d"]).code, 0);
    assert!(!world.path("home/data").exists() && !world.path("home/state").exists(), "nothing was made");
}

#[test]
fn runs_are_swept_only_when_asked_and_old() {
    let world = World::new(None);
    let runs = world.path("home/state/belljar/runs");
    let museum = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/fixtures/v1/complete");
    for (name, days) in [("20240229-123456-old-00000001", 40), ("20240229-123456-new-00000002", 1)] {
        fs::create_dir_all(runs.join(name)).unwrap();
        for file in ["run.json", "events.jsonl", "result.json"] {
            fs::copy(museum.join(file), runs.join(name).join(file)).unwrap();
        }
        let log = File::options().append(true).open(runs.join(name).join("events.jsonl")).unwrap();
        log.set_modified(SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
    }
    assert_eq!(world.run(&["gc"]).out, "");
    let dry = world.run(&["gc", "--runs", "--older-than", "30d", "--dry-run"]);
    let line = "would remove the run: ~/state/belljar/runs/20240229-123456-old-00000001 (";
    assert!(dry.out.starts_with(line) && dry.out.lines().count() == 1, "{}", dry.out);
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 2);
    let wet = world.run(&["gc", "--runs", "--older-than", "30d"]);
    assert_eq!((wet.code, wet.out.lines().count()), (0, 1));
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 1);
}

#[test]
fn stages_without_a_trial_are_swept() {
    let world = World::new(None);
    let staging = world.path("home/state/belljar/staging");
    let make = |name: &str| {
        fs::create_dir_all(staging.join(name).join("workspace/outputs")).unwrap();
        fs::write(staging.join(name).join("workspace/a"), vec![b'x'; 10_000]).unwrap();
        File::create(staging.join(name).join("lock")).unwrap()
    };
    let (gone, used) = ("0000000a", "0000000b");
    drop(make(gone));
    let lock = make(used);
    lock.lock().unwrap();
    fs::create_dir(staging.join("something-else")).unwrap();
    fs::set_permissions(&staging, Permissions::from_mode(0o700)).unwrap();
    let dry = world.run(&["gc", "--dry-run"]);
    let line = format!("would remove the stage of a trial: ~/state/belljar/staging/{gone} (");
    assert!(dry.out.starts_with(&line) && dry.out.lines().count() == 1, "{}{}", dry.out, dry.err);
    let wet = world.run(&["gc"]);
    assert_eq!((wet.code, wet.out.lines().count()), (0, 1), "{}{}", wet.out, wet.err);
    assert!(!staging.join(gone).exists() && staging.join(used).join("workspace/a").exists());
    assert!(staging.join("something-else").exists());
}

#[test]
fn conversations_are_swept_only_when_asked_old_and_not_in_use() {
    let world = World::new(None);
    let conversations = world.path("home/state/belljar/conversations");
    let make = |name: &str, days: u64| {
        fs::create_dir_all(conversations.join(name).join("workspace")).unwrap();
        // What the agent made counts for nothing, however new it says that it is.
        fs::write(conversations.join(name).join("workspace/a"), "a").unwrap();
        let lock = File::create(conversations.join(name).join("lock")).unwrap();
        lock.set_modified(SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
        lock
    };
    let names = [
        "00000000-0000-4000-8000-000000000001",
        "00000000-0000-4000-8000-000000000002",
        "00000000-0000-4000-8000-000000000003",
    ];
    let [old, new, used] = names;
    drop((make(old, 40), make(new, 1)));
    let lock = make(used, 40);
    lock.lock().unwrap();
    make(".removing-00000000-0000-4000-8000-000000000004", 0);
    assert_eq!(world.run(&["gc"]).out, "");
    let dry = world.run(&["gc", "--runs", "--older-than", "30d", "--dry-run"]);
    assert!(
        dry.out.contains(&format!("would remove the conversation: ~/state/belljar/conversations/{old} ("))
    );
    assert_eq!(fs::read_dir(&conversations).unwrap().count(), 4, "nothing was removed");
    let wet = world.run(&["gc", "--runs", "--older-than", "30d"]);
    assert_eq!((wet.code, wet.out.lines().count()), (0, 2), "{}{}", wet.out, wet.err);
    assert!(wet.err.contains(&format!("{used}: a run uses it")), "{}", wet.err);
    assert!(!conversations.join(old).exists());
    assert!(conversations.join(new).exists() && conversations.join(used).join("workspace/a").exists());
    assert_eq!(fs::read_dir(&conversations).unwrap().count(), 2);
}

#[test]
fn an_age_and_runs_go_together() {
    let world = World::new(None);
    for (args, said) in [
        (["gc", "--runs"].as_slice(), "--older-than"),
        (&["gc", "--older-than", "30d"], "--runs"),
        (&["gc", "--runs", "--older-than", "30"], "expected a time such as"),
        (&["gc", "--runs", "--older-than", "0d"], "greater than zero"),
    ] {
        let ended = world.run(args);
        assert!(ended.code == 2 && ended.err.contains(said), "{args:?}: {}", ended.err);
    }
}

#[test]
fn a_runtime_directory_of_somebody_else_is_an_error_with_a_reason() {
    require!(Root);
    let world = World::new(None);
    fs::create_dir(world.path("home/run/belljar")).unwrap();
    chown(world.path("home/run/belljar"), Some(ORDINARY), None).unwrap();
    let ended = world.run(&["gc"]);
    assert_eq!(ended.code, 1);
    let said = format!("`BASE/home/run/belljar` belongs to user {ORDINARY}, not to user 0\n");
    assert!(ended.err.contains(&said), "{}", ended.err);
}

/// The examples in the help are commands that work.
#[test]
fn the_examples_run() {
    let world = World::new(None);
    world.instance("kept");
    for verb in ["instances", "gc"] {
        let help = world.run(&[verb, "--help"]).out;
        let examples: Vec<&str> =
            help.lines().filter_map(|line| line.trim_start().strip_prefix("$ belljar ")).collect();
        assert!(!examples.is_empty(), "{help}");
        for example in examples {
            let ended = world.run(&example.split(' ').collect::<Vec<_>>());
            assert_eq!(ended.code, 0, "{example}: {}", ended.err);
        }
    }
}
