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
    assert!(first.stderr.contains("not applied: .envrc: needs your confirmation"), "{}", first.stderr);
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
    assert_eq!(stage.run(&["diff", "--stat"]).stdout.lines().count(), 1, "the link is still in the overlay");
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

/// What a run with a copy changed stays until it is applied or discarded, however many runs follow.
#[test]
fn a_copy_keeps_what_each_run_changed() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"copy\"\n");
    stage.write("project/old.txt", "one\n");
    stage.write("project/gone.txt", "x\n");
    stage.write("project/sub/kept.txt", "same\n");
    let run = |script: &str| {
        let found = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        found.stderr
    };
    let first = run("echo two >> old.txt; rm gone.txt; mkdir -p sub/new; echo n > sub/new/f; chmod 700 sub");
    assert!(first.contains("belljar: 3 changed files kept in "), "{first}");
    for line in ["\n  belljar diff a\n", "\n  belljar apply a\n", "\n  belljar discard a\n"] {
        assert!(first.contains(line), "{first}");
    }
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "one\n");
    // A copy is always of the project as it is.
    let second = run("cat old.txt; test -e gone.txt; echo other > other.txt");
    assert!(second.contains("belljar apply a --layer a-2"), "{second}");
    assert!(!run("true").contains("kept in"), "nothing was changed, so nothing is kept");
    let several = stage.run(&["diff"]);
    assert_eq!(several.status.code(), Some(2));
    assert!(several.stderr.contains("keeps several sets of changes: `a`, `a-2`"), "{}", several.stderr);
    assert!(several.stderr.contains("belljar diff a --layer a-2"), "{}", several.stderr);
    let list = stage.json(&["instances", "--json"]);
    let names: Vec<_> = list["data"]["instances"][0]["kept"].as_array().unwrap().iter().collect();
    assert_eq!((names.len(), &names[1]["layer"]), (2, &"a-2".into()), "{list}");
    let page = stage.run(&["diff", "--layer", "a", "--stat"]).stdout;
    assert_eq!(page, "D gone.txt\nM old.txt\nP sub\nA sub/new\nA sub/new/f\n");
    let applied = stage.run(&["apply", "--layer", "a"]);
    assert_eq!(applied.status.code(), Some(0), "{}", applied.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "one\ntwo\n");
    assert!(!stage.path("project/gone.txt").exists());
    assert_eq!(fs::read_to_string(stage.path("project/sub/new/f")).unwrap(), "n\n");
    // One is left, so it need not be named.
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A other.txt\n");
    assert_eq!(stage.run(&["discard", "--yes"]).status.code(), Some(0));
    assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n");
}

/// Two at once do not see each other's changes, and neither is refused.
#[test]
fn two_runs_at_once_have_a_layer_each() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    let script = "echo first > first; echo ready; cat";
    let mut first = stage.command(&["exec", "--yes", "--", "sh", "-c", script]);
    first.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut first = first.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(first.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    let second = stage.run(&["exec", "--yes", "--", "sh", "-c", "test ! -e first; echo second > second"]);
    assert_eq!(second.status.code(), Some(0), "{}", second.stderr);
    assert!(second.stderr.contains("belljar apply a --layer a-2"), "{}", second.stderr);
    let busy = stage.run(&["diff", "--layer", "a"]);
    assert_eq!(busy.status.code(), Some(2));
    assert!(busy.stderr.contains("the changes `a` are in use"), "{}", busy.stderr);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    for (name, file) in [("a", "first"), ("a-2", "second")] {
        let found = stage.run(&["apply", "--layer", name]);
        assert_eq!(found.stdout, format!("applied {file}\n"), "{}", found.stderr);
    }
}

/// A program that saves by renaming makes a file of the layer anew in a later run. It is still a change to what the project
/// was when the first run began, so the user's own change in between is not overwritten.
#[test]
fn a_later_run_does_not_hide_that_the_project_changed_before_it() {
    require!(Bwrap);
    let stage = overlaid("echo agent > old.txt");
    stage.write("project/old.txt", "mine\n");
    let script = "echo more > new; cat old.txt >> new; mv new old.txt";
    let again = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
    assert_eq!(again.status.code(), Some(0), "{}", again.stderr);
    let refused = stage.run(&["apply"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(fs::read_to_string(stage.path("project/old.txt")).unwrap(), "mine\n");
}

/// A version with one overlay for each project left its changes in another place.
#[test]
fn changes_of_an_earlier_version_are_taken_over() {
    require!(Bwrap);
    let stage = overlaid("echo agent > old.txt; echo new > new.txt");
    let instance = fs::read_dir(stage.path("data/belljar/instances")).unwrap();
    let instance =
        instance.map(|entry| entry.unwrap().path()).find(|path| path.join("layers").exists()).unwrap();
    fs::rename(instance.join("layers/a/project"), instance.join("overlay")).unwrap();
    fs::remove_dir_all(instance.join("layers")).unwrap();
    for gone in ["bases", "git-refs", "git-index"] {
        fs::remove_file(instance.join("overlay").join(gone)).ok();
    }
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A new.txt\nM old.txt\n");
    let done = stage.run(&["apply"]);
    assert_eq!((done.status.code(), done.stdout.as_str()), (Some(0), "applied new.txt\napplied old.txt\n"));
    assert!(!instance.join("overlay").exists());
}

/// The project is gone, and what an agent did for it is not.
#[test]
fn gc_does_not_remove_changes_that_were_never_applied() {
    require!(Bwrap);
    let stage = overlaid("echo agent > old.txt");
    fs::rename(stage.path("project"), stage.path("moved")).unwrap();
    let gc = |args: &[&str]| stage.finish(stage.command(args).current_dir(stage.path("moved")));
    let kept = gc(&["gc"]);
    assert!(kept.stderr.contains("neither applied nor discarded"), "{kept:?}");
    fs::rename(stage.path("moved"), stage.path("project")).unwrap();
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "M old.txt\n");
    assert_eq!(stage.run(&["discard", "--yes"]).status.code(), Some(0));
    fs::rename(stage.path("project"), stage.path("moved")).unwrap();
    let removed = gc(&["gc"]);
    assert!(removed.stdout.contains("removed the instance of"), "{removed:?}");
}
