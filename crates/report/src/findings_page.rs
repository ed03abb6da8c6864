//! The findings of a run, most dangerous first.
//!
//! An attacker may choose names and numbers of files, so no number of entries may hide another: entries are grouped
//! by kind, each kind has a line before any has a second one, many entries of a directory share a line, and entries
//! near the top of the project come before those far down.

use crate::Style;
use belljar_contract::{AbsPath, Danger, Finding, visible};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of lines at the end of a run.
pub const FINDING_LINES: usize = 30;
/// The maximum number of entries of one directory that have lines of their own.
const ALONE: usize = 3;

/// The maximum number of characters of a path and of a reason at the end of a run, so that one entry cannot fill the
/// screen.
const PATH_SHOWN: usize = 100;
const WHY_SHOWN: usize = 160;

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingsShown<'a> {
    /// At most [`FINDING_LINES`], and the command that lists everything.
    Short {
        /// The command that lists everything, such as `belljar findings`; `None` if no list is stored.
        all: Option<&'a str>,
    },
    /// Every entry on its own line.
    All,
}

/// Renders the findings. `shown` shortens a path for people.
#[must_use]
pub fn render_findings(
    findings: &[Finding],
    shown: &dyn Fn(&AbsPath) -> String,
    how: FindingsShown<'_>,
    style: Style,
) -> String {
    let count = findings.len();
    if count == 0 {
        return String::new();
    }
    let head =
        format!("! {count} left by the run that your machine may execute, or that lead out of the project:");
    let mut text = format!("{}\n", style.warn(&head));
    match how {
        FindingsShown::All => {
            let mut sorted: Vec<&Finding> = findings.iter().collect();
            sorted.sort_by_key(|finding| (finding.danger, depth(&finding.path), &finding.path));
            for finding in sorted {
                text.push_str(&format!("  {}  {}\n", shown(&finding.path), visible(&finding.why())));
            }
        }
        FindingsShown::Short { all } => short(findings, shown, all, &mut text),
    }
    text
}

fn short(findings: &[Finding], shown: &dyn Fn(&AbsPath) -> String, all: Option<&str>, text: &mut String) {
    let kinds = kinds(findings);
    let budgets = budgets(&kinds.iter().map(Vec::len).collect::<Vec<_>>());
    let (mut more, mut guarded, mut folded) = (0, 0, false);
    for (rows, budget) in kinds.iter().zip(budgets) {
        let (drawn, left) = rows.split_at(budget);
        for Row { path, count, why, .. } in drawn {
            let (path, why) = (bounded(&shown(path), PATH_SHOWN), bounded(&visible(why), WHY_SHOWN));
            folded |= *count > 1;
            text.push_str(&match count {
                1 => format!("  {path}  {why}\n"),
                count => format!("  {path}/  {count} entries: {why}\n"),
            });
        }
        for Row { danger, count, .. } in left {
            more += count;
            guarded += if *danger == Danger::Guarded { *count } else { 0 };
        }
    }
    match all {
        Some(all) if more > 0 => {
            text.push_str(&format!("  and {more} more ({guarded} of the guarded kind): `{all}` lists all\n"))
        }
        Some(all) if folded => text.push_str(&format!("  `{all}` lists all\n")),
        None if more > 0 => text.push_str(&format!("  and {more} more ({guarded} of the guarded kind)\n")),
        Some(_) | None => {}
    }
}

/// One line: an entry, or several of one directory.
struct Row {
    danger: Danger,
    path: AbsPath,
    count: usize,
    why: String,
}

