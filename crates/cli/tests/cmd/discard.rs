use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;

#[test]
fn drops_kept_changes_and_never_the_project() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    stage.write("project/old.txt", "one\n");
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", "rm old.txt; echo a > a; echo b > b"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let some = stage.run(&["discard", "--", "a"]);
    assert_eq!((some.status.code(), some.stdout.as_str()), (Some(0), "dropped a\n"), "{}", some.stderr);
    let asked = stage.run(&["discard"]);
    assert_eq!(asked.status.code(), Some(2), "without a terminal and without --yes nothing is dropped");
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A b\nD old.txt\n");
    assert_eq!(stage.run(&["discard", "--yes"]).status.code(), Some(0));
    assert_eq!(stage.run(&["diff"]).stdout, "");
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "one\n");
}
