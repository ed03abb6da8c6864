//! Conversations with the real agent: the answers decide what the agent does and what the model receives. Each scene is
//! played with the pinned version and an older one, and with the pinned one in the sandbox.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod recording;
mod sealed;
mod stage;

use std::fs;

use belljar_contract::{
    AfterDeny, ConversationFailure, Deadline, GuestEnd, HookPermission, HookReply, HookSubscription,
    Observation, PermissionMode, SkillWay, Speaker,
};
use belljar_egress::script::{RequestConditions, Script, ScriptReply, Sender, Turn};
use belljar_runner::ConversationTimes;
use belljar_session::{
    AnswerValue, CannedAnswer, CannedTool, Chosen, Command, Hook, HookAnswering, MachineConfig, Question,
    Server, ServerAnswering, SkillPlace,
};
use serde_json::{Map, Value, json};
use stage::{Decide, Place, Play, React, Seen, Stage, message};

/// Each scene is a test with each version of the agent, and in the sandbox.
macro_rules! scenes {
    ($($scene:ident),+ $(,)?) => {
        mod pinned {
            $(#[test]
            fn $scene() {
                belljar_testkit::require!(Agent);
                super::$scene(&super::Stage::new(belljar_testkit::agent::real().unwrap(), super::Place::Bare));
            })+
        }
        mod older {
            $(#[test]
            fn $scene() {
                belljar_testkit::require!(AgentOlder);
                super::$scene(&super::Stage::new(belljar_testkit::agent::older().unwrap(), super::Place::Bare));
            })+
        }
        mod sealed_in {
            $(#[test]
            fn $scene() {
                belljar_testkit::require!(Agent, Bwrap, Guest);
                super::$scene(&super::Stage::new(belljar_testkit::agent::real().unwrap(), super::Place::Sealed));
            })+
        }
    };
}

scenes!(
    a_tool_that_is_allowed_runs,
    a_tool_that_is_denied_does_not_run_and_the_model_learns_it,
    a_denial_can_end_the_turn,
    an_edited_input_is_what_runs,
    a_suggestion_that_is_taken_holds,
    answers_reach_the_model,
    hooks_are_called_back,
    declared_tools_are_served,
    a_sub_agent_is_seen,
    an_interrupt_ends_the_turn_and_not_the_conversation,
    an_interrupt_withdraws_a_question,
    a_message_into_a_running_turn_is_absorbed,
    a_cleared_conversation_is_another,
    skills_are_seen_by_each_way,
    modes_and_models_change,
    an_error_of_the_model_is_no_success,
    a_killed_agent_is_no_success,
    a_conversation_is_continued,
);

fn quiet() -> React {
    Box::new(|_| Vec::new())
}

fn no_questions() -> Decide {
    Box::new(|question| panic!("unexpected question: {question:?}"))
}

fn allow() -> Decide {
    Box::new(|_| Some(AnswerValue::Allow { input: None, permissions: Vec::new() }))
}

fn deny(then: AfterDeny) -> Decide {
    Box::new(move |_| Some(AnswerValue::Deny { message: "the test forbids it".into(), then }))
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value}") };
    object
}

/// A tool call, then a final message.
fn one_call(tool: &str, input: Value) -> Script {
    Script::new().turn(Turn::tool_use(tool, input)).turn(Turn::text("done"))
}

/// A command that the agent asks about.
fn touch(name: &str) -> Value {
    json!({"command": format!("touch {name}"), "description": "touch it"})
}

impl Seen {
    fn assert_success(&self) {
        assert_eq!(self.ending.failure, None, "{:#?}\n{}", self.observations, self.stderr);
        assert_eq!((self.ending.unread, self.ending.flaws), (0, 0), "{:#?}", self.observations);
        assert_eq!(self.transcript.unplayed, [0_usize; 0]);
    }

    fn has(&self, wanted: impl Fn(&Observation) -> bool) -> bool {
        self.observations.iter().any(wanted)
    }

    fn count(&self, wanted: impl Fn(&Observation) -> bool) -> usize {
        self.observations.iter().filter(|seen| wanted(seen)).count()
    }

