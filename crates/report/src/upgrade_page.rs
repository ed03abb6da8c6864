//! Recordings on another version of the agent: for people, and as a self-contained HTML page.

use crate::Style;
use crate::html::{escaped, page};
use belljar_contract::{
    AbsPath, ChangedCheck, MovedInTapes, MovedKind, Outcome, SizeChange, UpgradeDrift, UpgradeOutcome,
    UpgradeReport, UpgradeRequests, UpgradedTape, visible, visible_lines,
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
    out.push_str(&format!("\n{}\n", summary(report)));
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
    out.extend(tape.requests.map(|requests| requests_line(requests, tape.outcome)));
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

fn requests_line(requests: UpgradeRequests, outcome: UpgradeOutcome) -> String {
    let UpgradeRequests { recorded, present, reordered, absent } = requests;
    let mut line = match outcome == UpgradeOutcome::Drifted && absent == 0 {
        true => format!("requests: {recorded} when recorded, {present} until the drift"),
        false => format!("requests: {recorded} when recorded, now {present}"),
    };
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
    for (tapes, line) in moved_lines(report) {
        out.push_str(&format!("  {:<9} {}\n", counted(tapes, "tape"), visible(&line)));
    }
    out
}

/// The differences, those of one kind that are in as many tapes on one line.
fn moved_lines(report: &UpgradeReport) -> Vec<(usize, String)> {
    let mut named: Vec<(MovedKind, usize, Vec<&str>)> = Vec::new();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for MovedInTapes { moved, tapes } in &report.moved {
        if !moved.kind.is_named() {
            lines.push((*tapes, moved.sentence()));
            continue;
        }
        match named.iter_mut().find(|(kind, count, _)| (*kind, *count) == (moved.kind, *tapes)) {
            Some((_, _, names)) => names.push(&moved.name),
            None => named.push((moved.kind, *tapes, vec![&moved.name])),
        }
    }
    let line = |(kind, tapes, names): (MovedKind, usize, Vec<&str>)| {
        (tapes, format!("{}: {}", kind.describe(), names.join(", ")))
    };
    named.into_iter().map(line).chain(lines).collect()
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
    let counts = UpgradeOutcome::ALL.map(|outcome| (report.count(outcome), counted_as(outcome)));
    let counts = counts.into_iter().chain([(report.not_started, "not started")]);
    let parts: Vec<String> =
        counts.filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
    let all = counted(report.results.len() + report.not_started, "tape");
    let before = if report.interrupted { "interrupted: " } else { "" };
    format!("{before}{all}: {}", parts.join(", "))
}

/// The outcome behind a number.
const fn counted_as(outcome: UpgradeOutcome) -> &'static str {
    match outcome {
        UpgradeOutcome::SameVerdict => "with the same verdict",
        UpgradeOutcome::VerdictChanged => "with another verdict",
        UpgradeOutcome::Drifted
        | UpgradeOutcome::Unverified
        | UpgradeOutcome::NotRun
        | UpgradeOutcome::Interrupted => outcome.describe(),
    }
}

/// One HTML file without scripts and without external resources.
#[must_use]
pub fn upgrade_html(report: &UpgradeReport, shown: PathShown<'_>) -> String {
    let mut body = String::from("<h1>Recordings on another version of the agent</h1>\n");
    if let Some(agent) = &report.agent {
        body.push_str(&format!("<p>Replayed on {}.</p>\n", inline(agent)));
    }
    body.push_str(&format!("<p>{}</p>\n", inline(&summary(report))));
    body.push_str("<table><tr><th>tape<th>versions<th>outcome<th>found</tr>\n");
    for tape in &report.results {
        body.push_str(&tape_row(tape, &shown(&tape.tape)));
    }
    body.push_str("</table>\n");
    if !report.moved.is_empty() {
        body.push_str("<h2>What the agent sends otherwise</h2>\n<table><tr><th>tapes<th>difference</tr>\n");
        for (tapes, line) in moved_lines(report) {
            body.push_str(&format!("<tr><td>{tapes}<td>{}</tr>\n", inline(&line)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{Moved, RecordAgain};

    fn report() -> UpgradeReport {
        let text = |text: &str| text.to_owned();
        let tape = AbsPath::new("/p/<b>.tape").unwrap();
        let drift = UpgradeDrift {
            kind: text("tool-result drift"),
            place: text("main, request 1, /messages/1"),
            recorded: Some(text("</pre><script>x</script>")),
            present: Some(text("two\nlines \u{202e}")),
            call: None,
        };
        let added = |name: &str| MovedInTapes {
            moved: Moved { kind: MovedKind::ToolAdded, name: text(name), recorded: None, present: None },
            tapes: 1,
        };
        UpgradeReport {
            agent: Some(text("an-agent@2.1.9")),
            results: vec![UpgradedTape {
                tape: tape.clone(),
                scenario: Some(text("<img src=x onerror=\"x\">&")),
                outcome: UpgradeOutcome::Drifted,
                exit_code: 7,
                recorded_on: Some(text("2.1.8")),
                replayed_on: Some(text("2.1.9")),
                why: Vec::new(),
                checks: Vec::new(),
                drifts: vec![drift],
                stale: Vec::new(),
                requests: Some(UpgradeRequests { recorded: 3, present: 2, reordered: 1, absent: 0 }),
                fixed_prompt: Some(SizeChange { recorded: 400, present: 800 }),
                moved: Vec::new(),
                run: None,
            }],
            moved: vec![added("A"), added("<B>")],
            record_again: vec![RecordAgain {
                tape,
                why: vec![text("it drifted")],
                status: None,
                error: None,
            }],
            commands: vec![text("belljar tape refresh '/p/<b>.tape'")],
            not_started: 1,
            interrupted: true,
        }
    }

    #[test]
    fn a_report_is_read_from_top_to_bottom() {
        let text = render_upgrade(&report(), &|path| path.to_string(), Style::Plain);
        assert_eq!(
            text,
            "/p/<b>.tape: drifted, 2.1.8 -> 2.1.9\n\
             \x20 requests: 3 when recorded, 2 until the drift, 1 in another order\n\
             \x20 fixed prompt: 400 characters (about 100 tokens) when recorded, now 800 characters (about 200 tokens)\n\
             \x20 tool-result drift in main, request 1, /messages/1\n\
             \x20   recorded: </pre><script>x</script>\n\
             \x20   present:  two\n              lines \\u{202e}\n\
             \nWhat the agent sends otherwise\n\
             \x20 1 tape    tool added: A, <B>\n\
             \nRecordings to make again\n\
             \x20 /p/<b>.tape: it drifted\n\
             \x20 $ belljar tape refresh '/p/<b>.tape'\n\
             \ninterrupted: 2 tapes: 1 drifted, 1 not started\n"
        );
    }

    #[test]
    fn a_page_has_no_tags_but_its_own() {
        let html = upgrade_html(&report(), &|path| path.to_string());
        for foreign in ["<script", "<img", "<b>.tape", "</pre><s", "<B>", "://", "url(", "src=x onerror=\""] {
            assert!(!html.contains(foreign), "{foreign}: {html}");
        }
        assert!(html.contains("&lt;img src=x onerror=&quot;x&quot;&gt;&amp;"), "{html}");
        assert!(html.contains("two\n") && !html.contains('\u{202e}'), "{html}");
    }
}
