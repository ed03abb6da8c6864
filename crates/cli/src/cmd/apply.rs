use super::aside::{NOTHING, Options, plain, reason, repository_lines, selection, shown, tell_recovered};
use crate::confirm::{answer, confirmed};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::Planner;
use belljar_runner::aside::{
    Applied, ApplyMode, ApplyRequest, Aside, Consent, OnConflict, RefusedBecause, Selection, Unmerged, end_by,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Write the changes that an agent's overlay or copy keeps aside to the project
///
/// Ordinary changes are written at once. Files that your machine would execute later, links that lead out, and branches
/// whose commits hold such files need a yes of their own: at the terminal you are asked for each; elsewhere, and with
/// `--json`, `--allow` names them. Nothing is written through a link or outside the project. A text that you changed
/// meanwhile is merged where both sides changed different lines; other files that you changed are left alone.
///
/// Commits, their branches, the index and the files that they name are written together or not at all: if one of them
/// cannot be written, all are held back. A signal ends it between two changes; run it again to apply the rest.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar apply --dry-run\n  $ belljar apply\n  $ belljar apply --take theirs -- notes.txt\n  $ belljar apply --take markers -- notes.txt\n"
)]
pub struct Args {
    /// Say yes to this path or ref, though your machine would execute it or it leads out; repeatable
    #[arg(long, value_name = "PATH")]
    allow: Vec<PathBuf>,
    /// Print what would be written, asked for or held back, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Where you changed one of the named files as well: keep yours, write the agent's, or write both with markers
    #[arg(long, value_name = "SIDE", requires = "paths", conflicts_with = "force")]
    take: Option<Take>,
    /// Write over files that changed in the project since the run began
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Take {
    /// The agent's version
    Theirs,
    /// The project's version; the agent's is dropped
    Ours,
    /// Both, merged; lines that both sides changed are put between conflict markers
    Markers,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let Some(aside) = args.options.open(planner)? else {
        match output.json {
            true => output.envelope(&Envelope::new(
                "apply",
                ExitCode::Passed,
                json!({"dry_run": args.dry_run, "applied": [], "merged": [], "refused": []}),
            )),
            false => output.say(NOTHING),
        }
        return Ok(ExitCode::Passed);
    };
    let selection = selection(&args.options.paths);
    tell_recovered(&aside, output);
    if args.take == Some(Take::Ours) && !args.dry_run {
        return keep_ours(aside, &selection, output);
    }
    let found = aside.changes()?;
    let on_conflict = match args.take {
        Some(Take::Theirs) => OnConflict::Overwrite,
        Some(Take::Markers) => OnConflict::Markers,
        Some(Take::Ours) | None if args.force => OnConflict::Overwrite,
        Some(Take::Ours) | None => OnConflict::Merge,
    };
    let mut asking = Asking {
        aside: &aside,
        selection: &selection,
        consent: Consent { to: args.allow.iter().map(|path| plain(path)).collect() },
        on_conflict,
        mode: if args.dry_run { ApplyMode::DryRun } else { ApplyMode::Write },
    };
    let (mut done, mut signal) =
        if found.is_empty() { (Applied::default(), None) } else { asking.apply()? };
    if signal.is_none() && !output.json && !args.dry_run && std::io::stdin().is_terminal() {
        signal = asking.ask(&mut done)?;
    }
    let applied_git = done.applied.iter().any(|path| path.starts_with(".git") || path.is_absolute());
    aside.close()?;
    let exit = if done.refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let refused: Vec<_> = done
            .refused
            .iter()
            .map(|refused| json!({"path": shown(&refused.path), "why": reason(refused)}))
            .collect();
        let applied: Vec<_> = done.applied.iter().map(|path| shown(path)).collect();
        let merged: Vec<_> = done.merged.iter().map(|path| shown(path)).collect();
        let data = json!({"dry_run": args.dry_run, "applied": applied, "merged": merged, "refused": refused});
        output.envelope(&Envelope::new("apply", exit, data));
        signal.into_iter().for_each(end_by);
        return Ok(exit);
    }
    let (word, merge) = if args.dry_run { ("would apply", "would merge") } else { ("applied", "merged") };
    if applied_git {
        for line in repository_lines(&found.repository).iter().filter(|line| !line.starts_with(' ')) {
            output.result(&format!("{word} {line}\n"));
        }
    }
    for path in done.applied.iter().filter(|path| !path.starts_with(".git") && !path.is_absolute()) {
        match done.merged.contains(path) {
            true => output.result(&format!("{merge} {} (both sides changed)\n", shown(path))),
            false => output.result(&format!("{word} {}\n", shown(path))),
        }
    }
    for refused in &done.refused {
        output.say(&format!("left aside: {}: {}", shown(&refused.path), reason(refused)));
    }
    match done.merged.len() {
        0 => {}
        1 => output.say(&format!("{merge} 1 file that both sides changed")),
        count => output.say(&format!("{merge} {count} files that both sides changed")),
    }
    hints(&done, output);
    if let Some(signal) = signal {
        output.say("interrupted: other overlay changes are not applied; run `belljar apply` again");
        end_by(signal);
    }
    if done.applied.is_empty() && done.refused.is_empty() {
        output.say(NOTHING);
    }
    Ok(exit)
}

