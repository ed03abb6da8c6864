use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible};
use belljar_report::render_diagnostics;
use belljar_runner::{Checked, Planner};
use serde_json::json;

/// Check the manifests and report every fault
///
/// A variable that is not set here is a warning; everything else that would keep an agent from starting is an
/// error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar check\n  $ belljar check --json\n")]
pub struct CheckArgs {
    #[command(flatten)]
    dotenv: super::dotenv_options::DotenvOptions,
    /// Print one JSON object, for editors
    #[arg(long)]
    pub json: bool,
}

impl Command for CheckArgs {
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

fn run(_args: &CheckArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let Checked { sources, diagnostics, agents, library, files } = planner.check()?;
    let errors = diagnostics.iter().any(belljar_contract::Diagnostic::is_error);
    let exit = if errors { ExitCode::Invalid } else { ExitCode::Passed };
    if output.json {
        let data = json!({"files": files, "agents": agents, "library": library});
        let mut envelope = Envelope::new("check", exit, data);
        envelope.diagnostics = diagnostics.iter().map(|diagnostic| diagnostic.to_json(&sources)).collect();
        output.envelope(&envelope);
        return Ok(exit);
    }
    if !diagnostics.is_empty() {
        output.say(&render_diagnostics(&diagnostics, &sources, output.err_style()));
    }
    if !errors {
        let word = if diagnostics.is_empty() { "all good" } else { "no errors" };
        output.result(&format!("{}: {}, {word}\n", visible(&files.join(" and ")), counted(agents, library)));
    }
    Ok(exit)
}

fn counted(agents: usize, library: usize) -> String {
    let plural = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let library = plural(library, "library entry", "library entries");
    format!("{}, {library}", plural(agents, "agent", "agents"))
}
