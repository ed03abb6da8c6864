//! `--take ours`.

use super::{includes, is_conflict, refused_machine};
use crate::cmd::changes::{Options, reason, shown};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::changes::{
    ApplyConsent, ApplyMode, ApplyRequest, ChangeSelection, EntryKind, KeptChanges, KeptLayer, OnConflict,
    RefusedBecause, RefusedChange,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Drops the agent's version where the user has another, and nothing else.
pub struct Ours<'a> {
    pub found: &'a KeptChanges,
    pub selection: &'a ChangeSelection,
    pub mode: ApplyMode,
    pub options: &'a Options,
}

impl Ours<'_> {
    pub fn keep(&self, kept_layer: KeptLayer, output: &Output) -> Result<ExitCode, CliError> {
        let Self { found, selection, mode, options } = *self;
        // What else would stop them does not matter here.
        let to = found.files.iter().map(|change| change.path.clone()).collect();
        let (consent, on_conflict) = (ApplyConsent { to, ..ApplyConsent::default() }, OnConflict::Merge);
        let request = ApplyRequest { selection, consent: &consent, on_conflict, mode: ApplyMode::DryRun };
        let (planned, _signal) = kept_layer.apply(&request)?;
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
        let mut refused: Vec<RefusedChange> = parts
            .into_iter()
            .map(|path| RefusedChange { path, why: RefusedBecause::PartOfCommits })
            .collect();
        let files = found.files.iter().filter(|change| change.entry != EntryKind::Directory);
        let others = files.filter(|change| includes(selection, &change.path) && !ours.contains(&change.path));
        let others = others.count();
        let dropped = match mode {
            ApplyMode::DryRun => ours.into_iter().collect(),
            ApplyMode::Write if ours.is_empty() => Vec::new(),
            ApplyMode::Write => {
                let done = kept_layer.discard(&ChangeSelection::Paths(ours))?;
                refused.extend(done.refused);
                done.discarded
            }
        };
        let source = kept_layer.source().clone();
        kept_layer.close()?;
        let exit = if refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
        let dry_run = mode == ApplyMode::DryRun;
        if output.json {
            let kept: Vec<_> = dropped.iter().map(|path| shown(path)).collect();
            let refused = refused_machine(&refused, options);
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
            output.say(&format!("not applied: {}: {}", shown(&refused.path), reason(refused, options)));
        }
        match others {
            0 => {}
            1 => output.say("1 other change is still kept; it conflicts with nothing"),
            count => output.say(&format!("{count} other changes are still kept; they conflict with nothing")),
        }
        Ok(exit)
    }
}
