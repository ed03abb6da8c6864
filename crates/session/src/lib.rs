//! Kinds of agents: what each wants on its command line, in its files and in its environment.

mod harness;

pub use harness::{HarnessError, Harnesses};
