mod branch;
mod hints;
mod ours;

use super::changes::{NOTHING, Naming, Options, reason, report_recovered, repository_lines, shown};
use crate::cmd::{Call, Command};
use crate::confirm::{answer, confirmed};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::Planner;
use belljar_runner::changes::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, ChangeSelection, KeptChanges, KeptLayer, OnConflict,
    RefusedBecause, RefusedChange, Unmerged, end_by,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Write the changes kept in an agent's overlay or copy to the project
///
/// Ordinary changes are written at once. Files that your machine would execute later, links that lead out, and branches
/// whose commits contain such files need your confirmation: at the terminal you are asked for each; elsewhere, and with
/// `--json`, name them with `--allow`. Nothing is written through a link or outside the project. A text that you changed
/// meanwhile is merged where both sides changed different lines; other files that you changed are left alone.
///
/// Commits, their branches, the index and the files that they name are written together or not at all: if one of them
/// cannot be written, all are held back; `--take` and `--force` write over nothing but the paths that they name. A file of a
/// commit that is named alone is written without it. A signal ends it between two changes; run it again to apply the rest.
/// Each repository in the project, submodules included, is handled separately.
///
/// Where you and the agent committed to the same branch, `--as-branch NAME` makes a branch of the agent's commits and leaves
/// your branches, index and files as they are; `git merge NAME` then merges them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar apply --dry-run\n  $ belljar apply\n  $ belljar apply --take theirs -- notes.txt\n  $ belljar apply --take markers -- notes.txt\n  $ belljar apply --as-branch agent-main -- refs/heads/main\n"
)]
pub struct ApplyArgs {
    /// Confirm this path or ref, although your machine would execute it or it leads out; repeatable
    #[arg(long, value_name = "PATH")]
    allow: Vec<PathBuf>,
    /// Print what would be written, asked for or held back, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Where you changed one of the named files as well: keep yours, write the agent's, or write both with markers
    #[arg(long, value_name = "SIDE", requires = "paths", conflicts_with = "force")]
    take: Option<Take>,
    /// Overwrite files that changed in the project since the run began; with paths, only these
    #[arg(long)]
    force: bool,
    /// Create a branch with the agent's commits and change nothing else; PATH names the ref or the repository
    #[arg(long, value_name = "NAME", conflicts_with_all = ["take", "force"])]
    as_branch: Option<OsString>,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Take {
    /// The agent's version
    Theirs,
    /// The project's version; the agent's is dropped, where both changed
    Ours,
    /// Both, merged; lines that both sides changed are put between conflict markers
    Markers,
}

impl Command for ApplyArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }
}

