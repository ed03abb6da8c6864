#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

use super::*;
use crate::Harnesses;
use crate::question::{AnswerValue, By, Chosen};
use belljar_contract::{AfterDeny, HookPermission, SkillWay};
use proptest::prelude::*;
use serde_json::json;

fn frame(value: Value) -> Inbound {
    Inbound::of(&value).unwrap()
}

fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

fn say(number: &str, text: &str) -> Command {
    Command::Say(UserMessage { id: MessageId::new(number).unwrap(), text: text.to_owned() })
}

fn allow() -> Answer {
    let value = AnswerValue::Allow { input: None, permissions: Vec::new() };
    Answer { value, by: By::Person, reason: "test".to_owned(), grant: None }
}

fn answer(request: &str, value: AnswerValue) -> Command {
    Command::Answer { request: id(request), answer: Answer { value, ..allow() } }
}

fn result(is_error: bool) -> Inbound {
    // The word says success in both cases, as the agent does when the model's service fails.
    frame(
        json!({"type": "result", "subtype": "success", "is_error": is_error, "result": "r", "session_id": "s"}),
    )
}

fn can_use(request: &str, tool: &str, input: Value) -> Inbound {
    frame(json!({"type": "control_request", "request_id": request,
        "request": {"subtype": "can_use_tool", "tool_name": tool, "input": input}}))
}

fn asked(request: &str) -> Inbound {
    can_use(request, "Bash", json!({"command": "x"}))
}

fn echo(number: &str) -> Inbound {
    frame(
        json!({"type": "user", "isReplay": true, "uuid": number, "message": {"role": "user", "content": "x"}}),
    )
}

fn cancel(request: &str) -> Inbound {
    frame(json!({"type": "control_cancel_request", "request_id": request}))
}

fn idle() -> Inbound {
    frame(json!({"type": "system", "subtype": "session_state_changed", "state": "idle"}))
}

/// A conversation in which one message was sent and taken up.
fn begun() -> Machine {
    let mut machine = Machine::new(MachineConfig::default());
    machine.on_command(say("m1", "go"));
    machine.on_frame(echo("m1"));
    machine
}

fn ending(outputs: Vec<Output>) -> ConversationEnd {
    match outputs.as_slice() {
        [Output::Ended(ending)] => ending.clone(),
        other => panic!("{other:?}"),
    }
}

fn failure(machine: &mut Machine, exit: GuestEnd) -> ConversationFailure {
    match ending(machine.on_exit(exit)).failure {
        Some(failure) => failure,
        None => panic!("a success"),
    }
}

fn sent(outputs: &[Output]) -> Vec<Value> {
    let frames = outputs.iter().filter_map(|output| match output {
        Output::Send(frame) => Some(frame.to_json()),
        _ => None,
    });
    frames.collect()
}

#[test]
fn only_a_good_result_and_a_good_exit_are_a_success() {
    let good = |frames: &[Inbound], exit| {
        let mut machine = begun();
        frames.iter().for_each(|frame| drop(machine.on_frame(frame.clone())));
        ending(machine.on_exit(exit)).failure
    };
    let failed = |frames: &[Inbound], exit, expected| {
        assert_eq!(good(frames, exit), Some(expected), "{frames:?}");
    };
    let (yes, no) = (result(false), result(true));
    let zero = GuestEnd::Code(0);
    assert_eq!(good(std::slice::from_ref(&yes), zero), None);
    assert_eq!(good(&[no.clone(), yes.clone()], zero), None);
    failed(&[], zero, ConversationFailure::NoResult);
    failed(&[], GuestEnd::Code(7), ConversationFailure::Crashed { exit: GuestEnd::Code(7) });
    failed(
        std::slice::from_ref(&yes),
        GuestEnd::Code(7),
        ConversationFailure::ExitAfterSuccess { exit: GuestEnd::Code(7) },
    );
    failed(
        std::slice::from_ref(&yes),
        GuestEnd::Signal(9),
        ConversationFailure::ExitAfterSuccess { exit: GuestEnd::Signal(9) },
    );
    let is_error = ConversationFailure::ResultIsError {
        subtype: "success".to_owned(),
        text: Some("r".to_owned()),
        api_error_status: None,
    };
    failed(std::slice::from_ref(&no), zero, is_error.clone());
    failed(&[yes.clone(), no], zero, is_error);
    let speaks =
        frame(json!({"type": "assistant", "message": {"content": [{"type": "text", "text": "more"}]}}));
    failed(&[yes.clone(), speaks], zero, ConversationFailure::TurnUnfinished { exit: zero });
    failed(&[asked("a"), yes.clone()], zero, ConversationFailure::Unanswered { count: 1 });
    let malformed = frame(json!({"type": "result", "is_error": "false"}));
    failed(&[malformed], zero, ConversationFailure::NoResult);
    assert_eq!(good(&[asked("a"), cancel("a"), yes], zero), None);
}

