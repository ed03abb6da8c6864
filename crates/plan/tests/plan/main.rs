//! From a manifest to a plan, without a world: the facts about the host are made up here.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod compiled;
mod document;
mod fuzz;
mod plugins;
mod scenarios;
mod schema;
mod session_files;
mod ssh_config;
mod under_test;
mod world;
