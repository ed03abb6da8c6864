//! The verbs, one file each.

mod agreeing;
mod answer;
mod apply;
mod aside;
mod chat;
mod check;
mod completions;
mod decide;
mod diff;
mod discard;
mod doctor;
mod exec;
mod findings;
mod gates;
mod gc;
mod image;
mod import;
mod init;
mod instances;
mod plan;
mod prove;
mod record;
mod replay;
mod run;
mod shell;
mod skill;
mod start;
mod tape;
mod test;
mod trace;
mod trust;
mod trying;

use crate::env;
use crate::error::CliError;
use crate::output::{Color, Output};
use belljar_contract::ExitCode;
use belljar_runner::{
    HostEnvironment, Planner, Rest, Waiting, guard_secrets, names_without_modules, remove_leftovers,
};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Run coding agents sealed in a sandbox, and test agent skills in it.
///
/// An agent sees the skills, servers and hosts that a manifest names and nothing else of this machine; keys
/// stay outside.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  $ belljar init --stdout\n  $ belljar check\n  $ belljar plan\n")]
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
    Run(run::Args),
    Exec(exec::Args),
    Shell(shell::Args),
    Plan(plan::Args),
    Check(check::Args),
    Init(init::Args),
    Import(import::Args),
    Trust(trust::Args),
    Findings(findings::Args),
    Diff(diff::Args),
    Apply(apply::Args),
    Discard(discard::Args),
    Instances(instances::Args),
    Gc(gc::Args),
    Image(image::Args),
    Doctor(doctor::Args),
    Prove(prove::Args),
    Skill(skill::Args),
    Test(test::Args),
    Record(record::Args),
    Replay(replay::Args),
    Tape(tape::Args),
    Chat(chat::Args),
    Trace(trace::Args),
    Decide(decide::Args),
    Gates(gates::Args),
    Answer(answer::Args),
    Completions(completions::Args),
}

/// What ends with a verb, and what removes its traces.
type Tidied = (Rest, fn(&HostEnvironment));

impl Verb {
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Run(_) => "run",
            Verb::Exec(_) => "exec",
            Verb::Shell(_) => "shell",
            Verb::Plan(_) => "plan",
            Verb::Check(_) => "check",
            Verb::Init(_) => "init",
            Verb::Import(_) => "import",
            Verb::Trust(_) => "trust",
            Verb::Findings(_) => "findings",
            Verb::Diff(_) => "diff",
            Verb::Apply(_) => "apply",
            Verb::Discard(_) => "discard",
            Verb::Instances(_) => "instances",
            Verb::Gc(_) => "gc",
            Verb::Image(_) => "image",
            Verb::Doctor(_) => "doctor",
            Verb::Prove(_) => "prove",
            Verb::Skill(_) => "skill",
            Verb::Test(_) => "test",
            Verb::Record(_) => "record",
            Verb::Replay(_) => "replay",
            Verb::Tape(_) => "tape",
            Verb::Chat(_) => "chat",
            Verb::Trace(_) => "trace",
            Verb::Decide(_) => "decide",
            Verb::Gates(_) => "gates",
            Verb::Answer(_) => "answer",
            Verb::Completions(_) => "completions",
        }
    }

    /// Whether values are read that nobody else may see.
    pub fn holds_secrets(&self) -> bool {
        match self {
            Verb::Run(_)
            | Verb::Exec(_)
            | Verb::Shell(_)
            | Verb::Skill(_)
            | Verb::Test(_)
            | Verb::Record(_)
            | Verb::Replay(_)
            | Verb::Tape(_)
            | Verb::Chat(_) => true,
            Verb::Plan(_)
            | Verb::Check(_)
            | Verb::Init(_)
            | Verb::Import(_)
            | Verb::Trust(_)
            | Verb::Findings(_)
            | Verb::Diff(_)
            | Verb::Apply(_)
            | Verb::Discard(_)
            | Verb::Instances(_)
            | Verb::Gc(_)
            | Verb::Image(_)
            | Verb::Doctor(_)
            | Verb::Prove(_)
            | Verb::Trace(_)
            | Verb::Decide(_)
            | Verb::Gates(_)
            | Verb::Answer(_)
            | Verb::Completions(_) => false,
        }
    }

    /// What removes the traces of an interruption, for those that make something on the host which does not end with
    /// them.
    pub fn tidied(&self) -> Option<Tidied> {
        match self {
            Verb::Doctor(_) | Verb::Prove(_) => Some((Rest::Everything, remove_leftovers)),
            Verb::Image(args) => args.tidied().map(|tidy| (Rest::AllButEngines, tidy)),
            Verb::Run(_)
            | Verb::Exec(_)
            | Verb::Shell(_)
            | Verb::Plan(_)
            | Verb::Check(_)
            | Verb::Init(_)
            | Verb::Import(_)
            | Verb::Trust(_)
            | Verb::Findings(_)
            | Verb::Diff(_)
            | Verb::Apply(_)
            | Verb::Discard(_)
            | Verb::Instances(_)
            | Verb::Gc(_)
            | Verb::Skill(_)
            | Verb::Test(_)
            | Verb::Record(_)
            | Verb::Replay(_)
            | Verb::Tape(_)
            | Verb::Chat(_)
            | Verb::Trace(_)
            | Verb::Decide(_)
            | Verb::Gates(_)
            | Verb::Answer(_)
            | Verb::Completions(_) => None,
        }
    }

    pub fn wants_json(&self) -> bool {
        match self {
            Verb::Run(args) => args.options.json,
            Verb::Exec(args) => args.options.json,
            Verb::Shell(args) => args.options.json,
            Verb::Plan(args) => args.json,
            Verb::Check(args) => args.json,
            Verb::Init(args) => args.json,
            Verb::Import(args) => args.json,
            Verb::Trust(args) => args.json,
            Verb::Findings(args) => args.json,
            Verb::Diff(args) => args.options.json,
            Verb::Apply(args) => args.options.json,
            Verb::Discard(args) => args.options.json,
            Verb::Instances(args) => args.json,
            Verb::Gc(args) => args.json,
            Verb::Image(args) => args.json(),
            Verb::Doctor(args) => args.json,
            Verb::Prove(args) => args.json,
            Verb::Skill(args) => args.options.json,
            Verb::Test(args) => args.options.json,
            Verb::Record(args) => args.source.options.json,
            Verb::Replay(args) => args.json,
            Verb::Tape(args) => args.wants_json(),
            Verb::Chat(args) => args.options.json,
            Verb::Trace(args) => args.json,
            Verb::Decide(args) => args.json,
            Verb::Gates(_) => false,
            Verb::Answer(args) => args.json,
            Verb::Completions(_) => false,
        }
    }
}