#[test]
fn a_message_that_was_not_taken_up_is_missed() {
    let mut machine = begun();
    machine.on_command(say("m2", "and"));
    machine.on_frame(result(false));
    assert_eq!(
        machine.on_frame(idle()).last(),
        Some(&Output::Observe(Observation::StateChanged { state: belljar_contract::SessionState::Idle }))
    );
    let ended = ending(machine.on_exit(GuestEnd::Code(0)));
    assert_eq!(ended.failure, Some(ConversationFailure::MessagesUntaken { count: 1 }));
    assert_eq!(ended.untaken, [MessageId::new("m2").unwrap()]);

    let mut machine = begun();
    machine.on_command(say("m2", "and"));
    machine.on_frame(echo("m2"));
    machine.on_frame(result(false));
    assert_eq!(machine.on_frame(idle()).last(), Some(&Output::Idle), "two messages, one turn");
    assert_eq!(ending(machine.on_exit(GuestEnd::Code(0))).failure, None);

    let mut machine = begun();
    assert_eq!(
        machine.on_command(say("m1", "x")),
        [Output::Dropped(Dropped::RepeatedMessage { message: MessageId::new("m1").unwrap() })]
    );
}

#[test]
fn messages_wait_for_the_handshake_and_so_does_the_end_of_the_input() {
    let mut machine = Machine::new(MachineConfig {
        append_system_prompt: Some("more".to_owned()),
        ..MachineConfig::default()
    });
    let greeting = machine.on_command(Command::Begin);
    assert_eq!(sent(&greeting)[0]["request"], json!({"subtype": "initialize", "appendSystemPrompt": "more"}));
    assert_eq!(machine.on_command(Command::Begin), [Output::Dropped(Dropped::Begun)]);
    assert!(machine.on_command(say("m1", "go")).is_empty());
    assert!(machine.on_command(Command::EndInput).is_empty());
    assert_eq!(machine.on_command(say("m2", "go")), [Output::Dropped(Dropped::Closed)]);
    let ready = frame(json!({"type": "control_response", "response": {"subtype": "success",
        "request_id": "belljar-1", "response": {"commands": [{"name": "clear"}], "models": [{"value": "m"}]}}}));
    let outputs = machine.on_frame(ready.clone());
    assert_eq!(sent(&outputs)[0]["message"]["content"], "go");
    assert_eq!(outputs.last(), Some(&Output::CloseInput));
    assert_eq!(machine.on_command(Command::Interrupt), [Output::Dropped(Dropped::Closed)]);
    let again = machine.on_frame(ready);
    assert!(matches!(again[..], [Output::Observe(Observation::Flawed(ProtocolFlaw::StrayResponse { .. }))]));

    let mut machine = Machine::new(MachineConfig::default());
    machine.on_command(Command::Begin);
    let refused = json!({"subtype": "error", "request_id": "belljar-1", "error": "no"});
    let outputs = machine.on_frame(frame(json!({"type": "control_response", "response": refused})));
    assert_eq!(outputs.last(), Some(&Output::Terminate));
    assert_eq!(
        failure(&mut machine, GuestEnd::Code(0)),
        ConversationFailure::HandshakeRefused { error: "no".to_owned() }
    );
}

