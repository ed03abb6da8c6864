use super::agree::{data as agreeing_data, listed, summary};
use super::scenario_options::{TryOptions, say_skipped};
use crate::cmd::{Call, Command};
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, Purpose, SandboxChoice, Wishes};
use belljar_report::{ValueChange, changes, render_changes};
use belljar_runner::suite::{
    KnownPart, LoadError, TrialUse, agree, load_scenario, not_agreed, scenario_files,
};
use belljar_runner::{AgreementStanding, Agreements, Allowances, HostEnvironment, Planned, Planner};
use serde_json::json;
use std::path::PathBuf;

/// Agree to what a project's manifest asks for
///
/// The agreement is kept in your own configuration, by digest of the plan. When the plan has changed since,
/// the differences are shown before you are asked again. With --suite you agree to what scenarios ask for beyond
/// their own directory: a weaker backend, variables, files, hosts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar trust --yes\n  $ belljar trust --revoke\n  \
    $ belljar trust --yes --suite scenarios\n")]
pub struct TrustArgs {
    /// Agent name [default: the only declared agent]
    #[arg(conflicts_with = "suite")]
    agent: Option<String>,
    /// Agree to what these scenarios ask for; a directory means all scenarios in it
    #[arg(long, value_name = "PATH")]
    suite: Vec<PathBuf>,
    /// Agree without being asked
    #[arg(long, conflicts_with = "revoke")]
    yes: bool,
    /// Revoke the agreement, and your permissions for runs to change guarded files in this project
    #[arg(long)]
    revoke: bool,
    #[command(flatten)]
    dotenv: super::dotenv_options::DotenvOptions,
    /// Print one JSON object; asks nothing, changes nothing without --yes or --revoke
    #[arg(long)]
    pub json: bool,
}

impl Command for TrustArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner_with(&self.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &TrustArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    if !args.suite.is_empty() {
        return suites(args, planner.environment(), output);
    }
    let planned = planner.plan(args.agent.as_deref(), Purpose::Session)?;
    let plan = &planned.compiled.plan;
    let agreements = Agreements::new(&planner.environment().config);
    if args.revoke {
        let was = agreements.revoke(plan)?;
        let files = Allowances::of(&planner.environment().config, &plan.workspace.source).revoke()?;
        if files > 0 {
            output.say(&format!("revoked permissions to change guarded files: {files}"));
        }
        let text = if was || files > 0 { "revoked" } else { "there was no agreement" };
        return Ok(done(output, &planned, text, &[]));
    }
    let (standing, differences) = match agreements.standing(plan)? {
        AgreementStanding::Agreed => return Ok(done(output, &planned, "agreed", &[])),
        AgreementStanding::Never => ("not agreed to yet", Vec::new()),
        AgreementStanding::Changed(before) => {
            ("changed since the agreement", changes(&before.shown, &json!(plan)))
        }
    };
    if output.json && !args.yes {
        return Ok(done(output, &planned, standing, &differences));
    }
    if !output.json {
        show(output, &planned, &planner.environment().home, standing, &differences);
    }
    if !args.yes && !confirmed("Agree to this?", "agree with --yes")? {
        output.say("Nothing was changed.");
        return Ok(ExitCode::Failed);
    }
    agreements.agree(plan)?;
    Ok(done(output, &planned, "agreed", &differences))
}

/// The same for scenarios. A file that cannot be used is an error: what it asks for is not known.
fn suites(args: &TrustArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let agreements = Agreements::new(&environment.config);
    if args.revoke {
        return revoke(args, (environment, &agreements), output);
    }
    let permit =
        |wishes: &Wishes| args.yes || matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed));
    let (mut all, mut in_part, mut kept) = (Vec::new(), false, "Nothing was changed.");
    let found = scenario_files(TryOptions::paths(environment, &args.suite)?, None, environment)?;
    say_skipped(&found.skipped, environment, output);
    for file in found.scenarios {
        all.push(loop {
            let wishes = match load_scenario(environment, &file, &permit) {
                Ok(trial) => break trial.wishes(&SandboxChoice::default(), TrialUse::Run),
                Err(LoadError::Asks { wishes }) => *wishes,
                Err(error) => return Err(error.into()),
            };
            if output.json {
                in_part = true;
                break wishes;
            }
            let open = not_agreed(std::slice::from_ref(&wishes), &agreements)?;
            output.say(&format!("{}\n", [listed(&open, environment), summary(&open)].concat().join("\n")));
            if !confirmed("Agree to reading this?", "agree with --yes")? {
                output.say(kept);
                return Ok(ExitCode::Failed);
            }
            agree(&open, KnownPart::InPart, &agreements)?;
            kept = "What you agreed to before this question stays agreed to.";
        });
    }
    let open = not_agreed(&all, &agreements)?;
    if open.is_empty() {
        let text = if all.iter().all(Wishes::is_empty) { "nothing to agree to" } else { "agreed" };
        return Ok(suites_done(output, &all, text));
    }
    if output.json && !args.yes {
        let known = "not agreed to yet";
        let text =
            if in_part { "not agreed to yet; files that are not read yet may ask for more" } else { known };
        return Ok(suites_done(output, &all, text));
    }
    if !output.json {
        output.say(&format!("{}\n", [listed(&open, environment), summary(&open)].concat().join("\n")));
    }
    if !args.yes && !confirmed("Agree to this?", "agree with --yes")? {
        output.say(kept);
        return Ok(ExitCode::Failed);
    }
    agree(&open, KnownPart::Whole, &agreements)?;
    Ok(suites_done(output, &all, "agreed"))
}

/// Takes agreements back by path. The files are not read: they may be gone, or broken.
fn revoke(
    args: &TrustArgs,
    (environment, agreements): (&HostEnvironment, &Agreements),
    output: &Output,
) -> Result<ExitCode, CliError> {
    let mut revoked = 0;
    for path in &args.suite {
        revoked += agreements.revoke_suites(&TryOptions::path(environment, path)?)?;
    }
    let standing = match revoked {
        0 => "there was no agreement".to_owned(),
        1 => "revoked 1 agreement".to_owned(),
        many => format!("revoked {many} agreements"),
    };
    if output.json {
        let data = json!({"revoked": revoked, "standing": standing});
        output.envelope(&Envelope::new("trust", ExitCode::Passed, data));
    } else {
        output.result(&format!("{standing}\n"));
    }
    Ok(ExitCode::Passed)
}

fn suites_done(output: &Output, all: &[Wishes], standing: &str) -> ExitCode {
    if output.json {
        let mut data = agreeing_data(all);
        data["standing"] = json!(standing);
        output.envelope(&Envelope::new("trust", ExitCode::Passed, data));
    } else {
        output.result(&format!("{}: {standing}\n", Wishes::digest_of_all(all)));
    }
    ExitCode::Passed
}

fn show(output: &Output, planned: &Planned, home: &AbsPath, standing: &str, differences: &[ValueChange]) {
    let style = output.err_style();
    if standing == "not agreed to yet" {
        output.say(&super::plan::page(planned, home, super::plan::Beside::default(), style));
    } else if differences.is_empty() {
        output.say(
            "A literal value of the environment has changed; values are not kept, so it cannot be shown.",
        );
    } else {
        output.say(&format!("Since you agreed:\n{}", render_changes(differences, style)));
    }
}

fn done(output: &Output, planned: &Planned, standing: &str, differences: &[ValueChange]) -> ExitCode {
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
