use super::agreeing::{AgreeOptions, Agreeing};
use super::start::WallsOptions;
use super::test::worst;
use super::trying::{
    LastWord, TryOptions, among_others, failure, limit_time, patience, result_json, show, tell,
};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, TimeSpan, visible, visible_lines};
use belljar_runner::report::{Shown, Style, render_judgement};
use belljar_runner::tape::cassette::{self, Cassette};
use belljar_runner::tape::protocol::{self, ReadAgain};
use belljar_runner::tape::{
    Changed, Drift, FindError, Mutation, Mutations, OnDrift, Pace, ReplayModel, ReplayReport, Tape,
    TapeFailure, Taping, agent_version, find_tapes, mutate, scenario_changes, scenario_of,
};
use belljar_runner::trial::{
    Consent, Conversation, Fidelity, Keep, Trial, TrialRequest, TrialUse, load_scenario, load_scenario_alone,
};
use belljar_runner::{Model, Surroundings, Then};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Replay tapes: the real agent in the real sandbox, with the recorded answers in the model's place
///
/// Tools, hooks and servers really run, without a network unless --network opens what the session allows; files and
/// what was reached are judged again. A request that the tape does not
/// have is a drift: it is shown with both values, and the status is 7. With --protocol nothing runs: the recorded
/// conversation is read and judged again; a cassette of cowork-harness, a JSON file, can be judged so too. What a
/// recording does not have is unknown, and the status is 3.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar replay scenarios/hello.tape\n  $ belljar replay --protocol --explain scenarios\n  \
    $ belljar replay --json --protocol scenarios\n"
)]
pub struct Args {
    /// Tapes, or folders in which they are looked for; with --protocol, cassettes
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    /// What becomes of a request that the tape does not have
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW", conflicts_with = "protocol")]
    on_drift: Drifting,
    /// Run nothing: read the recorded conversation and judge it again
    #[arg(long, conflicts_with_all = ["backend", "image"])]
    protocol: bool,
    /// Show the evidence behind each check that passed
    #[arg(long, conflicts_with = "quiet")]
    explain: bool,
    /// Change what was recorded, one thing at a time, and list the changes that no check notices; they end with 1
    #[arg(long, requires = "protocol")]
    mutate: bool,
    /// Give answers with the silences that were recorded, not as fast as possible
    #[arg(long, conflicts_with = "protocol")]
    timed: bool,
    /// Answer a question, as in 'which format=PDF'
    #[arg(long = "answer", value_name = "QUESTION=ANSWER")]
    answers: Vec<String>,
    /// Dial the hosts that the session allows; without this, none is
    #[arg(long, conflicts_with = "protocol")]
    network: bool,
    #[command(flatten)]
    walls: WallsOptions,
    #[command(flatten)]
    agree: AgreeOptions,
    /// End a run after this time, overriding the scenario [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience, hide_short_help = true, conflicts_with = "protocol")]
    timeout: Option<TimeSpan>,
    /// Keep the whole workspace in the run's folder
    #[arg(long)]
    keep: bool,
    /// Say only what went wrong
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Say everything: thoughts, whole results, the evidence behind each check
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What becomes of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Drifting {
    /// End the run at once
    Fail,
    /// Go on with the nearest recorded answer; the status is 7 all the same
    Continue,
    /// Let the model itself answer; the status is 7 all the same
    Live,
}

pub fn run(args: &Args, surroundings: &Surroundings, output: &Output) -> Result<ExitCode, CliError> {
    let mut tapes = Vec::new();
    for path in &args.paths {
        let path = TryOptions::path(surroundings, path)?;
        if path.as_path().is_file() {
            tapes.push(path);
            continue;
        }
        tapes.extend(find_tapes(&path).map_err(|error| not_found(&error))?);
    }
    tapes.sort();
    tapes.dedup();
    // One bad tape does not stop the others; alone, it is the error of the verb.
    let rows = match (args.protocol, tapes.as_slice()) {
        (true, [tape]) => {
            let read = read(surroundings, tape, &Scenarios::default())?;
            vec![tell_read(args, surroundings, tape, &read, output)]
        }
        (true, _) => read_many(args, surroundings, &tapes, &Scenarios::default(), output),
        (false, _) => run_all(args, surroundings, &tapes, output)?,
    };
    let exit = worst(rows.iter().map(|(exit, _)| *exit));
    let passed = rows.iter().filter(|(exit, _)| *exit == ExitCode::Passed).count();
    if output.json {
        let results: Vec<&Value> = rows.iter().map(|(_, row)| row).collect();
        let data = json!({"results": results, "passed": passed, "failed": rows.len() - passed});
        output.envelope(&Envelope::new("replay", exit, data));
    } else if rows.len() > 1 {
        output.say(&format!("{passed} replayed, {} not\n", rows.len() - passed));
    }
    Ok(exit)
}

/// Runs tapes again, after the user has agreed to what all of their scenarios ask for.
fn run_all(
    args: &Args,
    surroundings: &Surroundings,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<Vec<(ExitCode, Value)>, CliError> {
    let walls = args.walls.asked();
    let used_for = if args.network { TrialUse::Run } else { TrialUse::RunOffline };
    let agreeing = &Agreeing { options: &args.agree, walls: &walls, used_for, surroundings, output };
    let scenarios = Scenarios { time: args.timeout, ..Scenarios::default() };
    let open = |path| (path, open_to_run(args, agreeing, path, &scenarios));
    let opened: Vec<(&AbsPath, Result<_, CliError>)> = tapes.iter().map(open).collect();
    let found = opened.iter().filter_map(|(_, found)| found.as_ref().ok());
    let consent = agreeing.ask(found.map(|(_, trial): &(Tape, Arc<Trial>)| &**trial))?;
    let one = |found: Result<(Tape, Arc<Trial>), CliError>| {
        let (tape, trial) = found?;
        run_again(args, surroundings, tape, (&trial, &consent), output)
    };
    let alone = tapes.len() == 1;
    let mut rows = Vec::new();
    for (path, found) in opened {
        rows.push(match alone {
            true => one(found)?,
            false => among_others(one(found), surroundings, ("tape", path), output),
        });
    }
    Ok(rows)
}

/// A tape that can be run again, and its scenario.
fn open_to_run(
    args: &Args,
    agreeing: &Agreeing<'_>,
    path: &AbsPath,
    scenarios: &Scenarios,
) -> Result<(Tape, Arc<Trial>), CliError> {
    let surroundings = agreeing.surroundings;
    if path.as_path().is_file() {
        open_cassette(path, surroundings)?;
        let text = format!(
            "`{}` has no exchanges with the model, so nothing can be run from it",
            surroundings.shown(path)
        );
        return Err(
            CliError::new(ExitCode::Invalid, text).hint("--protocol judges it without running anything")
        );
    }
    let load = |file: &AbsPath| Ok(agreeing.load(|permit| load_scenario(surroundings, file, permit))??);
    let (tape, trial) = opened(surroundings, path, (scenarios, load))?;
    let asked = args.walls.asked().backend;
    if !args.network && asked.is_none() && trial.scenario.fidelity == Some(Fidelity::Protocol) {
        let text = "`fidelity: protocol` runs without isolation, so a replay cannot close the network";
        return Err(CliError::new(ExitCode::Invalid, text)
            .hint("--network leaves it open; --backend bwrap isolates the replay"));
    }
    Ok((tape, trial))
}

/// Scenarios that were read: many tapes may be of one.
#[derive(Default)]
struct Scenarios {
    read: Mutex<BTreeMap<AbsPath, Arc<Trial>>>,
    /// The time of the command line, which overrides theirs.
    time: Option<TimeSpan>,
}

impl Scenarios {
    fn load(
        &self,
        path: AbsPath,
        load: impl FnOnce(&AbsPath) -> Result<Trial, CliError>,
    ) -> Result<Arc<Trial>, CliError> {
        // Whoever panicked with it left it whole.
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&path) {
            return Ok(Arc::clone(known));
        }
        let mut trial = load(&path)?;
        limit_time(&mut trial, self.time);
        let trial = Arc::new(trial);
        known.insert(path, Arc::clone(&trial));
        Ok(trial)
    }
}

/// Conversations that are held in memory at once.
const AT_ONCE: usize = 64;

/// Many recorded conversations, on all processors and told in their order.
fn read_many(
    args: &Args,
    surroundings: &Surroundings,
    paths: &[AbsPath],
    scenarios: &Scenarios,
    output: &Output,
) -> Vec<(ExitCode, Value)> {
    let mut out = Vec::new();
    for some in paths.chunks(AT_ONCE) {
        let read = at_once(some, |path| read(surroundings, path, scenarios));
        out.extend(some.iter().zip(read).map(|(path, read)| {
            let found = read.map(|read| tell_read(args, surroundings, path, &read, output));
            among_others(found, surroundings, ("tape", path), output)
        }));
    }
    out
}

/// The same work on each, on all processors.
fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(workers).max(1));
        let begun: Vec<_> =
            parts.map(|some| scope.spawn(move || some.iter().map(work).collect::<Vec<R>>())).collect();
        let end = |worker: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        begun.into_iter().flat_map(end).collect()
    })
}