/// Does what the words say. What was started for them before they were understood is used, or ended.
pub fn run(arguments: &Arguments, waiting: Option<Waiting>, output: &Output) -> Result<u8, CliError> {
    if arguments.verb.holds_secrets() {
        guard_secrets().map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    }
    names_without_modules().map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    let environment = || env::environment(arguments.directory.as_deref());
    let planner = || -> Result<Planner, CliError> { Ok(Planner::new(environment()?)?) };
    let status = match &arguments.verb {
        Verb::Run(args) => return run::run(args, args.options.begin(environment()?, waiting)?, output),
        Verb::Exec(args) => return exec::run(args, args.options.begin(environment()?, waiting)?, output),
        Verb::Shell(args) => return shell::run(args, args.options.begin(environment()?, waiting)?, output),
        Verb::Plan(args) => plan::run(args, &planner()?.with_walls(args.walls.asked()), output),
        Verb::Check(args) => check::run(args, &planner()?, output),
        Verb::Init(args) => init::run(args, &planner()?, output),
        Verb::Import(args) => import::run(args, &planner()?, output),
        Verb::Trust(args) => trust::run(args, &planner()?, output),
        Verb::Findings(args) => findings::run(args, &environment()?, output),
        Verb::Diff(args) => diff::run(args, &planner()?, output),
        Verb::Apply(args) => apply::run(args, &planner()?, output),
        Verb::Discard(args) => discard::run(args, &planner()?, output),
        Verb::Instances(args) => instances::run(args, &environment()?, output),
        Verb::Gc(args) => gc::run(args, &environment()?, output),
        Verb::Image(args) => image::run(args, &environment()?, output),
        Verb::Doctor(args) => doctor::run(args, &planner()?, output),
        Verb::Prove(args) => prove::run(args, &planner()?, output),
        Verb::Skill(args) => skill::run(args, &environment()?, output),
        Verb::Test(args) => test::run(args, &environment()?, output),
        Verb::Record(args) => record::run(args, &environment()?, output),
        Verb::Replay(args) => replay::run(args, &environment()?, output),
        Verb::Tape(args) => tape::run(args, &environment()?, output),
        Verb::Chat(args) => chat::run(args, &environment()?, output),
        Verb::Trace(args) => trace::run(args, &environment()?, output),
        Verb::Decide(args) => decide::run(args, &environment()?, output),
        Verb::Gates(args) => gates::run(args, &environment()?, output),
        Verb::Answer(args) => answer::run(args, &environment()?, output),
        Verb::Completions(args) => completions::run(args, output),
    };
    status.map(ExitCode::code)
}
