//! What is read, what is refused, and how that is said.

use crate::check::keys;
use crate::{REFUSED, parse_checks, reference, schema};
use belljar_contract::{DataFault, Lane};
use serde_json::{Value, json};

fn faults(assert: Value) -> Vec<DataFault> {
    parse_checks(&assert, &[], Lane::Local).err().unwrap_or_else(|| panic!("{assert} was read"))
}

#[test]
fn faults_have_a_place_and_a_way_out() {
    for (item, path, message, help) in [
        (json!({}), "[0]", "empty", ""),
        (json!("tool_called"), "[0]", "a check is an object", "- tool_called: Bash"),
        (json!({"tool_caled": "x"}), "[0].tool_caled", "no such check", "`tool_called`"),
        (json!({"zzzzzz": "x"}), "[0].zzzzzz", "no such check", "checks.md"),
        (json!({"tool_called": ""}), "[0].tool_called", "not empty", ""),
        (json!({"tool_called": "Ba.*"}), "[0].tool_called", "looks like a pattern", "`*`"),
        (json!({"tool_called": "A|B"}), "[0].tool_called", "looks like a pattern", "`*`"),
        (json!({"tool_called": 5}), "[0].tool_called", "expected the name of a tool, found the number 5", ""),
        (json!({"transcript_matches": "(?=x)"}), "[0].transcript_matches", "look-around", "two rules"),
        (json!({"transcript_matches": "(a)\\1"}), "[0].transcript_matches", "backreferences", "alternatives"),
        (json!({"transcript_matches": ""}), "[0].transcript_matches", "fits everything", ""),
        (json!({"transcript_contains": ""}), "[0].transcript_contains", "in everything", ""),
        (
            json!({"compaction_occurred": false}),
            "[0].compaction_occurred",
            "only `true`",
            "leave the key out",
        ),
        (json!({"result": "ok"}), "[0].result", "one of `success` and `error`, found the text `ok`", ""),
        (json!({"tool_calls_max": -1}), "[0].tool_calls_max", "whole number from 0", ""),
        (json!({"file_exists": "../x"}), "[0].file_exists", "..", ""),
        (json!({"file_exists": "/etc/passwd"}), "[0].file_exists", "absolute", ""),
        (json!({"artifact_json": {"artifact": "a/../../b"}}), "[0].artifact_json.artifact", "..", ""),
        (
            json!({"artifact_json": {"artifact": "a", "pth": "x"}}),
            "[0].artifact_json.pth",
            "no such key",
            "`path`",
        ),
        (json!({"artifact_json": {"path": "x"}}), "[0].artifact_json", "`artifact` is missing", ""),
        (json!({"artifact_json": {"artifact": "a", "path": "x..y"}}), "[0].artifact_json", "empty", ""),
        (
            json!({"artifact_json": {"artifact": "a", "absent": true, "equals": 1}}),
            "[0].artifact_json",
            "`absent`",
            "",
        ),
        (json!({"artifact_text": {"artifact": "a"}}), "[0].artifact_text", "is needed", ""),
        (
            json!({"artifact_text": {"artifact": "/a", "contains": "x"}}),
            "[0].artifact_text.artifact",
            "absolute",
            "",
        ),
        (
            json!({"no_unexpected_files": ["a", "a**b"]}),
            "[0].no_unexpected_files[1]",
            "whole parts",
            "a/**/b",
        ),
        (
            json!({"no_unexpected_files": ["*.{md,txt}"]}),
            "[0].no_unexpected_files[0]",
            "braces",
            "one path for each",
        ),
        (json!({"input_unmodified": []}), "[0].input_unmodified", "empty", ""),
        (json!({"question_options": {}}), "[0].question_options", "`equals` and `contains`", ""),
        (json!({"egress_denied": "https://x.example"}), "[0].egress_denied", "no scheme", "example.org"),
        (json!({"egress_denied": "x.example:80"}), "[0].egress_denied", "host name", "example.org"),
        (
            json!({"semantic_matches": {"rubric": ["a"], "min_pass": 2}}),
            "[0].semantic_matches",
            "more than the 1",
            "",
        ),
        (json!({"semantic_matches": {"rubric": []}}), "[0].semantic_matches.rubric", "empty", ""),
        (json!({"self_heal_ran": true}), "[0].self_heal_ran", "refused", "tool_called"),
    ] {
        let found = faults(json!([item]));
        let fault = found.iter().find(|fault| fault.path == path && fault.message.contains(message));
        let fault = fault.unwrap_or_else(|| panic!("{item}: {found:?}"));
        assert!(fault.help.as_deref().unwrap_or_default().contains(help), "{item}: {fault:?}");
    }
}

#[test]
fn every_fault_is_told_at_once() {
    let found = faults(json!([
        {"tool_called": "", "file_exists": "/x"},
        {"result": "success"},
        {"artifact_text": {"artifact": "..", "matches": "("}},
        {"nothing_known": 1},
    ]));
    let paths: Vec<&str> = found.iter().map(|fault| fault.path.as_str()).collect();
    let wanted = [
        "[0].tool_called",
        "[0].file_exists",
        "[2].artifact_text.artifact",
        "[2].artifact_text.matches",
        "[3].nothing_known",
    ];
    assert_eq!(paths, wanted);
    for assert in [json!(null), json!({"result": "success"}), json!("x")] {
        assert_eq!(faults(assert)[0].path, "");
    }
}

