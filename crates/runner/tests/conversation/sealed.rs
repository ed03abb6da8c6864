//! The same conversations with the agent in its sandbox: planned, launched and driven by belljar.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use belljar_contract::{AbsPath, Digest, Event, Lane, ModelEvidence, OsText, Purpose, Workload};
use belljar_runner::{
    ConversationRequest, ConversationTimes, Deciders, EgressMode, ExternalDecider, GuestImage, GuestProgram,
    HostEnvironment, LaunchFacts, Model, Pending, Planner, PrivateValues, RunRequest, Stdio, Then, run,
};
use belljar_session::decider::{Chain, Decider, Decision};
use belljar_session::{Answer, By, Question};

use crate::stage::{Decide, Play, Seen, Stage};

/// The user's own manifest: the project has none. The agent's conversations are kept.
const MANIFEST: &str = r#"[agents.under-test]
home = "project"
workspace = "direct"
backend = "bwrap"
model = "claude-opus-4-8"
egress = { allow = [] }
"#;

pub fn play(stage: &Stage, play: Play<'_>) -> Seen {
    play_within(stage, play, ConversationTimes::default())
}

pub fn play_within(stage: &Stage, play: Play<'_>, times: ConversationTimes) -> Seen {
    let Play { name: _, script, config, flags, messages, decide, react } = play;
    let environment = environment(stage);
    let planner = Planner::new(environment.clone()).unwrap();
    let planned = planner.plan(None, Purpose::Test).unwrap_or_else(|error| panic!("{error:?}"));
    let arguments = planned.conversation_arguments.iter().map(String::as_str).chain(flags.iter().copied());
    let workload = Workload::Agent(arguments.map(|argument| OsText::new(argument).unwrap()).collect());
    let questions = Rc::new(RefCell::new(Vec::new()));
    let decider = SceneDecider { decide: RefCell::new(decide), questions: Rc::clone(&questions) };
    let talk = ConversationRequest {
        config,
        messages: messages.iter().map(|text| (*text).to_owned()).collect(),
        then: Then::End,
        deciders: Deciders {
            chain: Chain::default().then(decider),
            outside: Some(Box::new(Silent)),
            scenario: None,
        },
        react: Some(react),
        times,
    };
    let (mut observations, mut ending) = (Vec::new(), None);
    let report = run(RunRequest {
        reach: belljar_runner::Reach::AsRuled,
        time: None,
        notice: None,
        planned: &planned,
        facts: LaunchFacts::gather(&planned, &environment).unwrap(),
        open: &mut |_| {},
        environment: &environment,
        workload: &workload,
        subject: belljar_runner::RunSubject::of(belljar_contract::RunVerb::Test),
        name: None,
        model: Model::Script(script),
        mode: EgressMode::Enforce,
        ask: &mut |_| panic!("nothing is asked for"),
        stdio: Stdio::Conversation(Box::new(talk)),
        waiting: None,
        files: None,
        judge: None,
        taping: belljar_runner::tape::Taping::Off,
        watch: &mut |event| match event {
            Event::Seen { what } => observations.push((**what).clone()),
            Event::ConversationEnded { end } => ending = Some((**end).clone()),
            _ => {}
        },
    })
    .unwrap();
    assert_eq!(report.record_errors, [""; 0]);
    let directory = report.directory.unwrap();
    assert_vouched(&directory);
    Seen {
        observations,
        questions: questions.take(),
        ending: ending.unwrap(),
        transcript: report.transcript.unwrap(),
        stderr: fs::read_to_string(directory.as_path().join("agent.stderr")).unwrap_or_default(),
    }
}

/// The agent's frames match what the gateway served, in every scene.
fn assert_vouched(directory: &AbsPath) {
    let (_, evidence) = belljar_runner::suite::evidence(directory, Lane::Local).unwrap();
    assert!(matches!(evidence.model, ModelEvidence::Kept { .. }), "{:?}", evidence.model);
    let checks = belljar_verdict::Checks::none(Lane::Local);
    let signals = checks.judge(&evidence).signals;
    let frames = || fs::read_to_string(directory.as_path().join("frames.jsonl")).unwrap();
    assert!(signals.iter().all(|signal| signal.code != "frames_differ"), "{signals:#?}\n{}", frames());
}

fn environment(stage: &Stage) -> HostEnvironment {
    let abs = |path: &Path| AbsPath::new(path).unwrap();
    let home = stage.path("home");
    fs::create_dir_all(home.join(".config/belljar")).unwrap();
    fs::write(home.join(".config/belljar/belljar.toml"), MANIFEST).unwrap();
    let data = abs(&home.join("data/belljar"));
    let bytes = fs::read(belljar_testkit::guest::built().unwrap()).unwrap();
    let digest = Digest::of(&bytes).hex();
    let search = format!("{}:/usr/bin:/bin", stage.agent.parent().unwrap().display());
    HostEnvironment {
        // Leaked, because the program needs it for as long as it runs.
        guest: GuestProgram::new(&data, GuestImage { bytes: bytes.leak(), digest: digest.leak() }),
        directory: abs(&stage.project()),
        config: abs(&home.join(".config/belljar")),
        data,
        state: abs(&home.join("state/belljar")),
        runtime: abs(&home.join("run/belljar")),
        variables: BTreeMap::from([("PATH".into(), search.into())]),
        private: PrivateValues::default(),
        home: abs(&home),
    }
}

/// The decider of a scene.
struct SceneDecider {
    decide: RefCell<Decide>,
    questions: Rc<RefCell<Vec<Question>>>,
}

impl Decider for SceneDecider {
    fn decide(&self, question: &Question) -> Decision {
        self.questions.borrow_mut().push(question.clone());
        match (*self.decide.borrow_mut())(question) {
            Some(value) => Decision::Answered(Answer {
                value,
                by: By::Person,
                reason: "the test says so".to_owned(),
                grant: None,
            }),
            None => Decision::NoOpinion { note: None },
        }
    }
}

/// A decider that never answers: open questions stay open.
struct Silent;

impl ExternalDecider for Silent {
    fn decide(&mut self, _: &Pending) -> Result<Answer, String> {
        loop {
            std::thread::park();
        }
    }
}
