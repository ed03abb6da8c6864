//! The conversation with an agent as a state machine: frames, commands, deadlines and the exit come in, outputs go out.
//!
//! It has no clock and no socket. Three invariants hold for any input in any order:
//! a question is answered at most once; a question that the agent withdrew is not answered at all; and the run is a
//! success only if its last turn ended without error, nothing was left open, and the process then ended with 0.

mod calls;
mod ending;
mod ledger;
mod server;
mod skill;
mod task;
mod untaken;
mod wire;

pub use server::{CannedAnswer, CannedTool, Server, ServerAnswering};
pub use skill::SkillPlace;

use crate::question::{Answer, AnswerError, Question};
use belljar_contract::{
    ConversationEnd, ConversationFailure, Deadline, GuestEnd, HookReply, HookSubscription, HostRequest,
    Inbound, Initialize, MessageId, Observation, Outbound, PermissionMode, ProtocolFlaw, Reply, RequestId,
    SessionId, UserMessage,
};
use calls::Calls;
use ending::Tally;
use ledger::{Entry, Ledger};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use task::Tasks;
use untaken::Untaken;

/// The settings of a conversation.
#[derive(Debug, Clone, Default)]
pub struct MachineConfig {
    /// Hooks to register.
    pub hooks: Vec<Hook>,
    /// MCP servers to serve.
    pub servers: Vec<Server>,
    /// Added to the end of the system prompt.
    pub append_system_prompt: Option<String>,
    /// Further members of the handshake.
    pub initialize: Map<String, Value>,
    /// Skills whose use is looked for.
    pub skills: Vec<SkillPlace>,
    /// Whether the agent was started with the flag that makes it report when it is idle.
    pub state_events: StateEvents,
    /// Whether the agent was started with the flag that makes it repeat the messages it takes up.
    pub echo: Echo,
}

/// Whether the agent reports when it is idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateEvents {
    /// It does; only such a report counts as idle.
    #[default]
    Expected,
    /// It does not; the end of a turn counts as idle.
    Absent,
}

/// Whether the agent repeats the messages it takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Echo {
    /// It does; a message that was not repeated was not taken up.
    #[default]
    Expected,
    /// It does not; a message that was sent into a running turn cannot be followed.
    Absent,
}

/// A hook to register.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The registration that is sent to the agent.
    pub subscription: HookSubscription,
    pub answering: HookAnswering,
}

/// Who answers a hook.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAnswering {
    /// belljar, always with this reply.
    Always(HookReply),
    /// belljar: a call that is to go on in the background gets this reply, every other call passes.
    InBackground(HookReply),
    /// The deciders.
    Ask,
}

/// A command from the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Begin with the handshake. Messages wait until it is answered.
    Begin,
    Say(UserMessage),
    /// Stop the current turn.
    Interrupt,
    /// Change the permission mode.
    SetPermissionMode(PermissionMode),
    /// Change the model; `None` is the default.
    SetModel(Option<String>),
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// Close the input: the agent exits when it is done.
    EndInput,
}

/// An action for the caller, or an observation.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Write this to the agent.
    Send(Outbound),
    /// Find an answer to this.
    Ask { request: RequestId, question: Question },
    /// Stop looking for an answer to this.
    Withdrawn { request: RequestId },
    /// A command was rejected.
    Dropped(Dropped),
    /// Something to record.
    Observe(Observation),
    /// The agent has handled all messages, and no question waits.
    Idle,
    /// Close the agent's input.
    CloseInput,
    /// End the agent's process.
    Terminate,
    /// The conversation is over; no output follows.
    Ended(ConversationEnd),
}

/// Why a command was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    #[error("there is no question {request}")]
    NeverAsked { request: RequestId },
    #[error("the question {request} was already answered or withdrawn")]
    Settled { request: RequestId },
    /// The question stays open.
    #[error("the answer does not match the question {request}")]
    Unfit {
        request: RequestId,
        #[source]
        cause: AnswerError,
    },
    #[error("a message with the id {message} was already sent")]
    RepeatedMessage { message: MessageId },
    #[error("the conversation has already begun")]
    Begun,
    #[error("the agent's input is closed, or its process has ended")]
    Closed,
}

/// The state of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent yet; a message now skips the handshake.
    New,
    /// The handshake is not answered yet; messages wait for it.
    Greeting,
    Open,
    /// The input is closed; the agent is finishing.
    Closed,
    /// The process has ended.
    Ended,
}

