//! The state that is kept for each project: created before a run, locked during it, removed when the project was
//! deleted.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{AbsPath, MountSource, Plan, RunName, TimeSpan};
use belljar_record::RunStore;
use belljar_runner::{
    HeldInstance, Holder, InstanceError, Instances, ProjectState, RuntimeDirectory, SessionLock, SweepMode,
    SweepOutcome, SweepRequest, Swept, SweptKind, fresh_run_id, sweep,
};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};
use support::{World, abs, mode};

const DAY: Duration = Duration::from_secs(86_400);

fn sources(plan: &Plan) -> Vec<(AbsPath, bool)> {
    let source = |source: &MountSource| match source {
        MountSource::InstanceDirectory(path) => Some((path.clone(), true)),
        MountSource::InstanceFile(path) => Some((path.clone(), false)),
        _ => None,
    };
    plan.mounts.iter().filter_map(|mount| source(&mount.source)).collect()
}

fn swept(world: &World, mode: SweepMode, now: SystemTime) -> Vec<Swept> {
    let environment = world.environment(&world.path("home"));
    let runs_older_than = Some(TimeSpan::parse("30d").unwrap());
    sweep(&SweepRequest { environment: &environment, mode, runs_older_than, now })
}

#[test]
fn everything_the_mounts_name_is_made_for_the_user_alone() {
    let world = World::new();
    let project = world.path("project");
    let plan = world.plan(&project);
    let now = SystemTime::UNIX_EPOCH + DAY;
    let held = HeldInstance::prepare(&plan, now).unwrap();
    let directory = held.directory().as_path();
    assert_eq!(fs::read(directory.join("root")).unwrap(), [project.as_os_str().as_bytes(), b"\n"].concat());
    assert_eq!(fs::read_to_string(directory.join("created")).unwrap(), "86400000\n");
    assert_eq!(mode(directory), 0o700);
    let sources = sources(&plan);
    assert!(sources.iter().any(|(_, is_dir)| *is_dir) && sources.iter().any(|(_, is_dir)| !is_dir));
    for (path, is_dir) in &sources {
        assert_eq!(mode(path.as_path()), if *is_dir { 0o700 } else { 0o600 }, "{path}");
        assert_eq!(path.as_path().is_dir(), *is_dir, "{path}");
    }
    // Existing files are not changed, except for the time of use.
    let file = sources.iter().find(|(_, is_dir)| !is_dir).unwrap().0.clone();
    fs::write(&file, "history").unwrap();
    let again = HeldInstance::prepare(&plan, now + DAY).unwrap();
    assert_eq!(again.directory(), held.directory(), "two runs of one project at once");
    assert_eq!(fs::read_to_string(&file).unwrap(), "history");
    assert_eq!(fs::read_to_string(directory.join("created")).unwrap(), "86400000\n");
    let list = Instances::new(&world.environment(&project).data).list().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].last_used, Some(now + DAY));
    assert_eq!((&list[0].project, list[0].in_use), (&ProjectState::Present, true));
    assert!(list[0].size.whole && list[0].size.bytes > 0);
    drop(held);
    assert!(Instances::new(&world.environment(&project).data).list().unwrap()[0].in_use, "one is left");
    drop(again);
    assert!(!Instances::new(&world.environment(&project).data).list().unwrap()[0].in_use);
}

#[test]
fn odd_roots_are_kept_byte_for_byte() {
    for name in [b"a b".as_slice(), b"new\nline\n", b"\xff\xfe", b"'$(x)\""] {
        let world = World::new();
        let project = world.path("project").join(OsStr::from_bytes(name));
        fs::create_dir(&project).unwrap();
        drop(HeldInstance::prepare(&world.plan(&project), SystemTime::now()).unwrap());
        let list = Instances::new(&world.environment(&project).data).list().unwrap();
        assert_eq!(list[0].root, Some(abs(&project)));
        assert_eq!(list[0].project, ProjectState::Present);
    }
}

#[test]
fn what_an_agent_put_in_the_way_is_named_not_followed() {
    let world = World::new();
    let plan = world.plan(&world.path("project"));
    drop(HeldInstance::prepare(&plan, SystemTime::now()).unwrap());
    for (path, is_dir) in sources(&plan) {
        let remove = |path: &Path| if is_dir { fs::remove_dir(path) } else { fs::remove_file(path) };
        remove(path.as_path()).unwrap();
        symlink(world.path("home"), &path).unwrap();
        let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err();
        let InstanceError::Kind { path: named, found, .. } = &error else { panic!("{error}") };
        assert_eq!((named, *found), (&path, "a symbolic link"));
        fs::remove_file(&path).unwrap();
        if is_dir { fs::write(&path, "") } else { fs::create_dir(&path) }.unwrap();
        let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err().to_string();
        assert!(error.contains(&path.to_string()), "{error}");
        if is_dir { fs::remove_file(&path) } else { fs::remove_dir(&path) }.unwrap();
        drop(HeldInstance::prepare(&plan, SystemTime::now()).unwrap());
    }
    // A parent that is a link.
    let parent = sources(&plan)[0].0.parent().unwrap();
    fs::rename(&parent, world.path("elsewhere")).unwrap();
    symlink(world.path("elsewhere"), &parent).unwrap();
    let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err();
    assert!(matches!(&error, InstanceError::Kind { path, .. } if *path == parent), "{error}");
}

