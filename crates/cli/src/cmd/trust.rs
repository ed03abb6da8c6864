use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, Purpose};
use belljar_runner::report::{Change, PlanPage, changes, render_changes, render_plan};
use belljar_runner::{Agreements, Planned, Planner, Standing};
use serde_json::json;

/// Agree to what a project's manifest asks for
///
/// The agreement is kept in your own configuration, by digest of the plan. When the plan has changed since,
/// the differences are shown before you are asked again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar trust --yes\n  $ belljar trust --revoke\n")]
pub struct Args {
    /// The agent; the only one that is declared need not be named
    agent: Option<String>,
    /// Agree without being asked
    #[arg(long, conflicts_with = "revoke")]
    yes: bool,
    /// Take the agreement back
    #[arg(long)]
    revoke: bool,
    /// Print one JSON object; asks nothing, changes nothing without --yes or --revoke
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let planned = planner.plan(args.agent.as_deref(), Purpose::Session)?;
    let plan = &planned.compiled.plan;
    let agreements = Agreements::new(&planner.surroundings().config);
    if args.revoke {
        let was = agreements.revoke(plan)?;
        let text = if was { "taken back" } else { "there was no agreement" };
        return Ok(done(output, &planned, text, &[]));
    }
    let (standing, differences) = match agreements.standing(plan)? {
        Standing::Agreed => return Ok(done(output, &planned, "agreed", &[])),
        Standing::Never => ("not agreed to yet", Vec::new()),
        Standing::Changed(before) => ("changed since the agreement", changes(&before.plan, &json!(plan))),
    };
    if output.json && !args.yes {
        return Ok(done(output, &planned, standing, &differences));
    }
    if !output.json {
        show(output, &planned, &planner.surroundings().home, standing, &differences);
    }
    if !args.yes && !confirmed("Agree to this?", "agree with --yes")? {
        output.say("Nothing was changed.");
        return Ok(ExitCode::Failed);
    }
    agreements.agree(plan)?;
    Ok(done(output, &planned, "agreed", &differences))
}

fn show(output: &Output, planned: &Planned, home: &AbsPath, standing: &str, differences: &[Change]) {
    let plan = &planned.compiled.plan;
    let style = output.err_style();
    if standing == "not agreed to yet" {
        let page = PlanPage {
            plan,
            credential_found: None,
            upstream: None,
            program_found: None,
            entering: &planned.entering,
            defaults: &planned.defaults,
            home,
            advice: &[],
        };
        output.say(&render_plan(&page, style));
    } else if differences.is_empty() {
        output.say(
            "A literal value of the environment has changed; values are not kept, so it cannot be shown.",
        );
    } else {
        output.say(&format!("Since you agreed:\n{}", render_changes(differences, style)));
    }
}

fn done(output: &Output, planned: &Planned, standing: &str, differences: &[Change]) -> ExitCode {
    let plan = &planned.compiled.plan;
    if output.json {
        let list: Vec<_> = differences
            .iter()
            .map(|change| json!({"key": change.key, "before": change.before, "after": change.after}))
            .collect();
        let data =
            json!({"agent": plan.agent, "digest": plan.digest(), "standing": standing, "changes": list});
        output.envelope(&Envelope::new("trust", ExitCode::Passed, data));
    } else {
        output.result(&format!("{} {}: {standing}\n", plan.agent, plan.digest()));
    }
    ExitCode::Passed
}
