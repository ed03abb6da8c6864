//! Frames beside what the gateway served: honest ones agree, and one that was touched does not.

use super::made::{nothing, went};
use super::{checks, result};
use crate::compare::differences;
use belljar_contract::{
    Conclusion, EGRESS_NOT_DIALLED, EgressRow, EgressWay, Evidence, ExchangeEnd, FrameSeen, ModelAnswer,
    ModelEvidence, ModelExchange, ModelItem, ModelRequest, Outcome, ServedBlock, ServedMessage, frames_chain,
    input_digests, input_forms, read_frames, text_digest,
};
use serde_json::{Value, json};

/// Frames, each with its direction.
type Frames = Vec<(&'static str, Value)>;

fn read(frames: &Frames) -> Vec<FrameSeen> {
    let line = |(at, (way, frame)): (usize, &(&str, Value))| {
        format!("{}\n", json!({"offset_ms": at as u64 * 10 + 10, "way": way, "frame": frame}))
    };
    let lines: Vec<String> = frames.iter().enumerate().map(line).collect();
    let head = lines.iter().fold(None, |head, line| Some(frames_chain(head, line.as_bytes())));
    read_frames(&lines.concat(), head.unwrap()).unwrap()
}

fn prompt(text: &str) -> (&'static str, Value) {
    ("out", json!({"type": "user", "message": {"role": "user", "content": text}}))
}

fn spoken(message: &str, parent: Value, block: Value) -> (&'static str, Value) {
    let message = json!({"id": message, "content": [block]});
    ("in", json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": parent, "message": message}))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn called(call: &str, tool: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": call, "name": tool, "input": input})
}

fn returned(call: &str, parent: Value, text: &str, is_error: bool) -> (&'static str, Value) {
    let content =
        json!([{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}]);
    (
        "in",
        json!({"type": "user", "session_id": "s", "parent_tool_use_id": parent, "message": {"content": content}}),
    )
}

fn ended(text: &str, turns: u64) -> (&'static str, Value) {
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": turns, "result": text,
        "stop_reason": "end_turn", "session_id": "s"});
    ("in", result)
}

fn bash(command: &str) -> Value {
    json!({"command": command, "description": "x"})
}

/// An exchange of the agent itself with all its history.
fn exchange(
    at_ms: u64,
    items: Vec<ModelItem>,
    message: &str,
    stop: &str,
    blocks: Vec<ServedBlock>,
) -> ModelExchange {
    let request = ModelRequest { session: Some("s".to_owned()), items, ..ModelRequest::default() };
    let message = ServedMessage { id: message.to_owned(), stop: Some(stop.to_owned()), blocks };
    let answer = ModelAnswer { status: Some(200), end: ExchangeEnd::Complete, message: Some(message) };
    ModelExchange { at_ms, request, answer: Some(answer) }
}

fn of_agent(mut exchange: ModelExchange, agent: &str) -> ModelExchange {
    exchange.request.agent = Some(agent.to_owned());
    exchange
}

fn sent_text(text: &str) -> ServedBlock {
    ServedBlock::Text { text: text_digest(text), open: None }
}

fn sent_call(call: &str, tool: &str, input: &Value) -> ServedBlock {
    let input = input_forms(tool, input.as_object().unwrap());
    ServedBlock::ToolUse { call: call.to_owned(), tool: tool.to_owned(), input }
}

fn user(text: &str) -> ModelItem {
    ModelItem::Text { text: text_digest(text) }
}

fn said(text: &str) -> ModelItem {
    ModelItem::Said { text: text_digest(text) }
}

fn call(call: &str, input: &Value) -> ModelItem {
    ModelItem::Called { call: call.to_owned(), input: input_digests(input.as_object().unwrap()) }
}

fn received(call: &str, text: &str, is_error: bool) -> ModelItem {
    ModelItem::Returned { call: call.to_owned(), text: text_digest(text), bare: None, is_error }
}

