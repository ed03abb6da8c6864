//! From a manifest to a plan, without a world: the facts about the host are made up here.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
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
