//! Conversations that were recorded with the real agent, played through the machine again: it says what was said then,
//! and ends as the run ended.
//!
//! `BELLJAR_RECORD_FRAMES=<directory> cargo test -p belljar-runner --test conversation` records them anew.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use belljar_contract::{
    AfterDeny, ConversationEnd, Frame, GuestEnd, HookPermission, HookReply, HookSubscription, MessageId,
    Observation, PermissionMode, RequestId, UserMessage,
};
use belljar_session::{
    Answer, AnswerValue, By, CannedAnswer, CannedTool, Chosen, Command, Decoder, Hook, HookAnswering, Item,
    Machine, MachineConfig, Output, Question, Server, ServerAnswering,
};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fs;
use std::path::Path;

/// What became of each conversation: whether it is a success, how many turns ended, how many of them failed.
const ENDINGS: [(&str, bool, u64, u64); 19] = [
    ("absorbed", true, 1, 0),
    ("ask_user_question", true, 1, 0),
    ("clear", true, 3, 0),
    ("hooks", true, 1, 0),
    ("interrupt", true, 2, 1),
    ("interrupt_pending", false, 1, 1),
    ("killed", false, 1, 0),
    ("mode_and_model", true, 1, 0),
    ("model_error", false, 1, 1),
    ("permission_allow", true, 1, 0),
    ("permission_deny", true, 1, 0),
    ("permission_deny_interrupt", false, 1, 1),
    ("permission_edit", true, 1, 0),
    ("permission_suggestion", true, 1, 0),
    ("resume", true, 1, 0),
    ("resume_begun", true, 1, 0),
    ("sdk_mcp", true, 1, 0),
    ("skill", true, 2, 0),
    ("sub_agent", true, 1, 0),
];

#[test]
fn conversations_with_the_pinned_agent() {
    replay_all("2.1.327");
}

#[test]
fn conversations_with_an_older_agent() {
    replay_all("2.1.197");
}

/// No test runs this version any more; what was recorded with it must stay readable.
#[test]
fn conversations_with_an_agent_between_them() {
    replay_all("2.1.325");
}

fn replay_all(version: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version);
    let count = fs::read_dir(&directory).unwrap().count();
    assert_eq!(count, ENDINGS.len(), "a fixture without an expected ending, or the other way round");
    for (name, success, results, failed) in ENDINGS {
        let text = fs::read_to_string(directory.join(format!("{name}.jsonl"))).unwrap();
        let (ending, seen) = replay(name, &text);
        assert_eq!(ending.failure.is_none(), success, "{name}: {ending:?}");
        assert_eq!((ending.results, ending.failed_results), (results, failed), "{name}");
        assert_eq!((ending.unread, ending.flaws), (0, 0), "{name}: {seen:#?}");
        let versions = seen.iter().filter_map(|seen| match seen {
            Observation::ConversationBegan { version, .. } => version.as_deref(),
            _ => None,
        });
        assert!(versions.into_iter().all(|found| found == version), "{name}");

        // The same with the last result lost, and with a crash at the end: never a success.
        let without: String =
            text.lines().filter(|line| !is_result(line)).map(|line| format!("{line}\n")).collect();
        assert_ne!(replay(name, &without).0.failure, None, "{name}");
        let crashed =
            text.replace(r#"{"exit":{"code":0,"signal":null}}"#, r#"{"exit":{"code":7,"signal":null}}"#);
        assert_ne!(replay(name, &crashed).0.failure, None, "{name}");
    }
}

fn is_result(line: &str) -> bool {
    serde_json::from_str::<Value>(line).unwrap()["in"]["type"] == "result"
}

/// A machine, and what it sent that the recording has not come to yet.
struct Replay {
    machine: Machine,
    sent: VecDeque<Value>,
    questions: Vec<(RequestId, Question)>,
    seen: Vec<Observation>,
    ending: Option<ConversationEnd>,
}

fn replay(name: &str, text: &str) -> (ConversationEnd, Vec<Observation>) {
    let mut replay = Replay {
        machine: Machine::new(config(name)),
        sent: VecDeque::new(),
        questions: Vec::new(),
        seen: Vec::new(),
        ending: None,
    };
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(frame) = line.get("in") {
            // By way of the decoder, as it came.
            let items = Decoder::default().push(format!("{frame}\n").as_bytes());
            let [Item::Frame(frame)] = items.as_slice() else { panic!("{items:?}") };
            let outputs = replay.machine.on_frame(frame.body.clone());
            replay.take(outputs);
        } else if let Some(frame) = line.get("out") {
            if replay.sent.is_empty() {
                let command = replay.command_for(frame);
                let outputs = replay.machine.on_command(command);
                replay.take(outputs);
            }
            assert_eq!(replay.sent.pop_front().as_ref(), Some(frame), "{name}");
        } else {
            let exit = &line["exit"];
            let number = |key: &str| exit[key].as_i64().map(|number| i32::try_from(number).unwrap());
            let exit =
                number("code").map_or_else(|| GuestEnd::Signal(number("signal").unwrap()), GuestEnd::Code);
            let outputs = replay.machine.on_exit(exit);
            replay.take(outputs);
        }
    }
    (replay.ending.unwrap(), replay.seen)
}

