//! Messages that were sent and that the agent has not acknowledged.

use belljar_contract::{MessageId, UserMessage};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Untaken {
    messages: VecDeque<(MessageId, UntakenKind)>,
    /// Whether the turn that runs began with, or absorbed, a message that was repeated.
    echoed_in_turn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UntakenKind {
    Words,
    /// Begins with a `/`. The agent answers some of these itself.
    Command,
}

impl Untaken {
    pub fn sent(&mut self, message: &UserMessage) {
        let kind = if message.text.starts_with('/') { UntakenKind::Command } else { UntakenKind::Words };
        self.messages.push_back((message.id.clone(), kind));
    }

    /// Handles a message that the agent repeated. Returns whether it was one of these.
    pub fn echoed(&mut self, message: &MessageId) -> bool {
        let Some(at) = self.messages.iter().position(|(id, _)| id == message) else { return false };
        self.messages.remove(at);
        self.echoed_in_turn = true;
        true
    }

    /// A turn ended. One in which nothing was repeated was about the oldest message all the same, if that is a command
    /// (2.1.197 does not repeat those it answers itself) or if the turn broke off before the agent came to repeating.
    pub fn turn_ended(&mut self, is_error: bool) -> Option<MessageId> {
        let echoed = std::mem::take(&mut self.echoed_in_turn);
        let (_, kind) = self.messages.front()?;
        let silent = *kind == UntakenKind::Command || is_error;
        if echoed || !silent {
            return None;
        }
        self.messages.pop_front().map(|(id, _)| id)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn drain(&mut self) -> Vec<MessageId> {
        self.messages.drain(..).map(|(id, _)| id).collect()
    }
}
