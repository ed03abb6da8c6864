use super::aside::{Options, plain, reason, selection, shown, tell_recovered};
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Purpose};
use belljar_runner::Planner;
use belljar_runner::aside::{Applied, ApplyRequest, Aside, Consent, OnConflict, RefusedBecause, end_by};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Write the changes that an agent's overlay keeps aside to the project
///
/// Ordinary changes are written at once. Files that your machine would execute later, and links that lead out, need a
/// yes of their own: at the terminal you are asked for each; elsewhere, and with `--json`, `--allow` names them. Nothing
/// is written through a link or outside the project, and a file that you changed meanwhile is left alone. A signal ends
/// it between two changes; run it again to apply the rest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar apply\n")]
pub struct Args {
    /// Say yes to this one, though your machine would execute it or it leads out; repeatable
    #[arg(long, value_name = "PATH")]
    allow: Vec<PathBuf>,
    /// Write over files that changed in the project since the run began
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub options: Options,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let planned = planner.plan(args.options.agent.as_deref(), Purpose::Session)?;
    let aside = Aside::open(&planned)?;
    let selection = selection(&args.options.paths);
    let mut consent = Consent { to: args.allow.iter().map(|path| plain(path)).collect() };
    let on_conflict = if args.force { OnConflict::Overwrite } else { OnConflict::Refuse };
    let apply =
        |consent: &Consent| aside.apply(&ApplyRequest { selection: &selection, consent, on_conflict });
    tell_recovered(&aside, output);
    let (mut done, mut signal) =
        if aside.changes()?.0.is_empty() { (Applied::default(), None) } else { apply(&consent)? };
    if signal.is_none() && !output.json && std::io::stdin().is_terminal() {
        let mut asked = false;
        for refused in &done.refused {
            if let RefusedBecause::NeedsConsent { .. } = refused.why
                && confirmed(
                    &format!("{} {}. Apply it?", shown(&refused.path), reason(refused)),
                    "name it with `--allow PATH`",
                )?
            {
                consent.to.insert(refused.path.clone());
                asked = true;
            }
        }
        if asked {
            let (more, came) = apply(&consent)?;
            signal = came;
            done.applied.extend(more.applied);
            done.refused = more.refused;
        }
    }
    let exit = if done.refused.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    if output.json {
        let refused: Vec<_> = done
            .refused
            .iter()
            .map(|refused| json!({"path": shown(&refused.path), "why": reason(refused)}))
            .collect();
        let applied: Vec<_> = done.applied.iter().map(|path| shown(path)).collect();
        output.envelope(&Envelope::new("apply", exit, json!({"applied": applied, "refused": refused})));
        signal.into_iter().for_each(end_by);
        return Ok(exit);
    }
    for path in &done.applied {
        output.result(&format!("applied {}\n", shown(path)));
    }
    for refused in &done.refused {
        output.say(&format!("left aside: {}: {}", shown(&refused.path), reason(refused)));
    }
    if done.refused.iter().any(|refused| matches!(refused.why, RefusedBecause::NeedsConsent { .. })) {
        output.say("  hint: look at them with `belljar diff`, then name each with `--allow PATH`");
    }
    if let Some(signal) = signal {
        output.say("interrupted: other overlay changes are not applied; run `belljar apply` again");
        end_by(signal);
    }
    if done.applied.is_empty() && done.refused.is_empty() {
        output.say("Nothing is kept aside.");
    }
    Ok(exit)
}
