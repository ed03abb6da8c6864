//! Random trees, random edits: applied, the project is what the agent saw; discarded, it is what it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use belljar_sandbox::ChangeSelection;
use proptest::prelude::*;

use super::support::{Project, change_line, listing};

#[derive(Debug, Clone)]
enum Edit {
    Write(String, u8),
    MakeDirectory(String),
    Remove(String),
    Move(String, String),
    Link(String, String),
    HardLink(String, String),
    Mode(String, &'static str),
}

impl Edit {
    fn script(&self) -> String {
        let line = match self {
            Edit::Write(path, byte) => format!("echo {byte} > {path}"),
            Edit::MakeDirectory(path) => format!("mkdir -p {path}"),
            Edit::Remove(path) => format!("rm -rf {path}"),
            Edit::Move(from, to) => format!("mv {from} {to}"),
            Edit::Link(path, target) => format!("ln -sfn {target} {path}"),
            Edit::HardLink(from, to) => format!("ln {from} {to}"),
            Edit::Mode(path, mode) => format!("chmod {mode} {path}"),
        };
        format!("{{ {line}; }} 2>/dev/null || true\n")
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d"])
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"))
}

fn edit() -> impl Strategy<Value = Edit> {
    // Owners keep their rights: what even they cannot read is another test's subject.
    let modes = prop::sample::select(vec!["700", "755", "u+x", "g+w", "600"]);
    prop_oneof![
        3 => (path(), 0..3_u8).prop_map(|(path, byte)| Edit::Write(path, byte)),
        3 => path().prop_map(Edit::MakeDirectory),
        3 => path().prop_map(Edit::Remove),
        3 => (path(), path()).prop_map(|(from, to)| Edit::Move(from, to)),
        1 => (path(), path()).prop_map(|(path, target)| Edit::Link(path, target)),
        1 => (path(), path()).prop_map(|(from, to)| Edit::HardLink(from, to)),
        1 => (path(), modes).prop_map(|(path, mode)| match mode {
            // A directory without search permission would close what is below.
            "600" => Edit::Mode(format!("$(test -f {path} && echo {path} || echo /nowhere)"), mode),
            _ => Edit::Mode(path, mode),
        }),
    ]
}

fn script(edits: &[Edit]) -> String {
    edits.iter().map(Edit::script).collect()
}

/// A project made by some edits, changed in an overlay by others; with what the agent saw at the end.
fn edited(first: &[Edit], second: &[Edit]) -> (Project, Vec<String>) {
    let project = Project::new();
    let made =
        std::process::Command::new("sh").args(["-c", &script(first)]).current_dir(project.lower()).status();
    assert!(made.unwrap().success());
    let seen = project.outside().join("seen");
    fs::create_dir(&seen).unwrap();
    project.edit(format!("{}cp -a . '{}'", script(second), seen.display()));
    let listing = listing(&seen);
    (project, listing)
}

fn some_of(project: &Project, picks: &[prop::sample::Index]) -> BTreeSet<PathBuf> {
    let changes = project.changes();
    if changes.is_empty() {
        return BTreeSet::new();
    }
    picks.iter().map(|pick| pick.get(&changes).path.clone()).collect()
}

type Picks = Vec<prop::sample::Index>;

fn holds(first: &[Edit], second: &[Edit], picks: &Picks) -> Result<(), TestCaseError> {
    let (project, seen) = edited(first, second);
    let before = listing(&project.lower());

    // In two steps, the first with a part of the changes.
    project.apply(&ChangeSelection::Paths(some_of(&project, picks)), &Default::default());
    let applied = project.apply_all();
    prop_assert_eq!(&applied.refused, &[]);
    prop_assert_eq!(&listing(&project.lower()), &seen);
    prop_assert_eq!(project.change_lines(), [] as [String; 0]);

    let (project, _) = edited(first, second);
    let changes = project.changes();
    let dropped = some_of(&project, picks);
    let discarded = project.overlay().discard(&ChangeSelection::Paths(dropped.clone())).unwrap();
    let left = project.change_lines();
    for change in &changes {
        let path = &change.path;
        let related = dropped.iter().any(|drop| drop.starts_with(path) || path.starts_with(drop));
        prop_assert!(related || left.contains(&change_line(change)), "{:?} went with {:?}", change, dropped);
    }
    let left = project.changes();
    for path in dropped.iter().filter(|path| discarded.discarded.contains(path)) {
        prop_assert!(!left.iter().any(|change| change.path == *path), "{:?} is still there", path);
    }
    prop_assert_eq!(&listing(&project.lower()), &before);
    project.overlay().discard(&ChangeSelection::All).unwrap();
    prop_assert_eq!(project.change_lines(), [] as [String; 0]);
    prop_assert_eq!(&listing(&project.lower()), &before);
    Ok(())
}

#[test]
fn applied_is_seen_and_discarded_was() {
    belljar_testkit::require!(UserNs);
    // Two names of one file in the project are another test's subject: applied one by one, the second is refused.
    let first = edit().prop_filter("one name a file", |edit| !matches!(edit, Edit::HardLink(..)));
    let edits = (prop::collection::vec(first, 0..14), prop::collection::vec(edit(), 0..14));
    let picks = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = proptest::test_runner::TestRunner::new(config)
        .run(&(edits, picks), |((first, second), picks)| holds(&first, &second, &picks));
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
