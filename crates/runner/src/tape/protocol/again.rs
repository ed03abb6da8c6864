//! A conversation that is replayed from its frames.

use super::ProtocolError;
use super::frames::Said;
use crate::session::conversation::Keeping;
use belljar_contract::{
    AfterDeny, ConversationEnd, DialogReply, ElicitationReply, MessageId, Observation, ProtocolFlaw,
    RequestId, Seen, UserMessage,
};
use belljar_session::decider::Chain;
use belljar_session::{
    Answer, AnswerValue, By, Chosen, Command, Dropped, Machine, MachineConfig, Output, Question,
};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// A conversation that is replayed from its frames.
pub(in crate::tape) struct Again {
    pub machine: Machine,
    pub lines: VecDeque<Said>,
    messages: VecDeque<UserMessage>,
    /// Questions that wait for their recorded answers.
    open: BTreeMap<String, Question>,
    answered: Answered,
    pub seen: Vec<Observation>,
    end: Option<ConversationEnd>,
    /// The first answer that does not match its question.
    unfit: Option<ProtocolError>,
    not_kept: u64,
    keeping: Keeping,
    decided: Vec<(Question, Answer)>,
}

/// What a conversation gave that was replayed from its frames.
pub(in crate::tape) struct AgainEnded {
    pub seen: Vec<Observation>,
    pub end: Option<ConversationEnd>,
    /// The questions, with their recorded answers.
    pub decided: Vec<(Question, Answer)>,
}

impl Again {
    pub fn new(config: MachineConfig, lines: VecDeque<Said>, answered: Answered) -> Self {
        let message = |said: &Said| match said {
            Said::Belljar(frame) if frame.get("type").and_then(Value::as_str) == Some("user") => {
                let id = MessageId::new(frame.get("uuid")?.as_str()?).ok()?;
                let text = frame.pointer("/message/content")?.as_str()?.to_owned();
                Some(UserMessage { id, text })
            }
            Said::Belljar(_) | Said::Agent(_) => None,
        };
        Self {
            machine: Machine::new(config),
            messages: lines.iter().filter_map(message).collect(),
            lines,
            open: BTreeMap::new(),
            answered,
            seen: Vec::new(),
            end: None,
            unfit: None,
            not_kept: 0,
            keeping: Keeping::default(),
            decided: Vec::new(),
        }
    }

    pub fn begin(&mut self) {
        let outputs = self.machine.on_command(Command::Begin);
        self.carry_out(outputs);
        self.next_message();
    }

    pub fn next_message(&mut self) {
        let command = self.messages.pop_front().map_or(Command::EndInput, Command::Say);
        let outputs = self.machine.on_command(command);
        self.carry_out(outputs);
    }

    pub fn take(&mut self, said: Said) {
        match said {
            Said::Agent(frame) => {
                let outputs = match frame {
                    Ok(frame) => self.machine.on_frame(frame.body),
                    Err(error) => self.machine.on_unread(error.to_string()),
                };
                self.carry_out(outputs);
            }
            Said::Belljar(frame) => self.answer_with(&frame),
        }
    }

