//! Deciders that take time: a program, a directory where a user or program writes answers, a model, a person at the
//! terminal.

mod command;
mod directory;
mod model;
mod person;

pub use command::CommandDecider;
pub use directory::{DirectoryDecider, DirectoryError, GATES_DONE, GateError, Gates, OpenGate, leave_answer};
pub use model::{DECIDER_MODEL, ModelDecider, ModelWish};
pub use person::Person;
