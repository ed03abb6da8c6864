//! What the Agent SDKs and the agent say to each other, recorded: the codec reads both sides, and a machine in an SDK's
//! place makes no flaw of what the agent says. `scripts/record-sdks` records the conversations anew.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use belljar_contract::{
    ConversationEnd, GuestEnd, HookReply, HookSubscription, Inbound, MessageId, Observation, RequestId,
    UserMessage,
};
use belljar_session::{
    Answer, AnswerValue, By, Chosen, Command, Decoder, Hook, HookAnswering, Item, Machine, MachineConfig,
    Output, Question, Server, ServerAnswering,
};
use serde_json::{Value, json};

const TYPESCRIPT: &str = include_str!("sdks/typescript.jsonl");
const PYTHON: &str = include_str!("sdks/python.jsonl");

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn both_sides_are_read() {
    for text in [TYPESCRIPT, PYTHON] {
        let mut read = 0;
        for line in lines(text) {
            for way in ["in", "out"] {
                let Some(raw) = line.get(way) else { continue };
                let items = Decoder::default().push(format!("{raw}\n").as_bytes());
                let [Item::Frame(frame)] = items.as_slice() else { panic!("{items:?}") };
                let understood = !matches!(
                    frame.body,
                    Inbound::Unknown { .. } | Inbound::Malformed { .. } | Inbound::System { .. }
                );
                assert!(understood, "{way}: {frame:?}");
                read += 1;
            }
        }
        assert!(read > 30, "{read}");
    }
}

#[test]
fn a_machine_in_the_place_of_the_typescript_sdk() {
    judge(&play(TYPESCRIPT));
}

#[test]
fn a_machine_in_the_place_of_the_python_sdk() {
    judge(&play(PYTHON));
}

fn judge((seen, ending): &(Vec<Observation>, ConversationEnd)) {
    assert_eq!(
        (ending.flaws, ending.unread, ending.results, ending.failed_results),
        (0, 0, 1, 0),
        "{seen:#?}"
    );
    assert_eq!(ending.exit, GuestEnd::Code(0));
    assert!(ending.unanswered.is_empty());
    let has = |wanted: &dyn Fn(&Observation) -> bool| seen.iter().any(wanted);
    for tool in ["mcp__host__lookup", "Bash", "AskUserQuestion"] {
        let returned = |seen: &Observation| matches!(seen, Observation::ToolReturned { tool: Some(found), is_error: false, .. } if found == tool);
        assert!(has(&returned), "{tool}: {seen:#?}");
    }
    assert!(has(&|seen| matches!(seen, Observation::Said { text, .. } if text == "done")));
}

/// A machine that sits where the SDK sat, and the questions that it was asked.
struct Seat {
    machine: Machine,
    /// Ids of its own requests, beside those of the SDK's.
    own: Vec<(String, String)>,
    sent: Vec<Value>,
    questions: Vec<(RequestId, Question)>,
    seen: Vec<Observation>,
    ending: Option<ConversationEnd>,
}

fn play(text: &str) -> (Vec<Observation>, ConversationEnd) {
    let subscription = HookSubscription {
        event: "PreToolUse".into(),
        matcher: Some("Bash".into()),
        callback: "hook_0".into(),
        timeout_seconds: None,
    };
    let config = MachineConfig {
        hooks: vec![Hook { subscription, answering: HookAnswering::Ask }],
        servers: vec![Server { name: "host".into(), answering: ServerAnswering::Ask }],
        ..MachineConfig::default()
    };
    let mut seat = Seat {
        machine: Machine::new(config),
        own: Vec::new(),
        sent: Vec::new(),
        questions: Vec::new(),
        seen: Vec::new(),
        ending: None,
    };
    for line in lines(text) {
        if let Some(frame) = line.get("out") {
            seat.say_as(frame);
        } else if let Some(frame) = line.get("in") {
            seat.hear(frame);
        } else {
            assert_eq!(line["exit"]["code"], 0);
            let outputs = seat.machine.on_exit(GuestEnd::Code(0));
            seat.take(outputs);
        }
    }
    (seat.seen, seat.ending.unwrap())
}

impl Seat {
    /// Says what the SDK said, in belljar's own words.
    fn say_as(&mut self, frame: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let command = match frame["type"].as_str().unwrap() {
            "control_request" => {
                assert_eq!(frame["request"]["subtype"], "initialize");
                Command::Begin
            }
            "user" => Command::Say(UserMessage {
                id: MessageId::new("00000000-0000-4000-8000-000000000000".to_owned()).unwrap(),
                text: text(&frame["message"]["content"]),
            }),
            "control_response" => {
                let id = RequestId::new(text(&frame["response"]["request_id"])).unwrap();
                let (_, question) = self.questions.iter().find(|(known, _)| *known == id).unwrap();
                let value = answer(question, &frame["response"]["response"]);
                let answer = Answer { value, by: By::Person, reason: "as recorded".to_owned(), grant: None };
                Command::Answer { request: id, answer }
            }
            other => panic!("{other}"),
        };
        let begins = matches!(command, Command::Begin);
        let outputs = self.machine.on_command(command);
        self.take(outputs);
        if begins {
            self.own.push((text(&frame["request_id"]), text(&self.sent.last().unwrap()["request_id"])));
        }
    }

    /// Hears what the SDK heard; an answer to the SDK's request is one to the machine's.
    fn hear(&mut self, frame: &Value) {
        let mut frame = frame.clone();
        if frame["type"] == "control_response" {
            let id = &mut frame["response"]["request_id"];
            let (_, own) = self.own.iter().find(|(theirs, _)| *id == json!(theirs)).unwrap();
            *id = json!(own);
        }
        let items = Decoder::default().push(format!("{frame}\n").as_bytes());
        let [Item::Frame(frame)] = items.as_slice() else { panic!("{items:?}") };
        let outputs = self.machine.on_frame(frame.body.clone());
        self.take(outputs);
    }

    fn take(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(frame) => self.sent.push(frame.to_json()),
                Output::Ask { request, question } => self.questions.push((request, question)),
                Output::Observe(seen) => self.seen.push(seen),
                Output::Ended(ending) => self.ending = Some(ending),
                Output::Dropped(dropped) => panic!("{dropped}"),
                Output::Withdrawn { .. } | Output::Idle | Output::CloseInput | Output::Terminate => {}
            }
        }
    }
}

/// The answer that an SDK's reply carries.
fn answer(question: &Question, body: &Value) -> AnswerValue {
    match question {
        Question::Hook(_) => {
            assert_eq!(*body, json!({"continue": true}));
            AnswerValue::Hook(HookReply::Nothing)
        }
        Question::Mcp(message) => {
            let wanted = message.message.get("id").is_some();
            AnswerValue::Mcp(wanted.then(|| body["mcp_response"].clone()))
        }
        Question::Choice { questions, .. } => {
            let answers = &body["updatedInput"]["answers"];
            let chosen = |label: &Value| Chosen::Labels(vec![label.as_str().unwrap().to_owned()]);
            AnswerValue::Choices(questions.iter().map(|asked| chosen(&answers[&asked.question])).collect())
        }
        Question::Permission(_) => {
            assert_eq!(body["behavior"], "allow");
            AnswerValue::Allow { input: body["updatedInput"].as_object().cloned(), permissions: Vec::new() }
        }
        Question::Unreadable { .. } | Question::Elicitation(_) | Question::Dialog(_) => {
            panic!("{question:?}")
        }
    }
}
