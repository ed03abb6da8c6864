//! An apply never leaves the tree, never overwrites what it did not expect, and can be repeated.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use belljar_sandbox::{
    ApplyConsent, ApplyRequest, ChangeSelection, OnConflict, RefusedBecause, UNFINISHED, Unmerged,
};

use super::support::{Project, link, listing, paths, put, tick, yes_to};

fn why(project: &Project, path: &str) -> Option<RefusedBecause> {
    let applied = project.apply(&ChangeSelection::All, &yes_to(&[]));
    applied.refused.into_iter().find(|refused| refused.path == Path::new(path)).map(|refused| refused.why)
}

/// The directory that a change goes to becomes a link out of the tree, after the run and before the apply.
#[test]
fn a_parent_that_became_a_link_leads_nowhere() {
    belljar_testkit::require!(UserNs);
    for script in
        ["echo evil > src/main", "rm src/victim", "chmod 777 src/victim", "mkdir src/new; echo > src/new/x"]
    {
        let project = Project::new();
        let root = project.lower();
        put(&root, "src/victim", "theirs");
        put(&project.outside(), "victim", "ours");
        put(&project.outside(), "main", "ours");
        let outside = listing(&project.outside());
        project.edit(script);
        fs::rename(root.join("src"), root.join("was")).unwrap();
        symlink("../outside", root.join("src")).unwrap();
        for on_conflict in [OnConflict::Merge, OnConflict::Overwrite] {
            let to = project.changes().into_iter().map(|change| change.path).collect();
            let consent = ApplyConsent { to, ..ApplyConsent::default() };
            let request = ApplyRequest {
                selection: &ChangeSelection::All,
                consent: &consent,
                on_conflict,
                mode: belljar_sandbox::ApplyMode::Write,
            };
            project.overlay().apply(&request).unwrap();
            assert_eq!(listing(&project.outside()), outside, "{script}");
        }
    }
}

/// The file itself becomes a link: it is replaced or refused, but not written through.
#[test]
fn a_file_that_became_a_link_is_not_written_through() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "file", "1");
    put(&project.outside(), "victim", "ours");
    project.edit("echo evil > file");
    fs::remove_file(root.join("file")).unwrap();
    link(&root, "file", "../outside/victim");
    assert_eq!(why(&project, "file"), Some(RefusedBecause::ChangedSince));
    let consent = yes_to(&[]);
    let request = ApplyRequest {
        selection: &ChangeSelection::All,
        consent: &consent,
        on_conflict: OnConflict::Overwrite,
        mode: belljar_sandbox::ApplyMode::Write,
    };
    project.overlay().apply(&request).unwrap();
    assert_eq!(fs::read_to_string(project.outside().join("victim")).unwrap(), "ours");
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "evil\n");
    assert!(!fs::symlink_metadata(root.join("file")).unwrap().is_symlink());
}

/// A link of the agent is applied; then what it wrote "through" it in another run is not led out.
#[test]
fn a_link_of_the_agent_does_not_lead_the_next_change_out() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "d/keep", "");
    project.edit("ln -s ../outside way");
    assert_eq!(project.apply_all().refused, []);
    // Inside, a directory of that name can only be had by removing the link.
    project.edit("rm way; mkdir way; echo evil > way/victim");
    let applied = project.apply(&ChangeSelection::Paths(paths(&["way/victim"])), &yes_to(&["way/victim"]));
    assert_eq!(applied.refused[0].why, RefusedBecause::LinkAbove { link: "way".into() });
    assert_eq!(listing(&project.outside()), [] as [String; 0]);
}

#[test]
fn a_link_that_leads_out_only_without_the_rest_is_refused() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    link(&root, "step", "..");
    project.edit("rm step; mkdir step; ln -s step/x harmless");
    assert_eq!(project.change_lines(), ["Added harmless", "TypeChanged step"]);
    let applied = project.apply(&ChangeSelection::Paths(paths(&["harmless"])), &yes_to(&[]));
    assert!(matches!(applied.refused[0].why, RefusedBecause::NeedsConsent { .. }), "{applied:?}");
    assert!(fs::symlink_metadata(root.join("harmless")).is_err());
    assert_eq!(project.apply(&ChangeSelection::All, &yes_to(&[])).applied, [PathBuf::from("step")]);
    assert_eq!(project.apply(&ChangeSelection::All, &yes_to(&[])).applied, [PathBuf::from("harmless")]);
}

