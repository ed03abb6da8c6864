//! The broker with the real ssh, sshd, ssh-add, ssh-keygen and git.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod adding;
mod agent;
mod commits;
mod frames;
mod keys;
mod logins;
mod lookups;
mod stage;
