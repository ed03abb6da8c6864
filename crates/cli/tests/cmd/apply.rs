use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;

fn overlaid(script: &str) -> Stage {
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    stage.write("project/old.txt", "one\n");
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    stage
}

#[test]
fn ordinary_changes_are_written_and_others_need_a_yes_by_name() {
    require!(Bwrap);
    let stage =
        overlaid("echo two >> old.txt; echo new > new.txt; echo evil > .envrc; ln -s /etc/passwd out");
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "one\n");
    let first = stage.run(&["apply"]);
    assert_eq!(first.status.code(), Some(1), "{}", first.stderr);
    assert_eq!(first.stdout, "applied new.txt\napplied old.txt\n");
    assert!(first.stderr.contains("left aside: .envrc: needs a yes of its own"), "{}", first.stderr);
    assert!(!stage.path("project/.envrc").exists());
    assert!(stage.path("project/out").symlink_metadata().is_err());
    let second = stage.run(&["apply", "--allow", ".envrc", "--", ".envrc"]);
    assert_eq!(
        (second.status.code(), second.stdout.as_str()),
        (Some(0), "applied .envrc\n"),
        "{}",
        second.stderr
    );
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "evil\n");
    assert_eq!(stage.run(&["diff", "--stat"]).stdout.lines().count(), 1, "the link is still aside");
}

#[test]
fn a_file_that_changed_meanwhile_is_left_alone_unless_forced() {
    require!(Bwrap);
    let stage = overlaid("echo agent > old.txt");
    stage.write("project/old.txt", "mine\n");
    let refused = stage.run(&["apply"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("has changed since the run began"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "mine\n");
    assert_eq!(stage.run(&["apply", "--force"]).status.code(), Some(0));
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "agent\n");
}

#[test]
fn the_next_run_goes_on_where_the_last_one_stopped() {
    require!(Bwrap);
    let stage = overlaid("echo two >> old.txt");
    let found = stage.run(&["exec", "--yes", "--", "cat", "old.txt"]);
    assert_eq!(found.stdout, "one\ntwo\n", "the change is still there: {}", found.stderr);
}

#[test]
fn holes_of_a_file_are_not_written() {
    use std::os::unix::fs::MetadataExt;
    require!(Bwrap);
    let stage = overlaid(
        "truncate -s 1T sparse.bin && printf end | dd of=sparse.bin bs=1 seek=1G conv=notrunc status=none",
    );
    let found = stage.run(&["apply"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), "applied sparse.bin\n"),
        "{}",
        found.stderr
    );
    let applied = fs::metadata(stage.path("project/sparse.bin")).unwrap();
    assert_eq!(applied.len(), 1 << 40);
    assert!(applied.blocks() * 512 < 1 << 20, "{} blocks were written", applied.blocks());
}