impl Replay {
    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(frame) => self.sent.push_back(frame.to_json()),
                Output::Ask { request, question } => self.questions.push((request, question)),
                Output::Observe(seen) => {
                    // What is stored can be read back.
                    assert_eq!(serde_json::from_value::<Observation>(json!(seen)).unwrap(), seen);
                    self.seen.push(seen);
                }
                Output::Ended(ending) => self.ending = Some(ending),
                Output::Dropped(dropped) => panic!("{dropped}"),
                Output::Withdrawn { .. } | Output::Idle | Output::CloseInput | Output::Terminate => {}
            }
        }
    }

    /// The command that had sent a frame.
    fn command_for(&self, frame: &Value) -> Command {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match (frame["type"].as_str().unwrap(), frame["request"]["subtype"].as_str()) {
            ("user", _) => Command::Say(UserMessage {
                id: MessageId::new(text(&frame["uuid"])).unwrap(),
                text: text(&frame["message"]["content"]),
            }),
            ("control_request", Some("initialize")) => Command::Begin,
            ("control_request", Some("interrupt")) => Command::Interrupt,
            ("control_request", Some("set_permission_mode")) => Command::SetPermissionMode(
                serde_json::from_value::<PermissionMode>(frame["request"]["mode"].clone()).unwrap(),
            ),
            ("control_request", Some("set_model")) => {
                Command::SetModel(Some(text(&frame["request"]["model"])))
            }
            ("control_response", _) => {
                let request = RequestId::new(text(&frame["response"]["request_id"])).unwrap();
                let question = self.questions.iter().find(|(id, _)| *id == request).unwrap();
                let value = answer_in(&question.1, &frame["response"]["response"]);
                let answer = Answer { value, by: By::Person, reason: "as recorded".to_owned(), grant: None };
                Command::Answer { request, answer }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The answer that a recorded reply carries.
fn answer_in(question: &Question, body: &Value) -> AnswerValue {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let object = |value: &Value| value.as_object().cloned();
    match question {
        Question::Hook(_) => {
            let output = &body["hookSpecificOutput"];
            let permission = match output["permissionDecision"].as_str().unwrap() {
                "allow" => HookPermission::Allow,
                _ => HookPermission::Deny,
            };
            let reason = text(&output["permissionDecisionReason"]);
            let input = object(&output["updatedInput"]);
            AnswerValue::Hook(HookReply::PreToolUse { permission, reason, input })
        }
        _ if body["behavior"] == "deny" => AnswerValue::Deny {
            message: text(&body["message"]),
            then: if body["interrupt"] == true { AfterDeny::Interrupt } else { AfterDeny::GoOn },
        },
        Question::Choice { questions, .. } => {
            let answers = &body["updatedInput"]["answers"];
            AnswerValue::Choices(
                questions.iter().map(|one| Chosen::Text(text(&answers[&one.question]))).collect(),
            )
        }
        _ => AnswerValue::Allow {
            input: object(&body["updatedInput"]),
            permissions: body["updatedPermissions"].as_array().cloned().unwrap_or_default(),
        },
    }
}

/// The settings of the recorded conversation.
fn config(name: &str) -> MachineConfig {
    match name {
        "hooks" => MachineConfig {
            hooks: vec![
                hook("PreToolUse", "before", HookAnswering::Ask),
                hook("PostToolUse", "after", HookAnswering::Always(context("PostToolUse", "WORD-AFTER"))),
                hook(
                    "UserPromptSubmit",
                    "prompt",
                    HookAnswering::Always(context("UserPromptSubmit", "WORD-PROMPT")),
                ),
            ],
            ..MachineConfig::default()
        },
        "sdk_mcp" => {
            let tools = vec![
                tool("lookup", CannedAnswer::Text("VALUE-OF-KEY".into())),
                tool("broken", CannedAnswer::Failure("IT-IS-BROKEN".into())),
            ];
            let servers = vec![Server { name: "host".into(), answering: ServerAnswering::Tools(tools) }];
            MachineConfig { servers, ..MachineConfig::default() }
        }
        _ => MachineConfig::default(),
    }
}

fn hook(event: &str, callback: &str, answering: HookAnswering) -> Hook {
    let matcher = event.ends_with("ToolUse").then(|| "Bash".to_owned());
    let subscription = HookSubscription {
        event: event.into(),
        matcher,
        callback: callback.into(),
        timeout_seconds: Some(30),
    };
    Hook { subscription, answering }
}

fn context(event: &str, text: &str) -> HookReply {
    HookReply::AddContext { event: event.into(), text: text.into() }
}

fn tool(name: &str, answer: CannedAnswer) -> CannedTool {
    let schema = json!({"type": "object", "properties": {"key": {"type": "string"}}});
    let input_schema: Map<String, Value> = schema.as_object().unwrap().clone();
    CannedTool { name: name.into(), description: "Looks a thing up".into(), input_schema, answer }
}

/// A frame is what it was after it has been written and read again.
#[test]
fn recorded_frames_survive_the_way_to_text_and_back() {
    for version in ["2.1.197", "2.1.325", "2.1.327"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version);
        for entry in fs::read_dir(directory).unwrap() {
            for line in fs::read_to_string(entry.unwrap().path()).unwrap().lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let Some(raw) = line.get("in") else { continue };
                let frame = Frame::from_value(raw.clone()).unwrap();
                assert_eq!(Frame::parse(&frame.raw.to_string()).unwrap(), frame);
            }
        }
    }
}
