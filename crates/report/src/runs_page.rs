//! The list of kept runs.

use crate::{Style, render_table, seconds};
use belljar_contract::{RunStatus, UtcTime, visible};

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    pub id: String,
    pub started_at_ms: Option<u64>,
    pub verb: &'static str,
    /// The name of the scenario, or of the agent.
    pub subject: String,
    /// What came of it, in a few words.
    pub end: String,
    pub is_failure: bool,
    pub duration_ms: Option<u64>,
    pub tool_calls: Option<u64>,
}

/// The longest name in the list; a longer one is cut.
const SUBJECT: usize = 48;
/// The longest description of an end.
const END: usize = 60;

/// Runs in aligned columns.
#[must_use]
pub fn render_runs(runs: &[RunLine], style: Style) -> String {
    let cut = |text: &str, limit: usize| match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    let row = |run: &RunLine| {
        let when = run.started_at_ms.map(|ms| UtcTime::from_unix_ms(ms).to_string()).unwrap_or_default();
        vec![
            run.id.clone(),
            when,
            run.verb.to_owned(),
            cut(&visible(&run.subject), SUBJECT),
            cut(&visible(&run.end), END),
            run.duration_ms.map(seconds).unwrap_or_default(),
            run.tool_calls.map(|count| count.to_string()).unwrap_or_default(),
        ]
    };
    let headings = ["id", "when (UTC)", "verb", "name", "end", "took", "tools"];
    let table = render_table(&headings, &runs.iter().map(row).collect::<Vec<_>>(), style);
    let mut lines = table.split_inclusive('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for (line, run) in lines.zip(runs) {
        match run.is_failure {
            true => out.push_str(&format!("{}\n", style.removed(line.trim_end()))),
            false => out.push_str(line),
        }
    }
    out
}

/// How a run ended that was not judged.
#[must_use]
pub fn status_word(status: &RunStatus) -> String {
    match status {
        RunStatus::Exited { code } => format!("exit {code}"),
        RunStatus::Killed { signal } => format!("killed by signal {signal}"),
        RunStatus::LimitReached { limit } => format!("{} limit reached", limit.describe()),
        RunStatus::Stopped => "stopped".to_owned(),
        RunStatus::NotStarted { why } => format!("not started: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(subject: &str, is_failure: bool) -> RunLine {
        RunLine {
            id: "0000000a".to_owned(),
            started_at_ms: Some(0),
            verb: "test",
            subject: subject.to_owned(),
            end: "passed".to_owned(),
            is_failure,
            duration_ms: Some(1200),
            tool_calls: Some(3),
        }
    }

    #[test]
    fn a_run_is_one_line_whatever_its_name() {
        let long = "n".repeat(100);
        let page = render_runs(&[line("a\nb\u{1b}[2J", true), line(&long, false)], Style::Plain);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines.len(), 3, "{page}");
        assert!(lines[0].starts_with("id        when (UTC)        verb  name"), "{page}");
        assert!(lines[1].contains("test  a\\nb\\u{1b}[2J"), "{page}");
        assert!(lines[2].contains(&format!("{}…", "n".repeat(48))) && lines[2].ends_with("passed  1.2 s  3"));
        let coloured = render_runs(&[line("a", true)], Style::Ansi);
        assert!(coloured.lines().nth(1).unwrap().starts_with("\u{1b}[31m0000000a"), "{coloured:?}");
    }
}