/// A tape and its scenario.
fn opened(
    surroundings: &Surroundings,
    path: &AbsPath,
    (scenarios, load): (&Scenarios, impl FnOnce(&AbsPath) -> Result<Trial, CliError>),
) -> Result<(Tape, Arc<Trial>), CliError> {
    let tape = Tape::open(path).map_err(|error| unusable(&error))?;
    let scenario = scenario_of(path, &tape.head, surroundings).map_err(|error| not_found(&error))?;
    let trial = scenarios.load(scenario, load)?;
    Ok((tape, trial))
}

/// A recorded conversation that was read again.
struct Read {
    trial: Arc<Trial>,
    found: ReadAgain,
    /// The format of a cassette, where it was one.
    cassette: Option<u64>,
}

/// Reads a tape, or a recording of another tool, and judges it again.
fn read(surroundings: &Surroundings, path: &AbsPath, scenarios: &Scenarios) -> Result<Read, CliError> {
    if path.as_path().is_file() {
        let cassette = open_cassette(path, surroundings)?;
        let trial = Arc::new(cassette::scenario(&cassette, (path, &surroundings.shown(path)))?);
        let found = cassette::replay(&cassette, &trial)
            .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
        return Ok(Read { trial, found, cassette: Some(cassette.format) });
    }
    // Without anything that the scenario names: nothing of it is needed.
    let load = |file: &AbsPath| Ok(load_scenario_alone(surroundings, file)?);
    let (tape, trial) = opened(surroundings, path, (scenarios, load))?;
    let found = protocol::replay(&Arc::new(tape), &trial)
        .map_err(|error| CliError::from_chain(ExitCode::Unverified, &error))?;
    Ok(Read { trial, found, cassette: None })
}

