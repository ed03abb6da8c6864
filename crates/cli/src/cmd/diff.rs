use super::aside::{Options, machine, mark, remark, selection, shown, tell_recovered};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Purpose};
use belljar_runner::Planner;
use belljar_runner::aside::{Aside, ChangeKind, EntryKind, Selection};
use belljar_runner::report::render_difference;
use serde_json::json;

/// Show the changes that an agent's overlay keeps aside
///
/// Each change is classified: files that your machine would execute later, links that lead out of the project and
/// special files are marked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar diff\n  $ belljar diff --stat\n")]
pub struct Args {
    /// List the changes without their text
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    pub options: Options,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let planned = planner.plan(args.options.agent.as_deref(), Purpose::Session)?;
    let aside = Aside::open(&planned)?;
    tell_recovered(&aside, output);
    let (mut changes, unseen) = aside.changes()?;
    if let Selection::Paths(paths) = selection(&args.options.paths) {
        changes.retain(|change| change.path.ancestors().any(|above| paths.contains(above)));
    }
    if output.json {
        let list: Vec<_> = changes.iter().map(machine).collect();
        output.envelope(&Envelope::new(
            "diff",
            ExitCode::Passed,
            json!({"changes": list, "unread": unseen.len()}),
        ));
        return Ok(ExitCode::Passed);
    }
    let style = output.out_style();
    for change in &changes {
        let path = shown(&change.path);
        let remark = remark(&change.class).map(|text| style.warn(&format!("  ! {text}"))).unwrap_or_default();
        output.result(&format!("{} {path}{remark}\n", mark(change.kind)));
        let is_text = change.entry == EntryKind::File && change.kind != ChangeKind::ModeChanged;
        if !args.stat
            && is_text
            && let Some((before, after)) = aside.sides(&change.path)?
        {
            let after = if change.kind == ChangeKind::Deleted { Vec::new() } else { after };
            output.result(&render_difference(&path, &before, &after, style));
        }
    }
    if changes.is_empty() {
        output.say("Nothing is kept aside.");
    }
    if !unseen.is_empty() {
        output.say(&format!("{} parts could not be read; they can only be discarded", unseen.len()));
    }
    Ok(ExitCode::Passed)
}