/// The rows of each kind, most dangerous kind first.
fn kinds(findings: &[Finding]) -> Vec<Vec<Row>> {
    let kind = |finding: &Finding| match finding.danger {
        Danger::BuildOutput => (finding.danger, String::new()),
        Danger::Guarded | Danger::EscapingLink | Danger::Watched | Danger::Special => {
            (finding.danger, finding.what.clone())
        }
    };
    let directories: BTreeSet<_> =
        findings.iter().filter_map(|finding| Some((kind(finding), finding.path.parent()?))).collect();
    let mut kinds: BTreeMap<(Danger, String), BTreeMap<AbsPath, Vec<&Finding>>> = BTreeMap::new();
    for finding in findings {
        let own = (kind(finding), finding.path.clone());
        // A directory is counted with its entries.
        let above = if directories.contains(&own) { None } else { finding.path.parent() };
        let (kind, path) = own;
        let place = finding.output.clone().or(above).unwrap_or(path);
        kinds.entry(kind).or_default().entry(place).or_default().push(finding);
    }
    let rows = |places: BTreeMap<AbsPath, Vec<&Finding>>| {
        let mut rows: Vec<Row> =
            places.into_iter().flat_map(|(place, found)| rows_of(place, &found)).collect();
        rows.sort_by(|one, other| (depth(&one.path), &one.path).cmp(&(depth(&other.path), &other.path)));
        rows
    };
    kinds.into_values().map(rows).collect()
}

fn rows_of(place: AbsPath, found: &[&Finding]) -> Vec<Row> {
    let first = found[0];
    if first.danger == Danger::BuildOutput && found.len() > 1 {
        let why = "build output, which runs on the next build".to_owned();
        return vec![Row { danger: first.danger, path: place, count: found.len(), why }];
    }
    if found.len() > ALONE {
        let why = first.what.clone();
        return vec![Row { danger: first.danger, path: place, count: found.len(), why }];
    }
    let row = |one: &&Finding| Row { danger: one.danger, path: one.path.clone(), count: 1, why: one.why() };
    found.iter().map(row).collect()
}

/// How many rows of each kind are shown: one of each, then another of each that has more, while lines are left.
fn budgets(rows: &[usize]) -> Vec<usize> {
    let mut out = vec![0; rows.len()];
    let mut left = FINDING_LINES;
    while left > 0 && out.iter().zip(rows).any(|(budget, count)| budget < count) {
        for (budget, count) in out.iter_mut().zip(rows) {
            if *budget < *count && left > 0 {
                *budget += 1;
                left -= 1;
            }
        }
    }
    out
}

/// The beginning and the end of a long text, which are the most informative parts of a path.
fn bounded(text: &str, limit: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= limit {
        return text.to_owned();
    }
    let (start, end) = (&letters[..limit / 2], &letters[letters.len() - limit / 2..]);
    start.iter().chain(&['…']).chain(end).collect()
}