fn tell_read(
    args: &Args,
    surroundings: &Surroundings,
    path: &AbsPath,
    read: &Read,
    output: &Output,
) -> (ExitCode, Value) {
    let Read { trial, found, cassette } = read;
    let (exit, mut value) = read_again(args, surroundings, path, trial, found, output);
    if let Some(format) = cassette {
        value["format"] = json!(format);
        value["notes"] = json!([cassette::UNSAID]);
        if !output.json && !args.quiet {
            output.say(&format!("note: {}\n", cassette::UNSAID));
        }
    }
    (exit, value)
}

pub(super) fn open_cassette(path: &AbsPath, surroundings: &Surroundings) -> Result<Cassette, CliError> {
    Cassette::open(path).map_err(|fault| {
        let exit = if fault.is_absence() { ExitCode::Unverified } else { ExitCode::Invalid };
        let error =
            CliError::new(exit, format!("the cassette `{}` cannot be used", surroundings.shown(path)));
        error.caused_by(&fault)
    })
}

pub(super) fn not_found(error: &FindError) -> CliError {
    let hint = match error {
        FindError::NoTape { .. } => "`belljar record` makes one",
        FindError::NoScenario { .. } => "a tape lies where it can find its scenario",
        FindError::Beyond { .. } => "`.git` or `belljar.toml` marks the directory that both belong to",
    };
    CliError::from_chain(ExitCode::Invalid, error).hint(hint)
}

pub(super) fn unusable(error: &TapeFailure) -> CliError {
    let exit = if error.fault.is_absence() { ExitCode::Unverified } else { ExitCode::Invalid };
    CliError::from_chain(exit, error).hint("record it again with `belljar record`")
}

