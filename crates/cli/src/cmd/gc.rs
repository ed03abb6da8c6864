use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, TimeSpan, visible, with_causes};
use belljar_report::human_size;
use belljar_runner::{HostEnvironment, SweepMode, SweepOutcome, SweepRequest, Swept, SweptKind, sweep};
use serde_json::{Value, json};
use std::time::SystemTime;

/// Delete unused state and list what was deleted
///
/// Deletes instances whose project is gone, findings older than 30 days, and what runs, scenarios, `prove`, `doctor`,
/// `apply` and `image build` left behind when they were killed: directories, control groups, containers, images and processes.
/// Run directories, and conversations that can be continued, are kept unless --runs is given. Nothing that is in use is
/// removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar gc --dry-run\n  $ belljar gc\n  $ belljar gc --runs --older-than 30d\n"
)]
pub struct GcArgs {
    /// Show what would be removed and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Also delete directories of runs, and conversations
    #[arg(long, requires = "older_than")]
    runs: bool,
    /// Minimum age of a run's directory or a conversation to delete, such as `30d` or `12h`
    #[arg(long, value_name = "AGE", requires = "runs", value_parser = age)]
    older_than: Option<TimeSpan>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn age(text: &str) -> Result<TimeSpan, String> {
    TimeSpan::parse(text).map_err(|error| error.to_string())
}

impl Command for GcArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &GcArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let list = sweep(&SweepRequest {
        environment,
        mode: if args.dry_run { SweepMode::DryRun } else { SweepMode::Remove },
        runs_older_than: args.older_than.filter(|_| args.runs),
        now: SystemTime::now(),
    });
    let failed = list.iter().any(|swept| matches!(swept.outcome, SweepOutcome::Failed(_)));
    let exit = if failed { ExitCode::Failed } else { ExitCode::Passed };
    let freed = list.iter().filter(|swept| is_removed(&swept.outcome)).map(|swept| swept.bytes).sum::<u64>();
    if output.json {
        let items: Vec<Value> = list.iter().map(machine).collect();
        let data = json!({"dry_run": args.dry_run, "items": items, "bytes": freed});
        output.envelope(&Envelope::new("gc", exit, data));
        return Ok(exit);
    }
    for swept in &list {
        let line = person(swept, environment);
        match swept.outcome {
            SweepOutcome::Removed | SweepOutcome::WouldRemove => output.result(&line),
            SweepOutcome::Kept(_) | SweepOutcome::Failed(_) => output.say(&line),
        }
    }
    let count = list.iter().filter(|swept| is_removed(&swept.outcome)).count();
    output.say(&match (count, args.dry_run) {
        (0, _) => "There is nothing to remove.".to_owned(),
        (_, false) => format!("{} freed.", human_size(freed)),
        (_, true) => format!("{} would be freed; nothing was removed.", human_size(freed)),
    });
    Ok(exit)
}

fn is_removed(outcome: &SweepOutcome) -> bool {
    match outcome {
        SweepOutcome::Removed | SweepOutcome::WouldRemove => true,
        SweepOutcome::Kept(_) | SweepOutcome::Failed(_) => false,
    }
}

fn person(swept: &Swept, environment: &HostEnvironment) -> String {
    let Swept { kind, path, bytes, outcome } = swept;
    let what = match kind {
        SweptKind::Instance { root: Some(root) } => {
            format!("the instance of {}", environment.shown_from_home(root))
        }
        SweptKind::Instance { root: None } => "the instance".to_owned(),
        SweptKind::Run => "the run".to_owned(),
        SweptKind::Runtime => "the runtime directory".to_owned(),
        SweptKind::Stage => "the stage of a trial".to_owned(),
        SweptKind::Conversation => "the conversation".to_owned(),
        SweptKind::Container { id } => format!("the container {}", id.get(..12).unwrap_or(id)),
        SweptKind::Image { id } => {
            let id = id.trim_start_matches("sha256:");
            format!("the unfinished image {}", id.get(..12).unwrap_or(id))
        }
        SweptKind::Findings => "the findings".to_owned(),
        SweptKind::Leftover => "the leftover".to_owned(),
    };
    let at = environment.shown_from_home(path);
    let size = human_size(*bytes);
    match outcome {
        SweepOutcome::Removed => format!("removed {what}: {at} ({size})\n"),
        SweepOutcome::WouldRemove => format!("would remove {what}: {at} ({size})\n"),
        SweepOutcome::Kept(why) => format!("kept {what}: {at}: {}\n", visible(why)),
        SweepOutcome::Failed(error) => format!("error: {what}: {}\n", visible(&with_causes(error))),
    }
}

fn machine(swept: &Swept) -> Value {
    let Swept { kind, path, bytes, outcome } = swept;
    let container = match kind {
        SweptKind::Container { id } => Some(id),
        SweptKind::Instance { .. }
        | SweptKind::Run
        | SweptKind::Runtime
        | SweptKind::Stage
        | SweptKind::Conversation
        | SweptKind::Image { .. }
        | SweptKind::Findings
        | SweptKind::Leftover => None,
    };
    let image = match kind {
        SweptKind::Image { id } => Some(id),
        SweptKind::Instance { .. }
        | SweptKind::Run
        | SweptKind::Runtime
        | SweptKind::Stage
        | SweptKind::Conversation
        | SweptKind::Container { .. }
        | SweptKind::Findings
        | SweptKind::Leftover => None,
    };
    let (kind, root) = match kind {
        SweptKind::Instance { root } => ("instance", root.as_ref()),
        SweptKind::Run => ("run", None),
        SweptKind::Runtime => ("runtime", None),
        SweptKind::Stage => ("stage", None),
        SweptKind::Conversation => ("conversation", None),
        SweptKind::Container { .. } => ("container", None),
        SweptKind::Image { .. } => ("image", None),
        SweptKind::Findings => ("findings", None),
        SweptKind::Leftover => ("leftover", None),
    };
    let (outcome, why) = match outcome {
        SweepOutcome::Removed => ("removed", None),
        SweepOutcome::WouldRemove => ("would-remove", None),
        SweepOutcome::Kept(why) => ("kept", Some(why.clone())),
        SweepOutcome::Failed(error) => ("failed", Some(with_causes(error))),
    };
    json!({
        "kind": kind, "path": path, "root": root, "container": container, "image": image, "bytes": bytes, "outcome": outcome,
        "why": why,
    })
}
