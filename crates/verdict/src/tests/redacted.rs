//! Checks that look for something in texts from which values were redacted.

use super::made::*;
use super::result;
use belljar_contract::{Evidence, Observation, Outcome, SkillWay};
use serde_json::{Value, json};

const MARK: &str = "the key is [redacted:KEY], or so";

/// The outcome and its message.
fn judged(check: &Value, evidence: &Evidence) -> (Outcome, String) {
    let found = result(check, evidence);
    (found.outcome, found.message)
}

#[track_caller]
fn unknown_for_the_mark(check: &Value, evidence: &Evidence) {
    let (outcome, message) = judged(check, evidence);
    assert_eq!(outcome, Outcome::Unknown, "{check}: {message}");
    assert!(message.contains("redacted"), "{check}: {message}");
}

/// Evidence in which this text is what is searched.
type With = fn(&str) -> Evidence;

/// Checks that say that something is not in a text, each with the evidence that has the text in its place.
fn searched() -> Vec<(Value, With)> {
    let said: With = |text| talk(vec![said("Hello"), self::said(text)]);
    let back: With = |text| talk(vec![called("c1", "Bash", json!({})), returned("c1", "Bash", text)]);
    let tool: With = |text| talk(vec![called("c1", text, json!({}))]);
    let sub: With = |text| {
        let start = called("a1", "Agent", json!({"subagent_type": "r"}));
        talk(vec![start, called_by(under("a1"), "c1", text, json!({})), returned("a1", "Agent", text)])
    };
    let question: With = |text| talk(vec![asked("q1", vec![question(text, &["A", "B"])])]);
    let used: With = |text| talk(vec![began(&["Skill"], &[], &[]), skill(text, SkillWay::Tool)]);
    let file: With = |text| left(&[], &[(&format!("outputs/{text}"), b"x")]);
    let before: With = |text| {
        let files: &[(&str, &[u8])] = &[("project/in.csv", b"1"), (text, b"1")];
        left(files, files)
    };
    vec![
        (json!({"transcript_contains": "s3cret"}), said),
        (json!({"transcript_not_contains": "s3cret"}), said),
        (json!({"transcript_matches": "s\\dcret"}), said),
        (json!({"transcript_not_matches": "s\\dcret"}), said),
        (json!({"transcript_no_host_path": true}), said),
        (json!({"tool_result_contains": "s3cret"}), back),
        (json!({"tool_result_not_contains": "s3cret"}), back),
        (json!({"tool_result_matches": "s\\dcret"}), back),
        (json!({"tool_result_not_matches": "s\\dcret"}), back),
        (json!({"tool_called": "s3cret"}), tool),
        (json!({"tool_not_called": "s3cret"}), tool),
        (json!({"subagent_tool_used": "s3cret"}), sub),
        (json!({"subagent_tool_absent": "s3cret"}), sub),
        (json!({"subagent_output_contains": {"contains": "s3cret"}}), sub),
        (json!({"question_asked": "s3cret"}), question),
        (json!({"skill_triggered": "s3cret"}), used),
        (json!({"no_skill_triggered": "s3cret"}), used),
        (json!({"file_exists": "outputs/s3cret"}), file),
        (json!({"file_absent": "outputs/s3cret"}), file),
        (json!({"user_visible_artifact": "outputs/s3cret"}), file),
        (json!({"no_unexpected_files": ["outputs/*"]}), file),
        (json!({"input_unmodified": "project/*"}), before),
    ]
}

#[test]
fn what_is_not_found_beside_a_mark_is_unknown() {
    for (check, evidence) in searched() {
        let plain = judged(&check, &evidence("something else"));
        assert_ne!(plain.0, Outcome::Unknown, "{check}: {}", plain.1);
        unknown_for_the_mark(&check, &evidence(MARK));
    }
    unknown_for_the_mark(
        &json!({"file_absent": "outputs/s3cret"}),
        &left(&[], &[("outputs/[redacted name]", b"x")]),
    );
}

#[test]
fn what_is_found_beside_a_mark_is_found() {
    let said = talk(vec![said(MARK), said("see /home/ann/x")]);
    for (check, outcome) in [
        (json!({"transcript_contains": "or so"}), Outcome::Pass),
        (json!({"transcript_not_contains": "or so"}), Outcome::Fail),
        (json!({"transcript_matches": "^the"}), Outcome::Pass),
        (json!({"transcript_no_host_path": true}), Outcome::Fail),
        // Tools returned nothing, so that nothing was redacted there.
        (json!({"tool_result_not_contains": "s3cret"}), Outcome::Pass),
    ] {
        assert_eq!(judged(&check, &said).0, outcome, "{check}");
    }
}

/// A file is compared with its digest instead: its own text may look like a mark.
#[test]
fn a_file_whose_content_was_redacted_is_unknown() {
    let check = json!({"artifact_text": {"artifact": "outputs/a.txt", "not_contains": "s3cret"}});
    let mut evidence = left(&[], &[("outputs/a.txt", MARK.as_bytes())]);
    assert_eq!(judged(&check, &evidence).0, Outcome::Pass, "it was written so");
    let file = evidence.files.as_mut().unwrap().after.get_mut("outputs/a.txt").unwrap();
    file.digest = Some(belljar_contract::Digest::of(b"the key is s3cret, or so"));
    assert_eq!(judged(&check, &evidence).0, Outcome::Unknown);
}

#[test]
fn calls_that_only_look_alike_after_redaction_are_not_repeated_ones() {
    let call = |id: &str, command: &str| called(id, "Bash", json!({"command": command}));
    let both = |command: &str| -> Vec<Observation> { vec![call("c1", command), call("c2", command)] };
    let check = json!({"max_redundant_tool_calls": 0});
    assert_eq!(judged(&check, &talk(both("ls"))).0, Outcome::Fail);
    unknown_for_the_mark(&check, &talk(both("echo [redacted:KEY]")));
    assert_eq!(judged(&check, &talk([both("ls"), both("echo [redacted:KEY]")].concat())).0, Outcome::Fail);
}