#[test]
fn a_question_is_answered_once_and_in_any_order() {
    let mut machine = begun();
    for request in ["a", "b", "c"] {
        assert!(matches!(machine.on_frame(asked(request)).last(), Some(Output::Ask { .. })));
    }
    let repeated = machine.on_frame(asked("b"));
    assert_eq!(
        repeated,
        [Output::Observe(Observation::Flawed(ProtocolFlaw::RepeatedQuestion { request: id("b") }))]
    );
    assert_eq!(sent(&machine.on_command(answer("c", allow().value))).len(), 1);
    assert_eq!(
        machine.on_command(answer("c", allow().value)),
        [Output::Dropped(Dropped::Settled { request: id("c") })]
    );
    assert_eq!(machine.on_frame(cancel("a"))[0], Output::Withdrawn { request: id("a") });
    assert_eq!(
        machine.on_command(answer("a", allow().value)),
        [Output::Dropped(Dropped::Settled { request: id("a") })]
    );
    assert_eq!(
        machine.on_command(answer("z", allow().value)),
        [Output::Dropped(Dropped::NeverAsked { request: id("z") })]
    );
    assert_eq!(sent(&machine.on_command(answer("b", allow().value))).len(), 1);
    for settled in ["a", "b", "c"] {
        assert!(sent(&machine.on_frame(asked(settled))).is_empty(), "an old id is not asked again");
    }
    assert!(machine.on_frame(cancel("b")).is_empty(), "answer and withdrawal met on their way");
    assert_eq!(machine.pending().count(), 0);
}

#[test]
fn answers_that_would_be_misread_are_not_sent() {
    let mut machine = begun();
    let questions = json!({"questions": [
        {"question": "One?", "header": "h", "multiSelect": false, "options": [{"label": "A"}, {"label": "B"}]},
        {"question": "Many?", "header": "h", "multiSelect": true, "options": [{"label": "A"}, {"label": "B"}]}]});
    machine.on_frame(asked("tool"));
    machine.on_frame(can_use("gate", "AskUserQuestion", questions.clone()));
    machine.on_frame(can_use("bad", "AskUserQuestion", json!({"questions": [{"header": "only"}]})));
    let labels = |labels: &[&str]| Chosen::Labels(labels.iter().map(|label| (*label).to_owned()).collect());
    let deny = |message: &str| AnswerValue::Deny { message: message.to_owned(), then: AfterDeny::GoOn };
    let rule = json!({"type": "setMode", "mode": "bypassPermissions", "destination": "session"});
    for (request, value) in [
        ("tool", deny(" ")),
        ("tool", AnswerValue::Choices(vec![])),
        ("tool", AnswerValue::Allow { input: None, permissions: vec![rule] }),
        ("gate", allow().value),
        ("gate", AnswerValue::Choices(vec![labels(&["A"])])),
        ("gate", AnswerValue::Choices(vec![labels(&["A", "B"]), labels(&["A"])])),
        ("gate", AnswerValue::Choices(vec![labels(&["C"]), labels(&["A"])])),
        ("gate", AnswerValue::Choices(vec![labels(&["A"]), labels(&[])])),
        ("gate", AnswerValue::Choices(vec![labels(&["A"]), Chosen::Text(" ".to_owned())])),
        ("bad", allow().value),
        ("bad", AnswerValue::Choices(vec![labels(&["A"])])),
    ] {
        let outputs = machine.on_command(answer(request, value.clone()));
        assert!(
            matches!(outputs[..], [Output::Dropped(Dropped::Unfit { .. })]),
            "{request} {value:?} {outputs:?}"
        );
    }
    let good = AnswerValue::Choices(vec![labels(&["B"]), labels(&["A", "B"])]);
    let reply = &sent(&machine.on_command(answer("gate", good)))[0]["response"]["response"];
    assert_eq!(reply["updatedInput"]["answers"], json!({"One?": "B", "Many?": "A, B"}));
    assert_eq!(reply["updatedInput"]["questions"], questions["questions"]);
    assert_eq!(sent(&machine.on_command(answer("bad", deny("unreadable")))).len(), 1);
}

