use super::changes::{
    NOTHING, Naming, Options, both_line, machine, mark, own_machine, remark, report_recovered,
    repository_lines, repository_machine, shown,
};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_report::{FileVersions, patch_text, render_difference};
use belljar_runner::Planner;
use belljar_runner::changes::{ChangeKind, ChangeSelection, EntryKind, KeptChanges, KeptRepository};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

/// Show the changes kept in an agent's overlay or copy
///
/// Branches come first, with the new commits of each, then the index and files. Files that git itself wrote are listed as
/// commits and refs. Files that you changed as well are marked: whether `belljar apply` merges them, or why not.
///
/// Each change is classified: files that your machine would execute later, links that lead out of the project and
/// special files are marked. On a terminal, hidden characters are shown as escapes such as \u{1b}; in a file or a pipe the
/// text is a patch with the files' own bytes. A patch is for reading: it leads from your files as they are now to the
/// agent's, so it takes your own changes back, and it holds files that your machine would execute. It has changes of text
/// only; links, modes, empty files and other content are listed in it and counted on standard error. `belljar apply` merges,
/// asks and writes all of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar diff\n  $ belljar diff --stat\n")]
pub struct DiffArgs {
    /// List the changes without their text
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    pub options: Options,
}

impl Command for DiffArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }
}

fn run(args: &DiffArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let Some(kept_layer) = args.options.open(planner)? else {
        match output.json {
            true => {
                output.envelope(&Envelope::new("diff", ExitCode::Passed, json!({"changes": [], "unread": 0})))
            }
            false => output.say(NOTHING),
        }
        return Ok(ExitCode::Passed);
    };
    report_recovered(&kept_layer, output);
    let found = kept_layer.changes()?;
    let directory = &planner.environment().directory;
    let options = &args.options;
    let selection =
        Naming { kept_layer: &kept_layer, found: &found, options, directory }.selection(&options.paths)?;
    let KeptChanges { files: mut changes, mut repositories, folded, both, unseen } = found;
    repositories.retain(|repository| Naming::includes(&selection, repository));
    if let ChangeSelection::Paths(paths) = selection {
        changes.retain(|change| change.path.ancestors().any(|above| paths.contains(above)));
    }
    if output.json {
        let list: Vec<_> = changes.iter().map(|change| machine(change, &both)).collect();
        let others = repositories.iter().filter(|repository| !repository.label.as_os_str().is_empty());
        output.envelope(&Envelope::new(
            "diff",
            ExitCode::Passed,
            json!({
                "layer": kept_layer.name(), "changes": list, "repository": own_machine(&repositories),
                "other_repositories": others.map(repository_machine).collect::<Vec<_>>(),
                "files_of_the_repository": folded.len(), "unread": unseen.len(),
            }),
        ));
        return Ok(ExitCode::Passed);
    }
    let style = output.out_style();
    let mut patched = 0;
    for line in repositories.iter().flat_map(repository_lines) {
        let line = if line.trim_start().starts_with('!') { style.warn(&line) } else { line };
        output.result(&format!("{line}\n"));
    }
    for change in &changes {
        let path = shown(&change.path);
        let remark = remark(&change.class).map(|text| style.warn(&format!("  ! {text}"))).unwrap_or_default();
        output.result(&format!("{} {path}{remark}\n", mark(change.kind)));
        if let Some(both) = both.iter().find(|both| both.path == change.path) {
            output.result(&format!("{}\n", both_line(both)));
        }
        let is_text = change.entry == EntryKind::File && change.kind != ChangeKind::ModeChanged;
        if !args.stat
            && is_text
            && let Some((before, after)) = kept_layer.sides(&change.path)?
        {
            let sides = match change.kind {
                ChangeKind::Added => FileVersions::Added(&after),
                ChangeKind::Deleted => FileVersions::Deleted(&before),
                ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => {
                    FileVersions::Changed { before: &before, after: &after }
                }
            };
            let name = change.path.as_os_str().as_bytes();
            if output.is_read() {
                output.result(&render_difference(name, sides, style));
            } else {
                let text = patch_text(name, sides);
                patched += usize::from(text.starts_with("--- "));
                output.file(&text);
            }
        }
    }
    let says_nothing = |repository: &KeptRepository| repository_lines(repository).is_empty();
    if changes.is_empty() && unseen.is_empty() && repositories.iter().all(says_nothing) {
        output.say(if folded.is_empty() {
            NOTHING
        } else {
            "Only files of git that no ref leads to are kept."
        });
    }
    let listed = changes.len() - patched;
    if !output.is_read() && !args.stat && listed > 0 {
        output.say(&format!(
            "belljar: {listed} of {} changes are listed and not in the patch: directories, links, modes, empty files, content that is not text",
            changes.len()
        ));
    }
    for unseen in &unseen {
        output.say(&format!("{} cannot be read; it can only be discarded", shown(&unseen.path)));
    }
    Ok(ExitCode::Passed)
}