fn run(args: &ApplyArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    args.as_branch.as_deref().map_or(Ok(()), branch::check)?;
    let Some(kept_layer) = args.options.open(planner)? else {
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
    report_recovered(&kept_layer, output);
    let found = kept_layer.changes()?;
    let (options, directory) = (&args.options, &planner.environment().directory);
    let naming = Naming { kept_layer: &kept_layer, found: &found, options, directory };
    let mode = if args.dry_run { ApplyMode::DryRun } else { ApplyMode::Write };
    if let Some(name) = &args.as_branch {
        let to = args.allow.iter().map(|path| naming.consented(path)).collect::<Result<_, _>>()?;
        let consent = ApplyConsent { to, ..ApplyConsent::default() };
        let done = branch::AsBranch { name, naming, consent, mode, options }.run(&kept_layer, output)?;
        kept_layer.close()?;
        return Ok(done);
    }
    let selection = naming.selection(&options.paths)?;
    let to = args.allow.iter().map(|path| naming.consented(path)).collect::<Result<_, _>>()?;
    let answer = match args.take {
        Some(Take::Ours) => {
            let ours = ours::Ours { found: &found, selection: &selection, mode, options };
            return ours.keep(kept_layer, output);
        }
        Some(Take::Theirs) => Some(OnConflict::Overwrite),
        Some(Take::Markers) => Some(OnConflict::Markers),
        None => args.force.then_some(OnConflict::Overwrite),
    };
    // Other files of a commit are written with those that were named, and were not named themselves.
    let (taken, on_conflict) = match (&selection, answer) {
        (ChangeSelection::Paths(paths), Some(answer)) => {
            (paths.iter().map(|path| (path.clone(), answer)).collect(), OnConflict::Merge)
        }
        (ChangeSelection::All, Some(answer)) => (BTreeMap::new(), answer),
        (_, None) => (BTreeMap::new(), OnConflict::Merge),
    };
    let consent = ApplyConsent { to, taken };
    let mut asking =
        Asking { kept_layer: &kept_layer, selection: &selection, options, consent, on_conflict, mode };
    let (mut done, mut signal) =
        if found.is_empty() { (Applied::default(), None) } else { asking.apply()? };
    if signal.is_none() && !output.json && !args.dry_run && std::io::stdin().is_terminal() {
        signal = asking.ask(&mut done)?;
    }
    let unseen = found.unseen.iter().filter(|unseen| includes(&selection, &unseen.path));
    done.refused.extend(
        unseen.map(|unseen| RefusedChange { path: unseen.path.clone(), why: RefusedBecause::Unseen }),
    );
    kept_layer.close()?;
    let is_whole = done.refused.is_empty() && signal.is_none();
    let exit = if is_whole { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let refused = refused_machine(&done.refused, options);
        let applied: Vec<_> = done.applied.iter().map(|path| shown(path)).collect();
        let merged: Vec<_> = done.merged.iter().map(|path| shown(path)).collect();
        let data = json!({"dry_run": args.dry_run, "applied": applied, "merged": merged, "refused": refused});
        output.envelope(&Envelope::new("apply", exit, data));
        signal.into_iter().for_each(end_by);
        return Ok(exit);
    }
    let (word, merge) = if args.dry_run { ("would apply", "would merge") } else { ("applied", "merged") };
    let written = found.repositories.iter().filter(|one| done.repositories.contains(&one.path));
    for line in written.flat_map(repository_lines).filter(|line| !line.starts_with(' ')) {
        output.result(&format!("{word} {line}\n"));
    }
    // Files that git itself wrote are listed as commits and refs.
    let listed =
        |path: &&PathBuf| !is_of_git(&found, path) || found.files.iter().any(|change| change.path == **path);
    for path in done.applied.iter().filter(listed) {
        match done.merged.contains(path) {
            true => output.result(&format!("{merge} {} (both sides changed)\n", shown(path))),
            false => output.result(&format!("{word} {}\n", shown(path))),
        }
    }
    for refused in &done.refused {
        output.say(&format!("not applied: {}: {}", shown(&refused.path), reason(refused, options)));
    }
    match done.merged.len() {
        0 => {}
        1 => output.say(&format!("{merge} 1 file that both sides changed")),
        count => output.say(&format!("{merge} {count} files that both sides changed")),
    }
    hints::print(&done, &found, options, output);
    if let Some(signal) = signal {
        let again = options.command("apply");
        output.say(&format!("interrupted: other overlay changes are not applied; run `{again}` again"));
        end_by(signal);
    }
    if done.applied.is_empty() && done.refused.is_empty() && !has_changes(&found, &done) {
        output.say(match (found.is_empty(), args.dry_run) {
            (true, _) => NOTHING,
            (false, true) => "Only files of git that no ref leads to would be written or dropped.",
            (false, false) => "Only files of git that no ref leads to were written or dropped.",
        });
    }
    Ok(exit)
}

/// Whether a path is one of git's own files.
fn is_of_git(found: &KeptChanges, path: &Path) -> bool {
    path.is_absolute() || found.repositories.iter().any(|repository| path.starts_with(&repository.git))
}

/// Whether refs were written, which need not be files of the layer.
fn has_changes(found: &KeptChanges, done: &Applied) -> bool {
    let written = |path: &PathBuf| done.repositories.contains(path);
    found.repositories.iter().any(|one| written(&one.path) && !one.changes.is_empty())
}

fn includes(selection: &ChangeSelection, path: &Path) -> bool {
    match selection {
        ChangeSelection::All => true,
        ChangeSelection::Paths(paths) => path.ancestors().any(|above| paths.contains(above)),
    }
}

/// Whether the user's version is in the way.
fn is_conflict(why: &RefusedBecause) -> bool {
    matches!(
        why,
        RefusedBecause::ChangedSince | RefusedBecause::Unmerged { .. } | RefusedBecause::Moved { .. }
    )
}

/// Whether both versions can be put between markers.
fn overlaps(why: &RefusedBecause) -> bool {
    matches!(why, RefusedBecause::Unmerged { why: Unmerged::Overlap { .. } })
}

fn needs_yes(why: &RefusedBecause) -> bool {
    matches!(
        why,
        RefusedBecause::NeedsConsent { .. }
            | RefusedBecause::Carries { .. }
            | RefusedBecause::LosesCommits { .. }
            | RefusedBecause::DeletesRepository
    )
}

fn refused_machine(refused: &[RefusedChange], options: &Options) -> Vec<Value> {
    let one =
        |refused: &RefusedChange| json!({"path": shown(&refused.path), "why": reason(refused, options)});
    refused.iter().map(one).collect()
}

/// Applies, asks for what needs it, and applies again.
struct Asking<'a> {
    kept_layer: &'a KeptLayer,
    selection: &'a ChangeSelection,
    options: &'a Options,
    consent: ApplyConsent,
    on_conflict: OnConflict,
    mode: ApplyMode,
}

impl Asking<'_> {
    fn apply(&self) -> Result<(Applied, Option<i32>), CliError> {
        let Self { kept_layer, selection, options: _, consent, on_conflict, mode } = self;
        Ok(kept_layer.apply(&ApplyRequest { selection, consent, on_conflict: *on_conflict, mode: *mode })?)
    }

    fn ask(&mut self, done: &mut Applied) -> Result<Option<i32>, CliError> {
        let mut asked = false;
        for refused in &done.refused {
            let path = shown(&refused.path);
            if needs_yes(&refused.why) {
                let question = format!("{path} {}. Apply it?", reason(refused, self.options));
                if confirmed(&question, "name it with `--allow PATH`")? {
                    self.consent.to.insert(refused.path.clone());
                    asked = true;
                }
            } else if is_conflict(&refused.why) {
                let markers = overlaps(&refused.why);
                let answer = match over_it(&path, markers)?.as_str() {
                    "y" | "Y" | "yes" => OnConflict::Overwrite,
                    "m" | "M" if markers => OnConflict::Markers,
                    _ => continue,
                };
                self.consent.taken.insert(refused.path.clone(), answer);
                asked = true;
            }
        }
        if !asked {
            return Ok(None);
        }
        let (more, came) = self.apply()?;
        done.applied.extend(more.applied);
        done.merged.extend(more.merged);
        done.refused = more.refused;
        done.repositories.extend(more.repositories);
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