#[test]
fn what_is_not_known_is_refused_and_noted() {
    let mut machine = begun();
    let request =
        |request: Value| frame(json!({"type": "control_request", "request_id": "r", "request": request}));
    let outputs = machine.on_frame(request(json!({"subtype": "sing"})));
    assert!(matches!(outputs[0], Output::Observe(Observation::Flawed(ProtocolFlaw::UnknownQuestion { .. }))));
    assert_eq!(
        sent(&outputs)[0]["response"],
        json!({"subtype": "error", "request_id": "r", "error": "unsupported control request subtype: sing"})
    );
    assert!(sent(&machine.on_frame(request(json!({"subtype": "sing"})))).is_empty());
    let outputs = machine.on_frame(frame(json!({"type": "comet"})));
    assert_eq!(outputs, [Output::Observe(Observation::UnknownFrame { frame: "comet".to_owned() })]);
    machine.on_unread("not a frame");
    machine.on_frame(cancel("nothing"));
    machine.on_frame(result(false));
    let ended = ending(machine.on_exit(GuestEnd::Code(0)));
    assert_eq!((ended.unread, ended.flaws), (1, 4));
    assert!(matches!(
        machine.on_frame(result(false))[..],
        [Output::Observe(Observation::Flawed(ProtocolFlaw::FrameAfterExit))]
    ));
    assert!(machine.on_exit(GuestEnd::Code(0)).is_empty());
    assert!(machine.on_deadline(Deadline::Run).is_empty());
}

#[test]
fn hooks_and_servers_answer_as_declared() {
    let subscription = |callback: &str| HookSubscription {
        event: "PreToolUse".to_owned(),
        matcher: Some("Bash".to_owned()),
        callback: callback.to_owned(),
        timeout_seconds: Some(5),
    };
    let config = MachineConfig {
        hooks: vec![
            Hook { subscription: subscription("ask"), answering: HookAnswering::Ask },
            Hook {
                subscription: subscription("no"),
                answering: HookAnswering::Always(HookReply::Block { reason: "no".to_owned() }),
            },
        ],
        servers: vec![
            Server { name: "tools".to_owned(), answering: ServerAnswering::Tools(Vec::new()) },
            Server { name: "asked".to_owned(), answering: ServerAnswering::Ask },
        ],
        ..MachineConfig::default()
    };
    let mut machine = Machine::new(config);
    let greeting = sent(&machine.on_command(Command::Begin)).remove(0);
    assert_eq!(greeting["request"]["sdkMcpServers"], json!(["tools", "asked"]));
    assert_eq!(
        greeting["request"]["hooks"]["PreToolUse"][1],
        json!({"hookCallbackIds": ["no"], "matcher": "Bash", "timeout": 5})
    );
    let mut next = 0;
    let mut ask = |machine: &mut Machine, request: Value| {
        next += 1;
        machine.on_frame(frame(
            json!({"type": "control_request", "request_id": format!("r{next}"), "request": request}),
        ))
    };
    let hook = |callback: &str| json!({"subtype": "hook_callback", "callback_id": callback, "input": {"hook_event_name": "PreToolUse"}});
    let message = |server: &str| json!({"subtype": "mcp_message", "server_name": server, "message": {"jsonrpc": "2.0", "id": 1, "method": "ping"}});
    assert_eq!(
        sent(&ask(&mut machine, hook("no")))[0]["response"]["response"],
        json!({"decision": "block", "reason": "no"})
    );
    assert!(matches!(ask(&mut machine, hook("ask")).last(), Some(Output::Ask { .. })));
    assert_eq!(sent(&ask(&mut machine, hook("other")))[0]["response"]["subtype"], "error");
    assert_eq!(
        sent(&ask(&mut machine, message("tools")))[0]["response"]["response"]["mcp_response"]["result"],
        json!({})
    );
    assert!(matches!(ask(&mut machine, message("asked")).last(), Some(Output::Ask { .. })));
    let refused = sent(&ask(&mut machine, message("other"))).remove(0);
    assert_eq!(refused["response"]["subtype"], "success");
    let response = &refused["response"]["response"]["mcp_response"];
    assert_eq!((&response["id"], &response["error"]["code"]), (&json!(1), &json!(-32601)), "{refused}");
    let notified = json!({"subtype": "mcp_message", "server_name": "other", "message": {"jsonrpc": "2.0", "method": "x"}});
    let taken = sent(&ask(&mut machine, notified)).remove(0);
    assert_eq!(
        taken["response"]["response"]["mcp_response"]["error"],
        Value::Null,
        "a notification has no answer"
    );
    let reply =
        HookReply::PreToolUse { permission: HookPermission::Deny, reason: "no".to_owned(), input: None };
    let reply = sent(&machine.on_command(answer("r2", AnswerValue::Hook(reply))));
    assert_eq!(reply[0]["response"]["response"]["hookSpecificOutput"]["permissionDecision"], "deny");
}