    pub fn carry_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Ask { request, question } => self.ask(&request, question),
                Output::Observe(what) => self.observe(what),
                Output::Idle => self.next_message(),
                Output::Ended(mut end) => {
                    end.unread += self.not_kept + u64::from(self.keeping.fit_end(&mut end) > 0);
                    self.end = Some(end);
                }
                Output::Withdrawn { request } => {
                    self.open.remove(request.as_str());
                }
                Output::Dropped(Dropped::Unfit { request, cause }) => {
                    self.does_not_fit(request.as_str(), cause.to_string());
                }
                Output::Send(_) | Output::Dropped(_) | Output::CloseInput | Output::Terminate => {}
            }
        }
    }

    /// Gives an answer immediately if it was given immediately.
    fn ask(&mut self, request: &RequestId, question: Question) {
        self.open.insert(request.as_str().to_owned(), question);
        if let Answered::Recorded { unanswered, .. } = &mut self.answered
            && let Some(what) = unanswered.remove(request.as_str())
        {
            self.observe(what);
        }
        let answers = |said: &mut Said| match said {
            Said::Belljar(frame) => replies_to(frame) == Some(request.as_str()),
            Said::Agent(_) => false,
        };
        if let Some(said) = self.lines.pop_front_if(answers) {
            self.take(said);
        }
    }

    fn answer_with(&mut self, frame: &Value) {
        let Some((id, question)) = replies_to(frame).and_then(|id| self.open.remove_entry(id)) else {
            return;
        };
        let answer = match self.answered.answer(&id, &question, frame) {
            None => return,
            Some(Err(why)) => return self.does_not_fit(&id, why),
            Some(Ok(answer)) => answer,
        };
        let Ok(request) = RequestId::new(id.clone()) else { return };
        self.decided.push((question, answer.clone()));
        let outputs = self.machine.on_command(Command::Answer { request, answer });
        let differs = |output: &Output| match output {
            Output::Send(reply) => !contains(frame, &reply.to_json()),
            Output::Ask { .. }
            | Output::Withdrawn { .. }
            | Output::Dropped(_)
            | Output::Observe(_)
            | Output::Idle
            | Output::CloseInput
            | Output::Terminate
            | Output::Ended(_) => false,
        };
        if outputs.iter().any(differs) {
            self.does_not_fit(&id, "a part of it was lost or replaced".to_owned());
        }
        self.carry_out(outputs);
    }

    /// Ends the conversation.
    ///
    /// # Errors
    /// If a recorded answer does not match its question.
    pub fn finish(self) -> Result<AgainEnded, ProtocolError> {
        let Self {
            machine: _,
            lines: _,
            messages: _,
            open: _,
            answered: _,
            seen,
            end,
            unfit,
            // Both were counted in the end of the conversation.
            not_kept: _,
            keeping: _,
            decided,
        } = self;
        match unfit {
            Some(unfit) => Err(unfit),
            None => Ok(AgainEnded { seen, end, decided }),
        }
    }

    fn does_not_fit(&mut self, request: &str, why: String) {
        self.unfit.get_or_insert(ProtocolError::Answer { request: request.to_owned(), why });
    }

    fn observe(&mut self, mut what: Observation) {
        let lost = self.keeping.fit(&mut what);
        self.seen.push(what);
        if lost > 0 {
            self.not_kept += 1;
            self.seen.push(Observation::Flawed(ProtocolFlaw::NotKept { bytes: lost }));
        }
    }
}

/// Where the deciders and reasons of recorded answers come from.
pub(in crate::tape) enum Answered {
    /// From the record; an open question is reported when it comes.
    Recorded {
        /// The decider, the reason and the chosen texts, by request.
        answered: BTreeMap<String, (By, String, Vec<String>)>,
        /// The observations about unanswered questions.
        unanswered: BTreeMap<String, Observation>,
    },
    /// Not recorded: the first decider that gives the same answer is assumed.
    Guessed(Chain),
}

impl Answered {
    /// # Errors
    /// If an answer names a decider that does not exist.
    pub(super) fn recorded(seen: &[Seen]) -> Result<Self, ProtocolError> {
        let (mut answered, mut unanswered) = (BTreeMap::new(), BTreeMap::new());
        for Seen { seq: _, offset_ms: _, what } in seen {
            // The frames give the answer itself.
            if let Observation::Answered { request, answer: _, chosen, by, reason } = what {
                let known = By::ALL.into_iter().find(|one| one.name() == by);
                let by = known
                    .ok_or_else(|| ProtocolError::Decider { request: request.to_string(), by: by.clone() })?;
                answered.insert(request.to_string(), (by, reason.clone(), chosen.clone()));
            } else if let Observation::Unanswered { request, .. } = what {
                unanswered.insert(request.to_string(), what.clone());
            }
        }
        Ok(Self::Recorded { answered, unanswered })
    }

    /// The answer that a frame contains; `None` if it is not known whether one was given.
    fn answer(&self, id: &str, question: &Question, frame: &Value) -> Option<Result<Answer, String>> {
        let unread = || "it cannot be read".to_owned();
        let (value, by, reason) = match self {
            Self::Recorded { answered, .. } => {
                let (by, reason, chosen) = answered.get(id).cloned()?;
                (answer_value(question, frame, &chosen)?, by, reason)
            }
            Self::Guessed(chain) => {
                let Some(value) = answer_value(question, frame, &chosen(question, frame)) else {
                    return Some(Err(unread()));
                };
                match chain.decide(question) {
                    Ok(decided) if decided.value == value => (value, decided.by, decided.reason),
                    Ok(_) | Err(_) => {
                        (value, By::External, "no rule of the scenario gives this answer".to_owned())
                    }
                }
            }
        };
        Some(Ok(Answer { value, by, reason, grant: None }))
    }
}

