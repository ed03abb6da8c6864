//! The sandbox: how the agent's changes to a project are kept.

mod workspace;

pub use workspace::*;
