//! Asks the deciders one question without an agent.

use super::Answering;
use super::chain::ScenarioAnswers;
use super::load::Trial;
use crate::egress::answer_calls;
use crate::launch::Model;
use crate::session::conversation::{Deciders, ExternalDecider, Incoming, Mailbox, Pending, Then};
use crate::session::supervise::{SuperviseError, take_signals};
use belljar_contract::{AskedOption, AskedQuestion, PermissionRequest, RequestId};
use belljar_egress::script::Playing;
use belljar_plan::{OnUnanswered, PermissionParity};
use belljar_session::decider::Unanswered;
use belljar_session::{Answer, AnswerValue, Chosen, Question};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::{Map, Value};
use std::io;

/// The id of the only request, and of the run that it would be of.
const REHEARSAL: &str = "rehearsal";

/// A question as an agent could ask it.
#[derive(Debug, Clone)]
pub struct Rehearsal(Question);

impl Rehearsal {
    /// A question to the user.
    #[must_use]
    pub fn question(text: &str, header: &str, labels: &[String], multi_select: bool) -> Self {
        let option = |label: &String| AskedOption { label: label.clone(), description: String::new() };
        let asked = AskedQuestion {
            question: text.to_owned(),
            header: header.to_owned(),
            options: labels.iter().map(option).collect(),
            multi_select,
        };
        let request = PermissionRequest::of("AskUserQuestion", Map::new());
        Self(Question::Choice { request, questions: vec![asked] })
    }

    /// A tool that wants to run. The tool that asks the user may ask several questions at once.
    #[must_use]
    pub fn tool(name: &str, input: Map<String, Value>) -> Self {
        let request = PermissionRequest::of(name, input);
        Self(match request.questions() {
            None => Question::Permission(request),
            Some(Ok(questions)) => Question::Choice { request, questions },
            Some(Err(why)) => Question::Unreadable { request, why },
        })
    }
}

/// A question and the deciders that are asked.
pub struct RehearsalRequest<'a> {
    pub question: Rehearsal,
    /// The scenario whose rules are used, with its session.
    pub scenario: Option<&'a Trial>,
    /// Whether tools that no rule names are denied, whatever the session says.
    pub strict: bool,
    pub answering: Answering,
    /// The model that a deciding model is played by.
    pub model: Model,
}

/// What came of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rehearsed {
    Answered(RehearsedAnswer),
    /// No decider answers, or the one that was asked failed.
    Open(Unanswered),
    /// A signal ended it.
    Interrupted,
}

/// The answer that the deciders give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsedAnswer {
    pub what: String,
    /// The decider that answered.
    pub by: &'static str,
    pub reason: String,
}

