//! The verbs, one file each.

mod check;
mod completions;
mod plan;
mod trust;

use crate::env;
use crate::error::CliError;
use crate::output::{Color, Output};
use belljar_contract::ExitCode;
use belljar_runner::Planner;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Run coding agents sealed in a sandbox, and test agent skills in it.
///
/// An agent sees the skills, servers and hosts that a manifest names and nothing else of this machine; keys
/// stay outside.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  $ belljar check\n  $ belljar plan\n")]
pub struct Arguments {
    /// Work as if started in this directory
    #[arg(short = 'C', long = "directory", value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,
    /// When to use colours
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN", global = true)]
    pub color: Color,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Plan(plan::Args),
    Check(check::Args),
    Trust(trust::Args),
    Completions(completions::Args),
}

impl Verb {
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Plan(_) => "plan",
            Verb::Check(_) => "check",
            Verb::Trust(_) => "trust",
            Verb::Completions(_) => "completions",
        }
    }

    pub fn wants_json(&self) -> bool {
        match self {
            Verb::Plan(args) => args.json,
            Verb::Check(args) => args.json,
            Verb::Trust(args) => args.json,
            Verb::Completions(_) => false,
        }
    }
}

pub fn run(arguments: &Arguments, output: &Output) -> Result<ExitCode, CliError> {
    let planner = || -> Result<Planner, CliError> {
        Ok(Planner::new(env::surroundings(arguments.directory.as_deref())?)?)
    };
    match &arguments.verb {
        Verb::Plan(args) => plan::run(args, &planner()?, output),
        Verb::Check(args) => check::run(args, &planner()?, output),
        Verb::Trust(args) => trust::run(args, &planner()?, output),
        Verb::Completions(args) => completions::run(args, output),
    }
}