/// A conversation with parallel calls, a sub-agent and a last word.
fn honest() -> (Frames, Vec<ModelExchange>) {
    let (one, two, task) = (bash("echo one"), bash("cd /workspace && false"), json!({"prompt": "do it"}));
    let frames = vec![
        prompt("go"),
        spoken("m1", Value::Null, text("I look.")),
        spoken("m1", Value::Null, called("c1", "Bash", one.clone())),
        spoken("m1", Value::Null, called("c2", "Bash", bash("false"))),
        returned("c1", Value::Null, "one", false),
        returned("c2", Value::Null, "Exit code 1", true),
        spoken("m2", Value::Null, called("c3", "Agent", task.clone())),
        spoken("m3", json!("c3"), called("c4", "Bash", one.clone())),
        returned("c4", json!("c3"), "one", false),
        returned("c3", Value::Null, "sub done", false),
        spoken("m5", Value::Null, text("Done.")),
        ended("Done.", 4),
    ];
    let first = vec![user("go")];
    let mut second = first.clone();
    second.extend([said("I look."), call("c1", &one), call("c2", &bash("false"))]);
    second.extend([received("c1", "one", false), received("c2", "Exit code 1", true)]);
    let mut last = second.clone();
    last.extend([call("c3", &task), received("c3", "sub done", false)]);
    let sub = vec![user("do it"), call("c4", &one), received("c4", "one", false)];
    let blocks = vec![sent_text("I look."), sent_call("c1", "Bash", &one), sent_call("c2", "Bash", &two)];
    let exchanges = vec![
        exchange(1, first, "m1", "tool_use", blocks),
        exchange(2, second, "m2", "tool_use", vec![sent_call("c3", "Agent", &task)]),
        of_agent(
            exchange(3, vec![user("do it")], "m3", "tool_use", vec![sent_call("c4", "Bash", &one)]),
            "a1",
        ),
        of_agent(exchange(4, sub, "m4", "end_turn", vec![sent_text("sub done")]), "a1"),
        exchange(5, last, "m5", "end_turn", vec![sent_text("Done.")]),
    ];
    (frames, exchanges)
}

fn found(frames: &Frames, exchanges: &[ModelExchange]) -> Vec<String> {
    differences(&read(frames), exchanges, None)
}

#[test]
fn an_honest_conversation_agrees() {
    let (frames, exchanges) = honest();
    assert_eq!(found(&frames, &exchanges), [""; 0]);
}

