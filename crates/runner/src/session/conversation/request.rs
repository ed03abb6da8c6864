//! How a conversation is configured and where it is recorded.

use super::{ExternalDecider, Spoken};
use belljar_contract::{Observation, RunId};
use belljar_record::{AgentStderr, FrameLog};
use belljar_session::decider::Chain;
use belljar_session::{Command, MachineConfig};
use std::time::{Duration, Instant};

/// The deciders, in the order in which they are asked.
pub struct Deciders {
    /// Deciders that answer immediately.
    pub chain: Chain,
    /// A decider that may take time. Without one, an open question ends the run.
    pub outside: Option<Box<dyn ExternalDecider>>,
    /// The name of the scenario, which external deciders receive with each question.
    pub scenario: Option<String>,
}

/// What follows the last prepared message.
pub enum Then {
    /// The input is closed.
    End,
    /// Messages of a person follow.
    Listen(Spoken),
}

/// Sees every observation in full, and may return commands: to interrupt, to send another message, to end.
pub type React = Box<dyn FnMut(&Observation) -> Vec<Command>>;

/// Time limits for the agent's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationTimes {
    /// For the answer to the handshake: the agent waits for its MCP servers before it answers.
    pub handshake: Duration,
    /// For the exit of the process after its input was closed.
    pub exit: Duration,
    /// For the next frame after the agent reported that it is idle in the middle of a turn. It may be between two
    /// messages; an agent that stays silent would be waited for forever.
    pub stalled: Duration,
}

impl Default for ConversationTimes {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(120),
            exit: Duration::from_secs(30),
            stalled: Duration::from_secs(60),
        }
    }
}

/// The configuration of a conversation.
pub struct ConversationRequest {
    pub config: MachineConfig,
    /// Messages, each sent when the agent is idle.
    pub messages: Vec<String>,
    pub then: Then,
    pub deciders: Deciders,
    pub react: Option<React>,
    pub times: ConversationTimes,
}

/// The files that a conversation is recorded in, beside its events.
pub(crate) struct ConversationRecord {
    pub run: RunId,
    pub frames: FrameLog,
    pub stderr: AgentStderr,
    pub began: Instant,
}
