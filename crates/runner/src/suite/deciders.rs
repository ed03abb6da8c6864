//! Deciders that take time: a program, a directory where a user or program writes answers, a model, a person at the
//! terminal.

mod command;
mod directory;
mod gates;
mod model;
mod person;
mod reply;
mod run_end;

pub use command::CommandDecider;
pub use directory::{AskingState, DirectoryDecider, DirectoryError, GATES_DONE, SuiteQuestions};
pub use gates::{GateName, Gates, GatesWake, OpenGate};
pub use model::{DECIDER_MODEL, ModelDecider, ModelWish};
pub use person::Person;
pub use reply::{GateError, GateReply, leave_answer};
