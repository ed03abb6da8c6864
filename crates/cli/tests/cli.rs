//! The real binary, from outside: what it prints, what it returns, what it leaves on disk.
//!
//! One test binary for all of it, because linking is slower than running. A verb's tests are in `cmd/`, bad input is
//! in `cases/` and judged by `cases.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

mod agreed_files;
mod agreeing;
mod altered_signals;
mod altered_tapes;
mod as_branch;
mod both_sides;
mod by_hand;
mod cases;
mod check_evidence;
mod cmd;
mod compatibility;
mod container;
mod crossing;
mod deciders;
mod dist;
mod dotenv;
mod dry_run;
mod ended_early;
mod evidence;
mod faults;
mod forged_tapes;
mod guard;
mod guide;
mod help;
mod host_tier;
mod hostile;
mod in_use;
mod inputs;
mod install;
mod interrupted;
mod json;
mod judging;
mod kill_points;
mod killed;
mod limits;
mod long_tapes;
mod many;
mod merging;
mod nested_repositories;
mod not_on_tape;
mod refs;
mod repositories;
mod secrets;
mod services;
mod stage;
mod stranger;
mod stranger_git;
mod taking;
mod terminal;
mod unread_refs;
mod verdicts;
mod vm;
mod wrapped;