    /// The results of tools that the model received, over all its requests.
    fn results_for_model(&self) -> String {
        let results = self.transcript.requests.iter().flat_map(|request| request.tool_results());
        results.map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    }
}

fn play(stage: &Stage, script: Script, decide: Decide, name: &str) -> Seen {
    stage.play(Play {
        name,
        script,
        config: MachineConfig::default(),
        flags: &[],
        messages: &["go"],
        decide,
        react: quiet(),
    })
}

fn a_tool_that_is_allowed_runs(stage: &Stage) {
    let seen = play(stage, one_call("Bash", touch("made")), allow(), "permission_allow");
    seen.assert_success();
    assert!(stage.project().join("made").exists());
    let [Question::Permission(asked)] = seen.questions.as_slice() else { panic!("{:?}", seen.questions) };
    assert_eq!(asked.tool, "Bash");
    assert!(!asked.suggestions.is_empty());
    assert!(seen.has(|seen| matches!(seen, Observation::Ready { commands, models, .. } if !commands.is_empty() && !models.is_empty())));
    assert!(seen.has(|seen| matches!(seen, Observation::ToolReturned { tool: Some(tool), is_error: false, .. } if tool == "Bash")));
    assert!(seen.has(|seen| matches!(seen, Observation::Said { by: Speaker::Main, text } if text == "done")));
    let last = seen.ending.last.unwrap();
    assert_eq!(last.text.as_deref(), Some("done"));
    assert_eq!(last.usage.unwrap().output_tokens, 10);
}

fn a_tool_that_is_denied_does_not_run_and_the_model_learns_it(stage: &Stage) {
    let seen = play(stage, one_call("Bash", touch("made")), deny(AfterDeny::GoOn), "permission_deny");
    seen.assert_success();
    assert!(!stage.project().join("made").exists());
    assert!(seen.results_for_model().contains("the test forbids it"), "{}", seen.results_for_model());
    assert_eq!(seen.ending.last.unwrap().denied_tools, ["Bash"]);
}

fn a_denial_can_end_the_turn(stage: &Stage) {
    let script = Script::new().turn(Turn::tool_use("Bash", touch("made")));
    let seen = play(stage, script, deny(AfterDeny::Interrupt), "permission_deny_interrupt");
    assert!(!stage.project().join("made").exists());
    let Some(ConversationFailure::ResultIsError { subtype, .. }) = &seen.ending.failure else {
        panic!("{:?}", seen.ending)
    };
    assert_eq!(subtype, "error_during_execution");
    assert_eq!(seen.ending.exit, GuestEnd::Code(1));
}

fn an_edited_input_is_what_runs(stage: &Stage) {
    let edit = |_: &Question| {
        Some(AnswerValue::Allow { input: Some(object(touch("edited"))), permissions: Vec::new() })
    };
    let seen = play(stage, one_call("Bash", touch("made")), Box::new(edit), "permission_edit");
    seen.assert_success();
    assert!(!stage.project().join("made").exists());
    assert!(stage.project().join("edited").exists());
}

fn a_suggestion_that_is_taken_holds(stage: &Stage) {
    let write = |name: &str| json!({"file_path": stage.inside(name), "content": "x"});
    let script = Script::new()
        .turn(Turn::tool_use("Write", write("one")))
        .turn(Turn::tool_use("Write", write("two")))
        .turn(Turn::text("done"));
    let take_all = |question: &Question| {
        let Question::Permission(asked) = question else { panic!("{question:?}") };
        Some(AnswerValue::Allow { input: None, permissions: asked.suggestions.clone() })
    };
    let seen = play(stage, script, Box::new(take_all), "permission_suggestion");
    seen.assert_success();
    assert_eq!(seen.questions.len(), 1, "the second write was not asked about");
    assert!(stage.project().join("two").exists());
}