/// The conversation as a state machine.
#[derive(Debug)]
pub struct Machine {
    config: MachineConfig,
    phase: Phase,
    /// Whether the input is to be closed as soon as the handshake is over.
    close_after_greeting: bool,
    queued: VecDeque<UserMessage>,
    sent: BTreeSet<MessageId>,
    untaken: Untaken,
    requested: BTreeMap<RequestId, HostRequest>,
    next_request: u64,
    ledger: Ledger,
    session: Option<SessionId>,
    calls: Calls,
    tasks: Tasks,
    tally: Tally,
}

impl Machine {
    /// Creates a conversation that has not begun.
    #[must_use]
    pub fn new(config: MachineConfig) -> Self {
        Self {
            config,
            phase: Phase::New,
            close_after_greeting: false,
            queued: VecDeque::new(),
            sent: BTreeSet::new(),
            untaken: Untaken::default(),
            requested: BTreeMap::new(),
            next_request: 1,
            ledger: Ledger::default(),
            session: None,
            calls: Calls::default(),
            tasks: Tasks::default(),
            tally: Tally::default(),
        }
    }

    /// Questions that wait for an answer.
    pub fn pending(&self) -> impl Iterator<Item = (&RequestId, &Question)> {
        self.ledger.pending()
    }

    /// Handles a command.
    pub fn on_command(&mut self, command: Command) -> Vec<Output> {
        let mut out = Vec::new();
        match self.phase {
            Phase::New | Phase::Greeting | Phase::Open => self.carry_out(command, &mut out),
            Phase::Closed | Phase::Ended => out.push(Output::Dropped(Dropped::Closed)),
        }
        out
    }

    fn carry_out(&mut self, command: Command, out: &mut Vec<Output>) {
        match command {
            Command::Begin => self.begin(out),
            Command::Say(message) => self.say(message, out),
            Command::Interrupt => self.request(HostRequest::Interrupt, out),
            Command::SetPermissionMode(mode) => self.request(HostRequest::SetPermissionMode(mode), out),
            Command::SetModel(model) => self.request(HostRequest::SetModel(model), out),
            Command::Answer { request, answer } => self.answer(request, &answer, out),
            Command::EndInput if self.phase == Phase::Greeting && !self.queued.is_empty() => {
                self.close_after_greeting = true;
            }
            Command::EndInput => self.close_input(out),
        }
    }

    fn begin(&mut self, out: &mut Vec<Output>) {
        if self.phase != Phase::New {
            out.push(Output::Dropped(Dropped::Begun));
            return;
        }
        self.phase = Phase::Greeting;
        let initialize = Initialize {
            hooks: self.config.hooks.iter().map(|hook| hook.subscription.clone()).collect(),
            servers: self.config.servers.iter().map(|server| server.name.clone()).collect(),
            append_system_prompt: self.config.append_system_prompt.clone(),
            further: self.config.initialize.clone(),
        };
        self.request(HostRequest::Initialize(Box::new(initialize)), out);
    }

    fn say(&mut self, message: UserMessage, out: &mut Vec<Output>) {
        if self.close_after_greeting {
            out.push(Output::Dropped(Dropped::Closed));
        } else if !self.sent.insert(message.id.clone()) {
            out.push(Output::Dropped(Dropped::RepeatedMessage { message: message.id }));
        } else if self.phase == Phase::Greeting {
            self.queued.push_back(message);
        } else {
            self.phase = Phase::Open;
            self.send_message(message, out);
        }
    }

    fn send_message(&mut self, message: UserMessage, out: &mut Vec<Output>) {
        self.tally.turn_opens();
        self.untaken.sent(&message);
        let UserMessage { id, text } = message.clone();
        out.push(Output::Send(Outbound::User(message)));
        let skill = skill::named_by_message(&self.config.skills, &text);
        out.push(Output::Observe(Observation::MessageSent { message: id, text }));
        out.extend(skill.map(Output::Observe));
    }

    fn close_input(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Closed;
        out.push(Output::CloseInput);
    }

    fn request(&mut self, request: HostRequest, out: &mut Vec<Output>) {
        // The prefix keeps these apart from whatever ids the agent makes.
        let Ok(id) = RequestId::new(format!("belljar-{}", self.next_request)) else { return };
        self.next_request += 1;
        self.requested.insert(id.clone(), request.clone());
        out.push(Output::Send(Outbound::Request { id, request }));
    }

