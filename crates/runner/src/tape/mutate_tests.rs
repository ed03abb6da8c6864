use super::*;
use belljar_contract::decode::{Faults, Node};
use belljar_contract::{FileKind, Lane, Metrics, Whole};
use belljar_verdict::parse_checks;
use serde_json::json;

fn file(text: &str) -> FileSeen {
    let (bytes, body) = (text.len() as u64, text.as_bytes().to_vec());
    FileSeen { kind: FileKind::File, bytes, digest: Some(Digest::of(&body)), kept: None, body: Some(body) }
}

fn with_files(all: &[(&str, &str)]) -> Evidence {
    let after = all.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect();
    let files = FilesSeen { after, visible: vec!["outputs".to_owned()], ..FilesSeen::default() };
    Evidence {
        model: belljar_contract::ModelEvidence::NotKept,
        seen: Vec::new(),
        conversation: Whole::Yes,
        end: Some(ended()),
        egress: None,
        files: Some(files),
        metrics: Metrics::default(),
        duration_ms: None,
        stopped_by: None,
        isolation: belljar_contract::RunIsolation::Sealed,
        claims: Vec::new(),
        lane: Lane::Local,
    }
}

fn ended() -> belljar_contract::ConversationEnd {
    serde_json::from_value(json!({
        "failure": null, "exit": {"code": 0}, "results": 1, "failed_results": 0, "last": null, "unanswered": [],
        "untaken": [], "running_sub_agents": 0, "unread": 0, "flaws": 0,
    }))
    .unwrap()
}

fn checks(items: Value) -> Checks {
    let items = Node::of_value(&items);
    parse_checks(items.items().unwrap(), &[], Lane::Local, &mut Faults::new(0, "")).unwrap()
}

#[test]
fn a_change_leaves_the_rest_of_a_document_as_it_is() {
    let text = "{\"a\": [1, {\"b/c\": \"x\\\"y\"}],\n  \"d\": null, \"e\": true,\"f\": 1.5e3}";
    let edits = in_json(text);
    let places: Vec<&str> = edits.iter().map(|edit| edit.place.as_str()).collect();
    assert_eq!(places, ["/a/0", "/a/1/b~1c", "/d", "/e", "/f"]);
    for edit in &edits {
        let changed: Value = serde_json::from_str(&edit.carried_out(text)).unwrap();
        let original: Value = serde_json::from_str(text).unwrap();
        assert_ne!(changed.pointer(&edit.place), original.pointer(&edit.place), "{edit:?}");
        let outside = text.len() - edit.at.len() + edit.to.len();
        assert_eq!(edit.carried_out(text).len(), outside);
    }
}

#[test]
fn what_no_check_looks_at_is_listed() {
    let evidence = with_files(&[
        ("outputs/r.json", "{\"rows\": 3, \"note\": \"fine\"}"),
        ("outputs/n.txt", "one\n\ntwo\n"),
    ]);
    let found = mutate(
        &evidence,
        &checks(json!([{"artifact_json": {"artifact": "outputs/r.json", "path": "rows", "equals": 3}}])),
    );
    let places: Vec<(&str, &str)> =
        found.unnoticed.iter().map(|one| (one.what.as_str(), one.place.as_str())).collect();
    assert_eq!(found.tried, 4);
    assert_eq!(
        places,
        [("outputs/n.txt", "line 1"), ("outputs/n.txt", "line 3"), ("outputs/r.json", "/note")]
    );
    let all = json!([
        {"artifact_json": {"artifact": "outputs/r.json", "path": "rows", "equals": 3}},
        {"artifact_json": {"artifact": "outputs/r.json", "path": "note", "equals": "fine"}},
        {"artifact_text": {"artifact": "outputs/n.txt", "contains": ["one", "two"]}},
    ]);
    let found = mutate(&evidence, &checks(all));
    assert_eq!((found.tried, found.unnoticed), (4, Vec::new()));
}

#[test]
fn there_are_so_many_and_always_the_same() {
    let long = "line\n".repeat(200);
    let names: Vec<String> = (0..9).map(|number| format!("outputs/{number}.txt")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
    let none = checks(json!([{"result": "success"}]));
    let found = mutate(&with_files(&all), &none);
    assert_eq!(found.tried, ALL);
    assert_eq!(found, mutate(&with_files(&all), &none));
    let found = mutate(&with_files(&all[..1]), &none);
    assert_eq!(found.tried, EACH);
    let [left] = found.not_checkable.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (left.what.as_str(), left.why.as_str()),
        ("outputs/0.txt", "10 of its 200 places were changed")
    );
}

#[test]
fn what_no_check_could_notice_is_listed_with_the_reason() {
    let mut evidence = with_files(&[("outputs/a.bin", "x"), ("outputs/b.txt", "x")]);
    let after = &mut evidence.files.as_mut().unwrap().after;
    after.get_mut("outputs/a.bin").unwrap().body = Some(vec![0xff, 0xfe]);
    after.get_mut("outputs/b.txt").unwrap().body = None;
    let found = mutate(&evidence, &checks(json!([{"result": "success"}])));
    let left: Vec<(&str, &str)> =
        found.not_checkable.iter().map(|one| (one.what.as_str(), one.why.as_str())).collect();
    assert_eq!((found.tried, left.len()), (0, 2));
    assert_eq!(left, [("outputs/a.bin", "it is not text"), ("outputs/b.txt", "its content was not kept")]);
}