/// One question with one answer, one with several, one answered with a free text.
fn answers_reach_the_model(stage: &Stage) {
    let option = |label: &str| json!({"label": label, "description": "d"});
    let asked = |question: &str, header: &str, several: bool, labels: [&str; 2]| json!({"question": question, "header": header, "multiSelect": several, "options": labels.map(option)});
    let input = json!({"questions": [
        asked("Which colour?", "Colour", false, ["Red", "Blue"]),
        asked("Which sizes?", "Sizes", true, ["S", "L"]),
        asked("Whose name?", "Name", false, ["Ann", "Bob"]),
    ]});
    let answer = |question: &Question| {
        let Question::Choice { questions, .. } = question else { panic!("{question:?}") };
        assert_eq!(questions.iter().map(|one| one.multi_select).collect::<Vec<_>>(), [false, true, false]);
        Some(AnswerValue::Choices(vec![
            Chosen::Labels(vec!["Blue".into()]),
            Chosen::Labels(vec!["S".into(), "L".into()]),
            Chosen::Text("neither of the two".into()),
        ]))
    };
    let seen = play(stage, one_call("AskUserQuestion", input), Box::new(answer), "ask_user_question");
    seen.assert_success();
    let results = seen.results_for_model();
    for wanted in ["\"Which colour?\"=\"Blue\"", "\"Which sizes?\"=\"S, L\"", "neither of the two"] {
        assert!(results.contains(wanted), "{wanted}: {results}");
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

fn hooks_are_called_back(stage: &Stage) {
    let context = |event: &str, text: &str| HookReply::AddContext { event: event.into(), text: text.into() };
    let hooks = vec![
        hook("PreToolUse", "before", HookAnswering::Ask),
        hook("PostToolUse", "after", HookAnswering::Always(context("PostToolUse", "WORD-AFTER"))),
        hook("UserPromptSubmit", "prompt", HookAnswering::Always(context("UserPromptSubmit", "WORD-PROMPT"))),
    ];
    let script = Script::new()
        .turn(Turn::tool_use("Bash", touch("one")))
        .turn(Turn::tool_use("Bash", touch("two")))
        .turn(Turn::text("done"));
    let decide = |question: &Question| {
        let Question::Hook(call) = question else { panic!("{question:?}") };
        assert_eq!((call.callback.as_str(), call.event.as_str()), ("before", "PreToolUse"));
        let first = call.input["tool_input"]["command"] == "touch one";
        Some(AnswerValue::Hook(HookReply::PreToolUse {
            permission: if first { HookPermission::Allow } else { HookPermission::Deny },
            reason: "the hook forbids it".into(),
            input: first.then(|| object(touch("changed"))),
        }))
    };
    let seen = stage.play(Play {
        name: "hooks",
        script,
        config: MachineConfig { hooks, ..MachineConfig::default() },
        flags: &[],
        messages: &["go"],
        decide: Box::new(decide),
        react: quiet(),
    });
    seen.assert_success();
    assert!(stage.project().join("changed").exists());
    assert!(!stage.project().join("one").exists() && !stage.project().join("two").exists());
    assert!(seen.results_for_model().contains("the hook forbids it"));
    let requests: Vec<String> =
        seen.transcript.requests.iter().map(|one| one.json().unwrap().to_string()).collect();
    assert!(requests[0].contains("WORD-PROMPT") && requests[1].contains("WORD-AFTER"));
}

fn declared_tools_are_served(stage: &Stage) {
    let tool = |name: &str, answer| CannedTool {
        name: name.into(),
        description: "Looks a thing up".into(),
        input_schema: object(json!({"type": "object", "properties": {"key": {"type": "string"}}})),
        answer,
    };
    let tools = vec![
        tool("lookup", CannedAnswer::Text("VALUE-OF-KEY".into())),
        tool("broken", CannedAnswer::Failure("IT-IS-BROKEN".into())),
    ];
    let servers = vec![Server { name: "host".into(), answering: ServerAnswering::Tools(tools) }];
    let script = Script::new()
        .turn(Turn::tool_use("mcp__host__lookup", json!({"key": "k"})))
        .turn(Turn::tool_use("mcp__host__broken", json!({"key": "k"})))
        .turn(Turn::text("done"));
    let seen = stage.play(Play {
        name: "sdk_mcp",
        script,
        config: MachineConfig { servers, ..MachineConfig::default() },
        flags: &["--allowedTools", "mcp__host"],
        messages: &["go"],
        decide: no_questions(),
        react: quiet(),
    });
    seen.assert_success();
    let results = seen.results_for_model();
    assert!(results.contains("VALUE-OF-KEY") && results.contains("IT-IS-BROKEN"), "{results}");
    assert!(seen.has(|seen| matches!(seen, Observation::ToolReturned { is_error: true, .. })));
}

fn a_sub_agent_is_seen(stage: &Stage) {
    let task = json!({"description": "d", "prompt": "write it", "subagent_type": "general-purpose",
        "run_in_background": false});
    let sub = || RequestConditions::any().sender(Sender::SubAgent);
    let script = Script::new()
        .turn(Turn::tool_use("Bash", touch("by-sub")).when(sub()))
        .turn(Turn::text("sub is done").when(sub()))
        .turn(Turn::tool_use("Agent", task))
        .turn(Turn::text("main is done"));
    let seen = play(stage, script, allow(), "sub_agent");
    seen.assert_success();
    assert!(stage.project().join("by-sub").exists());
    let [Question::Permission(asked)] = seen.questions.as_slice() else { panic!("{:?}", seen.questions) };
    assert!(asked.agent.is_some());
    assert_eq!(seen.count(|seen| matches!(seen, Observation::SubAgentStarted { .. })), 1);
    assert_eq!(seen.count(|seen| matches!(seen, Observation::SubAgentEnded { .. })), 1);
    assert!(seen.has(
        |seen| matches!(seen, Observation::ToolCalled { by: Speaker::SubAgent { .. }, tool, .. } if tool == "Bash")
    ));
    assert_eq!(seen.ending.running_sub_agents, 0);
}

/// The pinned agent runs sub-agents in the background: a turn ends before they do, and another begins without a message
/// when they have ended. The agent is not idle in between.
#[test]
fn a_sub_agent_in_the_background_is_waited_for() {
    belljar_testkit::require!(Agent, Bwrap, Guest);
    for place in [Place::Bare, Place::Sealed] {
        waits_for_a_sub_agent(&Stage::new(belljar_testkit::agent::real().unwrap(), place));
    }
}

fn waits_for_a_sub_agent(stage: &Stage) {
    let task = json!({"description": "d", "prompt": "wait and say so", "subagent_type": "general-purpose"});
    let sub = || RequestConditions::any().sender(Sender::SubAgent);
    let main = || RequestConditions::any().sender(Sender::Main);
    let script = Script::new()
        .turn(Turn::tool_use("Bash", touch("by-sub")).when(sub()))
        .turn(Turn::text("sub is done").when(sub()))
        .turn(Turn::tool_use("Agent", task).when(main()))
        .turn(Turn::text("it runs").when(main()))
        .turn(Turn::text("it is done").when(main()));
    let seen = play(stage, script, allow(), "sub_agent_background");
    seen.assert_success();
    assert_eq!((seen.ending.results, seen.ending.running_sub_agents), (2, 0));
    assert!(stage.project().join("by-sub").exists());
    let at = |wanted: &dyn Fn(&Observation) -> bool| seen.observations.iter().position(wanted).unwrap();
    let first_end = at(&|seen| matches!(seen, Observation::TurnEnded(_)));
    let sub_end = at(&|seen| matches!(seen, Observation::SubAgentEnded { .. }));
    assert!(first_end < sub_end, "{:#?}", seen.observations);
}

fn an_interrupt_ends_the_turn_and_not_the_conversation(stage: &Stage) {
    let script = Script::new()
        .turn(Turn::tool_use("Bash", json!({"command": "mkfifo fifo && cat fifo", "description": "waits"})))
        .turn(Turn::text("second"));
    let react = |seen: &Observation| match seen {
        Observation::ToolCalled { .. } => vec![Command::Interrupt],
        _ => Vec::new(),
    };
    let seen = stage.play(Play {
        name: "interrupt",
        script,
        config: MachineConfig::default(),
        flags: &["--allowedTools", "Bash"],
        messages: &["go", "again"],
        decide: no_questions(),
        react: Box::new(react),
    });
    seen.assert_success();
    assert_eq!((seen.ending.results, seen.ending.failed_results), (2, 1));
    assert_eq!(seen.ending.last.unwrap().text.as_deref(), Some("second"));
}

fn an_interrupt_withdraws_a_question(stage: &Stage) {
    let script = Script::new().turn(Turn::tool_use("Bash", touch("made")));
    let react = |seen: &Observation| match seen {
        Observation::Asked { .. } => vec![Command::Interrupt],
        _ => Vec::new(),
    };
    let seen = stage.play(Play {
        name: "interrupt_pending",
        script,
        config: MachineConfig::default(),
        flags: &[],
        messages: &["go"],
        decide: Box::new(|_| None),
        react: Box::new(react),
    });
    assert!(seen.has(|seen| matches!(seen, Observation::Withdrawn { .. })));
    assert!(!stage.project().join("made").exists());
    assert!(seen.ending.unanswered.is_empty());
    assert!(
        matches!(seen.ending.failure, Some(ConversationFailure::ResultIsError { .. })),
        "{:?}",
        seen.ending
    );
}

/// Two messages, one result: the second message was taken up as well.
fn a_message_into_a_running_turn_is_absorbed(stage: &Stage) {
    let fifo = stage.project().join("fifo");
    let script = Script::new()
        .turn(Turn::tool_use("Bash", json!({"command": "mkfifo fifo && cat fifo", "description": "waits"})))
        .turn(Turn::text("both heard"));
    let react = move |seen: &Observation| match seen {
        Observation::ToolCalled { .. } => vec![Command::Say(message(90, "one thing more"))],
        // The command waits for this line, so that the message arrives before it ends.
        Observation::MessageSent { message, .. } if message.as_str().ends_with("90") => {
            let fifo = fifo.clone();
            std::thread::spawn(move || {
                let made = || fifo.exists().then_some(());
                belljar_testkit::wait::for_files(fifo.parent().unwrap(), made).unwrap();
                fs::write(fifo, "go on\n").unwrap();
            });
            Vec::new()
        }
        _ => Vec::new(),
    };
    let seen = stage.play(Play {
        name: "absorbed",
        script,
        config: MachineConfig::default(),
        flags: &["--allowedTools", "Bash"],
        messages: &["go"],
        decide: no_questions(),
        react: Box::new(react),
    });
    seen.assert_success();
    assert_eq!(seen.ending.results, 1);
    assert_eq!(seen.count(|seen| matches!(seen, Observation::MessageTaken { .. })), 2);
}

fn a_cleared_conversation_is_another(stage: &Stage) {
    let script = Script::new().turn(Turn::text("first")).turn(Turn::text("second"));
    let seen = stage.play(Play {
        name: "clear",
        script,
        config: MachineConfig::default(),
        flags: &[],
        messages: &["go", "/clear", "again"],
        decide: no_questions(),
        react: quiet(),
    });
    seen.assert_success();
    assert_eq!(seen.ending.results, 3);
    assert_eq!(seen.count(|seen| matches!(seen, Observation::ConversationBegan { .. })), 2);
}

fn skills_are_seen_by_each_way(stage: &Stage) {
    let directory = stage.project().join(".claude/skills/notes");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join("SKILL.md"),
        "---\nname: notes\ndescription: Takes notes\n---\nWrite it down.\n",
    )
    .unwrap();
    fs::write(directory.join("run.sh"), "echo ran\n").unwrap();
    let directory = stage.inside(".claude/skills/notes");
    let place = SkillPlace {
        name: "notes".into(),
        directories: vec![directory.to_str().unwrap().into(), ".claude/skills/notes".into()],
    };
    let script =
        Script::new()
            .turn(Turn::tool_use("Skill", json!({"skill": "notes"})))
            .turn(Turn::tool_use("Read", json!({"file_path": directory.join("SKILL.md")})))
            .turn(Turn::reply(ScriptReply::new().tool_use(
                "Bash",
                json!({"command": "cat .claude/skills/notes/SKILL.md", "description": "r"}),
            )))
            .turn(Turn::tool_use(
                "Bash",
                json!({"command": "sh .claude/skills/notes/run.sh", "description": "r"}),
            ))
            .turn(Turn::tool_use("Skill", json!({"skill": "no-such-skill"})))
            .turn(Turn::text("done"))
            .turn(Turn::text("by name"));
    let seen = stage.play(Play {
        name: "skill",
        script,
        config: MachineConfig { skills: vec![place], ..MachineConfig::default() },
        flags: &["--allowedTools", "Bash", "Skill"],
        messages: &["go", "/notes now"],
        decide: no_questions(),
        react: quiet(),
    });
    seen.assert_success();
    let ways: Vec<(String, SkillWay)> = seen
        .observations
        .iter()
        .filter_map(|seen| match seen {
            Observation::SkillActivated { skill, way, .. } => Some((skill.clone(), *way)),
            _ => None,
        })
        .collect();
    let all = [SkillWay::Tool, SkillWay::Read, SkillWay::ShellRead, SkillWay::Script, SkillWay::Message];
    assert_eq!(ways, all.map(|way| ("notes".to_owned(), way)));
    assert!(
        seen.has(
            |seen| matches!(seen, Observation::SkillLoaded { skill: Some(skill), .. } if skill == "notes")
        )
    );
}

fn modes_and_models_change(stage: &Stage) {
    let script = one_call("Write", json!({"file_path": stage.inside("made"), "content": "x"}));
    let react = |seen: &Observation| match seen {
        Observation::Ready { .. } => vec![
            Command::SetPermissionMode(PermissionMode::AcceptEdits),
            Command::SetModel(Some("claude-haiku-4-5".into())),
        ],
        _ => Vec::new(),
    };
    let seen = stage.play(Play {
        name: "mode_and_model",
        script,
        config: MachineConfig::default(),
        flags: &[],
        messages: &["go"],
        decide: no_questions(),
        react: Box::new(react),
    });
    seen.assert_success();
    assert!(stage.project().join("made").exists());
    let settled = |name: &str| {
        seen.has(
            |seen| matches!(seen, Observation::RequestSettled { request, error: None } if request == name),
        )
    };
    assert!(settled("set_permission_mode") && settled("set_model"));
    let request = seen.transcript.requests.iter().find(|request| request.path == "/v1/messages").unwrap();
    assert_eq!(request.json().unwrap()["model"], "claude-haiku-4-5");
}

fn an_error_of_the_model_is_no_success(stage: &Stage) {
    let script = Script::new().turn(Turn::error(belljar_egress::script::ErrorReply::new(400, "no")));
    let seen = play(stage, script, no_questions(), "model_error");
    let Some(ConversationFailure::ResultIsError { subtype, api_error_status, .. }) = &seen.ending.failure
    else {
        panic!("{:?}", seen.ending)
    };
    // The subtype is that of a success, but the flag is not.
    assert_eq!((subtype.as_str(), *api_error_status), ("success", Some(400)));
}

fn a_killed_agent_is_no_success(stage: &Stage) {
    let script = Script::new()
        .turn(Turn::text("first"))
        .turn(Turn::tool_use("Bash", json!({"command": "kill -9 $PPID", "description": "k"})));
    let seen = stage.play(Play {
        name: "killed",
        script,
        config: MachineConfig::default(),
        flags: &["--allowedTools", "Bash"],
        messages: &["go", "again"],
        decide: no_questions(),
        react: quiet(),
    });
    let expected = ConversationFailure::TurnUnfinished { exit: GuestEnd::Signal(9) };
    assert_eq!(seen.ending.failure, Some(expected));
    assert_eq!((seen.ending.results, seen.ending.failed_results), (1, 0));
}

/// Two processes, one conversation: the second knows the messages to the first.
fn a_conversation_is_continued(stage: &Stage) {
    let id = "11111111-2222-4333-8444-555555555555";
    let part = |name, flags: &[&str], message| {
        stage.play(Play {
            name,
            script: Script::new().turn(Turn::text("heard")),
            config: MachineConfig::default(),
            flags,
            messages: &[message],
            decide: no_questions(),
            react: quiet(),
        })
    };
    part("resume_begun", &["--session-id", id], "my name is Quill").assert_success();
    let seen = part("resume", &["--resume", id], "who am I?");
    seen.assert_success();
    let asked = seen.transcript.requests.iter().find_map(|request| request.json()).unwrap().to_string();
    assert!(asked.contains("my name is Quill") && asked.contains("who am I?"), "{asked}");
}

/// A program in place of the agent that accepts a message, and reports to be idle without having answered it.
const STALLS: &str = r#"#!/usr/bin/python3
import json, sys, time
def out(frame):
    print(json.dumps(frame), flush=True)
asked = json.loads(sys.stdin.readline())
out({"type": "control_response", "response": {"subtype": "success", "request_id": asked["request_id"], "response": {}}})
message = json.loads(sys.stdin.readline())
out({**message, "isReplay": True, "session_id": "s", "parent_tool_use_id": None})
out({"type": "system", "subtype": "session_state_changed", "state": "idle", "session_id": "s", "uuid": "u"})
sys.stdin.read()
"#;

#[test]
fn an_agent_that_stalls_is_not_waited_for_without_end() {
    belljar_testkit::require!(Bwrap, Guest, Python);
    let directory = tempfile::tempdir().unwrap();
    let agent = directory.path().join("claude");
    fs::write(&agent, STALLS).unwrap();
    fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let play = Play {
        name: "stalls",
        script: Script::new(),
        config: MachineConfig::default(),
        flags: &[],
        messages: &["go"],
        decide: no_questions(),
        react: quiet(),
    };
    let times =
        ConversationTimes { stalled: std::time::Duration::from_millis(200), ..ConversationTimes::default() };
    let seen = sealed::play_within(&Stage::new(agent, Place::Sealed), play, times);
    let expected = ConversationFailure::Deadline { deadline: Deadline::Turn };
    assert_eq!(seen.ending.failure, Some(expected), "{:#?}{}", seen.observations, seen.stderr);
}

/// The use of a skill is known at its first use, so the rest of the conversation need not be paid for.
#[test]
fn the_first_use_of_a_skill_can_end_a_conversation() {
    belljar_testkit::require!(Agent, Bwrap, Guest);
    let stage = Stage::new(belljar_testkit::agent::real().unwrap(), Place::Sealed);
    let directory = stage.project().join(".claude/skills/notes");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join("SKILL.md"),
        "---\nname: notes\ndescription: Takes notes\n---\nWrite it down.\n",
    )
    .unwrap();
    let place =
        SkillPlace { name: "notes".into(), directories: vec!["/workspace/.claude/skills/notes".into()] };
    // The second answer would come long after the deadline of the conversation.
    let script = Script::new()
        .turn(Turn::tool_use("Skill", json!({"skill": "notes"})))
        .turn(Turn { delay_ms: 600_000, ..Turn::text("never said") });
    let react = |seen: &Observation| match seen {
        Observation::SkillActivated { .. } => vec![Command::Interrupt, Command::EndInput],
        _ => Vec::new(),
    };
    let seen = stage.play(Play {
        name: "first_use",
        script,
        config: MachineConfig { skills: vec![place], ..MachineConfig::default() },
        flags: &["--allowedTools", "Skill"],
        messages: &["go"],
        decide: no_questions(),
        react: Box::new(react),
    });
    assert_eq!(seen.count(|seen| matches!(seen, Observation::SkillActivated { way: SkillWay::Tool, .. })), 1);
    assert!(!seen.has(|seen| matches!(seen, Observation::Said { text, .. } if text == "never said")));
    assert!(
        matches!(seen.ending.failure, Some(ConversationFailure::ResultIsError { .. })),
        "{:?}",
        seen.ending
    );
}
