//! Results of `prove` for several backends side by side: a table for people, and a self-contained HTML page.

use crate::Style;
use crate::html::{escaped, page};
use crate::proof_page::{is_bad, summary};
use belljar_contract::{Proof, ProofRow, Verdict, visible};

/// One backend and its proof, or why there is none.
#[derive(Debug)]
pub struct Proven<'a> {
    pub backend: &'a str,
    /// The proof, or why there is none.
    pub proof: Result<&'a Proof, &'a str>,
    /// The flags that were used, for the page.
    pub flags: String,
}

/// The probes of all proofs, in order.
fn probes<'a>(all: &'a [Proven<'_>]) -> Vec<&'a ProofRow> {
    let first = all.iter().find_map(|one| one.proof.ok());
    first.map(|proof| proof.rows.iter().collect()).unwrap_or_default()
}

fn verdict(one: &Proven<'_>, id: &str) -> Option<Verdict> {
    one.proof.ok()?.rows.iter().find(|row| row.id == id).map(|row| row.verdict)
}

/// One line for each probe, one column for each backend.
#[must_use]
pub fn render_proofs(all: &[Proven<'_>], style: Style) -> String {
    let here: Vec<&Proven<'_>> = all.iter().filter(|one| one.proof.is_ok()).collect();
    let rows = probes(all);
    let width = rows.iter().map(|row| row.id.len()).max().unwrap_or(0).clamp("probe".len(), 36);
    let mut out = String::new();
    let head: String = here.iter().map(|one| format!("  {:<20}", one.backend)).collect();
    out.push_str(&style.bold(format!("{:<width$}  {:<8}{head}", "probe", "on host").trim_end()));
    out.push('\n');
    for row in rows {
        let verdicts: Vec<Option<Verdict>> = here.iter().map(|one| verdict(one, &row.id)).collect();
        let cells: String =
            verdicts.iter().map(|verdict| format!("  {:<20}", verdict.map_or("", Verdict::word))).collect();
        let line = format!("{:<width$}  {:<8}{cells}", row.id, row.host.word()).trim_end().to_owned();
        let bad = verdicts.iter().flatten().any(|verdict| is_bad(*verdict));
        out.push_str(&if bad { style.warn(&line) } else { line });
        out.push('\n');
    }
    out.push('\n');
    for one in all {
        let line = match one.proof {
            Ok(proof) => summary(proof),
            Err(why) => format!("not on this machine: {}", visible(why)),
        };
        out.push_str(&format!("{}: {line}\n", one.backend));
    }
    out
}

/// One HTML file without scripts and without external resources.
#[must_use]
pub fn proofs_html(all: &[Proven<'_>], versions: &serde_json::Value) -> String {
    let mut out = String::from("<h1>Isolation probes</h1>\n");
    out.push_str("<p>Every probe is tried on the bare host first. One that is closed there already proves nothing.</p>\n<ul>");
    for (name, version) in versions.as_object().into_iter().flatten() {
        let version = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
        out.push_str(&format!("<li>{}: {}", escaped(name), escaped(&version)));
    }
    out.push_str("</ul>\n<table><tr><th>probe<th>on host");
    let here: Vec<&Proven<'_>> = all.iter().filter(|one| one.proof.is_ok()).collect();
    here.iter().for_each(|one| out.push_str(&format!("<th>{}", escaped(one.backend))));
    out.push_str("</tr>\n");
    for row in probes(all) {
        out.push_str(&format!(
            "<tr><td><b>{}</b><br>{}<td>{}",
            escaped(&row.id),
            escaped(&row.what),
            row.host.word()
        ));
        for one in &here {
            let found = verdict(one, &row.id);
            let class = match found {
                Some(verdict) if is_bad(verdict) => "bad",
                Some(Verdict::ProvesNothing) | None => "none",
                Some(_) => "",
            };
            out.push_str(&format!("<td class=\"{class}\">{}", found.map_or("", Verdict::word)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    for one in all {
        let text = match one.proof {
            Ok(proof) => summary(proof),
            Err(why) => format!("not on this machine: {}", visible(why)),
        };
        out.push_str(&format!("<h2>{}</h2><p>{}</p>\n", escaped(one.backend), escaped(&text)));
        if !one.flags.is_empty() {
            out.push_str(&format!("<pre>{}</pre>\n", escaped(&one.flags)));
        }
    }
    page("isolation probes", &out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::ProbeResult;

    fn row(id: &str, verdict: Verdict) -> ProofRow {
        let text = |text: &str| text.to_owned();
        let seen = || ProbeResult::Open { how: "x".to_owned() };
        ProofRow {
            id: text(id),
            what: text("<what>"),
            expected: text("closed"),
            why: text("because"),
            host: seen(),
            inside: seen(),
            verdict,
        }
    }

    #[test]
    fn backends_stand_side_by_side() {
        let rows =
            |first| vec![row("a", first), row("b", Verdict::ProvesNothing), row("c", Verdict::Reported)];
        let (good, bad) = (Proof { rows: rows(Verdict::Closed) }, Proof { rows: rows(Verdict::Open) });
        let proven = |backend, proof| Proven { backend, proof, flags: "--flag <x>".to_owned() };
        let all = [proven("one", Ok(&good)), proven("two", Ok(&bad)), proven("three", Err("no engine"))];
        let text = render_proofs(&all, Style::Plain);
        assert_eq!(
            text,
            "probe  on host   one                   two\n\
             a      open      closed                OPEN\n\
             b      open      proves nothing here   proves nothing here\n\
             c      open      reported              reported\n\n\
             one: 1 closed, 1 reported, 1 prove nothing on this machine\n\
             two: 1 reported, 1 OPEN, 1 prove nothing on this machine\n\
             three: not on this machine: no engine\n"
        );
        let page = proofs_html(&all, &serde_json::json!({"kernel": "6 & more"}));
        assert!(page.contains("class=\"bad\">OPEN") && page.contains("6 &amp; more"), "{page}");
        assert!(page.contains("--flag &lt;x&gt;") && !page.contains("<what>"), "{page}");
    }
}
