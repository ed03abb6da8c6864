use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, RunVerb};
use belljar_report::{RunLine, render_runs, status_word, verdict_word};
use belljar_runner::{HostEnvironment, RunRow, RunRowEnd, list_runs};
use serde_json::json;

/// List the runs that are kept, newest first
///
/// Every agent that runs leaves a directory, and so does every command that may use the network. `trace` shows a run and
/// `judge` judges it again; both take the id or the beginning of it. `gc --runs` deletes old ones. A run whose files changed
/// after it is not verified: the list goes by their names and times, `trace` and `judge` read them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar runs\n  $ belljar runs --failed\n  $ belljar runs --json\n")]
pub struct RunsArgs {
    /// List only runs that did not pass, were not judged or cut short, or have a broken record
    #[arg(long)]
    failed: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for RunsArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &RunsArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let mut rows = list_runs(environment).map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    rows.retain(|row| !args.failed || row.end.is_failure());
    if output.json {
        output.envelope(&Envelope::new("runs", ExitCode::Passed, json!({"runs": rows})));
    } else if rows.is_empty() {
        let runs = environment.shown_from_home(&environment.state.child("runs"));
        let which = if args.failed { "no run that failed" } else { "no run" };
        output.say(&format!("{which} is kept in {runs}"));
    } else {
        let lines: Vec<RunLine> = rows.into_iter().map(line).collect();
        output.result(&render_runs(&lines, output.out_style()));
    }
    Ok(ExitCode::Passed)
}

fn line(row: RunRow) -> RunLine {
    let name = || row.directory.file_name().map(|name| name.to_string_lossy().into_owned());
    RunLine {
        id: row.id.as_ref().map(ToString::to_string).unwrap_or_default(),
        started_at_ms: row.started_at_ms,
        verb: row.verb.map_or("", RunVerb::name),
        subject: row.subject.clone().or_else(name).unwrap_or_default(),
        is_failure: row.end.is_failure(),
        end: match row.end {
            RunRowEnd::Running => "running".to_owned(),
            RunRowEnd::Judged { conclusion, exit_code } => verdict_word(conclusion, exit_code).to_owned(),
            RunRowEnd::Ended { status } => status_word(&status),
            RunRowEnd::NotJudged { status } => format!("not judged: {}", status_word(&status)),
            RunRowEnd::CutShort => "cut short".to_owned(),
            RunRowEnd::Changed { why } => format!("not verified: {why}"),
            RunRowEnd::Broken { why } => format!("broken: {why}"),
        },
        duration_ms: row.duration_ms,
        tool_calls: row.tool_calls,
    }
}
