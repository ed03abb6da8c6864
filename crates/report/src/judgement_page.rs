//! The judgement of a run, for people.

use crate::Style;
use belljar_contract::{
    CheckResult, Conclusion, JudgeUsage, Judgement, Metrics, Outcome, SignalWeight, visible,
};

/// How much of the evidence is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Checks that did not pass, with their evidence.
    OnlyFailures,
    /// All checks, with the evidence of those that did not pass.
    Failures,
    /// All checks with their evidence.
    Everything,
}

impl Shown {
    /// What the options for less and for more text say.
    #[must_use]
    pub const fn of(quiet: bool, verbose: bool) -> Self {
        match (quiet, verbose) {
            (_, true) => Self::Everything,
            (true, false) => Self::OnlyFailures,
            (false, false) => Self::Failures,
        }
    }
}

/// The checks and signals, each with its evidence.
#[must_use]
pub fn render_judgement(judgement: &Judgement, shown: Shown, style: Style) -> String {
    let mut out = String::new();
    let left_out = |check: &CheckResult| shown == Shown::OnlyFailures && check.outcome == Outcome::Pass;
    for check in judgement.checks.iter().filter(|check| !left_out(check)) {
        out.push_str(&check_lines(check, shown, style));
    }
    for signal in &judgement.signals {
        let line = format!("{}: {}", visible(&signal.code), visible(&signal.message));
        out.push_str(&match signal.weight {
            SignalWeight::Fail => format!("  {}\n", style.removed(&format!("x {line}"))),
            SignalWeight::Unknown => format!("  {}\n", style.warn(&format!("? {line}"))),
            SignalWeight::Warn => format!("  {}\n", style.warn(&format!("! {line}"))),
        });
    }
    out
}

fn check_lines(check: &CheckResult, shown: Shown, style: Style) -> String {
    let (mark, line) = match check.outcome {
        Outcome::Pass => ("ok", style.added(&format!("ok {}", visible(&check.check)))),
        Outcome::Fail => ("x", style.removed(&format!("x  {}", visible(&check.check)))),
        Outcome::Unknown => ("?", style.warn(&format!("?  {}", visible(&check.check)))),
        Outcome::Waived => ("-", style.warn(&format!("-  {}", visible(&check.check)))),
    };
    let mut out = format!("  {line}\n");
    if mark != "ok" || shown == Shown::Everything {
        out.push_str(&format!(
            "     {}\n",
            style.dim(&format!("{}: {}", visible(&check.place), visible(&check.message)))
        ));
        for note in check.evidence.iter().take(8) {
            let seq = note.seq.map(|seq| format!("event {seq}: ")).unwrap_or_default();
            out.push_str(&format!("     {}\n", style.dim(&format!("{seq}{}", visible(&note.text)))));
        }
        if check.evidence.len() > 8 {
            out.push_str(&format!("     {}\n", style.dim(&format!("… {} more", check.evidence.len() - 8))));
        }
    }
    out
}

/// One word for a conclusion.
#[must_use]
pub const fn conclusion_word(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Passed => "passed",
        Conclusion::Failed => "FAILED",
        Conclusion::Unverified => "UNVERIFIED",
        Conclusion::AgentFailed => "AGENT FAILED",
        Conclusion::BudgetReached => "BUDGET REACHED",
        Conclusion::Drifted => "DRIFTED",
        Conclusion::Interrupted => "INTERRUPTED",
    }
}

/// The last line about a run: verdict, time, tokens, cost.
#[must_use]
pub fn footer(conclusion: Conclusion, duration_ms: Option<u64>, metrics: &Metrics, style: Style) -> String {
    let word = conclusion_word(conclusion);
    let word = if conclusion == Conclusion::Passed { style.added(word) } else { style.removed(word) };
    let mut parts = vec![style.bold(&word)];
    parts.extend(duration_ms.map(seconds));
    if let (Some(read), Some(written)) = (metrics.input_tokens, metrics.output_tokens) {
        parts.push(format!("{read} tokens read, {written} written"));
    }
    parts.extend(metrics.cost_micros_usd.map(dollars));
    parts.join("  ")
}

/// What the judge used, as in `judge $0.0123`.
#[must_use]
pub fn judge_part(usage: &JudgeUsage) -> String {
    let JudgeUsage { requests: _, input_tokens, output_tokens, cost_micros_usd } = usage;
    match cost_micros_usd {
        Some(cost) => format!("judge {}", dollars(*cost)),
        None => format!("judge {input_tokens} tokens read, {output_tokens} written"),
    }
}

/// As in `1.2 s`.
#[must_use]
pub fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

/// As in `$0.0123`.
#[must_use]
pub fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}
