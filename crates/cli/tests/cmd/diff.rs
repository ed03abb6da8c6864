use crate::stage::Stage;
use belljar_testkit::require;

#[test]
fn an_agent_without_an_overlay_keeps_nothing_aside() {
    let stage = Stage::with("[agents.a]\n");
    let found = stage.run(&["diff"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(
        found.stderr.contains("the agent `a` works on the project directly and keeps no changes"),
        "{}",
        found.stderr
    );
}

#[test]
fn changes_are_shown_with_their_text_and_what_they_mean() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    stage.write("project/old.txt", "one\ntwo\n");
    stage.write("project/gone.txt", "x\n");
    let script = "echo TWO >> old.txt; rm gone.txt; echo run > .envrc; ln -s /etc/passwd out; mkdir d; echo in > d/new.txt";
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let page = stage.run(&["diff"]).stdout;
    for part in [
        "M old.txt\n",
        "+TWO\n",
        "D gone.txt\n",
        "-x\n",
        "A .envrc  ! ",
        "A out  ! a link that leads out",
        "A d/new.txt\n",
        "+in\n",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    let some = stage.run(&["diff", "--stat", "--", "./d/"]).stdout;
    assert_eq!(some, "A d\nA d/new.txt\n");
    let json = stage.json(&["diff", "--json"]);
    assert_eq!(json["data"]["changes"].as_array().unwrap().len(), 6, "{json}");
    assert_eq!(std::fs::read_to_string(stage.path("project/old.txt")).unwrap(), "one\ntwo\n");
}