#[test]
fn a_call_that_would_go_on_in_the_background_is_blocked() {
    let hooks = Harnesses::built_in().background_hooks();
    let callback = hooks[0].subscription.callback.clone();
    let mut machine = Machine::new(MachineConfig { hooks, ..MachineConfig::default() });
    let greeting = sent(&machine.on_command(Command::Begin)).remove(0);
    assert_eq!(greeting["request"]["hooks"]["PreToolUse"][0]["hookCallbackIds"], json!([callback]));
    let mut ask = |id: &str, input: Value| {
        let input = json!({"hook_event_name": "PreToolUse", "tool_name": "Task", "tool_input": input});
        let request = json!({"subtype": "hook_callback", "callback_id": callback, "input": input});
        let asked = json!({"type": "control_request", "request_id": id, "request": request});
        sent(&machine.on_frame(frame(asked))).remove(0)["response"]["response"].clone()
    };
    let blocked = json!({"decision": "block", "reason": "Background agents disabled"});
    assert_eq!(ask("a", json!({"prompt": "x", "run_in_background": true})), blocked);
    assert_eq!(ask("b", json!({"prompt": "x", "run_in_background": false})), json!({}));
    assert_eq!(ask("c", json!({"prompt": "x"})), json!({}));
}

#[test]
fn reports_of_the_rate_limit_and_of_a_messages_state_are_no_observation() {
    let mut machine = Machine::new(MachineConfig::default());
    machine.on_command(Command::Begin);
    let report =
        json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}, "session_id": "s"});
    assert_eq!(machine.on_frame(frame(report)), []);
    for state in ["queued", "started", "completed"] {
        let report =
            json!({"type": "command_lifecycle", "command_uuid": "m", "state": state, "session_id": "s"});
        assert_eq!(machine.on_frame(frame(report)), []);
    }
    let other = machine.on_frame(frame(json!({"type": "comet"})));
    assert!(matches!(&other[..], [Output::Observe(Observation::UnknownFrame { .. })]));
}

#[test]
fn a_deadline_is_a_failure_whatever_comes_after() {
    for (deadline, interrupts) in [
        (Deadline::Turn, true),
        (Deadline::Handshake, false),
        (Deadline::Run, false),
        (Deadline::Exit, false),
    ] {
        let mut machine = begun();
        let outputs = machine.on_deadline(deadline);
        assert_eq!(!sent(&outputs).is_empty(), interrupts);
        assert_eq!(outputs == [Output::Terminate], !interrupts);
        machine.on_frame(result(false));
        assert_eq!(failure(&mut machine, GuestEnd::Code(0)), ConversationFailure::Deadline { deadline });
    }
}

#[test]
fn a_run_cannot_ask_without_end() {
    let mut machine = begun();
    for number in 1..100_000 {
        machine.ledger.settle(&id(&format!("r{number}")));
    }
    assert!(matches!(machine.on_frame(asked("one")).last(), Some(Output::Ask { .. })));
    assert_eq!(machine.on_frame(asked("one too many")).last(), Some(&Output::Terminate));
    machine.on_frame(result(false));
    assert_eq!(failure(&mut machine, GuestEnd::Code(0)), ConversationFailure::TooManyQuestions);
}

