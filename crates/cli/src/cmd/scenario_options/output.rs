//! What is printed about scenarios.

use super::TryOptions;
use crate::cmd::skill::{RESUME, SESSION_ID};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Conclusion, visible};
use belljar_report::{Detail, Shown, Style, footer, judge_part, live_text, render_judgement};
use belljar_runner::suite::{Skipped, StageError, Trial, TrialError, Tried};
use belljar_runner::{GivenAnswers, HostEnvironment, launch_hints};

/// Shows an event as it happens.
pub fn show(event: &belljar_contract::Event, detail: Detail, output: &Output) {
    if let Some(text) = live_text(event, detail, output.err_style()) {
        output.say(&text);
    }
}

/// Prints the judgement of a trial.
pub fn print_result(
    trial: &Trial,
    tried: &Tried,
    options: &TryOptions,
    environment: &HostEnvironment,
    output: &Output,
) {
    let style = output.err_style();
    let shown = Shown::of(options.quiet, options.verbose);
    let passed = tried.judgement.conclusion == Conclusion::Passed;
    let mut text = String::new();
    if !options.quiet || !passed {
        text.push_str(&render_judgement(&tried.judgement, shown, style));
        text.push_str(&last_line(trial, tried, style));
        let directory = environment.shown_from_home(&tried.directory);
        text.push_str(&format!("\n  the run is recorded in {directory}\n"));
        text.push_str(&given_text(&tried.given_answers()));
        text.push_str(&match tried.report.transcript.as_ref().map_or(0, |script| script.unplayed.len()) {
            0 => String::new(),
            1 => "  a turn of the script was not played\n".to_owned(),
            left => format!("  {left} turns of the script were not played\n"),
        });
    }
    for denied in &tried.report.denied {
        text.push_str(&format!("  {}\n", style.warn(&visible(&denied.sentence))));
    }
    for limit in &tried.report.reached {
        text.push_str(&format!("belljar: {limit}\n"));
    }
    for (what, fix) in &tried.report.warnings {
        text.push_str(&format!("error: {}\nhint: {}\n", visible(what), visible(fix)));
    }
    for trouble in &tried.report.record_errors {
        text.push_str(&format!("belljar: {}\n", visible(trouble)));
    }
    if !text.is_empty() {
        output.say(&text);
    }
}

/// The answers that no rule gave, as lines to paste.
fn given_text(given: &GivenAnswers) -> String {
    let GivenAnswers { options, rules, notes } = given;
    let mut text = String::new();
    if !options.is_empty() {
        text.push_str("  to have the same answers next time, add\n");
        options.iter().for_each(|option| text.push_str(&format!("    {}\n", visible(option))));
    }
    if !rules.is_empty() {
        text.push_str("  or in `answers` of the scenario\n");
        let lines = rules.iter().flat_map(|rule| rule.lines());
        lines.for_each(|line| text.push_str(&format!("    {}\n", visible(line))));
    }
    notes.iter().for_each(|note| text.push_str(&format!("  {}\n", visible(note))));
    text
}

fn last_line(trial: &Trial, tried: &Tried, style: Style) -> String {
    let result = tried.run.result.as_ref();
    let metrics = result.map(|result| result.metrics.clone()).unwrap_or_default();
    let duration = result.map(|result| result.duration_ms);
    let judge = tried.judge_usage().map(|usage| format!("  {}", judge_part(&usage)));
    format!(
        "{}: {}{}  {}",
        visible(&trial.scenario.name),
        footer(tried.judgement.conclusion, duration, &metrics, style),
        judge.unwrap_or_default(),
        trial.tier(tried.plan.backend)
    )
}

/// Warnings about a trial's files.
pub fn warn(trial: &Trial, output: &Output) {
    for (sources, warning) in &trial.warnings {
        let text =
            belljar_report::render_diagnostics(std::slice::from_ref(warning), sources, output.err_style());
        output.say(&text);
    }
}

/// Names files that may have been meant as scenarios.
pub fn say_skipped(skipped: &[Skipped], environment: &HostEnvironment, output: &Output) {
    if output.json {
        return;
    }
    for Skipped { path, why } in skipped {
        output.say(&format!("warning: `{}` {}\n", environment.shown(path), visible(why)));
    }
}

/// A scenario that did not run, with hints about this machine.
pub fn failure(error: TrialError, environment: &HostEnvironment) -> CliError {
    let exit = error.exit();
    match error {
        TrialError::Planning(error) => CliError::from(*error),
        TrialError::Agent(error) => CliError::from(&*error).with_exit(exit),
        TrialError::Run(error) => {
            let hints = launch_hints(&error, environment);
            hints.into_iter().fold(CliError::from(*error).with_exit(exit), CliError::hint)
        }
        TrialError::Stage(StageError::Begun { ref name }) => {
            let hint = format!("continue it with --{RESUME} {name}, or choose another name");
            CliError::from_chain(exit, &error).hint(hint)
        }
        TrialError::Stage(StageError::NotBegun { ref name }) => {
            CliError::from_chain(exit, &error).hint(format!("begin it with --{SESSION_ID} {name}"))
        }
        TrialError::Unsupported(_)
        | TrialError::Stage(_)
        | TrialError::Staged(_)
        | TrialError::Argument(_)
        | TrialError::NotAgreed { .. }
        | TrialError::NotExecuted { .. }
        | TrialError::Record(_)
        | TrialError::NoRecord
        | TrialError::Unrecorded { .. }
        | TrialError::Lost { .. } => CliError::from_chain(exit, &error),
    }
}
