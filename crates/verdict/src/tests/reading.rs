//! What is read, what is refused, and how that is said.

use super::read;
use crate::check::keys;
use crate::{REFUSED, reference, schema};
use belljar_contract::{Diagnostic, Lane};
use serde_json::{Value, json};

fn faults(assert: Value) -> Vec<(String, Diagnostic)> {
    read(&assert, &[], Lane::Local).err().unwrap_or_else(|| panic!("{assert} was read"))
}

#[test]
fn faults_have_a_place_and_say_how_to_fix_them() {
    for (item, pointer, message, help) in [
        (json!({}), "", "the check is empty", ""),
        (json!("tool_called"), "", "expected a check, found a string", "- tool_called: Bash"),
        (json!({"tool_caled": "x"}), "/tool_caled", "no check `tool_caled`", "did you mean `tool_called`?"),
        (json!({"zzzzzz": "x"}), "/zzzzzz", "no check `zzzzzz`", "checks.md"),
        (json!({"tool_called": ""}), "/tool_called", "found an empty one", ""),
        (json!({"tool_called": "Ba.*"}), "/tool_called", "found a regular expression", "`*`"),
        (json!({"tool_called": "A|B"}), "/tool_called", "found a regular expression", "`*`"),
        (
            json!({"tool_called": "x".repeat(257)}),
            "/tool_called",
            "has 257 bytes, more than the maximum of 256",
            "",
        ),
        (json!({"tool_called": 5}), "/tool_called", "expected the name of a tool, found a number", ""),
        (json!({"transcript_matches": "(?=x)"}), "/transcript_matches", "look-around", "two rules"),
        (json!({"transcript_matches": "(a)\\1"}), "/transcript_matches", "backreferences", "alternatives"),
        (json!({"transcript_matches": ""}), "/transcript_matches", "matches every text", ""),
        (json!({"transcript_contains": ""}), "/transcript_contains", "found an empty one", ""),
        (json!({"compaction_occurred": false}), "/compaction_occurred", "`true` only", "leave the key out"),
        (json!({"result": "ok"}), "/result", "expected a result, found `ok`", "write `success` or `error`"),
        (json!({"tool_calls_max": -1}), "/tool_calls_max", "whole number from 0, found -1", ""),
        (json!({"max_cost_usd": -0.5}), "/max_cost_usd", "a number from 0, found -0.5", ""),
        (json!({"file_exists": "../x"}), "/file_exists", "`..`", "relative to the workspace"),
        (json!({"file_exists": "/etc/passwd"}), "/file_exists", "is absolute", "outputs/report.md"),
        (json!({"file_exists": "."}), "/file_exists", "names no file", ""),
        (json!({"artifact_json": {"artifact": "a/../../b"}}), "/artifact_json/artifact", "`..`", ""),
        (
            json!({"artifact_json": {"artifact": "a", "pth": "x"}}),
            "/artifact_json/pth",
            "unknown key `pth` in `artifact_json`",
            "did you mean `path`?",
        ),
        (
            json!({"artifact_json": {"path": "x"}}),
            "/artifact_json",
            "lacks `artifact`",
            "below the workspace",
        ),
        (json!({"artifact_json": {"artifact": "a", "path": "x..y"}}), "/artifact_json", "empty", ""),
        (
            json!({"artifact_json": {"artifact": "a", "absent": true, "equals": 1}}),
            "/artifact_json",
            "`absent`",
            "",
        ),
        (json!({"artifact_text": {"artifact": "a"}}), "/artifact_text", "is needed", ""),
        (
            json!({"artifact_text": {"artifact": "/a", "contains": "x"}}),
            "/artifact_text/artifact",
            "absolute",
            "",
        ),
        (json!({"no_unexpected_files": ["a", "a**b"]}), "/no_unexpected_files/1", "whole part", "a/**/b"),
        (
            json!({"no_unexpected_files": ["*.{md,txt}"]}),
            "/no_unexpected_files/0",
            "braces",
            "one path for each",
        ),
        (json!({"input_unmodified": []}), "/input_unmodified", "at least one item", ""),
        (json!({"question_options": {}}), "/question_options", "`equals` and `contains`", ""),
        (json!({"egress_denied": "https://x.example"}), "/egress_denied", "found a URL", "example.org"),
        (json!({"egress_denied": "x.example:80"}), "/egress_denied", "host name", "example.org"),
        (
            json!({"semantic_matches": {"rubric": ["a"], "min_pass": 2}}),
            "/semantic_matches",
            "more than the 1",
            "",
        ),
        (
            json!({"semantic_matches": {"rubric": ["a"], "min_pass": 0}}),
            "/semantic_matches/min_pass",
            "found 0",
            "",
        ),
        (json!({"semantic_matches": {"rubric": []}}), "/semantic_matches/rubric", "at least one item", ""),
        (json!({"self_heal_ran": true}), "/self_heal_ran", "`self_heal_ran` is refused", "tool_called"),
    ] {
        let found = faults(json!([item]));
        let [(at, fault)] = found.as_slice() else { panic!("{item}: {found:?}") };
        assert_eq!(*at, format!("/0/0{pointer}"), "{item}");
        assert!(fault.message.contains(message), "{item}: {fault:?}");
        let label = &fault.label.as_ref().unwrap().text;
        assert!(format!("{label} {:?}", fault.help).contains(help), "{item}: {fault:?}");
    }
}

