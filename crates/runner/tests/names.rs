//! Names of running runs, and the directory in which they are claimed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{AgentName, RunName};
use belljar_runner::{ClaimedName, NameWish, RunNames, RuntimeDirectory, RuntimeError, fresh_run_id};
use belljar_testkit::require;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::{Child, Command, Stdio};
use support::{World, abs};

const COUNT: usize = 20;
const CHILD: &str = "BELLJAR_TEST_CLAIMER";

fn agent() -> AgentName {
    AgentName::new("reviewer").unwrap()
}

fn names(world: &World) -> RunNames {
    RunNames::new(&RuntimeDirectory::open(&abs(&world.path("run"))).unwrap())
}

fn expected() -> BTreeSet<String> {
    (1..=COUNT).map(|n| if n == 1 { "reviewer".to_owned() } else { format!("reviewer-{n}") }).collect()
}

#[test]
fn the_first_free_number_is_taken() {
    let world = World::new();
    let names = names(&world);
    let claim = || names.claim(NameWish::Numbered(&agent()), 1).unwrap();
    let [first, second, third] = [claim(), claim(), claim()];
    let names: Vec<&str> = [&first, &second, &third].map(|claimed| claimed.name().as_str()).to_vec();
    assert_eq!(names, ["reviewer", "reviewer-2", "reviewer-3"]);
    drop(second);
    let again = claim();
    assert_eq!(again.name().as_str(), "reviewer-2");
    drop((first, third, again));
    assert_eq!(fs::read_dir(world.path("run/names")).unwrap().count(), 0, "files go with their runs");
}

#[test]
fn a_pinned_name_that_is_taken_is_an_error_that_names_the_holder() {
    let world = World::new();
    let names = names(&world);
    let pinned = RunName::new("reviewer-2").unwrap();
    let held = names.claim(NameWish::Pinned(&pinned), 4242).unwrap();
    let error = names.claim(NameWish::Pinned(&pinned), 1).unwrap_err();
    assert_eq!(error.to_string(), "the name `reviewer-2` is taken by the run `reviewer-2`, process 4242");
    let _first = names.claim(NameWish::Numbered(&agent()), 1).unwrap();
    let third = names.claim(NameWish::Numbered(&agent()), 1).unwrap();
    assert_eq!(third.name().as_str(), "reviewer-3", "a pinned name is passed over");
    drop(held);
    names.claim(NameWish::Pinned(&pinned), 1).unwrap();
}

#[test]
fn a_file_whose_run_is_gone_counts_for_nothing() {
    let world = World::new();
    let names = names(&world);
    fs::create_dir_all(world.path("run/names")).unwrap();
    fs::write(world.path("run/names/reviewer.lock"), r#"{"run":"reviewer","pid":1}"#).unwrap();
    let claimed = names.claim(NameWish::Numbered(&agent()), 77).unwrap();
    assert_eq!(claimed.name().as_str(), "reviewer");
    let text = fs::read_to_string(world.path("run/names/reviewer.lock")).unwrap();
    assert_eq!(text, "{\"run\":\"reviewer\",\"pid\":77}\n");
}

#[test]
fn twenty_threads_at_once() {
    let world = World::new();
    let names = names(&world);
    for _ in 0..20 {
        let claimed: Vec<ClaimedName> = std::thread::scope(|scope| {
            let claim = || names.claim(NameWish::Numbered(&agent()), 1).unwrap();
            let threads: Vec<_> = (0..COUNT).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let names: BTreeSet<String> = claimed.iter().map(|claimed| claimed.name().to_string()).collect();
        assert_eq!(names, expected());
    }
}

/// Names are claimed and released concurrently: no two processes hold the same one at the same time.
#[test]
fn a_name_is_never_held_twice() {
    let world = World::new();
    let names = names(&world);
    let pinned = RunName::new("one").unwrap();
    let holders = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    if let Ok(claimed) = names.claim(NameWish::Pinned(&pinned), 1) {
                        assert_eq!(holders.fetch_add(1, order), 0);
                        std::thread::yield_now();
                        assert_eq!(holders.fetch_sub(1, order), 1);
                        drop(claimed);
                    }
                }
            });
        }
    });
}

/// Not a test of its own: the next test starts this binary many times with this name.
#[test]
fn child_claims_until_its_input_ends() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let names = RunNames::new(&RuntimeDirectory::open(&abs(path.as_ref())).unwrap());
    let claimed = names.claim(NameWish::Numbered(&agent()), std::process::id()).unwrap();
    println!("claimed {}", claimed.name());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn twenty_processes_at_once_and_a_kill_frees_a_name() {
    let world = World::new();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_claims_until_its_input_ends", "--nocapture"])
            .env(CHILD, world.path("run"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut children: Vec<Child> = (0..COUNT).map(|_| start()).collect();
    let claimed_name = |child: &mut Child| {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let claimed = |line: String| line.strip_prefix("claimed ").map(str::to_owned);
        lines.map_while(Result::ok).find_map(claimed).unwrap()
    };
    let names: Vec<String> = children.iter_mut().map(claimed_name).collect();
    assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), expected());

    let killed = names.iter().position(|name| name == "reviewer-7").unwrap();
    children[killed].kill().unwrap();
    children[killed].wait().unwrap();
    assert!(world.path("run/names/reviewer-7.lock").exists(), "its file is left");
    let claimed = self::names(&world).claim(NameWish::Numbered(&agent()), 1).unwrap();
    assert_eq!(claimed.name().as_str(), "reviewer-7");
    for mut child in children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn a_runtime_directory_must_be_ours_alone() {
    let world = World::new();
    let path = world.path("run/belljar");
    RuntimeDirectory::open(&abs(&path)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    let error = RuntimeDirectory::open(&abs(&path)).unwrap_err();
    assert!(matches!(error, RuntimeError::Open { mode: 0o750, .. }), "{error}");
    fs::remove_dir(&path).unwrap();
    fs::create_dir(world.path("other")).unwrap();
    symlink(world.path("other"), &path).unwrap();
    let error = RuntimeDirectory::open(&abs(&path)).unwrap_err();
    assert!(matches!(error, RuntimeError::NotADirectory { .. }), "{error}");
    assert!(RuntimeDirectory::existing(&abs(&world.path("none"))).unwrap().is_none());
}

#[test]
fn a_runtime_directory_of_another_user_is_refused() {
    require!(Root);
    let world = World::new();
    let path = world.path("run");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    chown(&path, Some(65534), None).unwrap();
    let error = RuntimeDirectory::open(&abs(&path)).unwrap_err();
    assert!(matches!(error, RuntimeError::Owner { owner: 65534, user: 0, .. }), "{error}");
}

#[test]
fn ids_differ() {
    let ids: BTreeSet<_> = (0..1000).map(|_| fresh_run_id()).collect();
    // Eight hex digits are about four billion numbers: two equal ones among a thousand have a chance of one in ten
    // thousand.
    assert!(ids.len() >= 999, "{}", ids.len());
}