/// The recorded conversation, read and judged again.
fn read_again(
    args: &Args,
    surroundings: &Surroundings,
    path: &AbsPath,
    trial: &Trial,
    found: &ReadAgain,
    output: &Output,
) -> (ExitCode, Value) {
    let mut exit = match &found.mismatch {
        Some(_) => ExitCode::Drifted,
        None => found.judgement.conclusion.exit(),
    };
    // Only where everything passes does it say something that nothing noticed.
    let mutations = (args.mutate && exit == ExitCode::Passed).then(|| mutate(&found.evidence, &trial.checks));
    if let Some(mutations) = &mutations {
        exit = match (mutations.tried, mutations.unnoticed.len()) {
            (0, _) => ExitCode::Unverified,
            (_, 0) => ExitCode::Passed,
            _ => ExitCode::Failed,
        };
    }
    let mut value = json!({
        "tape": path,
        "scenario": trial.scenario.name,
        "lane": "protocol",
        "conclusion": found.judgement.conclusion,
        "exit_code": exit.code(),
        "checks": found.judgement.checks,
        "signals": found.judgement.signals,
        "observations": found.observations,
        "mismatch": found.mismatch,
    });
    if args.mutate {
        value["mutations"] = json!(mutations);
    }
    if !output.json && (!args.quiet || exit != ExitCode::Passed) {
        let style = output.err_style();
        let shown = if args.verbose || args.explain { Shown::Everything } else { Shown::Failures };
        let mut text = render_judgement(&found.judgement, shown, style);
        if let Some(mismatch) = &found.mismatch {
            text.push_str(&format!(
                "{} observation {} is read differently\n    recorded: {}\n    present:  {}\n",
                style.removed("x"),
                mismatch.at,
                visible(mismatch.recorded.as_deref().unwrap_or("nothing")),
                visible(mismatch.present.as_deref().unwrap_or("nothing")),
            ));
        }
        text.push_str(&mutations.as_ref().map(|found| mutation_text(found, style)).unwrap_or_default());
        text.push_str(&format!("{}: {}\n", surroundings.shown(path), exit.meaning()));
        output.say(&text);
    }
    (exit, value)
}

/// What nobody would notice.
fn mutation_text(found: &Mutations, style: Style) -> String {
    let mut text = String::new();
    for Mutation { what, place, from, to } in &found.unnoticed {
        let place = if place.is_empty() { String::new() } else { format!(", {}", visible(place)) };
        text.push_str(&format!(
            "{} {what}{place}: {} became {}\n",
            style.removed("x"),
            visible(from),
            visible(to)
        ));
    }
    for path in &found.left_alone {
        text.push_str(&format!(
            "  {} was left alone: its content was not kept, or is no text\n",
            visible(path)
        ));
    }
    if found.tried == 0 {
        return text + "there is nothing on it that could be changed\n";
    }
    text + &format!("{} of {} changes were noticed\n", found.tried - found.unnoticed.len(), found.tried)
}

/// The real agent, with the recorded answers.
fn run_again(
    args: &Args,
    surroundings: &Surroundings,
    tape: Tape,
    (trial, consent): (&Trial, &Consent),
    output: &Output,
) -> Result<(ExitCode, Value), CliError> {
    let mut options = try_options(args)?;
    let on_drift = match args.on_drift {
        Drifting::Fail => OnDrift::Fail,
        Drifting::Continue => OnDrift::Continue,
        Drifting::Live => OnDrift::Live,
    };
    let pace = if args.timed { Pace::AsRecorded } else { Pace::Fast };
    let tape = Arc::new(tape);
    let model = ReplayModel::new(Arc::clone(&tape), on_drift, pace).map_err(|error| {
        CliError::from_chain(ExitCode::Invalid, &error).hint("a newer belljar may have it")
    })?;
    let detail = options.detail();
    let tried = trial
        .run(TrialRequest {
            surroundings,
            model: Model::Replay(model),
            walls: args.walls.asked(),
            consent,
            name: None,
            answering: options.answering(surroundings, LastWord::Nobody)?,
            then: Then::End,
            conversation: Conversation::Fresh,
            keep: if args.keep { Keep::Workspace } else { Keep::Changes },
            taping: Taping::Off,
            watch: &mut |event| show(event, detail, output),
        })
        .map_err(|error| failure(error, surroundings))?;
    let report = tried.report.replayed.clone().unwrap_or_default();
    let mut changed = tried.facts.changed_since(&tape.head, agent_version(&tried.run).as_deref());
    changed.extend(scenario_changes(trial, &tape.head));
    let exit = match report.is_faithful() {
        true => tried.judgement.conclusion.exit(),
        false => ExitCode::Drifted,
    };
    let mut value = result_json(trial, &tried);
    value["tape"] = json!(tape.directory());
    value["lane"] = json!("model");
    value["exit_code"] = json!(exit.code());
    value["replay"] = json!(report);
    value["changed"] = json!(changed);
    if !output.json {
        if exit != ExitCode::Passed || !args.quiet {
            output.say(&drift_text(&report, &changed, output.err_style()));
        }
        options.verbose |= args.explain;
        tell(trial, &tried, &options, surroundings, output);
    }
    Ok((exit, value))
}

