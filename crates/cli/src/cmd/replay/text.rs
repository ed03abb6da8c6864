//! The result of a replay as text.

use super::{ReplayArgs, across};
use belljar_contract::{
    AbsPath, CheckResult, Conclusion, ExitCode, Judgement, Outcome, SignalWeight, TapeNormaliser, visible,
    visible_lines,
};
use belljar_report::{Shown, Style, render_judgement};
use belljar_runner::suite::{JobResult, script_beside};
use belljar_runner::tape::{
    AcrossVersions, Changed, ChangedCause, Drift, Mutation, Mutations, NotCheckable, Origins, ReplayReport,
    Replayed, ReplayedAgents, Varying, varying,
};
use serde_json::{Value, from_value};

/// What a row says about a replay beyond the result of its run.
pub(super) struct ReplayedRow {
    replay: ReplayReport,
    changed: Vec<Changed>,
    agents: ReplayedAgents,
    normalisers: Vec<TapeNormaliser>,
}

impl ReplayedRow {
    pub(super) fn of(replayed: &Replayed) -> Self {
        let Replayed { tried: _, report, changed, agents, normalise, .. } = replayed;
        let (replay, changed) = (report.clone(), changed.clone());
        Self { replay, changed, agents: agents.clone(), normalisers: normalise.clone() }
    }

    /// The row of a worker.
    fn read(row: &Value) -> Self {
        Self {
            replay: from_value(row["replay"].clone()).unwrap_or_default(),
            changed: from_value(row["changed"].clone()).unwrap_or_default(),
            agents: from_value(row["agents"].clone()).unwrap_or_default(),
            normalisers: from_value(row["normalisers"].clone()).unwrap_or_default(),
        }
    }
}

/// What is printed about a replay among others, below its result.
pub(super) fn row_text(args: &ReplayArgs, job: &JobResult, shown: &str, style: Style) -> String {
    let Some(run) = job.run.as_ref().filter(|run| run.error.is_none()) else { return String::new() };
    let row = ReplayedRow::read(&job.row);
    let mut text = String::new();
    let says_why = args.explain || args.verbose;
    let passed = |check: &&CheckResult| says_why && check.outcome == Outcome::Pass;
    // The others are part of the result above.
    let rest = Judgement {
        conclusion: run.conclusion.unwrap_or(Conclusion::Unverified),
        checks: run.checks.iter().filter(passed).cloned().collect(),
        signals: run.signals.iter().filter(|signal| signal.weight == SignalWeight::Warn).cloned().collect(),
    };
    text.push_str(&render_judgement(&rest, Shown::Everything, style));
    row.normalisers.iter().for_each(|one| text.push_str(&normaliser_line(one)));
    if !row.replay.is_faithful() || row.replay.crossed > 0 || job.exit != ExitCode::Passed {
        text.push_str(&drift_text(&row, across(args), style));
    }
    let scenario: Option<AbsPath> = from_value(job.row["file"].clone()).ok();
    text + &stale_hint(args, &row.changed, (shown, scenario.as_ref()))
}

/// What the verdict of a replay rests on beside the checks: the suite's normalisers, and who answered and judged.
pub(super) fn basis_text(normalise: &[TapeNormaliser], origins: &Origins, shown: Shown) -> String {
    let details = match shown {
        Shown::Everything => origins.lines(),
        Shown::Failures | Shown::OnlyFailures => Vec::new(),
    };
    let all = origins.summary().into_iter().chain(details.into_iter().map(|line| format!("  {line}")));
    let lines = all.map(|line| format!("  {}\n", visible(&line)));
    normalise.iter().map(normaliser_line).chain(lines).collect()
}

fn normaliser_line(one: &TapeNormaliser) -> String {
    format!("  normaliser {}\n", visible(&one.sentence()))
}

