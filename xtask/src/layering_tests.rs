use serde_json::{Value, json};

use super::{described, judge, unused};

/// A crate and its dependencies, each `(name, kind)`.
type Crate<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

/// The `cargo metadata` of a workspace.
fn workspace(crates: &[Crate<'_>]) -> Value {
    let packages: Vec<Value> = crates
        .iter()
        .map(|(name, dependencies)| {
            let dependencies: Vec<Value> =
                dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
            json!({ "name": name, "dependencies": dependencies })
        })
        .collect();
    json!({ "packages": packages })
}

fn faults(crates: &[Crate<'_>]) -> Vec<String> {
    judge(&workspace(crates)).unwrap()
}

#[test]
fn allowed_edges_pass() {
    let found = faults(&[
        ("belljar-contract", &[("serde", None), ("belljar-testkit", Some("dev"))]),
        ("belljar-sys", &[("libc", None)]),
        ("belljar-sandbox", &[("belljar-contract", None), ("belljar-sys", None)]),
        ("belljar-runner", &[("belljar-sandbox", None), ("tokio", None)]),
        ("belljar-cli", &[("belljar-runner", None), ("clap", None)]),
        ("belljar-testkit", &[("serde_json", None)]),
        ("xtask", &[("belljar-contract", None)]),
    ]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn forbidden_edge_names_both_ends_and_the_reason() {
    let found = faults(&[("belljar-egress", &[("belljar-record", None)]), ("belljar-record", &[])]);
    assert_eq!(
        found,
        [
            "`egress` must not depend on `record` (dependency): sandbox, egress, session and record meet only in runner"
        ]
    );
}

#[test]
fn forbidden_edge_of_the_tests_and_of_the_build_is_found_too() {
    let found = faults(&[
        ("belljar-plan", &[("belljar-runner", Some("dev"))]),
        ("belljar-guest", &[("belljar-runner", Some("build"))]),
        ("belljar-runner", &[]),
    ]);
    assert_eq!(
        found,
        [
            "`plan` must not depend on `runner` (dev-dependency): it turns text into data and acts on nothing",
            "`guest` must not depend on `runner` (dependency): it runs inside the sandbox and stays small",
        ]
    );
}

#[test]
fn testkit_is_for_tests_only() {
    let found = faults(&[("belljar-session", &[("belljar-testkit", None)]), ("belljar-testkit", &[])]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("`session` must not depend on `testkit` (dependency)"), "{found:?}");
}

#[test]
fn the_program_is_the_cli_ring() {
    let found = faults(&[("belljar", &[("belljar-sandbox", None)]), ("belljar-sandbox", &[])]);
    assert_eq!(
        found,
        [
            "`cli` must not depend on `sandbox` (dependency): whatever the command line can do, the library can do"
        ]
    );
}

#[test]
fn unknown_crate_fails() {
    let found = faults(&[("belljar-utils", &[])]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`utils` is not in the table"), "{found:?}");
}

#[test]
fn pure_crate_must_not_bring_the_world_in() {
    let found = faults(&[
        ("belljar-verdict", &[("tokio", None), ("serde", None)]),
        ("belljar-report", &[("clap", Some("dev"))]),
        ("belljar-egress", &[("tokio", None)]),
    ]);
    assert_eq!(
        found,
        [
            "`verdict` must not depend on `tokio`, it is pure: it judges a run read from disk as it judges a live one",
            "`report` must not depend on `clap`, it is pure: it renders what was judged and judges nothing itself",
        ]
    );
}

#[test]
fn invalid_metadata_is_an_error() {
    assert!(judge(&json!({})).is_err());
    assert!(judge(&json!({ "packages": [{}] })).is_err());
}

#[test]
fn an_allowed_edge_that_no_crate_has_is_found() {
    let metadata = workspace(&[("belljar-plan", &[("serde", None)]), ("belljar-sys", &[("libc", None)])]);
    assert_eq!(
        unused(&metadata).unwrap(),
        ["`plan` does not depend on `contract`; remove it from xtask/src/layering.rs"]
    );
}

#[test]
fn a_guide_that_shows_another_table_is_found() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CONTRIBUTING.md")).unwrap();
    assert_eq!(described(&guide), None);
    let other = guide.replace("egress    contract\n", "egress    contract, record\n");
    assert!(described(&other).is_some());
}
