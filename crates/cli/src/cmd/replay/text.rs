//! The result of a replay as text.

use belljar_contract::{TapeNormaliser, visible, visible_lines};
use belljar_report::{Shown, Style};
use belljar_runner::tape::{Drift, Mutation, Mutations, NotCheckable, Origins, Replayed};

/// What the verdict of a replay rests on beside the checks: the suite's normalisers, and who answered and judged.
pub(super) fn basis_text(normalise: &[TapeNormaliser], origins: &Origins, shown: Shown) -> String {
    let normalise = normalise.iter().map(|one| format!("normaliser {}", one.sentence()));
    let details = match shown {
        Shown::Everything => origins.lines(),
        Shown::Failures => Vec::new(),
    };
    let all = normalise.chain(origins.summary()).chain(details.into_iter().map(|line| format!("  {line}")));
    all.map(|line| format!("  {}\n", visible(&line))).collect()
}

/// The report of a replay as text.
pub(super) fn drift_text(replayed: &Replayed, style: Style) -> String {
    let Replayed { tried: _, report, changed, agents, .. } = replayed;
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
    // Changes of the test itself are part of the judgement.
    for changed in changed.iter().filter(|one| !one.is_of_the_test()) {
        if !report.is_faithful() && !changed.what.contains("version") {
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
            "  recorded with --normalise {} it would match\n",
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