/// Why nothing could be rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error(transparent)]
    Signals(#[from] SuperviseError),
    /// A model that answers needs a script.
    #[error("a rehearsal asks a model only by a script")]
    NoScript,
    /// The script has faults.
    #[error("the script cannot be played: {0}")]
    Script(String),
    #[error("cannot start the decider")]
    Start(#[source] io::Error),
}

/// Asks the rules, and then the other deciders, as a run would.
///
/// # Errors
/// If a decider cannot be started. A decider that fails leaves the question open, as in a run.
pub fn rehearse(rehearsal: RehearsalRequest<'_>) -> Result<Rehearsed, RehearsalError> {
    let RehearsalRequest { question: Rehearsal(question), scenario, strict, answering, model } = rehearsal;
    let left_to = scenario.and_then(|trial| trial.scenario.on_unanswered);
    // A scenario alone asks no model: its author would spend the user's money.
    let left_to_model = left_to == Some(OnUnanswered::Llm) && answering.model.is_none();
    let answers = ScenarioAnswers {
        rules: scenario.map(|trial| trial.rules.as_slice()).unwrap_or_default(),
        on_unanswered: if left_to_model { Some(OnUnanswered::Fail) } else { left_to },
        parity: match scenario {
            _ if strict => PermissionParity::Strict,
            Some(trial) => trial.session.permission_parity,
            None => PermissionParity::Cowork,
        },
        name: scenario.map(|trial| trial.scenario.name.as_str()),
    };
    let Deciders { chain, outside, scenario } = answers.deciders(answering, None);
    let mut unanswered = match (chain.decide(&question), outside) {
        (Ok(answer), _) => return Ok(Rehearsed::of(&question, answer)),
        (Err(unanswered), None) => unanswered,
        (Err(unanswered), Some(outside)) => {
            let pending = Pending {
                request: RequestId::new(REHEARSAL)
                    .map_err(|error| RehearsalError::Start(io::Error::other(error)))?,
                question: question.clone(),
                run: REHEARSAL.to_owned(),
                scenario,
                transcript: String::new(),
            };
            match ask(outside, pending, model)? {
                None => return Ok(Rehearsed::Interrupted),
                Some(Ok(answer)) => return Ok(Rehearsed::of(&question, answer)),
                Some(Err(why)) => {
                    let Unanswered { about, mut notes, paste } = unanswered;
                    notes.push(why);
                    Unanswered { about, notes, paste }
                }
            }
        }
    };
    if left_to_model {
        unanswered.notes.push("the scenario leaves it to a model; --decider-llm asks one".to_owned());
    }
    Ok(Rehearsed::Open(unanswered))
}

/// Asks a decider that takes time; `None` if a signal came before the answer. The decider ends with this call.
fn ask(
    mut outside: Box<dyn ExternalDecider>,
    pending: Pending,
    model: Model,
) -> Result<Option<Result<Answer, String>>, RehearsalError> {
    let signals = take_signals()?;
    if let Some(calls) = outside.model_calls() {
        let Model::Script(script) = model else { return Err(RehearsalError::NoScript) };
        let playing = Playing::new(script).map_err(|faults| RehearsalError::Script(faults.to_string()))?;
        answer_calls(calls, playing.answer()).map_err(RehearsalError::Start)?;
    }
    let mut mailbox = Mailbox::new(Some(outside), Then::End).map_err(RehearsalError::Start)?;
    if let Err(why) = mailbox.ask(pending) {
        return Ok(Some(Err(why.unwrap_or_default())));
    }
    loop {
        match mailbox.next() {
            Some(Incoming::Answer { answer, .. }) => return Ok(Some(answer)),
            Some(Incoming::Message(_) | Incoming::End) | None => {}
        }
        let (answered, signalled) = (mailbox.as_fd(), &signals);
        let mut polled = [PollFd::new(&answered, PollFlags::IN), PollFd::new(signalled, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(RehearsalError::Start(error.into())),
        }
        while let Some(signal) = signals.next().map_err(SuperviseError::from)? {
            if signal != Signal::WINCH.as_raw() {
                return Ok(None);
            }
        }
    }
}

impl Rehearsed {
    /// The answer, if it is one that the agent would get.
    fn of(question: &Question, Answer { value, by, reason, grant: _ }: Answer) -> Self {
        if let Err(unfit) = question.reply(&value) {
            let notes = vec![format!("{}: {unfit}", by.name())];
            return Self::Open(Unanswered { about: question.about(), notes, paste: None });
        }
        let what = match &value {
            AnswerValue::Choices(chosen) => chosen.iter().map(shown).collect::<Vec<_>>().join("; "),
            other @ (AnswerValue::Allow { .. }
            | AnswerValue::Deny { .. }
            | AnswerValue::Hook(_)
            | AnswerValue::Mcp(_)
            | AnswerValue::Elicitation(_)
            | AnswerValue::Dialog(_)
            | AnswerValue::Error(_)) => other.about().to_owned(),
        };
        Self::Answered(RehearsedAnswer { what, by: by.name(), reason })
    }
}

fn shown(chosen: &Chosen) -> String {
    match chosen {
        Chosen::Labels(labels) => labels.join(", "),
        Chosen::Text(text) => text.clone(),
    }
}
