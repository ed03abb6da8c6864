//! A file that both sides changed is merged if, and only if, the version that both began with is known for sure.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_sandbox::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, ChangeSelection, Kept, OnConflict, Overlay,
    RefusedBecause, RefusedChange, Unmerged,
};

use super::support::{Project, listing, mode, put, yes_to};

const BASE: &str = "one\ntwo\nthree\nfour\n";
const OURS: &str = "ONE\ntwo\nthree\nfour\n";
const BOTH: &str = "ONE\ntwo\nthree\nFOUR\n";
const EDIT: &str = "sed -i s/four/FOUR/ file";

fn kept(project: &Project) -> Kept {
    Kept::new(vec![project.overlay()])
}

fn apply_in(project: &Project, on_conflict: OnConflict, mode: ApplyMode, consent: &ApplyConsent) -> Applied {
    let request = ApplyRequest { selection: &ChangeSelection::All, consent, on_conflict, mode };
    kept(project).apply(&request, &mut || false).unwrap()
}

fn apply(project: &Project) -> Applied {
    apply_in(project, OnConflict::Merge, ApplyMode::Write, &yes_to(&[]))
}

/// Why each file is not merged.
fn unmerged(applied: &Applied) -> Vec<(&str, Unmerged)> {
    let why = |why: &RefusedBecause| match why {
        RefusedBecause::Unmerged { why } => *why,
        other => panic!("{other:?}"),
    };
    applied.refused.iter().map(|refused| (refused.path.to_str().unwrap(), why(&refused.why))).collect()
}

/// A project with a file that the agent has changed, and the end of its run.
fn changed(base: &str, script: &str) -> Project {
    let project = Project::new();
    put(&project.lower(), "file", base);
    project.edit(script);
    kept(&project).changes().unwrap();
    project
}

fn read(project: &Project, path: &str) -> String {
    fs::read_to_string(project.lower().join(path)).unwrap()
}

/// The versions that are kept, by their files.
fn originals(project: &Project) -> Vec<PathBuf> {
    let directory = project.overlay().upper().with_file_name("originals");
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap() != "list").collect()
}

#[test]
fn both_sides_of_a_file_are_joined() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, EDIT);
    put(&project.lower(), "file", OURS);
    let both = kept(&project).changes().unwrap().both;
    assert_eq!((both[0].path.as_path(), both[0].unmerged), (Path::new("file"), None));
    let before = listing(&project.lower());
    let dry = apply_in(&project, OnConflict::Merge, ApplyMode::DryRun, &yes_to(&[]));
    assert_eq!((dry.merged.as_slice(), listing(&project.lower())), (&[PathBuf::from("file")][..], before));
    let applied = apply(&project);
    assert_eq!((applied.merged.len(), applied.applied.len(), applied.refused.len()), (1, 1, 0));
    assert_eq!(read(&project, "file"), BOTH);
    assert_eq!(project.change_lines(), Vec::<String>::new(), "nothing is left of it");
    assert_eq!(kept(&project).changes().unwrap().both, []);
    assert_eq!(originals(&project), Vec::<PathBuf>::new());
}

/// An editor saves the file after it was read for the merge: that version stays.
#[test]
fn what_is_saved_during_the_apply_is_not_overwritten() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, EDIT);
    put(&project.lower(), "file", OURS);
    let consent = yes_to(&[]);
    let (selection, on_conflict, mode) = (&ChangeSelection::All, OnConflict::Merge, ApplyMode::Write);
    let request = ApplyRequest { selection, consent: &consent, on_conflict, mode };
    let save = || {
        put(&project.lower(), "new", "saved later\n");
        fs::rename(project.lower().join("new"), project.lower().join("file")).unwrap();
        false
    };
    let applied = kept(&project).apply(&request, &mut { save }).unwrap();
    assert_eq!((applied.merged.len(), &applied.refused[0].why), (0, &RefusedBecause::ChangedSince));
    assert_eq!(read(&project, "file"), "saved later\n");
    assert_eq!(project.change_lines(), ["Modified file"], "the agent's version is still kept");
}

#[test]
fn a_copy_is_merged_as_well() {
    let project = Project::new();
    put(&project.lower(), "file", BASE);
    let overlay = project.overlay();
    overlay.begin_copy().unwrap();
    put(&overlay.copy(), "file", &BASE.replace("four", "FOUR"));
    kept(&project).settle().unwrap();
    kept(&project).changes().unwrap();
    put(&project.lower(), "file", OURS);
    assert_eq!(apply(&project).merged, [PathBuf::from("file")]);
    assert_eq!(read(&project, "file"), BOTH);
}

