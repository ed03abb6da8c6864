use crate::cmd::{Call, Command};
use super::changes::{NOTHING, Naming, Options, reason, repository_lines, shown, tell_recovered};
use crate::confirm::{answer, confirmed};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::Planner;
use belljar_runner::changes::{
    Applied, ApplyMode, ApplyRequest, Aside, Consent, EntryKind, KeptChanges, OnConflict, Refused,
    RefusedBecause, Selection, Unmerged, end_by,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Write the changes kept in an agent's overlay or copy to the project
///
/// Ordinary changes are written at once. Files that your machine would execute later, links that lead out, and branches
/// whose commits hold such files need a yes of their own: at the terminal you are asked for each; elsewhere, and with
/// `--json`, `--allow` names them. Nothing is written through a link or outside the project. A text that you changed
/// meanwhile is merged where both sides changed different lines; other files that you changed are left alone.
///
/// Commits, their branches, the index and the files that they name are written together or not at all: if one of them
/// cannot be written, all are held back; `--take` and `--force` write over nothing but the paths that they name. A file of a
/// commit that is named alone is written without it. A signal ends it between two changes; run it again to apply the rest.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar apply --dry-run\n  $ belljar apply\n  $ belljar apply --take theirs -- notes.txt\n  $ belljar apply --take markers -- notes.txt\n"
)]
pub struct ApplyArgs {
    /// Say yes to this path or ref, though your machine would execute it or it leads out; repeatable
    #[arg(long, value_name = "PATH")]
    allow: Vec<PathBuf>,
    /// Print what would be written, asked for or held back, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Where you changed one of the named files as well: keep yours, write the agent's, or write both with markers
    #[arg(long, value_name = "SIDE", requires = "paths", conflicts_with = "force")]
    take: Option<Take>,
    /// Write over files that changed in the project since the run began; with paths, over these alone
    #[arg(long)]
    force: bool,
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
    tell_recovered(&aside, output);
    let found = aside.changes()?;
    let naming = Naming { aside: &aside, found: &found, directory: &planner.environment().directory };
    let selection = naming.selection(&args.options.paths)?;
    let to = args.allow.iter().map(|path| naming.consented(path)).collect::<Result<_, _>>()?;
    let mode = if args.dry_run { ApplyMode::DryRun } else { ApplyMode::Write };
    let answer = match args.take {
        Some(Take::Ours) => return keep_ours(aside, &found, &selection, mode, output),
        Some(Take::Theirs) => Some(OnConflict::Overwrite),
        Some(Take::Markers) => Some(OnConflict::Markers),
        None => args.force.then_some(OnConflict::Overwrite),
    };
    // Other files of a commit are written with those that were named, and were not named themselves.
    let (taken, on_conflict) = match (&selection, answer) {
        (Selection::Paths(paths), Some(answer)) => {
            (paths.iter().map(|path| (path.clone(), answer)).collect(), OnConflict::Merge)
        }
        (Selection::All, Some(answer)) => (BTreeMap::new(), answer),
        (_, None) => (BTreeMap::new(), OnConflict::Merge),
    };
    let consent = Consent { to, taken };
    let mut asking = Asking { aside: &aside, selection: &selection, consent, on_conflict, mode };
    let (mut done, mut signal) =
        if found.is_empty() { (Applied::default(), None) } else { asking.apply()? };
    if signal.is_none() && !output.json && !args.dry_run && std::io::stdin().is_terminal() {
        signal = asking.ask(&mut done)?;
    }
    let unseen = found.unseen.iter().filter(|unseen| includes(&selection, &unseen.path));
    done.refused
        .extend(unseen.map(|unseen| Refused { path: unseen.path.clone(), why: RefusedBecause::Unseen }));
    aside.close()?;
    let exit = if done.refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let refused = refused_machine(&done.refused);
        let applied: Vec<_> = done.applied.iter().map(|path| shown(path)).collect();
        let merged: Vec<_> = done.merged.iter().map(|path| shown(path)).collect();
        let data = json!({"dry_run": args.dry_run, "applied": applied, "merged": merged, "refused": refused});
        output.envelope(&Envelope::new("apply", exit, data));
        signal.into_iter().for_each(end_by);
        return Ok(exit);
    }
    let (word, merge) = if args.dry_run { ("would apply", "would merge") } else { ("applied", "merged") };
    if done.repository {
        for line in repository_lines(&found.repository).iter().filter(|line| !line.starts_with(' ')) {
            output.result(&format!("{word} {line}\n"));
        }
    }
    // Files that git itself wrote are told as commits and refs.
    let listed = |path: &&PathBuf| {
        let of_git = path.starts_with(".git") || path.is_absolute();
        !of_git || found.files.iter().any(|change| change.path == **path)
    };
    for path in done.applied.iter().filter(listed) {
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
        output.say(match (found.is_empty(), args.dry_run) {
            (true, _) => NOTHING,
            (false, true) => "Only objects of git that no ref leads to would be written.",
            (false, false) => "Only objects of git that no ref leads to were written.",
        });
    }
    Ok(exit)
}