fn depth(path: &AbsPath) -> usize {
    path.as_path().components().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::FoundAs;

    fn finding(danger: Danger, path: &str, what: &str) -> Finding {
        let output = path.find("node_modules").map(|at| AbsPath::new(&path[..at + 12]).unwrap());
        Finding {
            danger,
            path: AbsPath::new(path).unwrap(),
            since: FoundAs::New,
            what: what.to_owned(),
            target: None,
            output: output.filter(|_| danger == Danger::BuildOutput),
        }
    }

    fn page(findings: &[Finding]) -> String {
        let shown = |path: &AbsPath| path.to_string().trim_start_matches("/p/").to_owned();
        render_findings(
            findings,
            &shown,
            FindingsShown::Short { all: Some("belljar findings") },
            Style::Plain,
        )
    }

    #[test]
    fn decoys_of_any_kind_do_not_bury_another_kind() {
        for (danger, decoy) in [
            (Danger::Guarded, "d{}/.mcp.json"),
            (Danger::EscapingLink, "a{}"),
            (Danger::Watched, "a{}/.gitmodules"),
            (Danger::Special, "a{}/pipe"),
            (Danger::BuildOutput, "a{}/node_modules/.bin/x"),
        ] {
            let mut findings: Vec<Finding> = (0..10_000)
                .map(|at| finding(danger, &format!("/p/{}", decoy.replace("{}", &at.to_string())), "a decoy"))
                .collect();
            findings.push(finding(Danger::Guarded, "/p/z/.git/hooks/pre-commit", "git runs it"));
            findings.push(finding(Danger::Watched, "/p/z/.pre-commit-config.yaml", "it names programs"));
            let page = page(&findings);
            assert!(page.contains("z/.git/hooks/pre-commit  new; git runs it"), "{danger:?}:\n{page}");
            assert!(page.contains("z/.pre-commit-config.yaml"), "{danger:?}:\n{page}");
            assert!(page.lines().count() <= FINDING_LINES + 2, "{page}");
            let hooks = page.find("pre-commit  new").unwrap();
            assert!(
                danger == Danger::Guarded || hooks < page.find("a decoy").unwrap_or(usize::MAX),
                "{page}"
            );
            assert!(page.contains("`belljar findings` lists all"), "{page}");
        }
    }

    #[test]
    fn many_of_one_directory_share_a_line() {
        let mut findings: Vec<Finding> = (0..500)
            .map(|at| finding(Danger::Guarded, &format!("/p/a/.git/hooks/a{at:03}"), "git runs it"))
            .collect();
        findings.push(finding(Danger::Guarded, "/p/a/.git/hooks", "git runs it"));
        findings.push(finding(Danger::Guarded, "/p/.git/hooks/pre-commit", "git runs it"));
        let page = page(&findings);
        let lines: Vec<&str> = page.lines().skip(1).collect();
        let expected = [
            "  .git/hooks/pre-commit  new; git runs it",
            "  a/.git/hooks/  501 entries: git runs it",
            "  `belljar findings` lists all",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn build_output_is_one_line() {
        let findings: Vec<Finding> = (0..60)
            .map(|at| finding(Danger::BuildOutput, &format!("/p/node_modules/.bin/tool{at}"), "a shim"))
            .chain([finding(Danger::BuildOutput, "/p/web/node_modules/.bin/one", "a shim")])
            .collect();
        let page = page(&findings);
        assert!(page.contains("  node_modules/  60 entries: build output"), "{page}");
        assert!(page.contains("  web/node_modules/.bin/one  new; a shim"), "{page}");
    }

    #[test]
    fn a_long_name_does_not_fill_the_screen() {
        let deep = format!("/p/{}.mcp.json", "a-long-directory/".repeat(200));
        let mut link = finding(Danger::EscapingLink, "/p/out", "a link that leads out");
        link.target = Some("/etc/".repeat(500));
        let page = page(&[finding(Danger::Guarded, &deep, "servers"), link]);
        assert!(page.lines().all(|line| line.chars().count() < 290), "{page}");
        assert!(page.contains("…") && page.contains("/a-long-directory/.mcp.json  new; servers"), "{page}");
    }

    #[test]
    fn a_run_that_left_nothing_has_no_heading() {
        assert_eq!(page(&[]), "");
    }

    #[test]
    fn omitted_entries_are_counted() {
        let findings: Vec<Finding> = (0..100)
            .map(|at| finding(Danger::Guarded, &format!("/p/d{at:02}/.mcp.json"), "servers"))
            .chain((0..5).map(|at| finding(Danger::Watched, &format!("/p/d{at}/.gitmodules"), "fetches")))
            .collect();
        let page = page(&findings);
        assert!(
            page.contains("and 75 more (75 of the guarded kind): `belljar findings` lists all"),
            "{page}"
        );
        assert_eq!(page.matches("fetches").count(), 5, "{page}");
    }

    #[test]
    fn everything_is_listed_and_nothing_paints() {
        let mut link = finding(Danger::EscapingLink, "/p/out\u{1b}[2J", "a link that leads out");
        link.target = Some("/etc/\u{1b}[2J\u{202e}".to_owned());
        let findings = [finding(Danger::Watched, "/p/b", "x"), link, finding(Danger::Guarded, "/p/c/d", "y")];
        let shown = |path: &AbsPath| path.to_string();
        let page = render_findings(&findings, &shown, FindingsShown::All, Style::Plain);
        let lines: Vec<&str> = page.lines().skip(1).collect();
        let expected = [
            "  /p/c/d  new; y",
            "  /p/out\\u{1b}[2J  new; a link that leads out, to /etc/\\u{1b}[2J\\u{202e}",
            "  /p/b  new; x",
        ];
        assert_eq!(lines, expected);
    }
}
