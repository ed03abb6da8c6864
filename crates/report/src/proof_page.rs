//! Results of `prove` as a table, and of `doctor`.

use crate::Style;
use belljar_contract::{Checkup, CheckupState, ProbeResult, Proof, ProofRow, Verdict, visible};

/// A cell wider than this does not widen its column.
const WIDEST: usize = 36;

/// The table: probe, expected, on the host, inside, verdict; then details of the ones that did not pass.
#[must_use]
pub fn render_proof(proof: &Proof, style: Style) -> String {
    let head = ["probe", "expected", "on host", "inside", "verdict"].map(str::to_owned);
    let cells = |row: &ProofRow| {
        let ProofRow { id, expected, host, inside, verdict, .. } = row;
        [
            id.clone(),
            expected.clone(),
            shown(host, *verdict).to_owned(),
            shown(inside, *verdict).to_owned(),
            verdict.word().to_owned(),
        ]
    };
    let mut lines = vec![head];
    lines.extend(proof.rows.iter().map(cells));
    let mut out = String::new();
    let widths: Vec<usize> = (0..5)
        .map(|at| lines.iter().map(|line| line[at].len()).filter(|len| *len <= WIDEST).max().unwrap_or(0))
        .collect();
    for (at, line) in lines.iter().enumerate() {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let text = padded.join("  ").trim_end().to_owned();
        let bad = at > 0 && is_bad(proof.rows[at - 1].verdict);
        let text = if at == 0 {
            style.bold(&text)
        } else if bad {
            style.warn(&text)
        } else {
            text
        };
        out.push_str(&text);
        out.push('\n');
        if bad {
            let ProofRow { what, inside, .. } = &proof.rows[at - 1];
            out.push_str(&style.dim(&format!("    {what}: {}", one_line(inside.how()))));
            out.push('\n');
        }
    }
    out.push_str(&format!("\n{}\n", summary(proof)));
    out
}

/// A control that works is not shown as "open".
fn shown(outcome: &ProbeResult, verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works | Verdict::Broken => match outcome {
            ProbeResult::Open { .. } => "works",
            ProbeResult::Closed { .. } => "fails",
            ProbeResult::Reported { .. } | ProbeResult::Unseen { .. } => outcome.word(),
        },
        Verdict::Closed
        | Verdict::Reported
        | Verdict::Open
        | Verdict::ProvesNothing
        | Verdict::Unseen
        | Verdict::Given => outcome.word(),
    }
}

pub(crate) fn is_bad(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Open | Verdict::Broken | Verdict::Unseen => true,
        Verdict::Closed | Verdict::Reported | Verdict::ProvesNothing | Verdict::Works | Verdict::Given => {
            false
        }
    }
}

pub(crate) fn summary(proof: &Proof) -> String {
    let parts = [
        (Verdict::Closed, "closed"),
        (Verdict::Reported, "reported"),
        (Verdict::Open, "OPEN"),
        (Verdict::Unseen, "not seen"),
        (Verdict::Works, "controls work"),
        (Verdict::Broken, "controls BROKEN"),
        (Verdict::Given, "given on purpose"),
        (Verdict::ProvesNothing, "prove nothing on this machine"),
    ];
    let counted = parts.map(|(verdict, label)| (proof.count(verdict), label));
    let counts: Vec<String> = counted
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    counts.join(", ")
}

/// Escaped: output from inside cannot forge a line of the table.
fn one_line(text: &str) -> String {
    visible(text).chars().take(300).collect()
}

/// What this machine can enforce, what it cannot, and how to fix that.
#[must_use]
pub fn render_checkups(checkups: &[Checkup], style: Style) -> String {
    let width = checkups.iter().map(|checkup| checkup.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Checkup { id, state, seen, loses, fix } in checkups {
        let word = match state {
            CheckupState::Good => "yes",
            CheckupState::Absent => "no",
            CheckupState::Bad => "NO",
        };
        let line = format!("{word:<3}  {id:<width$}  {}", one_line(seen));
        let line = if *state == CheckupState::Bad { style.warn(&line) } else { line };
        out.push_str(line.trim_end());
        out.push('\n');
        if *state != CheckupState::Good {
            let indent = " ".repeat(width + 7);
            if !loses.is_empty() {
                out.push_str(&format!("{indent}without it: {}\n", visible(loses)));
            }
            for line in fix {
                out.push_str(&format!("{indent}{}\n", style.bold(&visible(line))));
            }
        }
    }
    out
}
