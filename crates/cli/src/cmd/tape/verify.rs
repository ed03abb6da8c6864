use crate::cmd::agree::{AgreeOptions, Agreeing, to_type};
use crate::cmd::scenario_options::failure;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, SandboxChoice, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Consent, Trial, TrialUse, load_scenario};
use belljar_runner::tape::{
    CheckedTape, Compared, FindError, PrivateFinding, Tape, ValueFound, ValueSearch, as_recorded,
    contradiction, own_names, private_findings, redacted_values, scenario_of, stale,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Check that tapes are complete, current and safe to share
///
/// Reports what changed since the recording (scenario, session, skill, plugin, plan, agent), and private data on the tape:
/// home directories, names of this user and machine, addresses, keys, and values that the recording redacted. Values are
/// searched for by keyed digests, on the machine that recorded the tape; their places are printed, never the values. The
/// status is 1 if something was found, 2 if a tape is broken, and 3 if a part is missing or could not be checked, or if its
/// frames, its record and its exchanges with the model contradict each other. With --strict it is also 3 if the tape has no
/// digest of an input or of the agent's program, or if the agent is not installed here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape verify scenarios\n  \
    $ belljar tape verify --json scenarios/hello.tape\n")]
pub struct TapeVerifyArgs {
    /// Tapes, or directories to search for them
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    /// Require that the tape can be compared with everything that it rests on
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    agree: AgreeOptions,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeVerifyArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let tapes = super::tapes(&args.paths, environment)?;
    let sandbox = SandboxChoice::default();
    let used_for = TrialUse::Inspect;
    let agreeing = Agreeing { options: &args.agree, sandbox: &sandbox, used_for, environment, output };
    let opened: Vec<_> = tapes.iter().map(|path| (path, open(path, &agreeing))).collect();
    let trials = opened.iter().filter_map(|(_, opened)| opened.as_ref().ok().map(|opened| &opened.trial));
    let consent = agreeing.ask(trials)?;
    let mut rows = Vec::new();
    for (path, opened) in opened {
        let found = opened.and_then(|opened| one(opened, args.strict, environment, &consent));
        let (exit, row, text) = match found {
            Ok(checked) => report(&checked, &to_type(path, environment)),
            Err(error) => {
                let line = error.line();
                (error.exit(), json!({"error": line}), format!("  {}\n", visible(&line)))
            }
        };
        if !output.json {
            let word = if exit == ExitCode::Failed { "stale or private" } else { exit.meaning() };
            let word = if exit == ExitCode::Passed { "fine" } else { word };
            output.result(&format!("{}: {word}\n{text}", environment.shown(path)));
        }
        let mut row = row;
        (row["tape"], row["exit_code"]) = (json!(path), json!(exit.code()));
        rows.push((exit, row));
    }
    let exit = ExitCode::worst(rows.iter().map(|(exit, _)| *exit));
    if output.json {
        let results: Vec<&Value> = rows.iter().map(|(_, row)| row).collect();
        output.envelope(&Envelope::new("tape", exit, json!({"results": results})));
    }
    Ok(exit)
}

/// A tape, and the scenario that it belongs to.
struct Opened {
    tape: Tape,
    trial: Trial,
}

fn open(path: &AbsPath, agreeing: &Agreeing<'_>) -> Result<Opened, CliError> {
    let environment = agreeing.environment;
    let tape = Tape::open(path)?;
    let scenario = scenario_of(path, &tape.head, environment).map_err(|error| match error {
        FindError::Beyond { .. } => CliError::from(error),
        FindError::NoTape { .. } | FindError::NoScenario { .. } => {
            CliError::from(error).with_exit(ExitCode::Unverified)
        }
    })?;
    let trial = agreeing.load(|permit| load_scenario(environment, &scenario, permit))??;
    let trial = as_recorded(trial, &tape.head);
    Ok(Opened { tape, trial })
}

fn one(
    Opened { tape, trial }: Opened,
    strict: bool,
    environment: &HostEnvironment,
    consent: &Consent,
) -> Result<CheckedTape, CliError> {
    let unread = |error: std::io::Error| CliError::from_chain(ExitCode::Unverified, &error);
    let tape = Arc::new(tape);
    let contradiction =
        contradiction(&tape, &trial).map_err(|error| CliError::from_chain(ExitCode::Unverified, &error))?;
    let private = private_findings(&tape, &own_names(environment)).map_err(unread)?;
    let values = redacted_values(&tape, &environment.state).map_err(unread)?;
    let Compared { changed, not_compared } = stale(&trial, &tape.head, environment, (consent, None))
        .map_err(|error| failure(error, environment))?;
    let not_compared = strict.then_some(not_compared);
    Ok(CheckedTape { contradiction, changed, not_compared, private, values })
}

/// `shown` is the tape's path, to be typed.
fn report(checked: &CheckedTape, shown: &str) -> (ExitCode, Value, String) {
    let CheckedTape { contradiction, changed, not_compared, private, values } = checked;
    let mut text = String::new();
    if let Some(why) = contradiction {
        text.push_str(&format!("  not verified: {}\n", visible(why)));
    }
    text.push_str(&values_text(values));
    for changed in changed {
        text.push_str(&format!("  stale: {}\n", visible(&changed.sentence())));
    }
    for unknown in not_compared.iter().flatten() {
        text.push_str(&format!("  not compared: {}\n", visible(&unknown.sentence())));
    }
    private.iter().for_each(|finding| text.push_str(&private_text(finding)));
    if !changed.is_empty() {
        text.push_str(&format!("  `belljar tape refresh {shown}` records it again\n"));
    }
    if !private.is_empty() {
        text.push_str(&format!("  `belljar tape scrub {shown}` takes out what can be replaced\n"));
    }
    (checked.exit(), json!(checked), text)
}

fn private_text(PrivateFinding { file, line, pointer, kind }: &PrivateFinding) -> String {
    let pointer = visible(pointer.as_deref().unwrap_or_default());
    let at = if pointer.is_empty() { "" } else { " at " };
    format!("  private: {kind} in {}:{line}{at}{pointer}\n", visible(file))
}

fn values_text(values: &ValueSearch) -> String {
    let ValueSearch { listed: _, found, checked: _, unchecked, not_redacted } = values;
    let mut text = String::new();
    for ValueFound { file, line, name } in found {
        let (name, file) = (visible(name), visible(file));
        text.push_str(&format!("  secret: the value of {name} is in {file}:{line}\n"));
    }
    if !found.is_empty() {
        text.push_str(
            "  `belljar record` again; a value that was given away has to be replaced at its source\n",
        );
    }
    if *unchecked > 0 {
        let values = if *unchecked == 1 { "1 value" } else { &format!("{unchecked} values") };
        text.push_str(&format!(
            "  {values} could not be checked: the key is on the machine that recorded the tape\n"
        ));
    }
    if !not_redacted.is_empty() {
        let names: Vec<_> = not_redacted.iter().map(|name| visible(name)).collect();
        text.push_str(&format!("  not redacted by the recording: {}\n", names.join(", ")));
    }
    text
}