#[test]
fn frames_that_were_forged_repeated_or_moved_differ() {
    type Touch = fn(&mut Frames);
    let cases: &[(&str, Touch, &str)] = &[
        (
            "a call that the model did not make",
            |f| f.insert(4, spoken("m9", Value::Null, called("c9", "Skill", json!({"skill": "x"})))),
            "frames.jsonl:5: the message m9",
        ),
        (
            "a call in a served message",
            |f| f.insert(4, spoken("m1", Value::Null, called("c9", "Skill", json!({"skill": "x"})))),
            "more blocks",
        ),
        (
            "a text in a served message",
            |f| f.insert(11, spoken("m5", Value::Null, text("forged"))),
            "more blocks",
        ),
        (
            "another input",
            |f| f[2].1["message"]["content"][0]["input"]["command"] = json!("rm -r x"),
            "input of the call c1",
        ),
        ("another tool", |f| f[2].1["message"]["content"][0]["name"] = json!("Skill"), "tool of the call c1"),
        (
            "another text",
            |f| f[1].1["message"]["content"][0]["text"] = json!("I do not look."),
            "a text of the message m1",
        ),
        ("a frame twice", |f| f.insert(3, f[2].clone()), "is not what the model sent"),
        ("blocks in another order", |f| f.swap(2, 3), "a call of the message m1"),
        ("a message after a later one", |f| f.insert(11, f[1].clone()), "again, after a later one"),
        (
            "a result of nothing",
            |f| f.insert(5, returned("c9", Value::Null, "x", false)),
            "a result of the call c9",
        ),
        ("a result before its call", |f| f.swap(3, 5), "which no frame before shows"),
        ("a result twice", |f| f.insert(6, f[5].clone()), "returned a second time"),
        (
            "another result",
            |f| f[4].1["message"]["content"][0]["content"] = json!("two"),
            "not what the model received",
        ),
        (
            "a failure hidden",
            |f| f[5].1["message"]["content"][0]["is_error"] = json!(false),
            "whether the call c2 failed",
        ),
        ("the result of another agent", |f| f[8].1["parent_tool_use_id"] = Value::Null, "of another agent"),
        (
            "the sub-agent's words as the agent's",
            |f| f[7].1["parent_tool_use_id"] = Value::Null,
            "the message m3",
        ),
        (
            "a sub-agent of nothing",
            |f| f[7].1["parent_tool_use_id"] = json!("c8"),
            "a sub-agent of the call c8",
        ),
        ("another last word", |f| f[11].1["result"] = json!("Perfect."), "the model's last"),
        ("another reason to stop", |f| f[11].1["stop_reason"] = json!("refusal"), "reason to stop"),
        ("more steps", |f| f[11].1["num_turns"] = json!(50), "more steps"),
        ("a result without an answer", |f| f.push(ended("Again.", 1)), "without an answer"),
        (
            "a result too early",
            |f| {
                f.remove(10);
            },
            "the model's last",
        ),
        (
            "a call that is not shown",
            |f| {
                f.remove(5);
                f.remove(3);
            },
            "the model sent more",
        ),
        (
            "a failure of the service",
            |f| {
                f[11].1["is_error"] = json!(true);
                f[11].1["api_error_status"] = json!(529);
            },
            "did not happen",
        ),
        (
            "a synthetic call",
            |f| {
                let mut frame = spoken("u1", Value::Null, called("c9", "Skill", json!({})));
                frame.1["message"]["model"] = json!("<synthetic>");
                f.insert(4, frame);
            },
            "more than a text",
        ),
        (
            "a question about nothing",
            |f| {
                f.insert(4, ("in", json!({"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "c9"}})))
            },
            "c9, which the model did not make",
        ),
        (
            "a task of nothing",
            |f| {
                f.insert(4, ("in", json!({"type": "system", "subtype": "task_started", "task_id": "t", "tool_use_id": "c9"})))
            },
            "c9, which the model did not make",
        ),
        ("another session", |f| f[1].1["session_id"] = json!("t"), "did not send in this conversation"),
        ("another prompt", |f| f[0] = prompt("stay"), "belongs to another conversation"),
    ];
    for (name, touch, part) in cases {
        let (mut frames, exchanges) = honest();
        touch(&mut frames);
        let found = found(&frames, &exchanges);
        assert!(found.iter().any(|line| line.contains(part)), "{name}: {found:?}");
    }
}

#[test]
fn what_the_agent_makes_itself_is_let_pass_and_vouches_for_nothing() {
    let (mut frames, exchanges) = honest();
    let mut note = spoken("u1", Value::Null, text("API Error"));
    note.1["message"]["model"] = json!("<synthetic>");
    let skill = json!({"type": "user", "isSynthetic": true, "session_id": "s", "message": {"content": [text("Base directory")]}});
    let echo = json!({"type": "user", "isReplay": true, "session_id": "s", "message": {"content": "go"}});
    let hook = json!({"type": "system", "subtype": "hook_response", "hook_event": "Stop", "hook_name": "x"});
    let stream = json!({"type": "stream_event", "event": {"type": "message_start"}});
    for frame in [note, ("in", skill), ("in", echo), ("in", hook), ("in", stream)] {
        frames.insert(6, frame);
    }
    assert_eq!(found(&frames, &exchanges), [""; 0]);
    // A message of the agent itself cannot be the model's last word.
    let last = frames.len() - 1;
    frames[last].1["result"] = json!("API Error");
    assert!(found(&frames, &exchanges)[0].contains("the model's last"));
}

#[test]
fn a_service_may_give_every_message_the_same_id() {
    let (mut frames, mut exchanges) = honest();
    for (_, frame) in frames.iter_mut().filter(|(_, frame)| frame["type"] == "assistant") {
        frame["message"]["id"] = json!("m");
    }
    for exchange in &mut exchanges {
        exchange.answer.as_mut().unwrap().message.as_mut().unwrap().id = "m".to_owned();
    }
    assert_eq!(found(&frames, &exchanges), [""; 0]);
    frames.insert(4, frames[2].clone());
    assert_ne!(found(&frames, &exchanges), [""; 0]);
}

#[test]
fn exchanges_of_another_conversation_do_not_vouch() {
    let nested = |mut exchange: ModelExchange| {
        exchange.request.session = Some("other".to_owned());
        exchange
    };
    let (mut frames, mut exchanges) = honest();
    let skill = json!({"skill": "x"});
    let served = || vec![sent_call("c9", "Skill", &skill)];
    exchanges.push(nested(exchange(6, vec![user("inner")], "m9", "tool_use", served())));
    assert_eq!(found(&frames, &exchanges), [""; 0], "a nested agent alone is no difference");
    frames.insert(11, spoken("m9", Value::Null, called("c9", "Skill", skill.clone())));
    assert!(found(&frames, &exchanges)[0].contains("m9, which the model did not send in this conversation"));
    // One that names the agent's own session, and does not go on with its conversation.
    let (_, mut exchanges) = honest();
    exchanges.push(exchange(6, vec![user("go")], "m9", "tool_use", served()));
    assert!(found(&frames, &exchanges)[0].contains("m9 belongs to another conversation"));
}

#[test]
fn an_interrupted_turn_keeps_what_came_and_a_cut_message_its_beginning() {
    let (frames, mut exchanges) = honest();
    let answer = exchanges[4].answer.as_mut().unwrap();
    answer.end = ExchangeEnd::Left;
    let message = answer.message.as_mut().unwrap();
    message.stop = None;
    message.blocks =
        vec![ServedBlock::Text { text: text_digest("Done. And"), open: Some("Done. And".to_owned()) }];
    let mut interrupted = frames[..11].to_vec();
    interrupted.push(("out", json!({"type": "control_request", "request": {"subtype": "interrupt"}})));
    interrupted.push((
        "in",
        json!({"type": "result", "is_error": true, "subtype": "error_during_execution", "session_id": "s"}),
    ));
    assert_eq!(found(&interrupted, &exchanges), [""; 0]);
    interrupted[10].1["message"]["content"][0]["text"] = json!("Done. But");
    assert!(found(&interrupted, &exchanges)[0].contains("a text of the message m5"));
    // A result that never went to the model is one of a turn that failed.
    let mut undelivered = honest();
    undelivered.1.truncate(1);
    undelivered.0.truncate(6);
    undelivered.0.push(("in", json!({"type": "result", "is_error": true, "session_id": "s"})));
    assert_eq!(found(&undelivered.0, &undelivered.1), [""; 0]);
    undelivered.0[6] = ended("I look.", 3);
    let found = found(&undelivered.0, &undelivered.1);
    assert!(found.iter().any(|line| line.contains("never went to the model")), "{found:?}");
}

#[test]
fn a_conversation_goes_on_after_it_was_made_shorter_or_cleared() {
    let (mut frames, mut exchanges) = honest();
    frames.push(("in", json!({"type": "system", "subtype": "compact_boundary", "session_id": "s"})));
    frames.push(prompt("more"));
    frames.push(spoken("m6", Value::Null, text("More.")));
    frames.push(ended("More.", 1));
    exchanges.push(exchange(
        6,
        vec![user("a summary"), user("more")],
        "m6",
        "end_turn",
        vec![sent_text("More.")],
    ));
    assert_eq!(found(&frames, &exchanges), [""; 0]);
    frames.remove(12);
    assert!(found(&frames, &exchanges)[0].contains("m6 belongs to another conversation"));
    exchanges[5].request.session = Some("t".to_owned());
    for at in [13, 14] {
        frames[at].1["session_id"] = json!("t");
    }
    assert_eq!(found(&frames, &exchanges), [""; 0], "another session begins with a message that was sent");
}

#[test]
fn a_page_was_fetched_only_where_its_host_was_reached() {
    let input = json!({"url": "https://Docs.Example/a", "prompt": "p"});
    let frames = vec![
        prompt("go"),
        spoken("m1", Value::Null, called("c1", "WebFetch", input.clone())),
        returned("c1", Value::Null, "text", false),
        spoken("m2", Value::Null, text("Done.")),
        ended("Done.", 2),
    ];
    let second = vec![user("go"), call("c1", &input), received("c1", "text", false)];
    let exchanges = vec![
        exchange(1, vec![user("go")], "m1", "tool_use", vec![sent_call("c1", "WebFetch", &input)]),
        exchange(2, second, "m2", "end_turn", vec![sent_text("Done.")]),
    ];
    let with = |decisions: &[(&str, EgressWay, bool)]| {
        differences(&read(&frames), &exchanges, went(decisions).egress.as_ref())
    };
    assert_eq!(with(&[("docs.example:443", EgressWay::Connect, true)]), [""; 0]);
    for reached in [
        &[][..],
        &[("docs.example:443", EgressWay::Connect, false)],
        &[("docs.example:443", EgressWay::Lookup, true)],
        &[("other.example:443", EgressWay::Connect, true)],
    ] {
        assert!(with(reached)[0].contains("docs.example, which was not reached"), "{reached:?}");
    }
    // Allowed is not reached: a replay without a network ends every connection before it is made.
    let ended = |failure: Option<&str>, received: u64| {
        let mut seen = went(&[("docs.example:443", EgressWay::Connect, true)]);
        for row in &mut seen.egress.as_mut().unwrap().rows {
            if let EgressRow::Finished { end, .. } = row {
                (end.failure, end.received) = (failure.map(str::to_owned), received);
            }
        }
        differences(&read(&frames), &exchanges, seen.egress.as_ref())
    };
    assert!(ended(Some(EGRESS_NOT_DIALLED), 0)[0].contains("which was not reached"));
    assert!(ended(Some("cannot connect"), 0)[0].contains("which was not reached"));
    assert_eq!(ended(Some("timed out"), 900), [""; 0], "it broke off after the page had come");
    let mut open = went(&[("docs.example:443", EgressWay::Connect, true)]).egress.unwrap();
    open.rows.pop();
    assert!(differences(&read(&frames), &exchanges, Some(&open))[0].contains("which was not reached"));
    assert!(differences(&read(&frames), &exchanges, None)[0].contains("which was not reached"));
}

/// A result in whose turn the agent did not ask the model.
fn local(text: &str) -> (&'static str, Value) {
    let result = json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": 0, "result": text,
        "session_id": "s"});
    ("in", result)
}

fn refused(at_ms: u64) -> ModelExchange {
    let request = ModelRequest { session: Some("s".to_owned()), ..ModelRequest::default() };
    let answer = ModelAnswer { status: Some(529), end: ExchangeEnd::Complete, message: None };
    ModelExchange { at_ms, request, answer: Some(answer) }
}

#[test]
fn a_result_without_the_model_is_that_of_a_command() {
    let (honest, exchanges) = honest();
    let after = |more: &[(&'static str, Value)]| {
        let frames: Frames = honest.iter().chain(more).cloned().collect();
        found(&frames, &exchanges)
    };
    let mut note = spoken("u1", Value::Null, text("Total cost: 0"));
    note.1["message"]["model"] = json!("<synthetic>");
    assert_eq!(after(&[prompt("/clear"), local("")]), [""; 0]);
    assert_eq!(after(&[prompt("/cost"), note.clone(), local("Total cost: 0")]), [""; 0]);
    for forged in [
        // No command at all, with a text and without one.
        &[prompt("more"), local("ok")][..],
        &[prompt("more"), local("")],
        &[prompt("more"), note.clone(), local("Total cost: 0")],
        // The command was an earlier turn, and it vouches once.
        &[prompt("/clear"), local(""), prompt("more"), local("")],
        &[prompt("/clear"), local(""), local("")],
        // A text that the command did not show, or that it showed in another turn.
        &[prompt("/cost"), local("ok")],
        &[prompt("/cost"), note.clone(), local(""), prompt("/cost"), local("Total cost: 0")],
        // Steps of a model that did not speak.
        &[prompt("/cost"), ended("", 1)],
    ] {
        assert_ne!(after(forged), [""; 0], "{forged:?}");
    }
    // A command that belljar sends during a turn has its turn after it; a plain message is taken up in the turn.
    let queued: Frames =
        [&honest[..5], &[prompt("also"), prompt("/clear")], &honest[5..], &[local("")]].concat();
    assert_eq!(found(&queued, &exchanges), [""; 0]);
}

#[test]
fn a_forged_success_does_not_hide_that_the_service_failed() {
    for command in ["go", "/notes now"] {
        let frames = vec![prompt(command), local("")];
        assert_ne!(found(&frames, &[refused(1)]), [""; 0], "{command}");
        let model = ModelEvidence::Kept { frames: read(&frames), exchanges: vec![refused(1)] };
        let judged = checks(&json!([{"result": "success"}])).judge(&Evidence { model, ..nothing() });
        assert_eq!(judged.conclusion, Conclusion::Unverified, "{command}");
    }
}

#[test]
fn a_command_vouches_for_no_other_turn() {
    let (mut frames, mut exchanges) = honest();
    let skill = json!({"skill": "x"});
    // A conversation of another program with another prompt, that names another session of the agent.
    frames.extend([
        prompt("/clear"),
        local(""),
        prompt("more"),
        spoken("m9", Value::Null, called("c9", "Skill", skill.clone())),
    ]);
    let last = frames.len() - 1;
    frames[last].1["session_id"] = json!("t");
    let mut other =
        exchange(6, vec![user("inner")], "m9", "tool_use", vec![sent_call("c9", "Skill", &skill)]);
    other.request.session = Some("t".to_owned());
    exchanges.push(other);
    assert!(found(&frames, &exchanges)[0].contains("m9 belongs to another conversation"));
}

#[test]
fn a_difference_is_never_green_and_names_its_frame() {
    let (mut frames, exchanges) = honest();
    let kept = |frames: &Frames| ModelEvidence::Kept { frames: read(frames), exchanges: exchanges.clone() };
    let honest = Evidence { model: kept(&frames), ..nothing() };
    assert_eq!(checks(&json!([{"result": "success"}])).judge(&honest).conclusion, Conclusion::Passed);
    frames[11].1["result"] = json!("Perfect.");
    let forged = Evidence { model: kept(&frames), ..nothing() };
    let judged = checks(&json!([{"result": "success"}])).judge(&forged);
    assert_eq!(judged.conclusion, Conclusion::Unverified);
    assert!(judged.signals.iter().any(|signal| signal.code == "frames_differ"), "{judged:?}");
    let check = result(&json!({"result": "success"}), &forged);
    assert_eq!(check.outcome, Outcome::Unknown);
    assert!(check.message.contains("frames.jsonl:12"), "{}", check.message);
    let broken = ModelEvidence::Broken { why: "model.jsonl is cut off".to_owned() };
    let judged = checks(&json!([])).judge(&Evidence { model: broken, ..nothing() });
    assert_eq!(judged.conclusion, Conclusion::Unverified);
    assert_eq!(judged.signals[0].message, "model.jsonl is cut off");
}

/// Changes the leaf of this number; gives whether there is one.
fn touch(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::Object(members) => members.values_mut().any(|member| touch(member, left)),
        Value::Array(items) => items.iter_mut().any(|item| touch(item, left)),
        leaf => {
            if *left > 0 {
                *left -= 1;
                return false;
            }
            *leaf = match leaf {
                Value::Bool(value) => json!(!*value),
                Value::Number(value) => json!(value.as_u64().unwrap_or(0) + 100),
                Value::String(text) => json!(format!("{text}~")),
                _ => json!("c1"),
            };
            true
        }
    }
}

#[test]
fn every_member_of_a_frame_counts() {
    let (frames, exchanges) = honest();
    let mut touched = 0;
    for at in 0..frames.len() {
        for number in 0.. {
            let mut frames = frames.clone();
            let before = frames[at].1.clone();
            if !touch(&mut frames[at].1, &mut { number }) {
                break;
            }
            let same = |name: &str| before.pointer(name) == frames[at].1.pointer(name);
            // The role of a prompt and the agent's word for an end say nothing further; without a result the conversation
            // has failed.
            let names = !same("/message/role") || !same("/subtype");
            if names || (before["type"] == "result" && !same("/type")) {
                continue;
            }
            touched += 1;
            assert_ne!(found(&frames, &exchanges), [""; 0], "{before} and {}", frames[at].1);
        }
    }
    assert!(touched > 60, "{touched}");
}

/// Whatever is left out, repeated, moved or changed: nothing panics.
#[test]
fn fuzz_compare() {
    bolero::check!().with_type::<Vec<(u8, u8, u8, u8)>>().for_each(|steps| {
        let (mut frames, mut exchanges) = honest();
        for (kind, at, number, count) in steps.iter().take(12) {
            let (at, number, count) = (usize::from(*at), usize::from(*number), u64::from(*count));
            let (frame, asked) = (at % frames.len().max(1), at % exchanges.len().max(1));
            match kind % 5 {
                0 if frames.len() > 1 => {
                    frames.remove(frame);
                }
                1 => frames.insert(frame, frames[number % frames.len()].clone()),
                2 => {
                    touch(&mut frames[frame].1, &mut { number });
                }
                3 if !exchanges.is_empty() => {
                    let repeats = belljar_contract::Repeated { exchange: count, items: count * 3 };
                    exchanges[asked].request.repeats = Some(repeats);
                }
                4 if !exchanges.is_empty() => {
                    exchanges.remove(asked);
                }
                _ => {}
            }
        }
        found(&frames, &exchanges);
    });
}