/// Nobody who takes time answers in a replay.
fn try_options(args: &Args) -> Result<TryOptions, CliError> {
    let decider_timeout = patience("1s").map_err(|error| CliError::new(ExitCode::Bug, error.to_string()))?;
    Ok(TryOptions {
        answers: args.answers.clone(),
        answer_policy: None,
        decider_cmd: None,
        decider_dir: None,
        decider_llm: false,
        intent: None,
        decider_model: String::new(),
        decider_timeout,
        first: false,
        script: None,
        walls: WallsOptions::default(),
        agree: AgreeOptions::default(),
        max_cost_usd: None,
        timeout: args.timeout,
        keep: args.keep,
        quiet: args.quiet,
        verbose: args.verbose,
        json: args.json,
    })
}

/// How a replay went, for people.
fn drift_text(report: &ReplayReport, changed: &[Changed], style: Style) -> String {
    let mut text = String::new();
    for (at, drift) in report.drifts.iter().enumerate() {
        // What a conversation once contains it contains for good.
        let before = report.drifts[..at].iter().find(|earlier| {
            earlier.kind == drift.kind
                && !drift.differences.is_empty()
                && earlier.differences == drift.differences
        });
        text.push_str(&match before {
            Some(earlier) => {
                format!(
                    "  request {} differs in the same way as request {}\n",
                    drift.request, earlier.request
                )
            }
            None => one_drift(drift, style),
        });
    }
    if report.more_drifts > 0 {
        text.push_str(&format!("  and {} more\n", report.more_drifts));
    }
    // After a drift it is no news that the rest was not asked for.
    for left in report.unconsumed.iter().filter(|_| report.drifts.is_empty()) {
        let mark = style.removed("x");
        let line = format!(
            "{mark} exchange {} of {} was not asked for\n",
            left.exchange,
            visible(&left.conversation.to_string())
        );
        text.push_str(&line);
    }
    for Changed { what, recorded, present, .. } in changed {
        if !report.is_faithful() || what.contains("version") {
            text.push_str(&format!(
                "  {} was {} when it was recorded and is {}\n",
                visible(what),
                visible(recorded),
                visible(present)
            ));
        }
    }
    let drifts = report.drifts.len() as u64 + report.more_drifts;
    text.push_str(&format!(
        "replayed {} of {} exchanges, {drifts} drifted, {} not asked for\n",
        report.exact,
        report.exchanges,
        report.unconsumed.len()
    ));
    text
}

fn one_drift(drift: &Drift, style: Style) -> String {
    let nearest = drift.nearest.map_or("nothing like it was recorded".to_owned(), |seq| {
        format!("compared with exchange {seq}, the nearest")
    });
    let mut text = format!(
        "{} {} in {}, request {}; {nearest}\n",
        style.removed("x"),
        drift.kind.words(),
        visible(&drift.conversation.to_string()),
        drift.request
    );
    if !drift.covered_by.is_empty() {
        text.push_str(&format!(
            "  recorded with --normalise {} it would match\n",
            visible(&drift.covered_by.join(" --normalise "))
        ));
    }
    for difference in &drift.differences {
        let value = |value: &Option<String>| {
            let shown = value.as_ref().map(|value| visible_lines(value, "              "));
            shown.unwrap_or_else(|| "nothing".to_owned())
        };
        text.push_str(&format!("    {}\n", visible(&difference.pointer)));
        text.push_str(&format!("    recorded: {}\n", value(&difference.recorded)));
        text.push_str(&format!("    present:  {}\n", value(&difference.present)));
        if difference.agents_words {
            text.push_str("    the agent's own words, of which a tape has the digest only\n");
        }
        if let Some(call) = &difference.call {
            text.push_str(&format!(
                "    from the call {} {} ({})\n",
                visible(&call.name),
                visible(&call.input.to_string()),
                visible(&call.id.to_string())
            ));
        }
    }
    if drift.more > 0 {
        text.push_str(&format!("    and {} more differences\n", drift.more));
    }
    text
}