#[test]
fn a_refused_call_puts_no_skill_to_use() {
    let skills = vec![SkillPlace { name: "notes".to_owned(), directories: vec!["/s/notes".to_owned()] }];
    let mut machine = Machine::new(MachineConfig { skills, ..MachineConfig::default() });
    let outputs = machine.on_command(say("m", "/notes now"));
    assert!(matches!(
        outputs.last(),
        Some(Output::Observe(Observation::SkillActivated { way: SkillWay::Message, .. }))
    ));
    for (call, is_error) in [("c1", true), ("c2", false)] {
        let content = json!([{"type": "tool_use", "id": call, "name": "Skill", "input": {"skill": "notes"}}]);
        machine.on_frame(frame(json!({"type": "assistant", "message": {"content": content}})));
        let content =
            json!([{"type": "tool_result", "tool_use_id": call, "is_error": is_error, "content": "x"}]);
        let outputs = machine.on_frame(frame(json!({"type": "user", "message": {"content": content}})));
        assert_eq!(outputs.len(), if is_error { 1 } else { 2 }, "{outputs:?}");
    }
    // A script that failed ran; one that was refused did not.
    for (call, text, activated) in [("c3", "Exit code 3\nno", true), ("c4", "denied by the user", false)] {
        let input = json!({"command": "sh /s/notes/run.sh"});
        let content = json!([{"type": "tool_use", "id": call, "name": "Bash", "input": input}]);
        machine.on_frame(frame(json!({"type": "assistant", "message": {"content": content}})));
        let content =
            json!([{"type": "tool_result", "tool_use_id": call, "is_error": true, "content": text}]);
        let outputs = machine.on_frame(frame(json!({"type": "user", "message": {"content": content}})));
        assert_eq!(outputs.len(), if activated { 2 } else { 1 }, "{outputs:?}");
    }
    let stray = json!([{"type": "tool_result", "tool_use_id": "c2", "content": "x"}]);
    let outputs = machine.on_frame(frame(json!({"type": "user", "message": {"content": stray}})));
    assert!(matches!(outputs[0], Output::Observe(Observation::Flawed(ProtocolFlaw::StrayResult { .. }))));
}

/// One thing that may happen.
#[derive(Debug, Clone)]
enum Step {
    Frame(Value),
    Command(Command),
    Deadline(Deadline),
    Unread,
}

