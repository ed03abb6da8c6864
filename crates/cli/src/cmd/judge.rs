use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Conclusion, Envelope, ExitCode, Metrics, visible};
use belljar_report::{Shown, footer, render_judgement};
use belljar_runner::suite::{JudgedAgain, judge_again};
use belljar_runner::{HostEnvironment, find_run};
use serde_json::json;
use std::path::PathBuf;

/// Judge a kept run again, by its own scenario or by an edited one
///
/// Nothing is run: the checks look at the record of the run. Evidence that was not kept is unknown. If a file of the run
/// was changed after the run, it is named, every check is unknown and the status is 3. A replay that drifted or was stale
/// stays so. A tape is stale if the scenario now asks for a different run, or if its session or skills have changed.
/// Otherwise the status is that of `test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar judge last\n  $ belljar judge last scenarios/hello.yaml\n  $ belljar judge last --json\n"
)]
pub struct JudgeArgs {
    /// Run to judge: its id or the beginning of it, its directory, `last`, or a tape
    run: PathBuf,
    /// Scenario whose checks are used [default: the one that the run was made with]
    scenario: Option<PathBuf>,
    /// Print only what does not pass
    #[arg(short, long)]
    quiet: bool,
    /// Also show the evidence of checks that pass
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for JudgeArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &JudgeArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let directory = find_run(&args.run, environment)?;
    let scenario = args.scenario.as_ref().map(|path| TryOptions::path(environment, path)).transpose()?;
    let judged = judge_again(directory, scenario.as_ref(), environment)?;
    let exit = judged.judgement.conclusion.exit();
    if output.json {
        output.envelope(&Envelope::new("judge", exit, data(&judged)));
    } else {
        print(args, &judged, output);
    }
    Ok(exit)
}

fn data(judged: &JudgedAgain) -> serde_json::Value {
    let JudgedAgain { judgement, scenario, kept } = judged;
    let before = kept.summary.as_ref().and_then(|summary| summary.verdict.as_ref());
    json!({
        "run": kept.run.head.id,
        "directory": kept.directory,
        "scenario": scenario,
        "conclusion": judgement.conclusion,
        "exit_code": judgement.conclusion.exit().code(),
        "checks": judgement.checks,
        "signals": judgement.signals,
        "changed": kept.changes,
        "before": before.map(|verdict| json!({
            "conclusion": verdict.conclusion,
            "exit_code": verdict.exit_code,
        })),
    })
}

fn print(args: &JudgeArgs, judged: &JudgedAgain, output: &Output) {
    let JudgedAgain { judgement, scenario, kept } = judged;
    let style = output.err_style();
    if args.quiet && judgement.conclusion == Conclusion::Passed {
        return;
    }
    let mut text = render_judgement(judgement, Shown::of(args.quiet, args.verbose), style);
    let result = kept.run.result.as_ref();
    let metrics = result.map_or_else(Metrics::default, |result| result.metrics.clone());
    let duration = result.map(|result| result.duration_ms);
    let footer = footer(judgement.conclusion, duration, &metrics, style);
    text.push_str(&format!("{}, run {}: {footer}\n", visible(scenario), kept.run.head.id));
    output.say(&text);
}
