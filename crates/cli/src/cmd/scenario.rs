use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Wishes, visible};
use belljar_runner::suite::{
    AgreedBy, FromRunError, Overwrite, Scaffold, ScaffoldError, scaffold_from_run, scaffold_new,
};
use belljar_runner::{Agreements, HostEnvironment, find_run};
use serde_json::json;
use std::path::PathBuf;

/// Write a first scenario, from a skill or from a kept run
///
/// Nothing is run. No file is replaced without --force.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  $ belljar scenario new skills/changelog\n  $ belljar scenario from last --out again.yaml\n"
)]
pub struct ScenarioArgs {
    #[command(subcommand)]
    what: Scaffolding,
}

#[derive(Debug, clap::Subcommand)]
enum Scaffolding {
    /// Write a scenario, its session and a script for a skill, a plugin or a marketplace
    ///
    /// The prompt is made from the skill's description. The script calls the skill, so that `belljar test --scripted` passes
    /// without a key. Comments in the file say what to edit.
    #[command(
        after_help = "Examples:\n  $ belljar scenario new skills/changelog\n  $ belljar scenario new skills/changelog --out scenarios/first.yaml --json\n"
    )]
    New(NewArgs),
    /// Write a scenario that repeats a kept run
    ///
    /// It has the prompt and the answers of the run, and checks that the run passes. For a run of `skill` or `chat` a session
    /// with the skill, the uploads and the directories is written beside it. Values that were redacted in the record are left
    /// out.
    #[command(
        after_help = "Examples:\n  $ belljar scenario from last\n  $ belljar scenario from last --out scenarios/again.yaml --json\n"
    )]
    From(FromArgs),
}

#[derive(Debug, clap::Args)]
struct NewArgs {
    /// Skill, directory of skills, plugin or marketplace
    #[arg(value_name = "DIR")]
    tested: PathBuf,
    /// Scenario to write [default: scenarios/NAME.yaml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct FromArgs {
    /// Run to repeat: its id or the beginning of it, its directory, or `last`
    run: PathBuf,
    /// Scenario to write [default: NAME-from-run.yaml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Session that the scenario names [default: that of the run]
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Command for ScenarioArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        match &self.what {
            Scaffolding::New(args) => args.json,
            Scaffolding::From(args) => args.json,
        }
    }
}

fn run(args: &ScenarioArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let path =
        |path: &Option<PathBuf>| path.as_ref().map(|path| TryOptions::path(environment, path)).transpose();
    let (scaffold, force) = match &args.what {
        Scaffolding::New(args) => {
            let agreements = Agreements::new(&environment.config);
            let permit = |wishes: &Wishes| AgreedBy::Agreements.permits(wishes, &agreements);
            let tested = TryOptions::path(environment, &args.tested)?;
            (scaffold_new(environment, &tested, path(&args.out)?, &permit)?, args.force)
        }
        Scaffolding::From(args) => {
            let directory = find_run(&args.run, environment)?;
            let (out, session) = (path(&args.out)?, path(&args.session)?);
            (scaffold_from_run(environment, directory, out, session.as_ref())?, args.force)
        }
    };
    let overwrite = if force { Overwrite::Always } else { Overwrite::Never };
    scaffold.write(overwrite)?;
    print(&scaffold, environment, output);
    Ok(ExitCode::Passed)
}

fn print(Scaffold { files, notes }: &Scaffold, environment: &HostEnvironment, output: &Output) {
    if output.json {
        let paths: Vec<_> = files.iter().map(|(path, _)| path).collect();
        let data = json!({"scenario": paths.first(), "files": paths, "notes": notes});
        output.envelope(&Envelope::new("scenario", ExitCode::Passed, data));
        return;
    }
    for (path, _) in files {
        output.result(&format!("wrote {}\n", visible(&environment.shown(path))));
    }
    notes.iter().for_each(|note| output.say(&format!("note: {}", visible(note))));
}

impl From<ScaffoldError> for CliError {
    fn from(error: ScaffoldError) -> Self {
        let out = CliError::from_chain(ExitCode::Invalid, &error);
        match error {
            ScaffoldError::Exists { .. } => {
                out.hint("nothing was written; --out names another file, --force replaces the files")
            }
            ScaffoldError::Write { .. } => out,
        }
    }
}

impl From<FromRunError> for CliError {
    fn from(error: FromRunError) -> Self {
        match error {
            FromRunError::NoPrompt { .. } => CliError::from_chain(ExitCode::Invalid, &error)
                .hint("runs of `skill`, `test`, `record` and `chat` have one; `belljar runs` lists them"),
            FromRunError::Redacted { .. } => CliError::from_chain(ExitCode::Invalid, &error)
                .hint("`belljar scenario new DIR` makes a scenario from the skill"),
            FromRunError::Doubtful { .. } => CliError::from_chain(ExitCode::Unverified, &error)
                .hint("`belljar trace RUN` shows what is left of it"),
            FromRunError::Read(_) | FromRunError::NoSession { .. } => {
                CliError::from_chain(ExitCode::Invalid, &error)
            }
        }
    }
}
