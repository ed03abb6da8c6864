//! Handles each kind of frame of the agent.

use super::{
    Echo, HookAnswering, Machine, Output, Phase, StateEvents,
    ending::outcome,
    ledger::Entry,
    server::{ServerAnswering, unknown_server},
    skill,
};
use crate::harness::reported_version;
use crate::question::{AnswerValue, By, Question};
use belljar_contract::{
    AgentRequest, AssistantFrame, Block, CallId, ConversationFailure, HookCall, HookReply, HostReply,
    HostRequest, InitFrame, MessageId, Observation, Outbound, ProtocolFlaw, Reply, RequestId, ResultFrame,
    SYNTHETIC_MODEL, SessionId, SessionState, Speaker, UserFrame,
};
use serde_json::Value;

impl Machine {
    pub(super) fn on_init(&mut self, init: InitFrame, out: &mut Vec<Output>) {
        // Said at the start of each turn, and again when a message is answered without the model.
        self.tally.turn_opens();
        if self.session.as_ref() == Some(&init.session) {
            return;
        }
        let InitFrame { session, versions, model, permission_mode, directory: _, tools, servers, skills } =
            init;
        self.session = Some(session.clone());
        out.push(Output::Observe(Observation::ConversationBegan {
            session,
            version: reported_version(versions),
            model,
            permission_mode,
            tools,
            servers,
            skills,
        }));
    }

    pub(super) fn on_state(&mut self, state: SessionState, out: &mut Vec<Output>) {
        out.push(Output::Observe(Observation::StateChanged { state }));
        if self.config.state_events == StateEvents::Expected && state == SessionState::Idle {
            self.idle(out);
        }
    }

    /// Reports that the agent is idle if nothing waits. An agent between two messages also calls itself idle.
    fn idle(&mut self, out: &mut Vec<Output>) {
        let untaken = self.config.echo == Echo::Expected && !self.untaken.is_empty();
        let waits = untaken || !self.queued.is_empty() || self.ledger.pending().next().is_some();
        if self.tally.turn_is_closed() && !waits && self.phase == Phase::Open {
            out.push(Output::Idle);
        }
    }

    pub(super) fn on_assistant(&mut self, frame: AssistantFrame, out: &mut Vec<Output>) {
        let by = speaker(frame.parent);
        if self.tally.comes_after_result() {
            out.push(Output::Observe(Observation::AfterResult { frame: "assistant".to_owned() }));
        }
        if by == Speaker::Main {
            self.tally.turn_opens();
        }
        // Text that the agent wrote itself, such as that of an error, does not count as the model's.
        let is_synthetic = frame.model.as_deref() == Some(SYNTHETIC_MODEL);
        for block in frame.blocks {
            let by = by.clone();
            match block {
                Block::Text(text) if is_synthetic => {
                    out.push(Output::Observe(Observation::Noted { by, text }));
                }
                Block::Text(text) => {
                    out.push(Output::Observe(Observation::Said { by, text }));
                }
                Block::Thinking(text) => {
                    out.push(Output::Observe(Observation::Thought { by, text }));
                }
                Block::ToolUse { call, tool, input } => {
                    let uses = skill::uses(&self.config.skills, &tool, &input);
                    self.calls.called(&call, &tool, &by, uses);
                    out.push(Output::Observe(Observation::ToolCalled { by, call, tool, input }));
                }
                // The model does not return results; a block of another type is in the raw frame.
                Block::ToolResult { .. } | Block::Other { .. } => {}
            }
        }
    }

    pub(super) fn on_user(&mut self, frame: UserFrame, out: &mut Vec<Output>) {
        if frame.is_replay {
            self.on_echo(frame.message, out);
            return;
        }
        let by = speaker(frame.parent);
        for block in frame.blocks {
            match block {
                Block::ToolResult { call, text, is_error } => {
                    self.on_tool_result(by.clone(), call, text, is_error, out);
                }
                Block::Text(text) if frame.is_synthetic => {
                    out.extend(skill::loaded(&self.config.skills, &text).map(Output::Observe));
                }
                // Prompts of sub-agents, notes of an interruption, output of local commands.
                Block::Text(_) | Block::Thinking(_) | Block::ToolUse { .. } | Block::Other { .. } => {}
            }
        }
    }

    /// A message was taken up. Only an id that was sent counts: the agent repeats its own notes in the same way.
    fn on_echo(&mut self, message: Option<MessageId>, out: &mut Vec<Output>) {
        let Some(message) = message.filter(|message| self.untaken.echoed(message)) else { return };
        self.tally.turn_opens();
        out.push(Output::Observe(Observation::MessageTaken { message }));
    }

