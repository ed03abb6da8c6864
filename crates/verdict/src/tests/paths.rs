//! Files behind links, and values in them.

use super::made::*;
use super::result;
use belljar_contract::{Evidence, FileKind, FileSeen, Outcome};
use serde_json::{Value, json};

fn with_links() -> Evidence {
    let mut evidence = left(
        &[],
        &[
            ("real/a.json", b"{\"k\": null, \"n\": 3, \"l\": [{\"x\": \"y\"}]}"),
            ("outputs/b", b"\xff\xfeabc"),
        ],
    );
    let after = &mut evidence.files.as_mut().unwrap().after;
    for (path, target) in [
        ("outputs/inside.json", "../real/a.json"),
        ("directory", "real"),
        ("outputs/out.json", "../../secret.json"),
        ("outputs/absolute.json", "/etc/passwd"),
        ("outputs/circle", "circle"),
        ("outputs/nowhere", "missing"),
        ("up", "outputs/../.."),
    ] {
        after.insert(path.to_owned(), link(target));
    }
    let special = FileSeen { kind: FileKind::Special, bytes: 0, digest: None, kept: None, body: None };
    after.insert("outputs/pipe".to_owned(), special);
    evidence
}

/// New files behind a link in the place of a directory that the user sees are not missed.
#[test]
fn a_link_in_the_place_of_a_visible_directory_is_unexpected() {
    for (visible, replaced) in [("outputs", "outputs"), ("work/outputs", "work")] {
        let mut evidence = left(&[], &[("zz/evil.sh", b"x")]);
        let files = evidence.files.as_mut().unwrap();
        files.visible = vec![visible.to_owned()];
        assert_eq!(result(&json!({"no_unexpected_files": []}), &evidence).outcome, Outcome::Pass);
        let files = evidence.files.as_mut().unwrap();
        files.after.insert(replaced.to_owned(), link("zz"));
        for expected in [json!([]), json!(["outputs/evil.sh"])] {
            let check = json!({ "no_unexpected_files": expected });
            assert_eq!(result(&check, &evidence).outcome, Outcome::Fail, "{check}");
        }
    }
}

#[test]
fn a_link_is_followed_inside_and_nowhere_else() {
    for (path, outcome) in [
        ("outputs/inside.json", Outcome::Pass),
        ("directory/a.json", Outcome::Pass),
        ("directory", Outcome::Pass),
        ("real", Outcome::Pass),
        ("outputs/out.json", Outcome::Fail),
        ("outputs/absolute.json", Outcome::Fail),
        ("outputs/circle", Outcome::Fail),
        ("outputs/nowhere", Outcome::Fail),
        ("outputs/pipe", Outcome::Fail),
        ("up/real/a.json", Outcome::Fail),
        ("real/a.json/x", Outcome::Fail),
    ] {
        let found = result(&json!({"file_exists": path}), &with_links());
        assert_eq!(found.outcome, outcome, "{path}: {}", found.message);
    }
    // Where it really lies decides what the user sees.
    let visible = |path: &str| result(&json!({"user_visible_artifact": path}), &with_links()).outcome;
    assert_eq!(visible("outputs/inside.json"), Outcome::Fail);
    for path in ["outputs/out.json", "outputs/absolute.json"] {
        for check in [
            json!({"artifact_text": {"artifact": path, "not_contains": "x"}}),
            json!({"artifact_json": {"artifact": path, "path": "k", "absent": true}}),
            json!({"file_absent": path}),
        ] {
            assert_eq!(result(&check, &with_links()).outcome, Outcome::Fail, "{check}");
        }
    }
}

#[test]
fn values_are_found_or_reported_missing() {
    let judge = |rest: Value| {
        let mut spec = json!({"artifact": "real/a.json"});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let found = result(&json!({"artifact_json": spec}), &with_links());
        (found.outcome, found.message)
    };
    for (rest, outcome) in [
        (json!({"path": "n"}), Outcome::Pass),
        (json!({"path": "n", "equals": 3.0}), Outcome::Pass),
        (json!({"path": "n", "equals": "3"}), Outcome::Fail),
        (json!({"path": "n", "gt": 2, "in": [1, 3]}), Outcome::Pass),
        (json!({"path": "n", "gt": 3}), Outcome::Fail),
        (json!({"path": "k", "is_null": true}), Outcome::Pass),
        (json!({"path": "k", "exists": true}), Outcome::Pass),
        (json!({"path": "k", "equals": null}), Outcome::Pass),
        (json!({"path": "k", "absent": true}), Outcome::Fail),
        (json!({"path": "z", "absent": true}), Outcome::Pass),
        (json!({"path": "z", "is_null": true}), Outcome::Fail),
        // What should hold it is not there: that is a wrong path, not an absent value.
        (json!({"path": "z.y", "absent": true}), Outcome::Fail),
        (json!({"path": "n.y", "absent": true}), Outcome::Fail),
        (json!({"path": "l.0.x", "equals": "y"}), Outcome::Pass),
        (json!({"path": "l.0", "equals": {"x": "y"}}), Outcome::Pass),
        (json!({"path": "l.1", "exists": true}), Outcome::Fail),
    ] {
        let (found, message) = judge(rest.clone());
        assert_eq!(found, outcome, "{rest}: {message}");
    }
}

#[test]
fn what_was_not_kept_is_not_known() {
    let check = json!({"artifact_text": {"artifact": "real/a.json", "contains": "k"}});
    let change = |change: &dyn Fn(&mut FileSeen)| {
        let mut evidence = with_links();
        change(evidence.files.as_mut().unwrap().after.get_mut("real/a.json").unwrap());
        result(&check, &evidence).outcome
    };
    assert_eq!(change(&|_| {}), Outcome::Pass);
    assert_eq!(change(&|file| file.body = None), Outcome::Unknown);
    assert_eq!(change(&|file| file.digest = None), Outcome::Unknown);
    // Changed behind the listing, or with a secret taken out.
    assert_eq!(change(&|file| file.body = Some(b"k is forged".to_vec())), Outcome::Unknown);
    assert_eq!(change(&|file| file.bytes = 11 * 1024 * 1024), Outcome::Unknown);
    // Bytes that are not text can hide anything.
    let judge = |spec: Value| result(&json!({"artifact_text": spec}), &with_links()).outcome;
    assert_eq!(judge(json!({"artifact": "outputs/b", "contains": "abc"})), Outcome::Pass);
    assert_eq!(judge(json!({"artifact": "outputs/b", "not_contains": "abc"})), Outcome::Fail);
    assert_eq!(judge(json!({"artifact": "outputs/b", "not_contains": "xyz"})), Outcome::Unknown);
    let mut unread = left(&[], &[]);
    unread.files.as_mut().unwrap().unread.push("outputs".to_owned());
    for check in
        [json!({"file_exists": "a"}), json!({"file_absent": "a"}), json!({"no_unexpected_files": []})]
    {
        assert_eq!(result(&check, &unread).outcome, Outcome::Unknown, "{check}");
    }
}
