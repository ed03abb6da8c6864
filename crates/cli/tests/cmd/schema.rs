//! `belljar schema`.

use crate::stage::Stage;
use std::fs;
use std::path::Path;

#[test]
fn every_published_schema_is_printed() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    for (kind, file) in [
        ("manifest", "belljar.schema.json"),
        ("scenario", "scenario.schema.json"),
        ("session", "session.schema.json"),
        ("answer-policy", "answer-policy.schema.json"),
        ("script", "script.schema.json"),
        ("output", "output.schema.json"),
        ("upgrade-report", "upgrade-report.schema.json"),
    ] {
        let found = Stage::new().run(&["schema", kind]);
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert_eq!(found.stdout, fs::read_to_string(published.join(file)).unwrap(), "{kind}");
    }
}

#[test]
fn an_unknown_kind_is_an_error_that_names_the_known_ones() {
    let found = Stage::new().run(&["schema", "scenarios"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(
        found.stderr.contains("manifest, scenario, session, answer-policy, script, output, upgrade-report"),
        "{}",
        found.stderr
    );
}
