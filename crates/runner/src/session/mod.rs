//! While a command runs: the supervisor's loop, the user's terminal, the conversation with an agent.

pub(crate) mod console;
pub(crate) mod conversation;
pub(crate) mod prompt;
pub(crate) mod questions;
pub(crate) mod screen;
pub(crate) mod supervise;
pub(crate) mod terminal;