fn includes(selection: &Selection, path: &Path) -> bool {
    match selection {
        Selection::All => true,
        Selection::Paths(paths) => path.ancestors().any(|above| paths.contains(above)),
    }
}

fn hints(done: &Applied, output: &Output) {
    let is = |wanted: fn(&RefusedBecause) -> bool| done.refused.iter().any(|refused| wanted(&refused.why));
    if is(needs_yes) {
        output.say("  hint: look at them with `belljar diff`, then name each with `--allow PATH`");
    }
    let is_file = |refused: &&Refused| {
        let of_git = refused.path.starts_with(".git") || refused.path.is_absolute();
        matches!(refused.why, RefusedBecause::ChangedSince | RefusedBecause::Unmerged { .. }) && !of_git
    };
    if done.refused.iter().any(|refused| is_file(&refused)) {
        output.say(
            "  hint: `belljar apply --take theirs -- PATH` writes the agent's version, `--take ours` keeps yours",
        );
    }
    if done.refused.iter().any(|refused| is_conflict(&refused.why) && !is_file(&refused)) {
        output.say(
            "  hint: of git's files, `belljar apply --take theirs -- REF` moves a ref to the agent's commit, and \
             `-- .git/index` writes the agent's index",
        );
    }
    if is(overlaps) {
        output.say("  hint: `belljar apply --take markers -- PATH` writes both, with conflict markers");
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
    matches!(why, RefusedBecause::NeedsConsent { .. } | RefusedBecause::Carries { .. })
}

/// Drops the agent's version where the user has another, and nothing else.
fn keep_ours(
    aside: Aside,
    found: &KeptChanges,
    selection: &Selection,
    mode: ApplyMode,
    output: &Output,
) -> Result<ExitCode, CliError> {
    // What else would stop them does not matter here.
    let to = found.files.iter().map(|change| change.path.clone()).collect();
    let (consent, on_conflict) = (Consent { to, ..Consent::default() }, OnConflict::Merge);
    let request = ApplyRequest { selection, consent: &consent, on_conflict, mode: ApplyMode::DryRun };
    let (planned, _signal) = aside.apply(&request)?;
    let conflicts = planned.refused.into_iter().filter(|refused| is_conflict(&refused.why));
    let both = conflicts.map(|refused| refused.path).chain(planned.merged);
    let is_directory = |path: &PathBuf| {
        let change = found.files.iter().find(|change| change.path == *path);
        change.is_some_and(|change| change.entry == EntryKind::Directory)
    };
    let both = both.filter(|path| includes(selection, path) && !is_directory(path));
    // Commits without their index or their refs are of no use.
    let of_git = |path: &PathBuf| !found.files.iter().any(|change| change.path == *path);
    let (parts, ours): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = both.partition(of_git);
    let mut refused: Vec<Refused> =
        parts.into_iter().map(|path| Refused { path, why: RefusedBecause::PartOfCommits }).collect();
    let files = found.files.iter().filter(|change| change.entry != EntryKind::Directory);
    let others = files.filter(|change| includes(selection, &change.path) && !ours.contains(&change.path));
    let others = others.count();
    let dropped = match mode {
        ApplyMode::DryRun => ours.into_iter().collect(),
        ApplyMode::Write if ours.is_empty() => Vec::new(),
        ApplyMode::Write => {
            let done = aside.discard(&Selection::Paths(ours))?;
            refused.extend(done.refused);
            done.discarded
        }
    };
    let source = aside.source().clone();
    aside.close()?;
    let exit = if refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    let dry_run = mode == ApplyMode::DryRun;
    if output.json {
        let kept: Vec<_> = dropped.iter().map(|path| shown(path)).collect();
        let refused = refused_machine(&refused);
        let data = json!({"dry_run": dry_run, "applied": [], "kept": kept, "refused": refused});
        output.envelope(&Envelope::new("apply", exit, data));
        return Ok(exit);
    }
    for path in &dropped {
        let (keep, drop) = if dry_run { ("would keep", "would drop") } else { ("kept", "dropped") };
        match source.as_path().join(path).symlink_metadata() {
            Ok(_there) => output.result(&format!("{keep} your {}\n", shown(path))),
            Err(_gone) => output.result(&format!("{drop} {} (you deleted it)\n", shown(path))),
        }
    }
    for refused in &refused {
        output.say(&format!("left aside: {}: {}", shown(&refused.path), reason(refused)));
    }
    match others {
        0 => {}
        1 => output.say("1 other change is still kept; it conflicts with nothing"),
        count => output.say(&format!("{count} other changes are still kept; they conflict with nothing")),
    }
    Ok(exit)
}

fn refused_machine(refused: &[Refused]) -> Vec<Value> {
    let one = |refused: &Refused| json!({"path": shown(&refused.path), "why": reason(refused)});
    refused.iter().map(one).collect()
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
        done.repository |= more.repository;
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
