//! The same conversation with the agent in its sandbox: planned, launched and talked to by belljar.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use belljar_contract::{AbsPath, Digest, Errand, Event, Lane, ModelEvidence, OsText, Purpose};
use belljar_runner::{
    Attendant, Deciders, EgressMode, GuestImage, GuestProgram, Model, Outside, Pending, Planner, RunRequest,
    Surroundings, TalkRequest, TalkTimes, Then, run,
};
use belljar_session::decider::{Chain, Decider, Decision};
use belljar_session::{Answer, By, Question};

use crate::stage::{Decide, Play, Seen, Stage};

/// The user's own manifest: the project has none. What the agent keeps of a conversation lasts.
const MANIFEST: &str = r#"[agents.under-test]
home = "project"
workspace = "direct"
backend = "bwrap"
model = "claude-opus-4-8"
egress = { allow = [] }
"#;

pub fn play(stage: &Stage, play: Play<'_>) -> Seen {
    play_within(stage, play, TalkTimes::default())
}

pub fn play_within(stage: &Stage, play: Play<'_>, times: TalkTimes) -> Seen {
    let Play { name: _, script, config, flags, messages, decide, react } = play;
    let surroundings = surroundings(stage);
    let planner = Planner::new(surroundings.clone()).unwrap();
    let planned = planner.plan(None, Purpose::Test).unwrap_or_else(|error| panic!("{error:?}"));
    let words = planned.conversation_arguments.iter().map(String::as_str).chain(flags.iter().copied());
    let errand = Errand::Agent(words.map(|word| OsText::new(word).unwrap()).collect());
    let questions = Rc::new(RefCell::new(Vec::new()));
    let told = Told { decide: RefCell::new(decide), questions: Rc::clone(&questions) };
    let talk = TalkRequest {
        config,
        messages: messages.iter().map(|text| (*text).to_owned()).collect(),
        then: Then::End,
        deciders: Deciders { chain: Chain::default().then(told), outside: Some(Box::new(Silent)) },
        react: Some(react),
        times,
    };
    let (mut observations, mut ending) = (Vec::new(), None);
    let report = run(RunRequest {
        reach: belljar_runner::Reach::AsRuled,
        notice: None,
        planned: &planned,
        surroundings: &surroundings,
        errand: &errand,
        name: None,
        model: Model::Script(script),
        mode: EgressMode::Enforce,
        ask: &mut |_| panic!("nothing is asked for"),
        attendant: Attendant::Talk(Box::new(talk)),
        waiting: None,
        files: None,
        taping: belljar_runner::tape::Taping::Off,
        watch: &mut |event| match event {
            Event::Seen { what } => observations.push((**what).clone()),
            Event::ConversationEnded { end } => ending = Some((**end).clone()),
            _ => {}
        },
    })
    .unwrap();
    assert_eq!(report.trouble, [""; 0]);
    let folder = report.folder.unwrap();
    assert_vouched(&folder);
    Seen {
        observations,
        questions: questions.take(),
        ending: ending.unwrap(),
        transcript: report.transcript.unwrap(),
        stderr: fs::read_to_string(folder.as_path().join("agent.stderr")).unwrap_or_default(),
    }
}

/// What the agent said is what the gateway served, whatever happened.
fn assert_vouched(folder: &AbsPath) {
    let (_, evidence) = belljar_runner::trial::evidence(folder, Lane::Local).unwrap();
    assert!(matches!(evidence.model, ModelEvidence::Kept { .. }), "{:?}", evidence.model);
    let checks = belljar_verdict::Checks::none(Lane::Local);
    let signals = checks.judge(&evidence).signals;
    let frames = || fs::read_to_string(folder.as_path().join("frames.jsonl")).unwrap();
    assert!(signals.iter().all(|signal| signal.code != "frames_differ"), "{signals:#?}\n{}", frames());
}

fn surroundings(stage: &Stage) -> Surroundings {
    let abs = |path: &Path| AbsPath::new(path).unwrap();
    let home = stage.path("home");
    fs::create_dir_all(home.join(".config/belljar")).unwrap();
    fs::write(home.join(".config/belljar/belljar.toml"), MANIFEST).unwrap();
    let data = abs(&home.join("data/belljar"));
    let bytes = fs::read(belljar_testkit::guest::built().unwrap()).unwrap();
    let digest = Digest::of(&bytes).hex();
    let search = format!("{}:/usr/bin:/bin", stage.agent.parent().unwrap().display());
    Surroundings {
        // For as long as the test lives, which is what the program does too.
        guest: GuestProgram::new(&data, GuestImage { bytes: bytes.leak(), digest: digest.leak() }),
        directory: abs(&stage.project()),
        config: abs(&home.join(".config/belljar")),
        data,
        state: abs(&home.join("state/belljar")),
        runtime: abs(&home.join("run/belljar")),
        variables: BTreeMap::from([("PATH".into(), search.into())]),
        home: abs(&home),
    }
}

/// The decider of a scene.
struct Told {
    decide: RefCell<Decide>,
    questions: Rc<RefCell<Vec<Question>>>,
}

impl Decider for Told {
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

/// Somebody who never answers: what the scene leaves open stays open.
struct Silent;

impl Outside for Silent {
    fn decide(&mut self, _: &Pending) -> Result<Answer, String> {
        loop {
            std::thread::park();
        }
    }
}
