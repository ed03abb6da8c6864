//! Kept changes that the user has changes of their own to: what is asked for by name is done, and nothing else.

use crate::stage::Stage;
use belljar_testkit::require;
use std::path::Path;

#[test]
fn changes_that_a_run_has_are_in_use_whatever_they_hold() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    let mut run = stage.command(&["exec", "--yes", "--", "sh", "-c", "echo ready; cat"]);
    run.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut run = run.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(run.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    let busy = stage.run(&["apply", "--layer", "a"]);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    assert_eq!(busy.status.code(), Some(2));
    assert!(busy.stderr.contains("the changes `a` are in use"), "{}", busy.stderr);
}
