//! Recordings on another version of the agent: for people, and as a self-contained HTML page.

use crate::Style;
use crate::html::{escaped, page};
use belljar_contract::{
    AbsPath, ChangedCheck, Outcome, SizeChange, UpgradeDrift, UpgradeOutcome, UpgradeReport, UpgradeRequests,
    UpgradedTape, visible, visible_lines,
};

/// About so many characters are a token.
const CHARACTERS_IN_TOKEN: usize = 4;

/// How a path is shown.
pub type PathShown<'a> = &'a dyn Fn(&AbsPath) -> String;

/// The report: each tape, what moved, what should be recorded again.
#[must_use]
pub fn render_upgrade(report: &UpgradeReport, shown: PathShown<'_>, style: Style) -> String {
    let mut out = String::new();
    for tape in &report.results {
        let outcome = tape.outcome.describe();
        let outcome = if is_good(tape) { style.added(outcome) } else { style.removed(outcome) };
        let (name, versions) = (shown(&tape.tape), versions(tape));
        out.push_str(&format!("{}: {outcome}{}\n", style.bold(&name), visible(&versions)));
        tape_lines(tape).iter().for_each(|line| out.push_str(&format!("  {}\n", visible(line))));
        tape.drifts.iter().for_each(|drift| out.push_str(&drift_text(drift)));
    }
    out.push_str(&moved_text(report, style));
    out.push_str(&again_text(report, shown, style));
    out.push_str(&format!("{}\n", summary(report)));
    out
}

fn is_good(tape: &UpgradedTape) -> bool {
    tape.outcome == UpgradeOutcome::SameVerdict
}

fn versions(tape: &UpgradedTape) -> String {
    match (&tape.recorded_on, &tape.replayed_on) {
        (Some(recorded), Some(present)) => format!(", {recorded} -> {present}"),
        (Some(recorded), None) => format!(", recorded on {recorded}"),
        (None, Some(present)) => format!(", replayed on {present}"),
        (None, None) => String::new(),
    }
}

/// What is said of a tape beside its outcome, its drifts and the differences that the summary has.
fn tape_lines(tape: &UpgradedTape) -> Vec<String> {
    let check = |ChangedCheck { check, recorded, present, message }: &ChangedCheck| {
        format!("{check}: {} when recorded, now {}: {message}", word(*recorded), word(*present))
    };
    let mut out: Vec<String> = tape.why.iter().cloned().chain(tape.checks.iter().map(check)).collect();
    // One that is not verified for this reason says so already.
    let stale = tape.stale.iter().filter(|sentence| !tape.why.iter().any(|why| why.ends_with(*sentence)));
    out.extend(stale.cloned());
    out.extend(tape.requests.map(requests_line));
    out.extend(tape.fixed_prompt.map(size_line));
    out
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "failed",
        Outcome::Unknown => "unknown",
        Outcome::Waived => "waived",
    }
}

