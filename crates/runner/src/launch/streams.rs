//! Connects the streams of a command: to the user's terminal, or to a conversation in the agent's protocol.

use super::{RunError, Stdio};
use crate::session::console::{Console, Emit};
use crate::session::conversation::{ConversationRecord, ModelCalls, Talk};
use crate::session::terminal::{Terminal, TerminalError};
use crate::store::journal::Journal;
use belljar_sandbox::Streams;
use std::os::fd::OwnedFd;

impl Stdio {
    /// Takes the model calls of the decider, if it has any.
    pub(super) fn with_model_calls(mut self) -> (Self, Option<ModelCalls>) {
        let calls = match &mut self {
            Self::User => None,
            Self::Conversation(talk) => {
                talk.deciders.outside.as_mut().and_then(|outside| outside.model_calls())
            }
        };
        (self, calls)
    }
}

/// The outer end of the streams.
pub(super) enum Streamed {
    User(Box<Terminal>),
    Talk(Box<Talk>),
}

impl Streamed {
    pub(super) fn open(stdio: Stdio, journal: Option<&Journal>) -> Result<(Self, Streams), RunError> {
        match (stdio, journal) {
            (Stdio::Conversation(request), Some(journal)) => {
                let record = ConversationRecord {
                    run: journal.id().clone(),
                    frames: journal.frames()?,
                    stderr: journal.agent_stderr()?,
                    began: journal.began(),
                };
                let (talk, streams) = Talk::open(*request, record).map_err(TerminalError)?;
                Ok((Self::Talk(Box::new(talk)), streams))
            }
            (Stdio::Conversation(_), None) => Err(RunError::UnrecordedConversation),
            (Stdio::User, _) => {
                let (terminal, streams) = Terminal::open()?;
                Ok((Self::User(Box::new(terminal)), streams))
            }
        }
    }

    pub(super) fn attach(&mut self, controller: OwnedFd) -> Result<(), TerminalError> {
        match self {
            Self::User(terminal) => terminal.attach(controller),
            Self::Talk(_) => Ok(()),
        }
    }

    pub(super) fn enter(&mut self) -> Result<(), TerminalError> {
        match self {
            Self::User(terminal) => terminal.enter(),
            Self::Talk(_) => Ok(()),
        }
    }

    pub(super) fn begin(&mut self, emit: Emit<'_>) {
        match self {
            Self::User(_) => {}
            Self::Talk(talk) => talk.begin(emit),
        }
    }

    pub(super) fn as_console(&mut self) -> &mut dyn Console {
        match self {
            Self::User(terminal) => &mut **terminal,
            Self::Talk(talk) => &mut **talk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::conversation::{ConversationRequest, ConversationTimes, Deciders, Then};
    use belljar_session::MachineConfig;
    use belljar_session::decider::Chain;

    #[test]
    fn a_conversation_without_a_record_is_an_error() {
        let request = ConversationRequest {
            config: MachineConfig::default(),
            messages: vec!["go".to_owned()],
            then: Then::End,
            deciders: Deciders { chain: Chain::default(), outside: None, scenario: None },
            react: None,
            times: ConversationTimes::default(),
        };
        let opened = Streamed::open(Stdio::Conversation(Box::new(request)), None);
        assert!(matches!(opened, Err(RunError::UnrecordedConversation)));
    }
}