fn step() -> impl Strategy<Value = Step> {
    // Few names, so that stories are about the same thing.
    let name = || prop::sample::select(vec!["a", "a", "a", "b", "belljar-1"]);
    let request = (name(), 0..8_usize).prop_map(|(name, kind)| {
        let request = match kind {
            0 => json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}),
            1 => json!({"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {"questions": [{"question": "q", "options": [{"label": "A"}]}]}}),
            2 => json!({"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {}}),
            3 => json!({"subtype": "hook_callback", "callback_id": "x", "input": {"hook_event_name": "Stop"}}),
            4 => json!({"subtype": "mcp_message", "server_name": "s", "message": {"id": 1, "method": "ping"}}),
            5 => json!({"subtype": "elicitation", "message": "m"}),
            6 => json!({"subtype": "request_user_dialog", "dialog_kind": "k"}),
            _ => json!({"subtype": "unheard"}),
        };
        json!({"type": "control_request", "request_id": name, "request": request})
    });
    let other = (name(), 0..9_usize).prop_map(|(name, kind)| match kind {
        0 => json!({"type": "result", "is_error": false}),
        1 => json!({"type": "result", "is_error": true}),
        2 => json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}]}}),
        3 => json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": name}]}}),
        4 => json!({"type": "user", "isReplay": true, "uuid": name, "message": {}}),
        5 => json!({"type": "system", "subtype": "init", "session_id": name}),
        6 => json!({"type": "system", "subtype": "session_state_changed", "state": "idle"}),
        7 => json!({"type": "system", "subtype": "task_started", "task_id": name, "task_type": "local_agent"}),
        _ => json!({"type": "control_response", "response": {"subtype": "success", "request_id": name}}),
    });
    let command = (name(), 0..9_usize).prop_map(|(name, kind)| match kind {
        0 => Command::Begin,
        1 => say(name, "/x"),
        2 => say(name, "x"),
        3 => Command::Interrupt,
        4 => Command::SetModel(None),
        5 => Command::EndInput,
        6 => answer(name, AnswerValue::Choices(vec![Chosen::Labels(vec!["A".to_owned()])])),
        7 => answer(name, AnswerValue::Error("no".to_owned())),
        _ => answer(name, allow().value),
    });
    let withdrawal = name().prop_map(|name| json!({"type": "control_cancel_request", "request_id": name}));
    let deadline =
        prop::sample::select(vec![Deadline::Handshake, Deadline::Turn, Deadline::Exit, Deadline::Run]);
    prop_oneof![
        4 => request.prop_map(Step::Frame),
        6 => other.prop_map(Step::Frame),
        2 => withdrawal.prop_map(Step::Frame),
        5 => command.prop_map(Step::Command),
        1 => deadline.prop_map(Step::Deadline),
        1 => Just(Step::Unread),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// The agent is killed after every prefix of the story, once with each status.
    #[test]
    fn whatever_happens_no_question_is_answered_twice_and_no_success_is_invented(
        steps in prop::collection::vec(step(), 0..24),
        echoes in any::<bool>(),
    ) {
        for length in 0..=steps.len() {
            for exit in [GuestEnd::Code(0), GuestEnd::Code(1), GuestEnd::Signal(9)] {
                live_through(&steps[..length], exit, if echoes { Echo::Expected } else { Echo::Absent });
            }
        }
    }
}

fn live_through(steps: &[Step], exit: GuestEnd, echo: Echo) {
    let mut machine = Machine::new(MachineConfig { echo, ..MachineConfig::default() });
    let mut asked = BTreeSet::new();
    let mut withdrawn = BTreeSet::new();
    let mut answered = BTreeSet::new();
    let mut last_result = None;
    let mut speaks_since_result = false;
    let mut closed = false;
    for step in steps {
        let outputs = match step {
            Step::Frame(value) => {
                let frame = frame(value.clone());
                if let Inbound::Request { id, .. } = &frame {
                    asked.insert(id.clone());
                }
                match &frame {
                    Inbound::Result(result) => {
                        last_result = Some(result.is_error);
                        speaks_since_result = false;
                    }
                    Inbound::Assistant(_) | Inbound::Init(_) => speaks_since_result = true,
                    _ => {}
                }
                machine.on_frame(frame)
            }
            Step::Command(command) => machine.on_command(command.clone()),
            Step::Deadline(deadline) => machine.on_deadline(*deadline),
            Step::Unread => machine.on_unread("noise"),
        };
        for output in outputs {
            match output {
                Output::Send(Outbound::Response { id, .. }) => {
                    assert!(!closed, "sent into a closed input");
                    assert!(asked.contains(&id), "answered what was not asked");
                    assert!(!withdrawn.contains(&id), "answered what was withdrawn");
                    assert!(answered.insert(id), "answered twice");
                }
                Output::Send(_) => assert!(!closed, "sent into a closed input"),
                Output::Withdrawn { request } => drop(withdrawn.insert(request)),
                Output::CloseInput => closed = true,
                Output::Ended(_) => panic!("ended without an exit"),
                _ => {}
            }
        }
    }
    let ended = ending(machine.on_exit(exit));
    if ended.failure.is_none() {
        assert_eq!((last_result, exit), (Some(false), GuestEnd::Code(0)));
        assert!(!speaks_since_result, "a turn was left open");
        assert!(!steps.iter().any(|step| matches!(step, Step::Deadline(_))));
    }
    assert!(machine.on_exit(exit).is_empty());
    assert_eq!(machine.on_command(Command::Interrupt), [Output::Dropped(Dropped::Closed)]);
}
