use super::*;
use serde_json::json;

fn whole() -> Value {
    let body = "{\"rows\": 3}\n";
    json!({
        "cassetteVersion": 12,
        "scenario": {"name": "report", "prompt": "Report"},
        "events": [
            json!({"type": "control_request", "request_id": "q1", "request": {"subtype": "can_use_tool"}}).to_string(),
            json!({"type": "result", "subtype": "success", "is_error": false}).to_string(),
        ],
        "controlOut": [
            json!({"type": "user", "message": {"role": "user", "content": "Report"}}).to_string(),
            json!({"type": "control_response", "response": {"subtype": "success", "request_id": "q1", "response": {}}}).to_string(),
        ],
        "artifacts": [
            {"path": "outputs/report.json", "bytes": body.len(), "body": body, "encoding": "utf8",
             "sha256": Digest::of(body.as_bytes()).hex()},
            {"path": "in/big.bin", "bytes": 900_000, "sha256": Digest::of(b"big").hex(), "truncated": true,
             "truncationReason": "size"},
        ],
        "userVisibleRoots": ["outputs"],
        "preRunPaths": ["in/big.bin", "in/note.txt"],
        "preRunHashes": {"in/big.bin": Digest::of(b"big").hex()},
    })
}

fn parse(value: &Value) -> Result<Cassette, CassetteFault> {
    Cassette::parse(value.to_string().as_bytes())
}

#[track_caller]
fn refused(value: &Value, expected: &str) -> CassetteFault {
    let fault = parse(value).unwrap_err();
    assert!(fault.to_string().contains(expected), "{expected:?}: {fault}");
    fault
}

#[test]
fn a_whole_one_is_read() {
    let read = parse(&whole()).unwrap();
    assert_eq!((read.format, read.events.len(), read.sent.as_ref().map(Vec::len)), (12, 2, Some(2)));
    let files = read.files.unwrap();
    assert_eq!(files[0].body.as_deref(), Some(&b"{\"rows\": 3}\n"[..]));
    assert_eq!(
        (files[1].bytes, &files[1].body),
        (900_000, &None),
        "a body that was not kept completely is absent"
    );
    let before = read.before.unwrap();
    assert_eq!(
        (before.len(), before["in/note.txt"], before["in/big.bin"]),
        (2, None, Some(Digest::of(b"big")))
    );
}

#[test]
fn formats_are_distinguished() {
    for format in CASSETTE_FORMATS {
        let mut one = whole();
        one["cassetteVersion"] = json!(format);
        assert_eq!(parse(&one).unwrap().format, format);
    }
    let mut one = whole();
    one["cassetteVersion"] = json!(8);
    refused(&one, "format 8");
    one["cassetteVersion"] = json!(13);
    refused(&one, "a newer belljar is needed");
    one["cassetteVersion"] = json!("12");
    refused(&one, "not a cassette");
    let text = whole().to_string();
    let cut = Cassette::parse(&text.as_bytes()[..text.len() / 2]).unwrap_err();
    assert!(matches!(cut, CassetteFault::Truncated { .. }), "{cut}");
}

#[test]
fn missing_parts_are_absent_or_reported() {
    let mut one = whole();
    one["controlOut"] = Value::Null;
    one["artifacts"] = json!([]);
    one.as_object_mut().unwrap().retain(|name, _| !name.starts_with("preRun"));
    let read = parse(&one).unwrap();
    assert_eq!((read.sent, read.files, read.before), (None, None, None));
    let mut one = whole();
    one["events"] = json!([]);
    assert!(refused(&one, "no `events`").is_absence());
    let mut one = whole();
    one["controlOut"].as_array_mut().unwrap().truncate(1);
    assert!(refused(&one, "`q1` in line 1").is_absence());
    // A withdrawn question needs no answer.
    let cancel = json!({"type": "control_cancel_request", "request_id": "q1"}).to_string();
    one["events"].as_array_mut().unwrap().insert(1, json!(cancel));
    parse(&one).unwrap();
}

#[test]
fn faults_are_reported() {
    let mut one = whole();
    one["events"][1] = json!("{\"type\": \"resu");
    assert!(!refused(&one, "line 2 of `events` is malformed").is_absence());
    for (member, value, expected) in [
        ("sha256", json!("00"), "invalid sha256"),
        ("sha256", json!(Digest::of(b"other").hex()), "was edited"),
        ("bytes", json!(900), "is truncated"),
        ("body", json!("other"), "is truncated"),
        ("path", json!("../report.json"), "is not below"),
        ("path", json!("in/big.bin"), "is listed twice"),
        ("encoding", json!("rot13"), "unknown encoding"),
        ("encoding", json!("base64"), "not valid base64"),
    ] {
        let mut one = whole();
        one["artifacts"][0][member] = value;
        refused(&one, expected);
    }
}

#[test]
fn fuzz_any_cassette_is_read_or_refused() {
    let text = whole().to_string();
    bolero::check!().with_type::<(Vec<u8>, u16, u8)>().for_each(|(noise, at, byte)| {
        // Arbitrary input must not panic: first random bytes, then a valid cassette with one byte changed.
        Cassette::parse(noise).ok();
        let mut bytes = text.clone().into_bytes();
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *byte;
        if let Ok(read) = Cassette::parse(&bytes) {
            assert!(CASSETTE_FORMATS.contains(&read.format));
        }
    });
}
