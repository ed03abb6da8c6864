use crate::container::engine;
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::Value;

fn image(stage: &Stage, args: &[&str]) -> Value {
    let mut command = stage.command(&[&["image"], args, &["--json"]].concat());
    let found = stage.finish(command.env("BELLJAR_ENGINE", engine()));
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    serde_json::from_str(&found.stdout).unwrap()
}

#[test]
fn the_image_is_made_once_and_again_when_asked() {
    require!(Podman);
    let stage = Stage::new();
    image(&stage, &["build"]);
    let again = image(&stage, &["build"]);
    assert_eq!(again["data"]["outcome"], "there");
    assert_eq!(image(&stage, &["build", "--rebuild"])["data"]["outcome"], "made");
    let list = image(&stage, &["list"]);
    let images = list["data"]["images"].as_array().unwrap();
    let current: Vec<&Value> = images.iter().filter(|image| image["current"] == true).collect();
    assert_eq!(current.len(), 1, "{list:#}");
    assert!(current[0]["name"].as_str().unwrap().starts_with("localhost/belljar/base:"));
    let pruned = image(&stage, &["prune"]);
    assert!(pruned["data"]["removed"].as_array().unwrap().iter().all(|image| image["current"] == false));
}

#[test]
fn an_engine_that_is_not_there_is_named() {
    let stage = Stage::new();
    let mut list = stage.command(&["image", "list"]);
    let found = stage.finish(list.env("BELLJAR_ENGINE", stage.path("no.sock")));
    assert_eq!(found.status.code(), Some(4), "{found:?}");
    assert!(found.stderr.contains("no.sock` cannot be reached"), "{}", found.stderr);
    assert!(found.stderr.contains("hint: start it"), "{}", found.stderr);
}
