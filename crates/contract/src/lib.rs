//! Nouns that outlive a process, and the total functions on them.
//!
//! Everything here is pure: no clock, no disk, no environment, no network.

mod exit;

pub use exit::ExitCode;
