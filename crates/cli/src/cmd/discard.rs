use super::changes::{NOTHING, Naming, Options, reason, report_recovered, shown};
use crate::cmd::{Call, Command};
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::Planner;
use serde_json::json;

/// Delete the changes kept in an agent's overlay or copy
///
/// The project is not touched. Without paths all kept changes are deleted, after one question.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar discard --yes\n")]
pub struct DiscardArgs {
    /// Delete all changes without being asked
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub options: Options,
}

impl Command for DiscardArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }
}

fn run(args: &DiscardArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let Some(kept_layer) = args.options.open(planner)? else {
        match output.json {
            true => output.envelope(&Envelope::new(
                "discard",
                ExitCode::Passed,
                json!({"discarded": [], "left": 0}),
            )),
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
    let count = found.files.len() + found.folded.len() + found.unseen.len();
    let all = args.options.paths.is_empty();
    if all
        && count > 0
        && !args.yes
        && !confirmed(&format!("Drop all {count} changes?"), "drop everything with --yes")?
    {
        output.say("Nothing was dropped.");
        return Ok(ExitCode::Failed);
    }
    let done = kept_layer.discard(&selection)?;
    kept_layer.close()?;
    let exit = if done.refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let gone: Vec<_> = done.discarded.iter().map(|path| shown(path)).collect();
        output.envelope(&Envelope::new(
            "discard",
            exit,
            json!({"discarded": gone, "left": done.refused.len()}),
        ));
        return Ok(exit);
    }
    if done.discarded.is_empty() && done.refused.is_empty() {
        output.say("Nothing was dropped.");
    }
    for path in &done.discarded {
        output.result(&format!("dropped {}\n", shown(path)));
    }
    for refused in &done.refused {
        output.say(&format!("still there: {}: {}", shown(&refused.path), reason(refused, options)));
    }
    Ok(exit)
}
