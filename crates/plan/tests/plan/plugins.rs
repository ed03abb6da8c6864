//! Directories that the user's plugins come from, named by a file that anything may have written.

use crate::world::{World, abs, manifest, user};
use belljar_contract::{AbsPath, Access, MountSource};

const SHARED: &str = "[agents.a]\nharness = \"scribe\"\nhome = \"shared\"\n";
const PROJECT: &str = "[agents.a]\nharness = \"scribe\"\nhome = \"project\"\n";

/// A host whose user's records name one directory, which is there, and is what it is said to be.
fn recorded(path: &str) -> World {
    let mut world = World::full();
    world.files.insert(abs("/home/ann/.scribe/records"), Some(path.to_owned()));
    if let Ok(path) = AbsPath::new(path) {
        world.files.insert(path.child("mark"), Some(String::new()));
        world.files.insert(path, None);
    }
    world
}

#[test]
fn a_directory_that_is_what_it_is_said_to_be_is_shown_read_only_in_a_shared_home_alone() {
    for path in ["/home/ann/own/market", "/opt/market", "/srv", "/tmp/market"] {
        let world = recorded(path);
        let plan = world.plan(SHARED, "a").plan;
        let at = plan.mounts.iter().position(|mount| mount.target == abs(path)).unwrap();
        let shown = &plan.mounts[at];
        assert_eq!(shown.source, MountSource::Host(abs(path)));
        assert_eq!((shown.access, shown.why.as_str()), (Access::ReadOnly, "yours: a place"));
        let project = plan.mounts.iter().position(|mount| mount.source == MountSource::Workspace).unwrap();
        assert!(at < project, "it cannot hide the project");
        let plan = world.plan(PROJECT, "a").plan;
        assert!(plan.mounts.iter().all(|mount| mount.target != abs(path)));
    }
}

#[test]
fn what_a_sandbox_keeps_out_is_refused_by_name() {
    let home = user().home.to_string();
    let own: Vec<String> =
        ["", "/.ssh", "/.ssh/below", "/.gnupg", "/.aws", "/.config/gcloud", "/.scribe", "/.scribe/projects"]
            .iter()
            .map(|below| format!("{home}{below}"))
            .collect();
    let system = [
        "/",
        "/home",
        "/proc",
        "/proc/1",
        "/sys",
        "/dev",
        "/etc",
        "/etc/x",
        "/run",
        "/run/user/1000",
        "/opt",
        "/opt/belljar/x",
        "/tmp",
    ];
    let odd = [".", "relative/market"];
    for path in own.iter().map(String::as_str).chain(system).chain(odd) {
        let (compiled, _, diagnostics) = recorded(path).compile(&manifest(SHARED), "a");
        assert!(compiled.is_none(), "{path} must be refused");
        let message = &diagnostics[0].message;
        assert!(message.starts_with(&format!("a place: `{path}` cannot be shown: ")), "{message}");
    }
}

#[test]
fn a_directory_without_its_mark_is_refused_and_one_that_is_gone_is_nothing() {
    let mut unmarked = recorded("/opt/market");
    unmarked.files.remove(&abs("/opt/market/mark"));
    unmarked.files.remove(&abs("/opt/market"));
    assert!(unmarked.plan(SHARED, "a").plan.mounts.iter().all(|mount| mount.target != abs("/opt/market")));
    unmarked.files.insert(abs("/opt/market"), None);
    let (compiled, _, diagnostics) = unmarked.compile(&manifest(SHARED), "a");
    assert!(compiled.is_none());
    assert_eq!(diagnostics[0].message, "a place: `/opt/market` cannot be shown: it has no `mark`");
}

#[test]
fn what_is_seen_already_is_not_shown_twice() {
    for path in ["/home/ann/.scribe/settings/below", "/srv/project/market", "/usr/share/market"] {
        let plan = recorded(path).plan(SHARED, "a").plan;
        assert!(plan.mounts.iter().all(|mount| mount.target != abs(path)), "{path}");
    }
}