#[test]
fn a_plan_cannot_have_things_made_elsewhere() {
    let world = World::new();
    let mut plan = world.plan(&world.path("project"));
    for outside in [world.path("home/x"), plan.instance.directory.as_path().to_path_buf()] {
        plan.mounts[0].source = MountSource::InstanceDirectory(abs(&outside));
        let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err();
        assert!(matches!(error, InstanceError::Outside { .. }), "{error}");
    }
    assert!(!world.path("home/x").exists());
}

#[test]
fn an_instance_of_another_project_is_refused_and_a_lost_root_written_again() {
    let world = World::new();
    let plan = world.plan(&world.path("project"));
    let root = plan.instance.directory.child("root");
    drop(HeldInstance::prepare(&plan, SystemTime::now()).unwrap());
    fs::remove_file(&root).unwrap();
    drop(HeldInstance::prepare(&plan, SystemTime::now()).unwrap());
    assert_eq!(fs::read(&root).unwrap(), [plan.instance.root.as_bytes(), b"\n"].concat());
    fs::write(&root, "/another\n").unwrap();
    let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err();
    assert!(matches!(error, InstanceError::OtherProject { .. }), "{error}");
}

#[test]
fn a_place_that_cannot_be_made_is_named() {
    let world = World::new();
    let plan = world.plan(&world.path("project"));
    fs::write(world.path("home/data"), "a file").unwrap();
    let error = HeldInstance::prepare(&plan, SystemTime::now()).unwrap_err().to_string();
    assert_eq!(error, format!("cannot create `{}`, which the run needs", plan.instance.directory));
}

#[test]
fn many_first_runs_at_once() {
    let world = World::new();
    let plan = world.plan(&world.path("project"));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| HeldInstance::prepare(&plan, SystemTime::now()).unwrap());
        }
    });
    let parent = plan.instance.directory.parent().unwrap();
    let names = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter(|name| name != ".lock").collect();
    assert_eq!(names, [plan.instance.key.as_str()], "nothing half made remains");
}

#[test]
fn a_session_is_for_one_run_at_a_time() {
    let world = World::new();
    let plan = world.plan(&world.path("project"));
    let held = HeldInstance::prepare(&plan, SystemTime::now()).unwrap();
    let holder = |name: &str, pid| Holder { run: RunName::new(name).unwrap(), pid };
    let first = SessionLock::take(&held, "../a session\n", &holder("reviewer", 11)).unwrap();
    let other = SessionLock::take(&held, "another", &holder("reviewer-2", 12)).unwrap();
    let error = SessionLock::take(&held, "../a session\n", &holder("reviewer-3", 13)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the session \"../a session\\n\" is in use by the run `reviewer`, process 11"
    );
    drop(first);
    let second = SessionLock::take(&held, "../a session\n", &holder("reviewer-3", 13)).unwrap();
    drop((second, other));
    assert_eq!(fs::read_dir(held.directory().child("sessions")).unwrap().count(), 0);
}

#[test]
fn the_sweep_takes_what_is_gone_and_nothing_else() {
    let world = World::new();
    let now = SystemTime::now();
    for name in ["kept", "gone", "used", "far/away"] {
        fs::create_dir_all(world.path("project").join(name)).unwrap();
    }
    let prepare =
        |name: &str| HeldInstance::prepare(&world.plan(&world.path("project").join(name)), now).unwrap();
    let used = prepare("used");
    for name in ["kept", "gone", "far/away"] {
        drop(prepare(name));
    }
    for name in ["gone", "used", "far"] {
        fs::remove_dir_all(world.path("project").join(name)).unwrap();
    }
    let shown = |list: &[Swept]| -> Vec<String> {
        let line = |swept: &Swept| {
            let SweptKind::Instance { root: Some(root) } = &swept.kind else { panic!("{swept:?}") };
            let name = root.relative_to(&abs(&world.path("project"))).unwrap().display().to_string();
            match &swept.outcome {
                SweepOutcome::Kept(why) => {
                    format!("{name}: kept: {}", why.replace(&world.path("").display().to_string(), ""))
                }
                outcome => format!("{name}: {outcome:?}"),
            }
        };
        let mut lines: Vec<String> = list.iter().map(line).collect();
        lines.sort();
        lines
    };
    let far = "far/away: kept: `project/far` does not exist either";
    let dry = swept(&world, SweepMode::DryRun, now);
    assert_eq!(shown(&dry), [far, "gone: WouldRemove", "used: kept: a run uses it"]);
    assert!(dry.iter().all(|swept| swept.path.as_path().is_dir() && swept.bytes > 0));
    let wet = swept(&world, SweepMode::Remove, now);
    assert_eq!(shown(&wet), [far, "gone: Removed", "used: kept: a run uses it"]);
    for swept in &wet {
        let removed = matches!(swept.outcome, SweepOutcome::Removed);
        assert_eq!(swept.path.as_path().exists(), !removed);
    }
    drop(used);
    assert_eq!(shown(&swept(&world, SweepMode::Remove, now)), [far, "used: Removed"]);
    assert_eq!(shown(&swept(&world, SweepMode::Remove, now)), [far]);
}

