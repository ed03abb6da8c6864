//! Harnesses for the kinds of agents, the conversation with an agent, and the deciders that answer it.
//!
//! [`Harnesses`] knows the command line, the files and the environment of each kind. The conversation itself uses no clock,
//! socket or process: a [`Decoder`] turns bytes into frames, a [`Machine`] turns frames and
//! commands into outputs, and deciders ([`decider`]) turn its questions into answers. The caller, which runs
//! the agent, moves the bytes and keeps the time.

mod codec;
pub mod decider;
mod harness;
mod machine;
mod question;

pub use codec::{Decoder, Item, encode};
pub use harness::{HarnessError, Harnesses};
pub use machine::{
    CannedAnswer, CannedTool, Command, Dropped, Echo, Hook, HookAnswering, Machine, MachineConfig, Output,
    Server, ServerAnswering, SkillPlace, StateEvents,
};
pub use question::{Answer, AnswerError, AnswerValue, By, Chosen, Grant, Question};
