use super::agent_options::{self, AgentOptions};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{
    AbsPath, Envelope, ExitCode, LaunchArgument, OsText, RootPart, Unmet, Workload, WorkspaceMode, visible,
};
use belljar_report::{PlanPage, Style, render_diagnostics, render_open, render_plan};
use belljar_runner::{
    AgreementStanding, Agreements, Allowances, Planned, Planner, lowered, refused_limits, why,
};
use serde_json::json;

/// Show what an agent would see, reach and keep, without starting it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar plan\n  $ belljar plan --why home\n  $ belljar plan --json\n")]
pub struct PlanArgs {
    /// Agent of the manifest [default: the only declared agent]
    #[arg(value_name = "AGENT")]
    agent: Option<String>,
    /// Print one JSON object, with the digest of the plan
    #[arg(long)]
    pub json: bool,
    /// Print the exact command that would be started, and the mechanism that enforces each need
    #[arg(long, conflicts_with = "why")]
    lowered: bool,
    #[command(flatten)]
    pub sandbox: super::start::SandboxOptions,
    #[command(flatten)]
    version: AgentOptions,
    #[command(flatten)]
    pub dotenv: super::dotenv_options::DotenvOptions,
    #[command(flatten)]
    by_hand: super::by_hand::ByHandOptions,
    /// Explain where a value comes from, such as `model`, `env.PATH` or `egress`
    #[arg(long, value_name = "KEY")]
    why: Option<String>,
}

impl Command for PlanArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let planner = call.planner_with(&self.dotenv)?.with_sandbox(self.sandbox.asked());
        let planner = planner.with_by_hand(self.by_hand.given()?);
        run(self, &planner.with_agent(self.version.asked()), call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &PlanArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let ready = Some(&args.version).filter(|version| version.installs());
    let planned = agent_options::plan(planner, (args.agent.as_deref(), ready), output)?;
    if !planned.warnings.is_empty() && !output.json {
        output.say(&render_diagnostics(&planned.warnings, &planned.sources, output.err_style()));
    }
    if let Some(key) = &args.why {
        return explain(key, &planned, output);
    }
    if args.lowered {
        return lowered_page(planner, &planned, output);
    }
    let mut advice = advice(planner, &planned)?;
    let refused = refused_limits(&planned, planner.environment());
    advice.extend(refused.into_iter().map(|Unmet { need, why, fix }| {
        format!("a start is refused, because this cannot be enforced: {}: {why}; {fix}", need.describe())
    }));
    let plan = &planned.compiled.plan;
    let allowed = Allowances::of(&planner.environment().config, &plan.workspace.source).read()?;
    if plan.workspace.mode == WorkspaceMode::Direct {
        advice.extend(Allowances::notice(&allowed, planner.environment()));
    }
    if output.json {
        let reasons: Vec<_> =
            planned.compiled.reasons.iter().map(|reason| reason.to_json(&planned.sources)).collect();
        let data = json!({
            "digest": planned.of_manifests().compiled.plan.digest(),
            "plan": plan,
            "by_hand": planned.given_by_hand(),
            "reasons": reasons,
            "secrets": planned.entering,
            "default_limits": planned.defaults,
            "not_isolated": planned.open,
            "credential_found": planned.credential_found,
            "upstream": planned.upstream,
            "program_found": planned.program_found(),
            "agent": planned.agent,
            "advice": advice,
        });
        let mut envelope = Envelope::new("plan", ExitCode::Passed, data);
        envelope.diagnostics =
            planned.warnings.iter().map(|warning| warning.to_json(&planned.sources)).collect();
        output.envelope(&envelope);
        return Ok(ExitCode::Passed);
    }
    let beside = Beside { advice: &advice, ..Beside::default() };
    output.result(&page(&planned, &planner.environment().home, beside, output.out_style()));
    Ok(ExitCode::Passed)
}

/// What stands on the page of a plan beside it.
#[derive(Default)]
pub struct Beside<'a> {
    /// What the user should do before a run.
    pub advice: &'a [String],
    /// Arguments for the agent that are given by hand.
    pub arguments: &'a [OsText],
}

