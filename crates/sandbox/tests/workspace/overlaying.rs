//! What the agent does inside stays beside the project, and is reported with its class.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use belljar_sandbox::{ChangeSelection, RefusedBecause, Side, SideContent};
use belljar_sys::beneath::Directory;
use belljar_sys::overlay::{self, OverlaySpec, OverlayStep};

use super::support::{Project, link, listing, mode, paths, put, yes_to};

/// Known escapes, tried from inside a sandbox: nothing reaches the project, each is reported with its class, none is
/// applied without consent, and each is with it.
#[test]
fn what_the_host_would_execute_is_held() {
    belljar_testkit::require!(Bwrap, UserNs);
    let project = Project::new();
    let root = project.lower();
    for repository in [".git", "vendor/sub/.git"] {
        put(&root, &format!("{repository}/HEAD"), "ref: refs/heads/main\n");
        put(&root, &format!("{repository}/config"), "[core]\n");
        put(&root, &format!("{repository}/objects/x"), "");
        put(&root, &format!("{repository}/refs/heads/main"), "");
    }
    put(&root, "README", "hello\n");
    let before = listing(&root);
    project.edit_in_bwrap(
        "mkdir -p .git/hooks vendor/sub/.git/hooks .vscode .claude .husky
         echo evil > .git/hooks/pre-commit
         printf 'fsmonitor = ./x.sh\\n' >> .git/config
         echo evil > vendor/sub/.git/hooks/pre-commit
         printf 'fsmonitor = ./x.sh\\n' >> vendor/sub/.git/config
         echo evil > .vscode/tasks.json
         echo evil > .mcp.json
         echo evil > .claude/settings.json
         echo evil > .envrc
         echo evil > .husky/pre-commit
         ln -s ../outside/.bashrc escape.txt
         ln -s /etc/passwd absolute.txt
         mkfifo pipe
         echo more >> README",
    );
    assert_eq!(listing(&root), before, "nothing reached the project");
    let held = [
        "Added .claude/settings.json guarded",
        "Added .envrc guarded",
        "Added .git/hooks guarded",
        "Added .git/hooks/pre-commit guarded",
        "Added .husky guarded",
        "Added .husky/pre-commit guarded",
        "Added .mcp.json guarded",
        "Added .vscode/tasks.json guarded",
        "Added absolute.txt escaping",
        "Added escape.txt escaping",
        "Added pipe special",
        "Added vendor/sub/.git/hooks guarded",
        "Added vendor/sub/.git/hooks/pre-commit guarded",
        "Modified .git/config guarded",
        "Modified vendor/sub/.git/config guarded",
    ];
    let mut lines = project.change_lines();
    lines.retain(|line| line.ends_with('d') || line.ends_with("ing") || line.ends_with("special"));
    lines.sort();
    assert_eq!(lines, held);

    let applied = project.apply(&ChangeSelection::All, &yes_to(&[]));
    assert_eq!(applied.applied, [".claude", ".vscode", "README"].map(std::path::PathBuf::from));
    assert_eq!(applied.refused.len(), held.len());
    let mut ordinary = before.clone();
    ordinary.retain(|line| !line.starts_with("README"));
    ordinary.extend(["README 644 hello\\nmore\\n".into(), ".claude/ 755".into(), ".vscode/ 755".into()]);
    ordinary.sort();
    assert_eq!(listing(&root), ordinary, "only what is ordinary was applied");

    let applied = project.apply(&ChangeSelection::All, &yes_to(&[".mcp.json", "escape.txt", "pipe"]));
    assert_eq!(applied.applied, [".mcp.json", "escape.txt"].map(std::path::PathBuf::from));
    assert!(fs::symlink_metadata(root.join("escape.txt")).unwrap().is_symlink());
    let pipe = applied.refused.iter().find(|refused| refused.path == Path::new("pipe")).unwrap();
    assert_eq!(pipe.why, RefusedBecause::Special, "no yes is enough");

    let discarded = project.overlay().discard(&ChangeSelection::All).unwrap();
    assert_eq!(discarded.discarded.len(), held.len() - 2);
    assert_eq!(project.change_lines(), [] as [String; 0]);
}