#[test]
fn what_changed_meanwhile_is_not_overwritten() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    for path in ["edited", "deleted", "mode", "moved/in", "back/in", "same", "spare/in"] {
        put(&root, path, "1");
    }
    project.edit(
        "echo 2 > edited; rm deleted; chmod 777 mode; echo 2 > added; echo 2 > moved/in; echo 2 > back/in; echo 2 > same",
    );
    tick();
    put(&root, "edited", "3");
    put(&root, "deleted", "3");
    put(&root, "mode", "3");
    put(&root, "added", "3");
    let mv = |from: &str, to: &str| fs::rename(root.join(from), root.join(to)).unwrap();
    mv("moved", "other");
    mv("spare", "moved");
    // The same again.
    mv("back", "away");
    mv("away", "back");
    let applied = project.apply(&ChangeSelection::All, &yes_to(&[]));
    assert_eq!(applied.applied, ["back/in", "same"].map(PathBuf::from));
    let refused: Vec<_> =
        applied.refused.iter().map(|refused| (refused.path.to_str().unwrap(), &refused.why)).collect();
    let expected = ["added", "deleted", "edited", "mode", "moved/in"];
    let unmerged = RefusedBecause::Unmerged { why: Unmerged::NoOriginal };
    let expected = expected.map(|path| match path {
        "added" | "edited" | "mode" => (path, &unmerged),
        _ => (path, &RefusedBecause::ChangedSince),
    });
    assert_eq!(refused, expected);
    assert_eq!(fs::read_to_string(root.join("edited")).unwrap(), "3");
    let consent = yes_to(&[]);
    let request = ApplyRequest {
        selection: &ChangeSelection::All,
        consent: &consent,
        on_conflict: OnConflict::Overwrite,
        mode: belljar_sandbox::ApplyMode::Write,
    };
    assert_eq!(project.overlay().apply(&request).unwrap().refused, []);
    assert_eq!(fs::read_to_string(root.join("edited")).unwrap(), "2\n");
    assert!(!root.join("deleted").exists());
}

/// A later run on the same layers begins later: what the first apply wrote is not taken for somebody else's change.
#[test]
fn runs_and_applies_alternate() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "a", "0");
    put(&root, "b", "0");
    project.edit("echo 1 > a; echo 1 > b; mkdir -p new/sub; echo 1 > new/sub/x; chmod 555 new/sub new");
    assert_eq!(project.apply(&ChangeSelection::Paths(paths(&["a"])), &yes_to(&[])).refused, []);
    tick();
    project.edit("echo 2 > a; echo 2 > c");
    assert_eq!(project.apply_all().refused, []);
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "2\n");
    assert_eq!(fs::read_to_string(root.join("new/sub/x")).unwrap(), "1\n");
    assert_eq!(project.change_lines(), [] as [String; 0]);
    assert!(!listing(&root).iter().any(|line| line.contains(UNFINISHED)));
}

#[test]
fn one_file_of_a_new_directory_brings_the_directory() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    project.edit(
        "mkdir -p a/b; echo 1 > a/b/one; echo 2 > a/b/two; mkdir -p .husky; echo x > .husky/pre-commit",
    );
    let applied = project.apply(&ChangeSelection::Paths(paths(&["a/b/one"])), &yes_to(&[]));
    assert_eq!(applied.applied, ["a", "a/b", "a/b/one"].map(PathBuf::from));
    assert_eq!(
        project.change_lines(),
        ["Added .husky guarded", "Added .husky/pre-commit guarded", "Added a/b/two"]
    );
    let applied = project.apply(&ChangeSelection::All, &yes_to(&[".husky/pre-commit"]));
    assert_eq!(applied.refused, []);
    assert_eq!(project.change_lines(), [] as [String; 0]);
}