/// The report of a replay as text.
pub(super) fn drift_text(row: &ReplayedRow, across: AcrossVersions, style: Style) -> String {
    let ReplayedRow { replay: report, changed, agents, normalisers: _ } = row;
    let mut text = String::new();
    for (at, drift) in report.drifts.iter().enumerate() {
        // What a conversation once contains it contains for good.
        let before = report.drifts[..at].iter().find(|earlier| {
            earlier.kind == drift.kind
                && !drift.differences.is_empty()
                && earlier.differences == drift.differences
        });
        text.push_str(&match before {
            Some(earlier) => {
                format!(
                    "  request {} differs in the same way as request {}\n",
                    drift.request, earlier.request
                )
            }
            None => one_drift(drift, style),
        });
    }
    if report.more_drifts > 0 {
        text.push_str(&format!("  and {} more\n", report.more_drifts));
    }
    // After a drift, exchanges that were not asked for are expected.
    for left in report.unconsumed.iter().filter(|_| report.drifts.is_empty()) {
        let mark = style.removed("x");
        let line = format!(
            "{mark} exchange {} of {} was not asked for\n",
            left.exchange,
            visible(&left.conversation.to_string())
        );
        text.push_str(&line);
    }
    // Changes of the test itself are part of the judgement, and strictly all are.
    for changed in changed.iter().filter(|one| across == AcrossVersions::UserSide && !one.is_of_the_test()) {
        if !report.is_faithful() && changed.cause != ChangedCause::Agent {
            text.push_str(&format!("  {}\n", visible(&changed.sentence())));
        }
    }
    if let Some(sentence) = agents.sentence() {
        text.push_str(&format!("  {}\n", visible(&sentence)));
        let lines = report.agent.lines();
        lines.iter().for_each(|line| text.push_str(&format!("    {}\n", visible(line))));
    }
    let drifts = report.drifts.len() as u64 + report.more_drifts;
    text.push_str(&format!(
        "replayed {} of {} exchanges, {drifts} drifted, {} not asked for\n",
        report.exact,
        report.exchanges,
        report.unconsumed.len()
    ));
    text
}

fn one_drift(drift: &Drift, style: Style) -> String {
    let nearest = drift.nearest.map_or("nothing like it was recorded".to_owned(), |seq| {
        format!("compared with exchange {seq}, the nearest")
    });
    let mut text = format!(
        "{} {} in {}, request {}; {nearest}\n",
        style.removed("x"),
        drift.kind.describe(),
        visible(&drift.conversation.to_string()),
        drift.request
    );
    if !drift.covered_by.is_empty() {
        text.push_str(&format!(
            "  hint: a tape that was recorded with --normalise {} would match\n",
            visible(&drift.covered_by.join(" --normalise "))
        ));
    }
    for difference in &drift.differences {
        let value = |value: &Option<String>| {
            let shown = value.as_ref().map(|value| visible_lines(value, "              "));
            shown.unwrap_or_else(|| "nothing".to_owned())
        };
        text.push_str(&format!("    {}\n", visible(&difference.pointer)));
        text.push_str(&format!("    recorded: {}\n", value(&difference.recorded)));
        text.push_str(&format!("    present:  {}\n", value(&difference.present)));
        if difference.agent_texts {
            text.push_str("    the agent's own text; a tape has its digest only\n");
        }
        if let Some(call) = &difference.call {
            text.push_str(&format!(
                "    from the call {} {} ({})\n",
                visible(&call.name),
                visible(&call.input.to_string()),
                visible(&call.id.to_string())
            ));
        }
    }
    if drift.more > 0 {
        text.push_str(&format!("    and {} more differences\n", drift.more));
    }
    let varying = drift.differences.iter().find_map(varying).filter(|_| drift.covered_by.is_empty());
    for line in varying.iter().flat_map(Varying::hint) {
        text.push_str(&format!("  {}\n", visible(&line)));
    }
    text
}

pub(super) fn mutation_text(found: &Mutations, style: Style) -> String {
    let mut text = String::new();
    for Mutation { what, place, from, to } in &found.unnoticed {
        let place = if place.is_empty() { String::new() } else { format!(", {}", visible(place)) };
        text.push_str(&format!(
            "{} {what}{place}: {} became {}\n",
            style.removed("x"),
            visible(from),
            visible(to)
        ));
    }
    for NotCheckable { what, why } in &found.not_checkable {
        text.push_str(&format!("  not checkable: {}: {}\n", visible(what), visible(why)));
    }
    if found.tried == 0 {
        return text + "there is nothing on it that could be changed\n";
    }
    text + &format!("{} of {} changes were noticed\n", found.tried - found.unnoticed.len(), found.tried)
}

/// What to do about a recording that is not what would be recorded now.
pub(super) fn stale_hint(
    args: &ReplayArgs,
    changed: &[Changed],
    (shown, scenario): (&str, Option<&AbsPath>),
) -> String {
    let of_the_test = changed.iter().any(Changed::is_of_the_test);
    // What is not known to have changed is not recorded again.
    let known = changed.iter().any(|one| !one.recorded.is_empty());
    let has_script = scenario.is_some_and(|file| script_beside(file).as_path().is_file());
    let scripted = match has_script {
        true => format!(", `belljar tape refresh --scripted {shown}` by the script beside its scenario"),
        false => String::new(),
    };
    let refresh = format!("hint: `belljar tape refresh {shown}` records it again with the model{scripted}");
    match (across(args), args.allow_stale) {
        (AcrossVersions::UserSide, false) if of_the_test => {
            format!("{refresh}; --allow-stale judges it as it is\n")
        }
        (AcrossVersions::Strict, _) if known => format!("{refresh}\n"),
        (AcrossVersions::UserSide | AcrossVersions::Strict, _) => String::new(),
    }
}