/// No path of the host shows in the mount table inside, and a namespace in which to mount something is not to be had.
#[test]
fn bubblewrap_runs_in_it_and_shows_nothing_of_the_host() {
    belljar_testkit::require!(Bwrap, UserNs);
    let project = Project::new();
    put(&project.lower(), "a", "1");
    project.edit_in_bwrap(
        "grep -q ' /workspace .* overlay ' /proc/self/mountinfo
         if grep -e layers -e odd /proc/self/mountinfo >&2; then exit 1; fi
         if unshare --user true 2>/dev/null; then exit 1; fi
         test \"$(cat a)\" = 1; echo 2 > a; test \"$(cat a)\" = 2",
    );
    assert_eq!(project.change_lines(), ["Modified a"]);
}

#[test]
fn all_kinds_of_changes_are_reported() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    for path in
        ["same", "touched", "edited", "gone", "mode", "tofile/x", "todir", "tolink", "tree/a/b", "tree/c"]
    {
        put(&root, path, path);
    }
    put(&root, "remade/old", "old");
    put(&root, "remade/both", "old");
    put(&root, "remade/sub/deep", "old");
    link(&root, "link", "same");
    put(&root, "one", "linked");
    fs::hard_link(root.join("one"), root.join("two")).unwrap();
    mode(&root.join("mode"), 0o644);
    project.edit(
        "touch touched; chmod 644 touched; echo x > edited; rm gone; chmod 755 mode
         rm -r tofile; echo x > tofile; rm todir; mkdir todir; echo x > todir/in; ln -sf same tolink
         rm -r tree; rm -r remade; mkdir remade; echo new > remade/both; mkdir remade/sub; echo y > remade/sub/new
         ln -sfn edited link; echo x >> one; mkdir -p new/dir; echo x > new/dir/file; ln new/dir/file new/again
         echo x > $(printf 'odd\\377name'); mkdir empty; chmod 700 empty",
    );
    assert_eq!(
        project.change_lines(),
        [
            "Modified edited",
            "Added empty",
            "Deleted gone",
            "Modified link",
            "ModeChanged mode",
            "Added new",
            "Added new/again",
            "Added new/dir",
            "Added new/dir/file",
            "Added odd\\xffname",
            "Modified one",
            "Modified remade/both",
            "Deleted remade/old",
            "Deleted remade/sub/deep",
            "Added remade/sub/new",
            "TypeChanged todir",
            "Added todir/in",
            "TypeChanged tofile",
            "Deleted tofile/x",
            "TypeChanged tolink",
            "Deleted tree",
            "Deleted tree/a",
            "Deleted tree/a/b",
            "Deleted tree/c",
        ]
    );
    let side = |path: &str, side| project.overlay().side(Path::new(path), side, 3).unwrap();
    let file = |bytes: &[u8], size| SideContent::File { bytes: bytes.into(), size };
    assert_eq!(side("edited", Side::Before), file(b"edi", 6));
    assert_eq!(side("edited", Side::After), file(b"x\n", 2));
    assert_eq!(side("gone", Side::After), SideContent::Absent);
    assert_eq!(side("link", Side::After), SideContent::Symlink("edited".into()));
    assert_eq!(side("todir", Side::After), SideContent::Directory);

    let refused = project.apply_all().refused;
    assert_eq!(refused, []);
    assert_eq!(project.change_lines(), [] as [String; 0]);
    assert_eq!(fs::read_to_string(root.join("two")).unwrap(), "linked", "the other name keeps its content");
    assert_eq!(fs::metadata(root.join("mode")).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!root.join("tree").exists() && root.join("todir/in").exists() && root.join("tofile").is_file());
}

/// A repository that is completed by what is itself no configuration needs a yes too.
#[test]
fn nothing_becomes_a_repository_unseen() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "data/config", "[core] fsmonitor = ./x.sh");
    put(&root, "data/HEAD", "ref: refs/heads/main");
    project.edit("mkdir data/objects data/refs; echo > data/objects/.keep; echo > data/refs/.keep");
    let applied = project.apply(&ChangeSelection::All, &yes_to(&[]));
    assert_eq!(applied.applied, [] as [std::path::PathBuf; 0]);
    assert!(!root.join("data/objects").exists());
}

