//! The result of a scenario as lines for people; a suite prints them as each scenario ends.

use crate::live::to_paste;
use crate::{Style, dollars, judge_part, seconds};
use belljar_contract::{CheckResult, ExitCode, Outcome, ScenarioResult, SuiteCount, visible, visible_lines};
use std::collections::BTreeSet;

/// Whether the last events of a failed scenario are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// With the last events before the failure.
    Shown,
    Hidden,
}

/// One scenario of a suite, under the name that the suite gave it.
#[must_use]
pub fn render_result(name: &str, result: &ScenarioResult, moment: Moment, style: Style) -> String {
    let took = result.took_ms.map(seconds);
    let judge = result.judge.as_ref().map(judge_part);
    let took: Vec<String> = took
        .into_iter()
        .chain(judge)
        .chain(result.tier.iter().map(|tier| visible(tier).into_owned()))
        .collect();
    let took = took.join("  ");
    let waived = waived(result, style);
    if result.passed() {
        return format!("{} {name} {}{waived}", style.added("passed"), style.dim(&took));
    }
    let meaning = ExitCode::from_status(result.exit_code.into()).map_or("unknown status", ExitCode::meaning);
    let mut text = format!("{} {name} {}\n", style.removed(meaning), style.dim(&took));
    // The cause comes first: a check can fail because the run ended early.
    for signal in result.weighty_signals() {
        text.push_str(&format!("    {}: {}\n", visible(&signal.code), visible(&signal.message)));
    }
    for rules in &result.would_answer {
        to_paste(rules).lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    for check in result.unmet_checks() {
        text.push_str(&format!("    {}: {}\n", visible(&check.check), visible(&check.message)));
    }
    if !waived.is_empty() {
        text.push_str(waived.trim_start_matches('\n'));
        text.push('\n');
    }
    for found in &result.diagnostics {
        let (place, message) = (&found["place"], found["message"].as_str().unwrap_or_default());
        let file = visible(place["file"].as_str().unwrap_or_default());
        text.push_str(&format!("    {file}:{}: {}\n", place["line"], visible(message)));
    }
    if let Some(error) = &result.error {
        text.push_str(&format!("    {}\n", visible_lines(error.message.trim_end(), "        ")));
        for cause in &error.causes {
            text.push_str(&format!("    caused by: {}\n", visible(cause)));
        }
    }
    if moment == Moment::Shown {
        for line in &result.moment {
            text.push_str(&format!("    {}\n", style.dim(&format!("| {}", visible(line)))));
        }
    }
    if let Some(directory) = &result.directory {
        let line = format!("the run is recorded in {}", visible(&directory.to_string()));
        text.push_str(&format!("    {}\n", style.dim(&line)));
    }
    text
}

/// Checks that did not count, each on a line of its own after a line break.
fn waived(result: &ScenarioResult, style: Style) -> String {
    let waived = result.checks.iter().filter(|check| check.outcome == Outcome::Waived);
    let line = |check: &CheckResult| {
        let text = format!("- {}: {}", visible(&check.check), visible(&check.message));
        format!("\n    {}", style.warn(&text))
    };
    waived.map(line).collect()
}

/// How many failed in which way; those that were interrupted are counted apart.
fn kinds_of_failure(exits: &[ExitCode], failed: usize) -> String {
    let kinds = [
        (ExitCode::Failed, "failed"),
        (ExitCode::AgentFailed, "with a failed agent"),
        (ExitCode::Budget, "over budget"),
        (ExitCode::Drifted, "drifted"),
        (ExitCode::Unverified, "not verified"),
        (ExitCode::Invalid, "not valid"),
    ];
    let counts = kinds.map(|(kind, words)| (exits.iter().filter(|exit| **exit == kind).count(), words));
    let known: usize = counts.iter().map(|(count, _)| count).sum();
    let other = [(failed.saturating_sub(known), "could not run")];
    let named = counts.into_iter().chain(other);
    let named = named.filter(|(count, words)| *count > 0 || *words == "failed");
    named.map(|(count, words)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
}

/// The last lines of a suite: `exits` are those of all its jobs, `results` those of the runs among them.
#[must_use]
pub fn render_summary(
    (count, exits): (&SuiteCount, &[ExitCode]),
    results: &[&ScenarioResult],
    style: Style,
) -> String {
    let SuiteCount { passed, failed, ended_early, not_started, interrupted } = count;
    let mut text = if *interrupted { "interrupted: ".to_owned() } else { String::new() };
    text.push_str(&format!("{passed} passed, {}", kinds_of_failure(exits, *failed)));
    if *ended_early > 0 {
        text.push_str(&format!(", {ended_early} ended early"));
    }
    if *not_started > 0 {
        text.push_str(&format!(", {not_started} not started"));
    }
    let costs = results.iter().filter_map(|result| result.metrics.as_ref()?.cost_micros_usd);
    let cost: u64 = costs.sum();
    if cost > 0 {
        text.push_str(&format!(", {}", dollars(cost)));
    }
    let judged: u64 = results.iter().filter_map(|result| result.judge?.cost_micros_usd).sum();
    if judged > 0 {
        text.push_str(&format!(", judge {}", dollars(judged)));
    }
    let notices: BTreeSet<&str> = results.iter().filter_map(|result| result.notice.as_deref()).collect();
    for notice in notices {
        text.push_str(&format!("\n{}", style.warn(&visible(notice))));
    }
    let errors = results.iter().filter_map(|result| result.error.as_ref());
    let hints: BTreeSet<&str> = errors.flat_map(|error| &error.hints).map(String::as_str).collect();
    for hint in hints {
        text.push_str(&format!("\nhint: {}", visible(hint)));
    }
    text
}
