use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Diagnostic, Envelope, ExitCode, Sources, Wishes, visible};
use belljar_report::render_diagnostics;
use belljar_runner::suite::{AgreedBy, CheckedFiles, CheckedKind, check_files};
use belljar_runner::{Agreements, Checked, DotenvBeside, HostEnvironment, Planner, PlanningError};
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Check manifests, scenarios and scripts without a run, and report every fault
///
/// Without PATH the manifests of this directory are checked. A directory stands for every scenario below it, with the
/// sessions, scripts and skills that they name. A variable that is not set here and a version of the agent that is not
/// installed are warnings; everything else that would keep an agent from starting is an error. What a file names is checked
/// once the file itself can be read. The status is 0 without an error, otherwise 2.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar check\n  $ belljar check scenarios/\n  $ belljar check --kind script hello.json\n  $ belljar check --json\n"
)]
pub struct CheckArgs {
    /// Files to check, or directories to search for scenarios [default: the manifests]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Kind of the files [default: by name and keys]
    #[arg(long, value_name = "KIND", requires = "paths")]
    #[arg(value_parser = PossibleValuesParser::new(CheckedKind::ALL.map(CheckedKind::name)))]
    kind: Option<String>,
    /// Open files that the scenarios name beyond their directory
    #[arg(long, requires = "paths")]
    yes: bool,
    #[command(flatten)]
    dotenv: super::dotenv_options::DotenvOptions,
    /// Print one JSON object, for editors
    #[arg(long)]
    pub json: bool,
}

impl Command for CheckArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let exit = match self.paths.as_slice() {
            [] => manifests(&call.planner_with(&self.dotenv)?, call.output),
            _ => {
                let environment = self.dotenv.read(call.environment()?, DotenvBeside::Ignored)?;
                files(self, &environment, call.output)
            }
        };
        exit.map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn manifests(planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let Checked { sources, diagnostics, agents, library, files } = planner.check().map_err(|error| {
        let is_missing = matches!(error, PlanningError::NoManifest { .. });
        let error = CliError::from(error);
        if is_missing { error.hint("`belljar check DIR` checks the scenarios of a directory") } else { error }
    })?;
    let data = json!({"files": files, "agents": agents, "library": library});
    let line = format!("{}: {}", visible(&files.join(" and ")), counted(agents, library));
    Ok(report((&sources, &diagnostics), data, &line, output))
}

fn files(args: &CheckArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let paths = TryOptions::paths(environment, &args.paths)?;
    let kind = args.kind.as_deref();
    let kind = kind.and_then(|kind| CheckedKind::ALL.into_iter().find(|known| known.name() == kind));
    let agreements = Agreements::new(&environment.config);
    let agreed_by = if args.yes { AgreedBy::Yes } else { AgreedBy::Agreements };
    let permit = |wishes: &Wishes| agreed_by.permits(wishes, &agreements);
    let CheckedFiles { sources, diagnostics, files } = check_files(environment, paths, kind, &permit)?;
    let listed: Vec<Value> = files.iter().map(|(kind, path)| json!({"kind": kind, "path": path})).collect();
    let count = |kind| files.iter().filter(|(found, _)| *found == kind).count();
    let parts: Vec<String> = CheckedKind::ALL
        .into_iter()
        .filter(|kind| count(*kind) > 0)
        .map(|kind| plural(count(kind), kind.one(), kind.many()))
        .collect();
    Ok(report((&sources, &diagnostics), json!({"files": listed}), &parts.join(", "), output))
}

/// Prints what was found; `line` says what was checked.
fn report(
    (sources, diagnostics): (&Sources, &[Diagnostic]),
    data: Value,
    line: &str,
    output: &Output,
) -> ExitCode {
    let errors = diagnostics.iter().any(Diagnostic::is_error);
    let exit = if errors { ExitCode::Invalid } else { ExitCode::Passed };
    if output.json {
        let mut envelope = Envelope::new("check", exit, data);
        envelope.diagnostics = diagnostics.iter().map(|diagnostic| diagnostic.to_json(sources)).collect();
        output.envelope(&envelope);
        return exit;
    }
    if !diagnostics.is_empty() {
        output.say(&render_diagnostics(diagnostics, sources, output.err_style()));
    }
    if !errors {
        let word = if diagnostics.is_empty() { "all good" } else { "no errors" };
        output.result(&format!("{line}, {word}\n"));
    }
    exit
}

fn plural(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn counted(agents: usize, library: usize) -> String {
    let library = plural(library, "library entry", "library entries");
    format!("{}, {library}", plural(agents, "agent", "agents"))
}