#[test]
fn what_cannot_hold_together_is_refused() {
    for (assert, path) in [
        (json!([{"questions_count_max": 0}, {"question_asked": "x"}]), "[1].question_asked"),
        (
            json!([{"question_options": {"equals": ["a"]}}, {"questions_count_max": 0}]),
            "[1].questions_count_max",
        ),
        (json!([{"questions_count_max": 0, "gate_answer_count_min": 1}]), "[0].gate_answer_count_min"),
        (
            json!([{"questions_count_max": 0}, {"gate_answers_delivered": false}]),
            "[1].gate_answers_delivered",
        ),
        (json!([{"hook_blocked": "x"}, {"no_hook_blocked": true}]), "[1].no_hook_blocked"),
        (json!([{"no_delete_in_outputs": true}, {"allow_outputs_delete": true}]), "[1].allow_outputs_delete"),
        (
            json!([{"allow_delete_in": ["outputs"]}, {"no_delete_in_outputs": true}]),
            "[1].no_delete_in_outputs",
        ),
        (json!([{"result": "success"}, {"result": "error"}]), "[1].result"),
    ] {
        let found = faults(assert.clone());
        assert_eq!(found.len(), 1, "{assert}: {found:?}");
        assert_eq!(found[0].path, path);
        assert!(found[0].message.contains("cannot both hold"));
    }
    for fine in [
        json!([{"questions_count_max": 0}, {"gate_answers_delivered": true}]),
        json!([{"questions_count_max": 1}, {"question_asked": "x"}]),
        json!([{"allow_delete_in": ["project"]}, {"no_delete_in_outputs": true}]),
        json!([{"result": "success"}, {"result": "success"}]),
    ] {
        assert!(parse_checks(&fine, &[], Lane::Local).is_ok(), "{fine}");
    }
}

#[test]
fn the_lane_and_the_hosts_count() {
    for item in [json!({"file_absent": "a"}), json!({"user_visible_artifact": "a"})] {
        assert!(parse_checks(&json!([item]), &[], Lane::Local).is_ok());
        let found = parse_checks(&json!([item]), &[], Lane::Remote).unwrap_err();
        assert!(found[0].message.contains("remote lane"), "{found:?}");
    }
    let checks = parse_checks(&json!([]), &["evil.example".to_owned()], Lane::Local).unwrap();
    assert_eq!(checks.explain()[0].place, "expect_denied[0]");
    assert_eq!(checks.explain()[0].key, "egress_denied");
    let found = parse_checks(&json!([]), &["a b".to_owned()], Lane::Local).unwrap_err();
    assert_eq!(found[0].path, "expect_denied[0]");
}

#[test]
fn the_page_and_the_schema_have_every_key() {
    let page = reference();
    let schema = schema();
    for key in keys() {
        assert!(page.contains(&format!("### `{}`", key.name)), "{}", key.name);
        let property = &schema["properties"][key.name];
        assert!(property["description"].as_str().is_some_and(|text| text.len() > 20), "{}", key.name);
    }
    for refused in REFUSED {
        assert!(page.contains(&format!("| `{}` |", refused.key)));
        assert!(keys().all(|key| key.name != refused.key));
    }
    let mut names: Vec<&str> = keys().map(|key| key.name).chain(REFUSED.iter().map(|one| one.key)).collect();
    names.sort_unstable();
    names.dedup();
    // The format has seventy-seven, and no key of it is forgotten.
    assert_eq!(names.len(), 77);
}

#[test]
fn claims_are_told_once() {
    let rubric = json!({"semantic_matches": {"rubric": ["a", "b"]}});
    let other = json!({"semantic_matches": {"rubric": ["b"], "include_subagent_text": true}});
    let checks = parse_checks(&json!([rubric, rubric, other]), &[], Lane::Local).unwrap();
    let texts: Vec<String> = checks.claims().into_iter().map(|claim| claim.text).collect();
    assert_eq!(texts, ["a", "b", "b"]);
}

/// Whatever comes, there are checks or faults with places, in bounded time.
#[test]
fn fuzz_parse_checks() {
    let words = [
        "[{\"",
        "\":",
        "}]",
        "\"tool_called\"",
        "\"artifact_json\"",
        "\"artifact\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"..\"",
        "\"a/**\"",
        "true",
        "0",
        "-1",
        "1e308",
        "\"(\"",
        "\"rubric\"",
        "\"semantic_matches\"",
        "\"question_options\"",
        "\"equals\"",
        "\"when_question\"",
        "\"egress_denied\"",
        "\"*.x\"",
        "null",
        "\"min_pass\"",
        "\"all\"",
    ];
    let everyday = std::time::Duration::from_millis(500);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        let made: String = bytes.iter().map(|byte| words[usize::from(*byte) % words.len()]).collect();
        let texts = [std::str::from_utf8(bytes).unwrap_or_default(), &made];
        for value in texts.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok()) {
            read_or_faults(&value);
        }
        // Any value under any key.
        let value =
            serde_json::from_str(&made).unwrap_or_else(|_no_json| json!(String::from_utf8_lossy(bytes)));
        for key in keys() {
            read_or_faults(&json!([{key.name: value}]));
        }
    });
}

fn read_or_faults(assert: &Value) {
    match parse_checks(assert, &[], Lane::Local) {
        Ok(checks) => {
            let judgement = checks.judge(&super::made::nothing());
            assert_eq!(judgement.checks.len(), checks.len());
        }
        Err(faults) => assert!(!faults.is_empty() && faults.iter().all(|fault| fault.path.len() < 400)),
    }
}