#[test]
fn old_runs_are_swept_but_never_under_a_writer() {
    let world = World::new();
    let now = SystemTime::now();
    let store = RunStore::new(&world.environment(&world.path("home")).state);
    let plan = world.plan(&world.path("project"));
    let begin = || {
        let head = belljar_contract::RunHead {
            format: belljar_contract::RUN_FORMAT,
            event_format: belljar_contract::EVENT_FORMAT,
            id: fresh_run_id(),
            name: RunName::new("reviewer").unwrap(),
            agent: plan.agent.clone(),
            instance: plan.instance.key.clone(),
            backend: plan.backend,
            purpose: plan.purpose,
            started_at_ms: 0,
            versions: Default::default(),
            host: Default::default(),
            plan_digest: plan.digest(),
            plan: serde_json::json!(plan),
        };
        store.create(&head, std::sync::Arc::new(belljar_contract::Scrubber::nothing())).unwrap()
    };
    let age = |directory: &AbsPath, days: u32| {
        let log = fs::File::options().append(true).open(directory.child("events.jsonl")).unwrap();
        log.set_modified(now - DAY * days).unwrap();
    };
    let status = belljar_contract::RunStatus::Stopped;
    let ended = begin().finish(1, status.clone(), Default::default()).unwrap();
    let young = begin().finish(1, status, Default::default()).unwrap();
    let dead = begin().directory().clone();
    let running = begin();
    let odd = store.directory().child("19700101-000000-odd");
    fs::create_dir(&odd).unwrap();
    fs::File::open(&odd).unwrap().set_modified(now - DAY * 99).unwrap();
    for path in [&ended, &dead, running.directory()] {
        age(path, 31);
    }
    age(&young, 29);
    let kept = |path: &AbsPath| path.as_path().exists();
    assert_eq!(swept(&world, SweepMode::DryRun, now).len(), 4);
    assert!(kept(&ended) && kept(&dead));
    let list = swept(&world, SweepMode::Remove, now);
    assert_eq!(list.iter().filter(|swept| matches!(swept.outcome, SweepOutcome::Removed)).count(), 2);
    assert!(!kept(&ended) && !kept(&dead));
    assert!(kept(&young) && kept(running.directory()) && kept(&odd), "{list:?}");
    // Without an age no run is removed.
    let environment = world.environment(&world.path("home"));
    let request =
        SweepRequest { environment: &environment, mode: SweepMode::Remove, runs_older_than: None, now };
    assert_eq!(sweep(&request).len(), 0);
}

#[test]
fn runtime_directories_of_dead_runs_are_swept() {
    let world = World::new();
    let runtime = RuntimeDirectory::open(&world.environment(&world.path("home")).runtime).unwrap();
    let alive = runtime.make_run(&fresh_run_id()).unwrap();
    let ended = runtime.make_run(&fresh_run_id()).unwrap();
    fs::write(ended.path().child("socket"), "").unwrap();
    let ended_path = ended.path().clone();
    drop(ended);
    assert!(!ended_path.as_path().exists());
    // As after a power failure: the directory exists, the lock is not held.
    let orphan = runtime.path().child("0badc0de");
    fs::create_dir(&orphan).unwrap();
    fs::write(orphan.child("lock"), "").unwrap();
    fs::create_dir(runtime.path().child("names")).unwrap();
    let list = swept(&world, SweepMode::Remove, SystemTime::now());
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!((&list[0].kind, &list[0].path), (&SweptKind::Runtime, &orphan));
    assert!(!orphan.as_path().exists() && alive.path().as_path().exists());
    assert_eq!(mode(alive.path().as_path()), 0o700);
    assert!(runtime.path().child("names").as_path().exists());
    alive.remove().unwrap();
}

#[test]
fn a_place_that_cannot_be_read_does_not_hide_what_was_removed() {
    let world = World::new();
    let project = world.path("project/gone");
    fs::create_dir(&project).unwrap();
    drop(HeldInstance::prepare(&world.plan(&project), SystemTime::now()).unwrap());
    fs::remove_dir(&project).unwrap();
    fs::create_dir_all(world.path("home/run")).unwrap();
    fs::write(world.path("home/run/belljar"), "a file").unwrap();
    let list = swept(&world, SweepMode::Remove, SystemTime::now());
    assert!(matches!(list[0].outcome, SweepOutcome::Removed));
    let SweepOutcome::Failed(error) = &list[1].outcome else { panic!("{list:?}") };
    assert!(error.to_string().ends_with("home/run/belljar` is not a directory"), "{error}");
}