    fn on_tool_result(
        &mut self,
        by: Speaker,
        call: CallId,
        text: String,
        is_error: bool,
        out: &mut Vec<Output>,
    ) {
        let known = self.calls.returned(&call);
        if known.is_none() {
            self.flaw(ProtocolFlaw::StrayResult { call: call.clone() }, out);
        }
        let (tool, uses) = known.map_or((None, Vec::new()), |known| (Some(known.tool), known.uses));
        let activated = uses.into_iter().map(|(skill, way)| Observation::SkillActivated {
            skill,
            way,
            by: by.clone(),
            call: Some(call.clone()),
        });
        // A call that was refused put nothing to use. A command that failed ran: the agent reports its status.
        let ran = !is_error || (tool.as_deref() == Some("Bash") && text.starts_with("Exit code "));
        let activated: Vec<Observation> = activated.filter(|_| ran).collect();
        out.push(Output::Observe(Observation::ToolReturned { by, call, tool, text, is_error }));
        out.extend(activated.into_iter().map(Output::Observe));
    }

    pub(super) fn on_result(&mut self, frame: ResultFrame, out: &mut Vec<Output>) {
        self.note_session(frame.session.as_ref(), out);
        let taken = self.untaken.turn_ended(frame.is_error);
        out.extend(taken.map(|message| Output::Observe(Observation::MessageTaken { message })));
        let outcome = outcome(frame);
        self.tally.turn_ends(outcome.clone());
        out.push(Output::Observe(Observation::TurnEnded(outcome)));
        if self.config.state_events == StateEvents::Absent {
            self.idle(out);
        }
    }

    /// `/clear` is known only by the id that the next frames carry.
    fn note_session(&mut self, session: Option<&SessionId>, out: &mut Vec<Output>) {
        let Some(session) = session.filter(|session| self.session.as_ref() != Some(*session)) else { return };
        self.session = Some(session.clone());
        out.push(Output::Observe(Observation::ConversationBegan {
            session: session.clone(),
            version: None,
            model: None,
            permission_mode: None,
            tools: Vec::new(),
            servers: Vec::new(),
            skills: Vec::new(),
        }));
    }

    pub(super) fn on_request(&mut self, id: RequestId, request: AgentRequest, out: &mut Vec<Output>) {
        match self.ledger.entry(&id) {
            // Any answer, even a refusal, would be taken for the answer to the first.
            Entry::Pending(_) | Entry::Settled => {
                self.flaw(ProtocolFlaw::RepeatedQuestion { request: id }, out);
                return;
            }
            Entry::Unknown => {}
        }
        if self.ledger.is_full() {
            self.flaw(ProtocolFlaw::TooManyQuestions, out);
            self.tally.fail(ConversationFailure::TooManyQuestions);
            out.push(Output::Terminate);
            return;
        }
        match Question::from_request(request) {
            Ok(question) => self.take_question(id, question, out),
            Err((subtype, why)) => {
                let flaw = ProtocolFlaw::UnknownQuestion { request: id.clone(), subtype, why: why.clone() };
                self.flaw(flaw, out);
                self.refuse(id, why, out);
            }
        }
    }

    fn take_question(&mut self, id: RequestId, question: Question, out: &mut Vec<Output>) {
        out.push(Output::Observe(self.asked(&id, &question)));
        match self.own_answer(&question) {
            OwnAnswer::None => {
                self.ledger.wait(id.clone(), question.clone());
                out.push(Output::Ask { request: id, question });
            }
            OwnAnswer::NotDeclared(why) => self.refuse(id, why, out),
            OwnAnswer::Value(value, reason) => {
                self.ledger.settle(&id);
                let reply = question.reply(&value).unwrap_or_else(|error| Reply::Error(error.to_string()));
                if self.phase != Phase::Closed {
                    out.push(Output::Send(Outbound::Response { id: id.clone(), reply }));
                }
                out.push(Output::Observe(Observation::Answered {
                    request: id,
                    answer: value.about().to_owned(),
                    chosen: value.chosen(),
                    by: By::Belljar.name().to_owned(),
                    reason,
                }));
            }
        }
    }

    fn asked(&self, id: &RequestId, question: &Question) -> Observation {
        let request = question.tool_request();
        let call = request.and_then(|request| request.call.clone());
        let questions = match question {
            Question::Choice { questions, .. } => questions.clone(),
            Question::Permission(_)
            | Question::Unreadable { .. }
            | Question::Hook(_)
            | Question::Mcp(_)
            | Question::Elicitation(_)
            | Question::Dialog(_) => Vec::new(),
        };
        Observation::Asked {
            request: id.clone(),
            about: question.about().to_owned(),
            tool: request.map(|request| request.tool.clone()),
            by: call.as_ref().map_or(Speaker::Main, |call| self.calls.caller(call)),
            call,
            questions,
        }
    }

