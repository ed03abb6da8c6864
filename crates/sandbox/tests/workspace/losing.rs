//! What the user does to the project between a run and its apply is never lost unseen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_sandbox::{Applied, ApplyMode, ApplyRequest, ChangeSelection, Kept, OnConflict};

use super::support::{Project, put, tick, yes_to};

fn kept(project: &Project) -> Kept {
    Kept::new(vec![project.overlay()])
}

fn apply(project: &Project) -> Applied {
    let consent = yes_to(&[]);
    let request = |mode| ApplyRequest {
        selection: &ChangeSelection::All,
        consent: &consent,
        on_conflict: OnConflict::Merge,
        mode,
    };
    let dry = kept(project).apply(&request(ApplyMode::DryRun), &mut || false).unwrap();
    let done = kept(project).apply(&request(ApplyMode::Write), &mut || false).unwrap();
    assert_eq!(dry, done, "the dry run says the same");
    done
}

fn refused(applied: &Applied) -> Vec<&Path> {
    applied.refused.iter().map(|refused| refused.path.as_path()).collect()
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Overlay,
    Copy,
}

/// A run of this script.
fn agent(project: &Project, mode: Mode, script: &str) {
    if mode == Mode::Copy {
        let overlay = project.overlay();
        overlay.begin_copy().unwrap();
        let mut command = Command::new("sh");
        assert!(command.args(["-euc", script]).current_dir(overlay.copy()).status().unwrap().success());
        kept(project).settle().unwrap();
        return;
    }
    project.edit(script);
}

/// The first run deleted the directory, the second made it again: what the user wrote there in between stays.
#[test]
fn a_directory_that_is_made_again_hides_nothing_of_the_user() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "n/k/notes", "v1\n");
    put(&root, "n/old", "old\n");
    project.edit("rm -rf n");
    tick();
    put(&root, "n/k/notes", "v1\nmine\n");
    put(&root, "n/new", "mine\n");
    tick();
    project.edit("mkdir n; echo x > n/x");
    tick();
    project.edit("echo y > n/y");
    let applied = apply(&project);
    assert_eq!(read(root.join("n/k/notes")), "v1\nmine\n");
    assert_eq!(read(root.join("n/new")), "mine\n");
    assert_eq!(read(root.join("n/x")), "x\n");
    assert!(!root.join("n/old").exists(), "only the agent touched it");
    for path in ["n/k/notes", "n/new"] {
        assert!(refused(&applied).contains(&Path::new(path)), "{path}: {applied:?}");
    }
}

/// What comes to its place with a directory keeps its times: it is not taken for what the run began with.
#[test]
fn a_directory_that_is_moved_into_place_is_not_written_to() {
    belljar_testkit::require!(UserNs);
    for mode in [Mode::Overlay, Mode::Copy] {
        let project = Project::new();
        let root = project.lower();
        put(&root, "spare/f", "precious\n");
        put(&root, "u/f", "u\n");
        put(&root, "alt/f", "alternative\n");
        put(&root, "gone/f", "gone\n");
        put(&root, "notes/n", "notes\n");
        put(&root, "same/f", "same\n");
        agent(&project, mode, "mkdir src; echo x > src/f; echo x > u/f; rm -r gone; echo x > same/f");
        tick();
        let mv = |from: &str, to: &str| fs::rename(root.join(from), root.join(to)).unwrap();
        mv("spare", "src");
        mv("u", "u.before");
        mv("alt", "u");
        mv("notes", "gone/notes");
        // Their times are as those of directories that were only written to.
        for path in ["src", "u", "gone/notes", "same"] {
            tick();
            put(&root, &format!("{path}/own"), "");
        }
        let applied = apply(&project);
        assert_eq!(read(root.join("src/f")), "precious\n", "{applied:?}");
        assert_eq!(read(root.join("u/f")), "alternative\n", "{applied:?}");
        assert_eq!(read(root.join("gone/notes/n")), "notes\n", "{applied:?}");
        assert_eq!(read(root.join("same/f")), "x\n", "{applied:?}");
        for path in ["src/f", "u/f", "gone/notes/n"] {
            assert!(refused(&applied).contains(&Path::new(path)), "{path}: {applied:?}");
        }
    }
}

/// The whole project, too.
#[test]
fn another_project_in_its_place_is_not_written_to() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "f", "one\n");
    let other = project.outside().join("other");
    put(&other, "f", "other\n");
    project.edit("echo x > f");
    tick();
    fs::rename(&root, project.outside().join("away")).unwrap();
    fs::rename(&other, &root).unwrap();
    assert_eq!(refused(&apply(&project)), [Path::new("f")]);
    assert_eq!(read(root.join("f")), "other\n");
}

/// Whether or not git knows the file, and also where the agent only changed the permissions.
#[test]
fn a_file_that_the_user_deleted_does_not_come_back() {
    belljar_testkit::require!(UserNs);
    for mode in [Mode::Overlay, Mode::Copy] {
        let project = Project::new();
        let root = project.lower();
        for path in ["text", "mode", "binary", "d/in"] {
            put(&root, path, "one\0\n");
        }
        let script = "echo two >> text; chmod 755 mode; echo two >> binary; echo two >> d/in; echo two > new";
        agent(&project, mode, script);
        for path in ["text", "mode", "binary", "d/in"] {
            fs::remove_file(root.join(path)).unwrap();
        }
        if mode == Mode::Overlay {
            // Another run goes on with the changes, and does not see that the user deleted anything.
            project.edit("echo three >> text");
        }
        let applied = apply(&project);
        assert_eq!(refused(&applied), ["binary", "d/in", "mode", "text"].map(Path::new), "{mode:?}");
        assert_eq!(applied.applied, [PathBuf::from("new")]);
        assert!(!root.join("text").exists() && !root.join("d/in").exists());
    }
}

/// Whatever a file gets from the agent, what the user noted at it stays.
#[test]
fn attributes_of_the_user_stay_at_a_file() {
    belljar_testkit::require!(UserNs);
    for mode in [Mode::Overlay, Mode::Copy] {
        let project = Project::new();
        let file = project.lower().join("file");
        put(&project.lower(), "file", "one\n");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "user.note", b"mine", flags).unwrap();
        agent(&project, mode, "echo two > new; mv new file");
        assert_eq!(refused(&apply(&project)), Vec::<&Path>::new());
        assert_eq!(read(file.clone()), "two\n");
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(&file, "user.note", &mut value[..]), Ok(4), "{mode:?}");
        assert_eq!(&value[..4], b"mine");
    }
}

/// A copy that cannot be compared with the project may hold work.
#[test]
fn a_copy_whose_list_cannot_be_read_stays() {
    let project = Project::new();
    put(&project.lower(), "file", "one\n");
    let overlay = project.overlay();
    overlay.begin_copy().unwrap();
    put(&overlay.copy(), "file", "two\n");
    let list = overlay.copy().with_file_name("copied");
    let whole = fs::read(&list).unwrap();
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    assert!(kept(&project).settle().is_err());
    assert!(!overlay.is_empty());
    assert_eq!(read(overlay.copy().join("file")), "two\n");
    fs::remove_dir(&list).unwrap();
    fs::write(&list, whole).unwrap();
    kept(&project).settle().unwrap();
    assert_eq!(apply(&project).applied, [PathBuf::from("file")]);
}