#[test]
fn the_same_lines_are_a_conflict_unless_markers_are_asked_for() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, EDIT);
    put(&project.lower(), "file", &BASE.replace("four", "4"));
    let before = listing(&project.lower());
    assert_eq!(unmerged(&apply(&project)), [("file", Unmerged::Overlap { places: 1 })]);
    assert_eq!(listing(&project.lower()), before);
    let marked = apply_in(&project, OnConflict::Markers, ApplyMode::Write, &yes_to(&[]));
    assert_eq!(marked.merged, [PathBuf::from("file")]);
    let text = "one\ntwo\nthree\n<<<<<<< yours\n4\n=======\nFOUR\n>>>>>>> agent\n";
    assert_eq!(read(&project, "file"), text);
}

#[test]
fn binary_and_too_large_files_stay_conflicts() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    put(&project.lower(), "binary", "one\0\ntwo\nthree\n");
    put(&project.lower(), "long", &"line\n".repeat(60_000));
    put(&project.lower(), "large", &format!("{}\n", "x".repeat(1023)).repeat(4097));
    project.edit("for name in binary long large; do echo more >> $name; done");
    kept(&project).changes().unwrap();
    for name in ["binary", "long", "large"] {
        let text = read(&project, name);
        put(&project.lower(), name, &format!("first\n{text}"));
    }
    let expected =
        [("binary", Unmerged::Binary), ("large", Unmerged::TooLarge), ("long", Unmerged::TooLarge)];
    assert_eq!(unmerged(&apply(&project)), expected);
}

/// A base that was cut off, changed or lost is none.
#[test]
fn a_damaged_base_is_not_used() {
    belljar_testkit::require!(UserNs);
    let damages: [&dyn Fn(&Path); 4] = [
        &|path| fs::write(path, OURS).unwrap(),
        &|path| fs::File::options().write(true).open(path).unwrap().set_len(4).unwrap(),
        &|path| fs::remove_file(path).unwrap(),
        &|path| {
            let list = path.with_file_name("list");
            let bytes = fs::read(&list).unwrap();
            fs::write(list, &bytes[..bytes.len() - 1]).unwrap();
        },
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let project = changed(BASE, EDIT);
        put(&project.lower(), "file", OURS);
        let kept = originals(&project);
        assert_eq!(kept.len(), 1);
        damage(&kept[0]);
        assert_eq!(unmerged(&apply(&project)), [("file", Unmerged::NoOriginal)], "{at}");
        assert_eq!(read(&project, "file"), OURS, "{at}");
    }
}

/// The version that one run began with is not the base of another run's change.
#[test]
fn a_base_belongs_to_one_run() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, EDIT);
    assert_eq!(apply(&project).applied, [PathBuf::from("file")]);
    let lower = project.lower();
    // The user undoes the agent's change while a second run makes another one.
    project.edit(format!("echo five >> file; printf '{}' > '{}/file'", BASE.escape_debug(), lower.display()));
    assert_eq!(unmerged(&apply(&project)), [("file", Unmerged::NoOriginal)]);
    assert_eq!(read(&project, "file"), BASE);
}

/// A change of the first run that the second goes on with is still one to what the first began with.
#[test]
fn a_base_outlives_further_runs() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, EDIT);
    put(&project.lower(), "file", OURS);
    project.edit("sed s/two/TWO/ file > new; mv new file; sed -i s/TWO/two/ file");
    assert_eq!(apply(&project).merged, [PathBuf::from("file")]);
    assert_eq!(read(&project, "file"), BOTH);
}

#[test]
fn permissions_are_those_of_the_side_that_changed_them() {
    belljar_testkit::require!(UserNs);
    for (ours, theirs, wanted) in [
        (0o644, 0o644, Ok(0o644)),
        (0o755, 0o644, Ok(0o755)),
        (0o644, 0o755, Ok(0o755)),
        (0o755, 0o755, Ok(0o755)),
        (0o600, 0o755, Err(Unmerged::Modes)),
    ] {
        let project = Project::new();
        put(&project.lower(), "file", BASE);
        mode(&project.lower().join("file"), 0o644);
        project.edit(format!("{EDIT}; chmod {theirs:o} file"));
        kept(&project).changes().unwrap();
        put(&project.lower(), "file", OURS);
        mode(&project.lower().join("file"), ours);
        let applied = apply(&project);
        let now = || fs::metadata(project.lower().join("file")).unwrap().permissions().mode() & 0o7777;
        match wanted {
            Ok(wanted) => assert_eq!((read(&project, "file").as_str(), now()), (BOTH, wanted)),
            Err(why) => {
                assert_eq!(unmerged(&applied), [("file", why)]);
                assert_eq!((read(&project, "file").as_str(), now()), (OURS, ours));
            }
        }
    }
}

/// The agent only changed the permissions, the user only the text.
#[test]
fn permissions_and_text_are_joined() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, "chmod 755 file");
    put(&project.lower(), "file", OURS);
    assert_eq!(apply(&project).merged, [PathBuf::from("file")]);
    let mode = fs::metadata(project.lower().join("file")).unwrap().permissions().mode() & 0o777;
    assert_eq!((read(&project, "file").as_str(), mode), (OURS, 0o755));
}