/// A failure in the middle: the rest is applied, and the failed one stays to be applied again.
#[test]
fn a_failure_leaves_the_rest_to_be_applied_again() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "d/x", "1");
    project.edit("rm -r d; echo file > d; echo 1 > a; echo 1 > z");
    // Something appears in the directory that must go.
    put(&root, "d/mine", "mine");
    let applied = project.apply(&ChangeSelection::All, &yes_to(&[]));
    assert!(applied.applied.contains(&"a".into()) && applied.applied.contains(&"z".into()), "{applied:?}");
    assert_eq!(fs::read_to_string(root.join("d/mine")).unwrap(), "mine");
    fs::remove_file(root.join("d/mine")).unwrap();
    assert_eq!(project.apply_all().refused, []);
    assert_eq!(listing(&root), ["a 644 1\\n", "d 644 file\\n", "z 644 1\\n"]);
}

/// Of two names of one file the second is refused once the first was applied: that it lost a name cannot be distinguished from
/// being written. In one apply both go.
#[test]
fn two_names_of_one_file_go_together() {
    belljar_testkit::require!(UserNs);
    for (first, refused) in [("one", 1), ("", 0)] {
        let project = Project::new();
        let root = project.lower();
        put(&root, "one", "1");
        fs::hard_link(root.join("one"), root.join("two")).unwrap();
        project.edit("echo 2 > one; rm two");
        tick();
        if !first.is_empty() {
            assert_eq!(project.apply(&ChangeSelection::Paths(paths(&[first])), &yes_to(&[])).refused, []);
        }
        assert_eq!(project.apply(&ChangeSelection::All, &yes_to(&[])).refused.len(), refused);
        assert_eq!(root.join("two").exists(), refused == 1);
    }
}

/// Set-id bits make a file one that the host executes; with a yes they are kept.
#[test]
fn set_id_needs_a_yes() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    project.edit("echo x > tool; chmod 4755 tool");
    assert_eq!(project.change_lines(), ["Added tool watched"]);
    assert_eq!(project.apply(&ChangeSelection::All, &yes_to(&[])).applied, [] as [PathBuf; 0]);
    assert_eq!(project.apply_all().refused, []);
    assert_eq!(listing(&project.lower()), ["tool 4755 x\\n"]);
}

/// A pipe is never written, whatever was said, and what it would have taken the place of stays.
#[test]
fn a_special_file_takes_the_place_of_nothing() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "file", "theirs");
    fs::create_dir(root.join("directory")).unwrap();
    let before = listing(&root);
    project.edit("mkfifo new; rm file; mkfifo file; rmdir directory; mkfifo directory");
    for on_conflict in [OnConflict::Merge, OnConflict::Overwrite] {
        let consent = yes_to(&["new", "file", "directory"]);
        let request = ApplyRequest {
            selection: &ChangeSelection::All,
            consent: &consent,
            on_conflict,
            mode: belljar_sandbox::ApplyMode::Write,
        };
        let applied = project.overlay().apply(&request).unwrap();
        let why: Vec<_> = applied.refused.iter().map(|refused| &refused.why).collect();
        assert_eq!(why, [&RefusedBecause::Special; 3]);
        assert_eq!(listing(&root), before);
    }
}

#[test]
fn what_is_used_outside_by_name_needs_its_own_yes() {
    belljar_testkit::require!(UserNs);
    for (script, path) in [
        ("echo evil > scripts/token.sh", "scripts/token.sh"),
        ("rm scripts/token.sh", "scripts/token.sh"),
        ("rm -r scripts; mkdir other; echo evil > other/token.sh; ln -s other scripts", "scripts"),
    ] {
        let project = Project::new();
        put(&project.lower(), "scripts/token.sh", "fine");
        project.edit(script);
        let overlay = project.overlay().with_named(vec![PathBuf::from("scripts/token.sh")]);
        let apply = |yes: &[&str]| {
            let consent = yes_to(yes);
            let on_conflict = OnConflict::Merge;
            overlay
                .apply(&ApplyRequest {
                    selection: &ChangeSelection::All,
                    consent: &consent,
                    on_conflict,
                    mode: belljar_sandbox::ApplyMode::Write,
                })
                .unwrap()
        };
        let refused: Vec<PathBuf> = apply(&[]).refused.into_iter().map(|refused| refused.path).collect();
        assert!(refused.contains(&PathBuf::from(path)), "{script}: {refused:?}");
        let kept = fs::read_to_string(project.lower().join("scripts/token.sh"));
        assert_eq!(kept.unwrap(), "fine", "{script}");
        assert_eq!(apply(&[path, "scripts/token.sh"]).refused, [], "{script}");
    }
}
