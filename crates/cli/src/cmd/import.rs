use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, visible};
use belljar_runner::tape::cassette::{self, Cassette};
use belljar_runner::tape::open_cassette;
use belljar_runner::{BOTTLE_NAME, MANIFEST_NAME, Planner, import, write_new};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(
    about = about(),
    long_about = long_about(),
    after_help = format!("Examples:\n  $ belljar import {BOTTLE_NAME} --stdout\n"),
)]
pub struct ImportArgs {
    /// File to import
    file: PathBuf,
    /// Print what would be written instead of writing it
    #[arg(long)]
    stdout: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn about() -> String {
    format!("Turn a `{BOTTLE_NAME}` into a manifest, or a cassette into a scenario")
}

fn long_about() -> String {
    format!(
        "{}\n\nA file of that name in your home is the base, and the named one overrides it. What behaves \
         differently in belljar is noted in comments and on standard error. From a cassette of cowork-harness \
         the recorded scenario is written, NAME.yaml; a cassette has no exchanges with the model, so it cannot \
         become a tape. An existing file is never overwritten.",
        about()
    )
}

impl Command for ImportArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &ImportArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let directory = &planner.environment().directory;
    let file =
        directory.join(&args.file).map_err(|error| CliError::new(ExitCode::Invalid, error.to_string()))?;
    if Cassette::is_one(&file) {
        return scenario(args, planner, &file, output);
    }
    let (imported, files) = import(planner, &file)?;
    if args.stdout && output.json {
        let data = json!({"read": files, "written": null, "notes": imported.notes, "text": imported.toml});
        output.envelope(&Envelope::new("import", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    if args.stdout {
        output.file(&imported.toml);
    } else {
        let path = directory.child(MANIFEST_NAME);
        write_new(&path, &imported.toml)?;
        if output.json {
            let data = json!({"read": files, "written": path, "notes": imported.notes});
            output.envelope(&Envelope::new("import", ExitCode::Passed, data));
            return Ok(ExitCode::Passed);
        }
        output.result(&format!("{MANIFEST_NAME} was written from {}\n", visible(&files.join(" and "))));
    }
    for note in &imported.notes {
        output.say(&format!("note: {}", visible(note)));
    }
    Ok(ExitCode::Passed)
}

/// The scenario of a cassette, beside where we are.
fn scenario(
    args: &ImportArgs,
    planner: &Planner,
    file: &AbsPath,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let environment = planner.environment();
    let cassette = open_cassette(file, environment)?;
    let trial = cassette::scenario(&cassette, (file, &environment.shown(file)))?;
    let text = cassette::scenario_text(&cassette);
    let note = "no tape was made: a cassette has no exchanges with the model; `belljar record` makes one, and \
        `belljar replay --protocol` judges the cassette as it is";
    if args.stdout && output.json {
        let data = json!({"read": [environment.shown(file)], "written": null, "notes": [note], "text": text});
        output.envelope(&Envelope::new("import", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    if args.stdout {
        output.file(&text);
    } else {
        let name = trial.scenario.name.replace(|c: char| !c.is_alphanumeric() && !"-_.".contains(c), "-");
        let path = environment.directory.child(&format!("{}.yaml", name.trim_start_matches('.')));
        write_new(&path, &text)?;
        if output.json {
            let data = json!({"read": [environment.shown(file)], "written": path, "notes": [note]});
            output.envelope(&Envelope::new("import", ExitCode::Passed, data));
            return Ok(ExitCode::Passed);
        }
        let (to, from) = (environment.shown(&path), environment.shown(file));
        output.result(&format!("{to} was written from {from}\n"));
    }
    output.say(&format!("note: {note}\n"));
    Ok(ExitCode::Passed)
}