/// What the project's links and git configuration put in the place of hooks and settings counts as such.
#[test]
fn stand_ins_are_held_too() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, ".git/config", "[core]\n\thooksPath = tools/hooks\n");
    put(&root, "tools/hooks/pre-commit", "");
    put(&root, "agent/settings.json", "{}");
    link(&root, ".claude", "agent");
    project
        .edit("echo evil > tools/hooks/pre-push; echo evil > agent/settings.json; echo fine > agent/notes");
    assert_eq!(
        project.change_lines(),
        ["Added agent/notes", "Modified agent/settings.json guarded", "Added tools/hooks/pre-push guarded"]
    );
}

#[test]
fn parts_are_discarded_and_the_rest_stays() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    for path in ["a/one", "a/two", "a/sub/three", "b", "c"] {
        put(&root, path, "old");
    }
    let before = listing(&root);
    project.edit("rm -r a; mkdir a; echo new > a/one; mkdir a/sub; rm b; echo new > c; chmod 500 a/sub");
    let discard = |list: &[&str]| project.overlay().discard(&ChangeSelection::Paths(paths(list))).unwrap();
    assert_eq!(discard(&["a/two", "a/one"]).refused, []);
    assert_eq!(
        project.change_lines(),
        ["ModeChanged a/sub", "Deleted a/sub/three", "Deleted b", "Modified c"],
        "the project's own show again, the other deletions stay"
    );
    assert_eq!(discard(&["a/sub/three"]).refused, []);
    assert_eq!(discard(&["a/sub", "b"]).refused, []);
    assert_eq!(project.change_lines(), ["Modified c"]);
    assert_eq!(listing(&root), before);
    // The kernel takes what we left in the upper layer.
    project.edit("test \"$(cat a/one a/two a/sub/three b c)\" = oldoldoldoldnew");
}

/// `work/work` is closed to everyone; the agent can close its own directories, and nest them deeper than paths reach.
#[test]
fn everything_is_discarded_however_closed_or_deep() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    put(&project.lower(), "a", "1");
    project.edit(
        "mkdir closed; echo x > closed/x; chmod 0 closed
         i=0; while [ $i -lt 60 ]; do mkdir -p d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d; cd d; i=$((i+1)); done",
    );
    let upper = project.overlay().upper();
    // Past the length of any path, by steps.
    let name = "n".repeat(200);
    let mut deep = Directory::open(&upper).unwrap();
    for _ in 0..40 {
        deep.make_directory(name.as_ref(), 0o755).unwrap();
        deep = deep.directory(name.as_ref()).unwrap();
    }
    let work = project.overlay().work();
    assert_eq!(fs::metadata(work.join("work")).unwrap().mode() & 0o777, 0, "the kernel's own directory");
    // A discard that was killed left this; the agent closed the top.
    put(upper.parent().unwrap(), "trash/discarded/left", "1");
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o555)).unwrap();
    project.overlay().discard(&ChangeSelection::All).unwrap();
    assert_eq!(fs::read_dir(upper).unwrap().count() + fs::read_dir(work).unwrap().count(), 0);
    assert_eq!(listing(&project.lower()), ["a 644 1"]);
}

#[test]
fn a_layer_that_was_swapped_is_not_mounted() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let spec = project.overlay().begin().unwrap();
    let moved = project.outside().join("moved");
    fs::rename(project.lower(), moved).unwrap();
    fs::create_dir(project.lower()).unwrap();
    let mut command = Command::new("true");
    let preparation = overlay::prepare(&mut command, vec![spec]).unwrap();
    assert!(command.output().is_err());
    assert_eq!(preparation.failed_step(), Some(OverlayStep::Layers));
    assert!(
        OverlaySpec::new(&project.lower(), Path::new("/nowhere"), Path::new("/"), Path::new("/")).is_err()
    );
}