fn hints(done: &Applied, output: &Output) {
    let is = |wanted: fn(&RefusedBecause) -> bool| done.refused.iter().any(|refused| wanted(&refused.why));
    if is(needs_yes) {
        output.say("  hint: look at them with `belljar diff`, then name each with `--allow PATH`");
    }
    if is(is_conflict) {
        output.say(
            "  hint: `belljar apply --take theirs -- PATH` writes the agent's version, `--take ours` keeps yours",
        );
    }
    if is(overlaps) {
        output.say("  hint: `belljar apply --take markers -- PATH` writes both, with conflict markers");
    }
}

/// Whether the user's version is in the way.
fn is_conflict(why: &RefusedBecause) -> bool {
    matches!(why, RefusedBecause::ChangedSince | RefusedBecause::Unmerged { .. })
}

/// Whether both versions can be put between markers.
fn overlaps(why: &RefusedBecause) -> bool {
    matches!(why, RefusedBecause::Unmerged { why: Unmerged::Overlap { .. } })
}

fn needs_yes(why: &RefusedBecause) -> bool {
    matches!(why, RefusedBecause::NeedsConsent { .. } | RefusedBecause::Carries { .. })
}

/// Drops the agent's version of some files.
fn keep_ours(aside: Aside, selection: &Selection, output: &Output) -> Result<ExitCode, CliError> {
    let done = aside.discard(selection)?;
    aside.close()?;
    let exit = if done.refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let kept: Vec<_> = done.discarded.iter().map(|path| shown(path)).collect();
        let data = json!({"dry_run": false, "applied": [], "kept": kept, "refused": []});
        output.envelope(&Envelope::new("apply", exit, data));
        return Ok(exit);
    }
    for path in &done.discarded {
        output.result(&format!("kept your {}\n", shown(path)));
    }
    for refused in &done.refused {
        output.say(&format!("still aside: {}: {}", shown(&refused.path), reason(refused)));
    }
    Ok(exit)
}

/// Applies, asks for what needs it, and applies again.
struct Asking<'a> {
    aside: &'a Aside,
    selection: &'a Selection,
    consent: Consent,
    on_conflict: OnConflict,
    mode: ApplyMode,
}

impl Asking<'_> {
    fn apply(&self) -> Result<(Applied, Option<i32>), CliError> {
        let Self { aside, selection, consent, on_conflict, mode } = self;
        Ok(aside.apply(&ApplyRequest { selection, consent, on_conflict: *on_conflict, mode: *mode })?)
    }

    fn ask(&mut self, done: &mut Applied) -> Result<Option<i32>, CliError> {
        let (mut over, mut marked) = (BTreeSet::new(), BTreeSet::new());
        let mut asked = false;
        for refused in &done.refused {
            let path = shown(&refused.path);
            if needs_yes(&refused.why) {
                let question = format!("{path} {}. Apply it?", reason(refused));
                if confirmed(&question, "name it with `--allow PATH`")? {
                    self.consent.to.insert(refused.path.clone());
                    asked = true;
                }
            } else if is_conflict(&refused.why) {
                let markers = overlaps(&refused.why);
                match over_it(&path, markers)?.as_str() {
                    "y" | "Y" | "yes" => over.insert(refused.path.clone()),
                    "m" | "M" if markers => marked.insert(refused.path.clone()),
                    _ => false,
                };
            }
        }
        for (paths, on_conflict) in [(over, OnConflict::Overwrite), (marked, OnConflict::Markers)] {
            if paths.is_empty() {
                continue;
            }
            let selection = Selection::Paths(paths);
            let (consent, mode) = (&self.consent, self.mode);
            let request = ApplyRequest { selection: &selection, consent, on_conflict, mode };
            let (more, came) = self.aside.apply(&request)?;
            done.applied.extend(more.applied);
            done.merged.extend(more.merged);
            if came.is_some() {
                return Ok(came);
            }
            asked = true;
        }
        if !asked {
            return Ok(None);
        }
        let (more, came) = self.apply()?;
        done.applied.extend(more.applied);
        done.merged.extend(more.merged);
        done.refused = more.refused;
        Ok(came)
    }
}

/// Asks what to do with a file that both sides changed.
fn over_it(path: &str, markers: bool) -> Result<String, CliError> {
    let question = format!("{path} changed in the project as well. Write the agent's version over it");
    if markers {
        let instead = "choose with `--take theirs`, `--take ours` or `--take markers`";
        return answer(&format!("{question}, or both with markers (m)?"), "[y/m/N]", instead);
    }
    answer(&format!("{question}?"), "[y/N]", "choose with `--take theirs` or `--take ours`")
}