#[test]
fn every_fault_is_found_at_once() {
    let found = faults(json!([
        {"tool_called": "", "file_exists": "/x"},
        {"result": "success"},
        {"artifact_text": {"artifact": "..", "matches": "("}},
        {"nothing_known": 1},
    ]));
    let pointers: Vec<&str> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
    let wanted = [
        "/0/0/tool_called",
        "/0/0/file_exists",
        "/0/2/artifact_text/artifact",
        "/0/2/artifact_text/matches",
        "/0/3/nothing_known",
    ];
    assert_eq!(pointers, wanted);
}

#[test]
fn what_cannot_hold_together_is_refused() {
    for (assert, path) in [
        (json!([{"questions_count_max": 0}, {"question_asked": "x"}]), "/0/1/question_asked"),
        (
            json!([{"question_options": {"equals": ["a"]}}, {"questions_count_max": 0}]),
            "/0/1/questions_count_max",
        ),
        (json!([{"questions_count_max": 0, "gate_answer_count_min": 1}]), "/0/0/gate_answer_count_min"),
        (
            json!([{"questions_count_max": 0}, {"gate_answers_delivered": false}]),
            "/0/1/gate_answers_delivered",
        ),
        (json!([{"hook_blocked": "x"}, {"no_hook_blocked": true}]), "/0/1/no_hook_blocked"),
        (
            json!([{"no_delete_in_outputs": true}, {"allow_outputs_delete": true}]),
            "/0/1/allow_outputs_delete",
        ),
        (
            json!([{"allow_delete_in": ["outputs"]}, {"no_delete_in_outputs": true}]),
            "/0/1/no_delete_in_outputs",
        ),
        (json!([{"result": "success"}, {"result": "error"}]), "/0/1/result"),
        (json!([{"tool_called": "Bash"}, {"tool_not_called": "Bash"}]), "/0/1/tool_not_called"),
        (json!([{"tool_not_called": "Bash"}, {"subagent_tool_used": "Bash"}]), "/0/1/subagent_tool_used"),
        (json!([{"tool_calls_max": 0}, {"tool_called": "Bash"}]), "/0/1/tool_called"),
        (json!([{"dispatch_count_max": 0}, {"subagent_dispatched": "x"}]), "/0/1/subagent_dispatched"),
        (json!([{"file_exists": "outputs/a"}, {"file_absent": "outputs/a"}]), "/0/1/file_absent"),
        (json!([{"skill_triggered": "a", "no_skill_triggered": "a"}]), "/0/0/no_skill_triggered"),
    ] {
        let found = faults(assert.clone());
        assert_eq!(found.len(), 1, "{assert}: {found:?}");
        let (pointer, fault) = &found[0];
        assert_eq!(pointer, path);
        assert!(fault.message.contains("cannot both hold"));
        assert_eq!(fault.related.len(), 1, "the other is shown");
    }
    for fine in [
        json!([{"questions_count_max": 0}, {"gate_answers_delivered": true}]),
        json!([{"questions_count_max": 1}, {"question_asked": "x"}]),
        json!([{"allow_delete_in": ["project"]}, {"no_delete_in_outputs": true}]),
        json!([{"result": "success"}, {"result": "success"}]),
        json!([{"tool_called": "Bash"}, {"tool_not_called": "Write"}]),
        json!([{"tool_calls_max": 1}, {"tool_called": "Bash"}]),
        json!([{"transcript_contains": "a"}, {"transcript_not_contains": "b"}]),
    ] {
        assert!(read(&fine, &[], Lane::Local).is_ok(), "{fine}");
    }
}

#[test]
fn the_lane_and_the_hosts_count() {
    for item in [json!({"file_absent": "a"}), json!({"user_visible_artifact": "a"})] {
        assert!(read(&json!([item]), &[], Lane::Local).is_ok());
        let found = read(&json!([item]), &[], Lane::Remote).unwrap_err();
        assert!(found[0].1.message.contains("`lane: remote`"), "{found:?}");
    }
    let checks = read(&json!([]), &["evil.example"], Lane::Local).unwrap();
    assert_eq!(checks.explain()[0].place, "expect_denied[0]");
    assert_eq!(checks.explain()[0].key, "egress_denied");
    let found = read(&json!([]), &["a b"], Lane::Local).unwrap_err();
    assert_eq!(found[0].0, "/1/0");
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
    // The format has seventy-seven, and no key of it is forgotten; belljar may have more.
    assert!(names.len() >= 77, "{}", names.len());
}

#[test]
fn claims_are_listed_once() {
    let rubric = json!({"semantic_matches": {"rubric": ["a", "b"]}});
    let other = json!({"semantic_matches": {"rubric": ["b"], "include_subagent_text": true}});
    let checks = read(&json!([rubric, rubric, other]), &[], Lane::Local).unwrap();
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
    match read(assert, &[], Lane::Local) {
        Ok(checks) => {
            let judgement = checks.judge(&super::made::nothing());
            assert_eq!(judgement.checks.len(), checks.len());
        }
        Err(faults) => assert!(!faults.is_empty()),
    }
}