    /// Answers declared hooks and servers without a decider.
    fn own_answer(&self, question: &Question) -> OwnAnswer {
        match question {
            Question::Hook(call) => {
                let mut hooks = self.config.hooks.iter();
                match hooks.find(|hook| hook.subscription.callback == call.callback) {
                    None => OwnAnswer::NotDeclared(format!("no hook is called {}", call.callback)),
                    Some(hook) => match &hook.answering {
                        HookAnswering::Ask => OwnAnswer::None,
                        HookAnswering::Always(reply) => OwnAnswer::Value(
                            AnswerValue::Hook(reply.clone()),
                            format!("the hook {} was declared with this answer", call.callback),
                        ),
                        HookAnswering::InBackground(reply) if runs_in_background(call) => OwnAnswer::Value(
                            AnswerValue::Hook(reply.clone()),
                            "the call was to go on in the background".to_owned(),
                        ),
                        HookAnswering::InBackground(_) => OwnAnswer::Value(
                            AnswerValue::Hook(HookReply::Nothing),
                            "the call does not go on in the background".to_owned(),
                        ),
                    },
                }
            }
            Question::Mcp(message) => {
                match self.config.servers.iter().find(|server| server.name == message.server) {
                    None => OwnAnswer::Value(
                        AnswerValue::Mcp(unknown_server(message)),
                        format!("no server is called {}", message.server),
                    ),
                    Some(server) => match &server.answering {
                        ServerAnswering::Ask => OwnAnswer::None,
                        ServerAnswering::Tools(_) => OwnAnswer::Value(
                            AnswerValue::Mcp(server.respond(&message.message)),
                            format!("the server {} was declared with its tools", server.name),
                        ),
                    },
                }
            }
            Question::Permission(_)
            | Question::Choice { .. }
            | Question::Unreadable { .. }
            | Question::Elicitation(_)
            | Question::Dialog(_) => OwnAnswer::None,
        }
    }

    pub(super) fn on_cancel(&mut self, id: RequestId, out: &mut Vec<Output>) {
        match self.ledger.entry(&id) {
            Entry::Pending(_) => {
                self.ledger.settle(&id);
                out.push(Output::Withdrawn { request: id.clone() });
                out.push(Output::Observe(Observation::Withdrawn { request: id }));
            }
            // The answer and the withdrawal crossed.
            Entry::Settled => {}
            Entry::Unknown => self.flaw(ProtocolFlaw::StrayWithdrawal { request: id }, out),
        }
    }

    pub(super) fn on_response(&mut self, reply: HostReply, out: &mut Vec<Output>) {
        let Some(request) = self.requested.remove(&reply.request) else {
            match self.ledger.entry(&reply.request) {
                // An agent that repeats messages repeats the answers it was given, too.
                Entry::Settled => {}
                Entry::Unknown | Entry::Pending(_) => {
                    self.flaw(ProtocolFlaw::StrayResponse { request: reply.request }, out);
                }
            }
            return;
        };
        let error = reply.outcome.as_ref().err().cloned();
        out.push(Output::Observe(Observation::RequestSettled {
            request: request.name().to_owned(),
            error: error.clone(),
        }));
        if let HostRequest::Initialize(_) = request {
            match (&reply.outcome, error) {
                (_, Some(error)) => {
                    self.tally.fail(ConversationFailure::HandshakeRefused { error });
                    out.push(Output::Terminate);
                }
                (Ok(body), None) => self.on_ready(body, out),
                (Err(_), None) => {}
            }
        }
    }

    fn on_ready(&mut self, body: &Value, out: &mut Vec<Output>) {
        let names = |key: &str| {
            let items = body[key].as_array().map(Vec::as_slice).unwrap_or_default().iter();
            let name = |item: &Value| item["name"].as_str().or(item["value"].as_str()).map(str::to_owned);
            items.filter_map(name).collect()
        };
        out.push(Output::Observe(Observation::Ready {
            commands: names("commands"),
            models: names("models"),
            agents: names("agents"),
        }));
        if self.phase != Phase::Greeting {
            return;
        }
        self.phase = Phase::Open;
        while let Some(message) = self.queued.pop_front() {
            self.send_message(message, out);
        }
        if self.close_after_greeting {
            self.close_input(out);
        }
    }
}

enum OwnAnswer {
    /// For the deciders.
    None,
    NotDeclared(String),
    Value(AnswerValue, String),
}

/// Whether the agent wants to go on while this call runs.
fn runs_in_background(call: &HookCall) -> bool {
    call.input.get("tool_input").and_then(|input| input.get("run_in_background")) == Some(&Value::Bool(true))
}

fn speaker(parent: Option<CallId>) -> Speaker {
    parent.map_or(Speaker::Main, |call| Speaker::SubAgent { call })
}