/// Whether a recorded frame has all that belljar would send. Another tool may have sent more.
pub(super) fn contains(recorded: &Value, sent: &Value) -> bool {
    match (recorded, sent) {
        (Value::Object(recorded), Value::Object(sent)) => sent
            .iter()
            .all(|(name, sent)| recorded.get(name).is_some_and(|recorded| contains(recorded, sent))),
        (recorded, sent) => recorded == sent,
    }
}

fn replies_to(frame: &Value) -> Option<&str> {
    frame.pointer("/response/request_id")?.as_str()
}

/// The choices in a frame, one text for each question.
fn chosen(question: &Question, frame: &Value) -> Vec<String> {
    let Question::Choice { questions, .. } = question else { return Vec::new() };
    let answers = frame.pointer("/response/response/updatedInput/answers");
    let text = |asked: &belljar_contract::AskedQuestion| answers?.get(&asked.question)?.as_str();
    questions.iter().filter_map(|asked| text(asked).map(str::to_owned)).collect()
}

/// The answer in a frame. Hooks and servers of belljar's own are not covered.
fn answer_value(question: &Question, frame: &Value, chosen: &[String]) -> Option<AnswerValue> {
    let response = frame.get("response")?;
    if let Some(why) = response.get("error").and_then(Value::as_str) {
        return Some(AnswerValue::Error(why.to_owned()));
    }
    let body = response.get("response")?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let data = |name: &str| body.get(name).and_then(Value::as_object).cloned();
    match (question, text("behavior").or_else(|| text("action"))?) {
        (Question::Elicitation(_), "accept") => {
            let content = data("content").unwrap_or_default();
            Some(AnswerValue::Elicitation(ElicitationReply::Accept(content)))
        }
        (Question::Elicitation(_), "decline") => Some(AnswerValue::Elicitation(ElicitationReply::Decline)),
        (Question::Elicitation(_), "cancel") => Some(AnswerValue::Elicitation(ElicitationReply::Cancel)),
        (Question::Dialog(_), "cancelled") => Some(AnswerValue::Dialog(DialogReply::Cancelled)),
        (Question::Dialog(_), "ok" | "completed") => {
            let result = body.get("choice").or_else(|| body.get("result")).cloned().unwrap_or_default();
            Some(AnswerValue::Dialog(DialogReply::Completed(result)))
        }
        (Question::Permission(_) | Question::Choice { .. } | Question::Unreadable { .. }, "deny") => {
            let interrupts = body.get("interrupt").and_then(Value::as_bool) == Some(true);
            let then = if interrupts { AfterDeny::Interrupt } else { AfterDeny::GoOn };
            Some(AnswerValue::Deny { message: text("message")?.to_owned(), then })
        }
        (Question::Permission(asked), "allow") => {
            let permissions = body.get("updatedPermissions").and_then(Value::as_array).cloned();
            let input = body.get("updatedInput").and_then(Value::as_object);
            Some(AnswerValue::Allow {
                // Omitted if it only repeats the requested input.
                input: input.filter(|input| **input != asked.input).cloned(),
                permissions: permissions.unwrap_or_default(),
            })
        }
        (Question::Choice { questions, .. }, "allow") => {
            let pick = |(asked, text): (&belljar_contract::AskedQuestion, &String)| {
                let known = |label: &str| asked.options.iter().any(|option| option.label == label);
                let several: Vec<String> = text.split(", ").map(str::to_owned).collect();
                match (known(text), several.iter().all(|label| known(label))) {
                    (true, _) => Chosen::Labels(vec![text.clone()]),
                    (false, true) => Chosen::Labels(several),
                    (false, false) => Chosen::Text(text.clone()),
                }
            };
            Some(AnswerValue::Choices(questions.iter().zip(chosen).map(pick).collect()))
        }
        (
            Question::Permission(_)
            | Question::Choice { .. }
            | Question::Elicitation(_)
            | Question::Dialog(_)
            | Question::Unreadable { .. }
            | Question::Hook(_)
            | Question::Mcp(_),
            _,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(by: &str) -> Result<Answered, ProtocolError> {
        let request = RequestId::new("r1").unwrap();
        let (answer, reason, by) = ("allow".to_owned(), String::new(), by.to_owned());
        let what = Observation::Answered { request, answer, chosen: Vec::new(), by, reason };
        Answered::recorded(&[Seen { seq: 1, offset_ms: 1, what }])
    }

    #[test]
    fn an_unknown_decider_is_an_error() {
        assert!(By::ALL.into_iter().all(|by| recorded(by.name()).is_ok()));
        let error = recorded("oracle").err().unwrap();
        assert_eq!(
            error.to_string(),
            "the recorded answer to `r1` names the decider `oracle`, which this belljar does not know"
        );
    }
}