fn requests_line(requests: UpgradeRequests) -> String {
    let UpgradeRequests { recorded, present, reordered, absent } = requests;
    let mut line = format!("requests: {recorded} when recorded, now {present}");
    for (count, what) in [(reordered, "in another order"), (absent, "not asked for")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

fn size_line(SizeChange { recorded, present }: SizeChange) -> String {
    let size = |characters: usize| {
        format!("{characters} characters (about {} tokens)", characters / CHARACTERS_IN_TOKEN)
    };
    match recorded == present {
        true => format!("fixed prompt: {}, as recorded", size(recorded)),
        false => format!("fixed prompt: {} when recorded, now {}", size(recorded), size(present)),
    }
}

fn drift_text(UpgradeDrift { kind, place, recorded, present, call }: &UpgradeDrift) -> String {
    let mut out = format!("  {} in {}\n", visible(kind), visible(place));
    for (what, value) in [("recorded: ", recorded), ("present:  ", present), ("from the call ", call)] {
        if let Some(value) = value {
            out.push_str(&format!("    {what}{}\n", visible_lines(value, "              ")));
        }
    }
    out
}

fn moved_text(report: &UpgradeReport, style: Style) -> String {
    if report.moved.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", style.bold("What the agent sends otherwise"));
    for moved in &report.moved {
        let tapes = counted(moved.tapes, "tape");
        out.push_str(&format!("  {tapes:<9} {}\n", visible(&moved.moved.sentence())));
    }
    out
}

fn again_text(report: &UpgradeReport, shown: PathShown<'_>, style: Style) -> String {
    if report.record_again.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", style.bold("Recordings to make again"));
    for again in &report.record_again {
        let why: Vec<String> = again.why.iter().map(|why| visible(why).into_owned()).collect();
        out.push_str(&format!("  {}: {}\n", shown(&again.tape), why.join("; ")));
        if let Some(made) = made_again(again.status, again.error.as_deref()) {
            out.push_str(&format!("    {}\n", visible(&made)));
        }
    }
    for command in &report.commands {
        out.push_str(&format!("  $ {command}\n"));
    }
    out
}

/// What became of a recording that was to be made again.
fn made_again(status: Option<u8>, error: Option<&str>) -> Option<String> {
    match (status?, error) {
        (0, _) => Some("recorded again".to_owned()),
        (status, Some(why)) => Some(format!("not recorded again (status {status}): {why}")),
        (status, None) => Some(format!("not recorded again (status {status}); the tape is as it was")),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn summary(report: &UpgradeReport) -> String {
    let outcomes = [
        UpgradeOutcome::SameVerdict,
        UpgradeOutcome::VerdictChanged,
        UpgradeOutcome::Drifted,
        UpgradeOutcome::Unverified,
        UpgradeOutcome::NotRun,
        UpgradeOutcome::Interrupted,
    ];
    let counts = outcomes.map(|outcome| (report.count(outcome), outcome));
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> =
        counts.map(|(count, outcome)| format!("{count} {}", outcome.describe())).collect();
    if report.not_started > 0 {
        parts.push(format!("{} not started", report.not_started));
    }
    let before = if report.interrupted { "interrupted: " } else { "" };
    format!(
        "\n{before}{} of {}",
        parts.join(", "),
        counted(report.results.len() + report.not_started, "tape")
    )
}

/// One HTML file without scripts and without external resources.
#[must_use]
pub fn upgrade_html(report: &UpgradeReport, shown: PathShown<'_>) -> String {
    let mut body = String::from("<h1>Recordings on another version of the agent</h1>\n");
    if let Some(agent) = &report.agent {
        body.push_str(&format!("<p>Replayed on {}.</p>\n", inline(agent)));
    }
    body.push_str(&format!("<p>{}</p>\n", inline(summary(report).trim())));
    body.push_str("<table><tr><th>tape<th>versions<th>outcome<th>found</tr>\n");
    for tape in &report.results {
        body.push_str(&tape_row(tape, &shown(&tape.tape)));
    }
    body.push_str("</table>\n");
    if !report.moved.is_empty() {
        body.push_str("<h2>What the agent sends otherwise</h2>\n<table><tr><th>tapes<th>difference</tr>\n");
        for moved in &report.moved {
            let sentence = inline(&moved.moved.sentence());
            body.push_str(&format!("<tr><td>{}<td>{sentence}</tr>\n", moved.tapes));
        }
        body.push_str("</table>\n");
    }
    if !report.record_again.is_empty() {
        body.push_str("<h2>Recordings to make again</h2>\n<ul>\n");
        for again in &report.record_again {
            let made = made_again(again.status, again.error.as_deref());
            let why = again.why.iter().cloned().chain(made).collect::<Vec<_>>().join("; ");
            body.push_str(&format!("<li>{}: {}\n", inline(&shown(&again.tape)), inline(&why)));
        }
        let commands: Vec<String> = report.commands.iter().map(|line| inline(line)).collect();
        body.push_str(&format!("</ul>\n<pre>{}</pre>\n", commands.join("\n")));
    }
    page("recordings on another version of the agent", &body)
}

fn tape_row(tape: &UpgradedTape, shown: &str) -> String {
    let class = if is_good(tape) { "" } else { "bad" };
    let scenario = tape.scenario.as_deref().map(inline).unwrap_or_default();
    let recorded = tape.recorded_on.as_deref().unwrap_or("not known");
    let present = tape.replayed_on.as_deref().unwrap_or("not run");
    let lines: Vec<String> = tape_lines(tape).iter().map(|line| inline(line)).collect();
    let drifts: String =
        tape.drifts.iter().map(|drift| format!("<pre>{}</pre>", escaped(&drift_text(drift)))).collect();
    format!(
        "<tr><td><b>{}</b><br>{scenario}<td>{} -&gt; {}<td class=\"{class}\">{}<td>{}{drifts}</tr>\n",
        inline(shown),
        inline(recorded),
        inline(present),
        tape.outcome.describe(),
        lines.join("<br>")
    )
}

/// A text on one line.
fn inline(text: &str) -> String {
    escaped(&visible(text))
}