    fn answer(&mut self, request: RequestId, answer: &Answer, out: &mut Vec<Output>) {
        let reply = match self.ledger.entry(&request) {
            Entry::Unknown => Err(Dropped::NeverAsked { request: request.clone() }),
            Entry::Settled => Err(Dropped::Settled { request: request.clone() }),
            Entry::Pending(question) => question
                .reply(&answer.value)
                .map_err(|cause| Dropped::Unfit { request: request.clone(), cause }),
        };
        match reply {
            Err(dropped) => out.push(Output::Dropped(dropped)),
            Ok(reply) => {
                self.ledger.settle(&request);
                out.push(Output::Send(Outbound::Response { id: request.clone(), reply }));
                out.push(Output::Observe(Observation::Answered {
                    request,
                    answer: answer.value.about().to_owned(),
                    chosen: answer.value.chosen(),
                    by: answer.by.name().to_owned(),
                    reason: answer.reason.clone(),
                }));
            }
        }
    }

    /// Handles a frame of the agent.
    pub fn on_frame(&mut self, frame: Inbound) -> Vec<Output> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            self.flaw(ProtocolFlaw::FrameAfterExit, &mut out);
            return out;
        }
        match frame {
            Inbound::Init(init) => self.on_init(init, &mut out),
            Inbound::State(state) => self.on_state(state, &mut out),
            Inbound::Task(task) => out.extend(self.tasks.on_frame(task).map(Output::Observe)),
            Inbound::Compacted => out.push(Output::Observe(Observation::Compacted)),
            Inbound::Assistant(assistant) => self.on_assistant(assistant, &mut out),
            Inbound::User(user) => self.on_user(user, &mut out),
            Inbound::Result(result) => self.on_result(*result, &mut out),
            Inbound::Request { id, request } => self.on_request(id, request, &mut out),
            Inbound::Response(reply) => self.on_response(reply, &mut out),
            Inbound::Cancel { id } => self.on_cancel(id, &mut out),
            Inbound::Hook { event, name, outcome, exit_code, text } => {
                out.push(Output::Observe(Observation::HookRan { event, name, outcome, exit_code, text }));
            }
            Inbound::Refused { tool, call, reason } => {
                out.push(Output::Observe(Observation::CallRefused { tool, call, reason }));
            }
            Inbound::Retry { attempt, status, error } => {
                out.push(Output::Observe(Observation::Retried { attempt, status, error }));
            }
            Inbound::StreamEvent
            | Inbound::KeepAlive
            | Inbound::RateLimit
            | Inbound::MessageState
            | Inbound::System { .. } => {}
            Inbound::Unknown { kind } => {
                out.push(Output::Observe(Observation::UnknownFrame { frame: kind }));
            }
            Inbound::Malformed { kind, why } => {
                self.flaw(ProtocolFlaw::MalformedFrame { frame: kind, why }, &mut out);
            }
        }
        out
    }

    /// Handles a line of the agent that is not a frame.
    pub fn on_unread(&mut self, why: impl Into<String>) -> Vec<Output> {
        let mut out = Vec::new();
        self.tally.unread += 1;
        self.flaw(ProtocolFlaw::UnreadLine { why: why.into() }, &mut out);
        out
    }

    /// Handles an expired deadline. From here on the run has failed.
    pub fn on_deadline(&mut self, deadline: Deadline) -> Vec<Output> {
        let mut out = Vec::new();
        if self.phase == Phase::Ended {
            return out;
        }
        self.tally.fail(ConversationFailure::Deadline { deadline });
        match deadline {
            // The turn can be stopped without the process, which then ends in order.
            Deadline::Turn if self.phase == Phase::Open => self.request(HostRequest::Interrupt, &mut out),
            Deadline::Turn | Deadline::Handshake | Deadline::Run | Deadline::Exit => {
                out.push(Output::Terminate)
            }
        }
        out
    }

    /// Handles the end of the process. All frames that it wrote must have been delivered before.
    pub fn on_exit(&mut self, exit: GuestEnd) -> Vec<Output> {
        if self.phase == Phase::Ended {
            return Vec::new();
        }
        self.phase = Phase::Ended;
        let untaken = match self.config.echo {
            Echo::Expected => self.untaken.drain(),
            Echo::Absent => Vec::new(),
        };
        let untaken = untaken.into_iter().chain(self.queued.drain(..).map(|message| message.id)).collect();
        let unanswered = self.ledger.pending().map(|(id, _)| id.clone()).collect();
        let tally = std::mem::take(&mut self.tally);
        vec![Output::Ended(tally.end(exit, untaken, unanswered, self.tasks.running()))]
    }

    fn flaw(&mut self, flaw: ProtocolFlaw, out: &mut Vec<Output>) {
        self.tally.flaws += 1;
        out.push(Output::Observe(Observation::Flawed(flaw)));
    }

    fn refuse(&mut self, id: RequestId, why: String, out: &mut Vec<Output>) {
        self.ledger.settle(&id);
        if self.phase != Phase::Closed {
            out.push(Output::Send(Outbound::Response { id, reply: Reply::Error(why) }));
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
