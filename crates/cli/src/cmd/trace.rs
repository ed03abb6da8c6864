use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Lane};
use belljar_report::{RunTrace, Trace, TracePart, TraceVerdict, render_run, trace_steps};
use belljar_runner::suite::unvouched;
use belljar_runner::{HostEnvironment, KeptRun, find_run};
use clap::ValueEnum;
use serde_json::json;
use std::path::PathBuf;

/// Show what a run did: tools, questions, sub-agents, files, egress, usage
///
/// Works for every kind of run. The conversation of `run` is read from the agent's own transcript, which belljar cannot
/// verify; a run without a conversation says so. The status is 3 if the record is incomplete or was changed after the run;
/// the changed files are named. A tape is shown like the run that it was recorded from.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar trace last\n  $ belljar trace last --full\n  $ belljar trace last --only tools\n  $ belljar trace last --json\n"
)]
pub struct TraceArgs {
    /// Run to show: its id or the beginning of it, its directory, `last`, or a tape
    run: PathBuf,
    /// Show every message, the input of every tool call and its whole result
    #[arg(long)]
    full: bool,
    /// Show this part only
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Tools,
    Questions,
    Files,
    Egress,
}

impl Part {
    fn shown(self) -> TracePart {
        match self {
            Self::Tools => TracePart::Tools,
            Self::Questions => TracePart::Questions,
            Self::Files => TracePart::Files,
            Self::Egress => TracePart::Egress,
        }
    }
}

impl Command for TraceArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &TraceArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let directory = find_run(&args.run, environment)?;
    let kept = KeptRun::open(directory, environment, Lane::Local)
        .map_err(|error| CliError::from_chain(error.exit(), &error))?;
    let traced = traced(&kept, args.full);
    let sound = traced.doubts.is_empty() && traced.trace.incomplete.is_none();
    let exit = if sound { ExitCode::Passed } else { ExitCode::Unverified };
    if output.json {
        let mut data = json!(traced);
        data["directory"] = json!(kept.directory);
        output.envelope(&Envelope::new("trace", exit, data));
    } else {
        output.result(&render_run(&traced, args.only.map(Part::shown), output.out_style()));
    }
    Ok(exit)
}

fn traced(kept: &KeptRun, full: bool) -> RunTrace {
    let evidence = kept.shown();
    let mut trace = Trace::of(&evidence);
    trace.incomplete = trace.incomplete.or_else(|| unvouched(&evidence));
    let doubts = kept.doubts();
    let verdict = kept.summary.as_ref().and_then(|summary| summary.verdict.as_ref());
    RunTrace {
        run: kept.run.head.id.clone(),
        verb: kept.verb(),
        is_taped: kept.is_taped(),
        subject: kept.subject(),
        agent: kept.agent(),
        started_at_ms: kept.run.head.started_at_ms,
        verdict: verdict
            .filter(|_| doubts.is_empty())
            .map(|verdict| TraceVerdict { conclusion: verdict.conclusion, exit_code: verdict.exit_code }),
        conversation: kept.source,
        doubts,
        lost_files: kept.lost_files(),
        steps: full.then(|| trace_steps(&evidence)),
        trace,
    }
}