/// The page of a plan, with what was found on this machine.
pub fn page(planned: &Planned, home: &AbsPath, beside: Beside<'_>, style: Style) -> String {
    let Beside { advice, arguments } = beside;
    let program = match &planned.program {
        Ok(program) => program.path().map(ToString::to_string),
        Err(error) => {
            Some(std::iter::once(error.to_string()).chain(error.hints()).collect::<Vec<_>>().join("; "))
        }
    };
    let page = PlanPage {
        plan: &planned.compiled.plan,
        credential_found: planned.credential_found.as_deref(),
        upstream: planned.upstream.as_deref(),
        entering: &planned.entering,
        defaults: &planned.defaults,
        open: &planned.open,
        program_found: program.as_deref(),
        agent: &planned.agent,
        home,
        digest: planned.of_manifests().compiled.plan.digest(),
        by_hand: &planned.given_by_hand(),
        arguments,
        advice,
    };
    render_plan(&page, style)
}

fn lowered_page(planner: &Planner, planned: &Planned, output: &Output) -> Result<ExitCode, CliError> {
    let launch = lowered(planned, planner.environment(), &Workload::Command(vec![OsText::default()]))?;
    let arguments: Vec<String> =
        launch.arguments.iter().chain(&launch.command).map(LaunchArgument::shown).collect();
    let root: Vec<Vec<String>> = launch.root.iter().map(RootPart::arguments).collect();
    if output.json {
        let data = json!({
            "program": launch.program,
            "arguments": arguments,
            "root": root,
            "backend": launch.backend,
            "controls": launch.controls,
            "open": launch.open,
            "made": launch.made,
        });
        output.envelope(&Envelope::new("plan", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    let style = output.out_style();
    // On the host the command is the program itself, and a plan has no command.
    let program = if launch.program.is_empty() { "<the command>".into() } else { launch.program.to_string() };
    let mut text = format!("{}\n", style.bold(&program));
    for argument in arguments {
        // An option begins a line; what belongs to it follows on the same one.
        let join = if argument.starts_with("--") { "\n  " } else { " " };
        text.push_str(&format!("{join}{argument}"));
    }
    if !root.is_empty() {
        text.push_str(&format!("\n\n{}\n", style.bold("Root, built by the guest, read-only at the end")));
        root.iter().for_each(|part| text.push_str(&format!("  {}\n", part.join(" "))));
        text.pop();
    }
    text.push_str(&format!("\n\n{}\n", style.bold("Controls")));
    for control in &launch.controls {
        text.push_str(&format!("  {:<42} {}\n", control.need.describe(), control.mechanism));
    }
    if !launch.open.is_empty() {
        text.push_str(&format!("\n{}", render_open(&planned.open, style)));
    }
    output.result(&text);
    Ok(ExitCode::Passed)
}

fn advice(planner: &Planner, planned: &Planned) -> Result<Vec<String>, CliError> {
    if !planned.needs_agreement {
        return Ok(Vec::new());
    }
    let asked_for = &planned.of_manifests().compiled.plan;
    let agent = &asked_for.agent;
    let standing = Agreements::new(&planner.environment().config).standing(asked_for)?;
    Ok(match standing {
        AgreementStanding::Agreed => Vec::new(),
        AgreementStanding::Never => vec![format!("you have not agreed to this yet: `belljar trust {agent}`")],
        AgreementStanding::Changed(_) => {
            vec![format!("this has changed since you agreed: `belljar trust {agent}` shows how")]
        }
    })
}

fn explain(key: &str, planned: &Planned, output: &Output) -> Result<ExitCode, CliError> {
    let reasons = why(&planned.compiled.reasons, key).map_err(|near| {
        let error = CliError::new(ExitCode::Invalid, format!("the plan has no `{key}`"));
        match near {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => {
                let mut keys: Vec<&str> = planned
                    .compiled
                    .reasons
                    .iter()
                    .map(|reason| reason.key.split('.').next().unwrap_or(""))
                    .collect();
                keys.dedup();
                error.hint(format!("it has {}", keys.join(", ")))
            }
        }
    })?;
    if output.json {
        let list: Vec<_> = reasons.iter().map(|reason| reason.to_json(&planned.sources)).collect();
        output.envelope(&Envelope::new("plan", ExitCode::Passed, json!({"reasons": list})));
        return Ok(ExitCode::Passed);
    }
    for reason in reasons {
        let place = reason.origin.describe(&planned.sources);
        output.result(&format!(
            "{} = {}\n  {}\n",
            visible(&reason.key),
            visible(&reason.value.to_string()),
            visible(&place)
        ));
    }
    Ok(ExitCode::Passed)
}
