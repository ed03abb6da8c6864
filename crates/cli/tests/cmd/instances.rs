use crate::stage::Stage;
use belljar_testkit::require;

#[test]
fn a_run_makes_an_instance_that_is_listed() {
    require!(Bwrap);
    let stage = Stage::new();
    let empty = stage.json(&["instances", "--json"]);
    assert_eq!(empty["data"]["instances"], serde_json::json!([]));
    assert_eq!(stage.run(&["exec", "--", "true"]).status.code(), Some(0));
    let listed = stage.json(&["instances", "--json"]);
    let root = stage.path("project");
    assert_eq!(listed["data"]["instances"][0]["root"], root.to_str().unwrap());
    let page = stage.run(&["instances"]).stdout;
    assert!(page.contains("project"), "{page}");
}