#[test]
fn a_deletion_on_either_side_stays_a_conflict() {
    belljar_testkit::require!(UserNs);
    let project = changed(BASE, "rm file");
    put(&project.lower(), "file", OURS);
    let why = |applied: Applied| applied.refused.into_iter().map(|refused| refused.why).collect::<Vec<_>>();
    assert_eq!(why(apply(&project)), [RefusedBecause::ChangedSince]);
    assert_eq!(read(&project, "file"), OURS);

    let project = changed(BASE, EDIT);
    fs::remove_file(project.lower().join("file")).unwrap();
    assert_eq!(why(apply(&project)), [RefusedBecause::ChangedSince]);
    assert!(!project.lower().join("file").exists());
}

/// Not even with a yes: what is executed is decided about as a whole.
#[test]
fn what_this_machine_executes_is_not_merged() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    put(&project.lower(), ".envrc", BASE);
    put(&project.lower(), ".git/config", "[core]\n\tbare = false\n[user]\n\tname = a\n");
    put(&project.lower(), ".git/HEAD", "ref: refs/heads/main\n");
    for name in [".git/objects", ".git/refs/heads"] {
        fs::create_dir_all(project.lower().join(name)).unwrap();
    }
    project.edit("sed -i s/four/FOUR/ .envrc; printf '[alias]\\n\\tx = y\\n' >> .git/config");
    kept(&project).changes().unwrap();
    put(&project.lower(), ".envrc", OURS);
    put(&project.lower(), ".git/config", "[core]\n\tbare = true\n[user]\n\tname = a\n");
    let before = listing(&project.lower());
    let yes = yes_to(&[".envrc", ".git/config"]);
    for on_conflict in [OnConflict::Merge, OnConflict::Markers] {
        let applied = apply_in(&project, on_conflict, ApplyMode::Write, &yes);
        for path in [".envrc", ".git/config"] {
            let is_whole = |refused: &RefusedChange| {
                refused.path == Path::new(path)
                    && matches!(refused.why, RefusedBecause::Unmerged { why: Unmerged::Whole })
            };
            assert!(applied.refused.iter().any(is_whole), "{path}: {applied:?}");
        }
        assert_eq!(listing(&project.lower()), before);
    }
    assert_eq!(originals(&project), Vec::<PathBuf>::new(), "nor kept");
}

fn git(project: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=U", "-c", "user.email=u@x"]).args(arguments).current_dir(project);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let found = command.output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
}

/// While the run lasts the user changes files. git has what they were, unless they differed from the index already.
#[test]
fn git_has_what_changed_while_the_run_lasted() {
    belljar_testkit::require!(UserNs, Git);
    let project = Project::new();
    let lower = project.lower();
    for name in ["file", "dirty", "sub/packed"] {
        put(&lower, name, BASE);
    }
    git(&lower, &["init", "-q"]);
    git(&lower, &["add", "."]);
    git(&lower, &["commit", "-qm", "first"]);
    git(&lower, &["repack", "-qad"]);
    put(&lower, "dirty", &format!("{BASE}five\n"));
    put(&lower, "untracked", BASE);
    project.edit(format!(
        "for name in file dirty sub/packed untracked; do sed -i s/four/FOUR/ $name; \
         sed -i s/one/ONE/ '{}'/$name; done",
        lower.display()
    ));
    let applied = apply(&project);
    assert_eq!(applied.merged, [PathBuf::from("file"), PathBuf::from("sub/packed")]);
    assert_eq!(unmerged(&applied), [("dirty", Unmerged::NoOriginal), ("untracked", Unmerged::NoOriginal)]);
    assert_eq!((read(&project, "file").as_str(), read(&project, "sub/packed").as_str()), (BOTH, BOTH));
    assert_eq!(read(&project, "dirty"), format!("{OURS}five\n"));
}

/// The index and the objects of a linked worktree lie elsewhere.
#[test]
fn git_has_it_for_a_linked_worktree_too() {
    belljar_testkit::require!(UserNs, Git);
    let project = Project::new();
    let (lower, main) = (project.lower(), project.outside());
    put(&main, "file", BASE);
    git(&main, &["init", "-q"]);
    git(&main, &["add", "."]);
    git(&main, &["commit", "-qm", "first"]);
    git(&main, &["worktree", "add", "-qb", "linked", lower.to_str().unwrap()]);
    project.edit(format!("{EDIT}; sed -i s/one/ONE/ '{}/file'", lower.display()));
    let repository = main.join(".git").canonicalize().unwrap();
    let beside = project.overlay().upper().with_file_name("repository");
    let kept = Kept::new(vec![project.overlay(), Overlay::new(&repository, &beside)]);
    let consent = yes_to(&[]);
    let (selection, on_conflict, mode) = (&ChangeSelection::All, OnConflict::Merge, ApplyMode::Write);
    let request = ApplyRequest { selection, consent: &consent, on_conflict, mode };
    let applied = kept.apply(&request, &mut || false).unwrap();
    assert_eq!(applied.merged, [PathBuf::from("file")], "{applied:?}");
    assert_eq!(read(&project, "file"), BOTH);
}
