//! An apply that is killed at each of its renames in turn, and what the user does before anything looks at it again.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::process::Command;

/// Runs the binary until it is about to do its `nth` rename, and kills it there; whether it came so far.
pub fn killed_at(stage: &Stage, args: &[&str], nth: usize) -> bool {
    let mut command = Command::new("/usr/bin/strace");
    command.args(["-qq", "-f", "-o", "/dev/null", "-e", "trace=renameat2"]);
    command.args(["-e", &format!("inject=renameat2:signal=KILL:when={nth}")]);
    command.arg(env!("CARGO_BIN_EXE_belljar")).args(args);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    stage.finish(&mut command).status.code().is_none()
}

/// What the user deletes before the apply is undone stays deleted, and is named.
#[test]
fn a_deletion_after_a_kill_is_not_undone() {
    require!(Bwrap, Git, Strace);
    let mut seen = 0;
    for nth in 1.. {
        let stage = repository("overlay");
        let project = stage.path("project");
        exec(&stage, "echo agent >> file.txt; echo new > new.txt; git add .; git commit -qm agent");
        if !killed_at(&stage, &["apply"], nth) {
            break;
        }
        let text = fs::read_to_string(project.join("file.txt")).unwrap();
        fs::remove_file(project.join("file.txt")).unwrap();
        let looked = stage.run(&["diff", "--stat"]);
        assert_eq!(looked.status.code(), Some(0), "{nth}: {looked:?}");
        assert!(!project.join("file.txt").exists(), "{nth}: {looked:?}");
        // Once all is written, the next look only tidies up.
        let done = ["No changes are kept.\n", "Only files of git that no ref leads to are kept.\n"];
        let is_done = done.contains(&looked.stderr.as_str());
        if text.contains("agent") && !is_done {
            let said = format!("you deleted `{}`", project.join("file.txt").display());
            assert!(looked.stderr.contains(&said), "{nth}: {looked:?}");
            assert_eq!(fs::read_to_string(project.join("file.txt.before-apply")).unwrap(), "one\n", "{nth}");
            seen += 1;
        }
        let held = stage.run(&["apply"]);
        assert!(!project.join("file.txt").exists(), "{nth}: {held:?}");
        git(&project, &["fsck", "--strict", "--no-dangling"]);
    }
    assert!(seen > 0, "no kill came between the first step and the last");
}
