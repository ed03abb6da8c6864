use super::*;
use serde_json::json;

fn body(session: &str, agent: &str, task: &str, day: &str, kernel: &str) -> Vec<u8> {
    let user = json!({"device_id": day, "session_id": session}).to_string();
    json!({
        "model": "m", "stream": true, "max_tokens": 10, "metadata": {"user_id": user},
        "system": [
            {"type": "text", "text": format!("x-anthropic-billing-header: cc={kernel}")},
            {"type": "text", "text": format!("- OS Version: {kernel}\n- Shell: bash"), "cache_control": {"type": "e"}},
        ],
        "messages": [
            {"role": "user", "content": format!("Today's date is {day}.")},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content":
                    format!("agentId: {agent} (use {agent})\n<usage>tokens: 5\nduration_ms: {}</usage>", day.len() + kernel.len())},
                {"type": "tool_result", "tool_use_id": "t2", "content":
                    format!("Command running in background with ID: {task}. /tmp/x/{session}/tasks/{task}.output")},
            ]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "TaskOutput", "input": {"task_id": task}}]},
        ],
    })
    .to_string()
    .into_bytes()
}

#[test]
fn differences_between_runs_are_normalised() {
    let all: Normalisers = Normaliser::defaults().into();
    let one = Canonical::of(
        &body(
            "11111111-aaaa-4aaa-8aaa-111111111111",
            "a0123456789abcdef",
            "bx8xptwmo",
            "2026-11-16",
            "Linux 6.18.4",
        ),
        &all,
    );
    let two = Canonical::of(
        &body(
            "22222222-bbbb-4bbb-8bbb-222222222222",
            "afedcba9876543210",
            "b0lld3fuj",
            "2027-01-02",
            "Linux 5.4",
        ),
        &all,
    );
    assert_eq!(canonical_json(&one.value), canonical_json(&two.value));
    assert_eq!(one.digest, two.digest);
    assert_eq!(one.ids[&(Normaliser::TaskId, 1)], "bx8xptwmo");
    assert_eq!(two.ids[&(Normaliser::AgentId, 1)], "afedcba9876543210");
    for missing in &all.built_in {
        let fewer: Vec<Normaliser> = all.built_in.iter().copied().filter(|one| one != missing).collect();
        let make = |session, agent, task, day, kernel| {
            let mut value: Value = serde_json::from_slice(&body(session, agent, task, day, kernel)).unwrap();
            let (tmp, stream) =
                if session.starts_with('1') { ("tmp.aaaaaaaaaa", true) } else { ("tmp.bbbbbbbbbb", false) };
            value["stream"] = json!(stream);
            value["messages"][0]["content"] = json!(format!("Today's date is {day}. /tmp/{tmp}"));
            if !stream {
                value["messages"][1]["content"].as_array_mut().unwrap().reverse();
                value["messages"][1]["content"][0]["cache_control"] = json!({});
            }
            Canonical::of(value.to_string().as_bytes(), &fewer.clone().into()).digest
        };
        let one = make("11111111-aaaa", "a0123456789abcdef", "bx8xptwmo", "2026-11-16", "Linux 6.18.4");
        let two = make("22222222-bbbb", "afedcba9876543210", "b0lld3fuj", "2027-01-02", "Linux 5.4");
        assert_ne!(one, two, "{} is needed", missing.name());
    }
}

#[test]
fn different_ids_stay_different() {
    let text = |one: &str, two: &str| json!({"messages": [{"content": format!("{one} {two}")}]}).to_string();
    let digest = |one, two| Canonical::of(text(one, two).as_bytes(), &Normaliser::defaults().into()).digest;
    let (a, b) = ("a0123456789abcdef", "afedcba9876543210");
    assert_eq!(digest(a, b), digest(b, a));
    assert_ne!(digest(a, b), digest(a, a));
}

#[test]
fn relevant_differences_are_kept() {
    let digest = |text: &str| {
        let body = json!({"messages": [{"content": text}]}).to_string();
        Canonical::of(body.as_bytes(), &Normaliser::defaults().into()).digest
    };
    for (one, two) in [
        ("hello", "hellp"),
        ("2026-11-16", "2026-11-17"),
        ("took 12 ms", "took 13 ms"),
        ("/tmp/report-1", "/tmp/report-2"),
        ("11111111-aaaa-4aaa-8aaa-111111111111", "22222222-bbbb-4bbb-8bbb-222222222222"),
        ("bx8xptwmo", "b0lld3fuj"),
    ] {
        assert_ne!(digest(one), digest(two), "{one}");
    }
    assert_ne!(
        Canonical::of(b"not json", &Normalisers::default()).digest,
        Canonical::of(b"nor this", &Normalisers::default()).digest
    );
}

#[test]
fn names() {
    for one in Normaliser::ALL {
        assert_eq!(Normaliser::parse(one.name()), Ok(one));
    }
    assert_eq!(Normaliser::parse("uuid"), Ok(Normaliser::Uuid));
    assert!(Normaliser::parse("uuid/2").is_err());
    assert!(!Normaliser::defaults().contains(&Normaliser::Timestamp));
}

#[test]
fn fuzz_any_body_has_one_form() {
    bolero::check!().for_each(|input: &[u8]| {
        let one = Canonical::of(input, &Normaliser::ALL.to_vec().into());
        assert_eq!(one.digest, Canonical::of(input, &Normaliser::ALL.to_vec().into()).digest);
    });
}
