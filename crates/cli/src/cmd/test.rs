use super::trying::{Plays, TryOptions, result_json};
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, Envelope, ExitCode, visible, visible_lines};
use belljar_runner::Surroundings;
use belljar_runner::tape::Taping;
use belljar_runner::trial::{
    Job, SuiteNews, SuiteRequest, Trial, TrialUse, WorkerOutcome, end_with_input, run_suite,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Run scenarios against the real agent and judge what it did
///
/// Each scenario gets a sandbox and a workspace of its own. Several run at once; one bad file does not stop the others.
/// The status is 0 when everything passed, 1 when a check failed, 5 when the agent failed, 3 when evidence is missing,
/// 2 when a file is not valid, 4 when this machine cannot honour a plan.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar test --scripted scenarios/\n  $ belljar test --list .\n")]
pub struct Args {
    /// Scenario files, or folders in which they are looked for
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only scenarios whose path contains this
    #[arg(short = 'k', value_name = "TEXT")]
    filter: Option<String>,
    /// How many at once; by default twice the processors
    #[arg(short, long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Begin nothing more when one did not pass
    #[arg(long)]
    fail_fast: bool,
    /// Run each so many times
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Play the script beside each scenario, NAME.script.json, in the model's place
    #[arg(long, conflicts_with = "script")]
    scripted: bool,
    /// List what would be run, and run nothing
    #[arg(long)]
    list: bool,
    /// Ended by the end of standard input
    #[arg(long, hide = true)]
    worker: bool,
    #[command(flatten)]
    pub options: TryOptions,
}

/// What one run of a scenario gave.
struct Row {
    name: String,
    exit: ExitCode,
    value: Value,
}

pub fn run(args: &Args, surroundings: &Surroundings, output: &Output) -> Result<ExitCode, CliError> {
    if args.worker {
        end_with_input().map_err(|error| CliError::from_chain(ExitCode::Bug, &error))?;
    }
    let files = scenario_files(&args.paths, args.filter.as_deref(), surroundings)?;
    if args.list {
        return list(&files, surroundings, output);
    }
    let rows = match files.as_slice() {
        [file] if args.repeat == 1 => vec![alone(args, surroundings, file, output)?],
        _ => together(args, surroundings, &files, output)?,
    };
    let exit = worst(rows.iter().map(|row| row.exit));
    if output.json {
        let passed = rows.iter().filter(|row| row.exit == ExitCode::Passed).count();
        let results: Vec<&Value> = rows.iter().map(|row| &row.value).collect();
        let data = json!({"results": results, "passed": passed, "failed": rows.len() - passed});
        output.envelope(&Envelope::new("test", exit, data));
    }
    Ok(exit)
}

/// The scenario files that the arguments mean, sorted, each once.
pub(super) fn scenario_files(
    paths: &[PathBuf],
    filter: Option<&str>,
    surroundings: &Surroundings,
) -> Result<Vec<AbsPath>, CliError> {
    let mut out = Vec::new();
    for path in paths {
        let path = TryOptions::path(surroundings, path)?;
        match std::fs::metadata(&path) {
            Err(cause) => return Err(CliError::io(format!("cannot read `{path}`"), cause)),
            Ok(found) if found.is_dir() => below(&path, 0, &mut out),
            Ok(_) => out.push(path),
        }
    }
    out.sort();
    out.dedup();
    if let Some(wanted) = filter {
        out.retain(|path| surroundings.shown(path).contains(wanted));
    }
    if out.is_empty() {
        return Err(CliError::new(ExitCode::Invalid, "there is no scenario to run")
            .hint("a scenario is a `.yaml` file with a `prompt`"));
    }
    Ok(out)
}

/// Files with a `prompt` of their own: a folder of scenarios holds sessions and answer policies as well.
fn below(folder: &AbsPath, depth: u32, out: &mut Vec<AbsPath>) {
    const DEEPEST: u32 = 8;
    // A folder that cannot be read holds nothing that could be run.
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (Ok(kind), Ok(path)) = (entry.file_type(), AbsPath::new(entry.path())) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && depth < DEEPEST && !name.starts_with('.') && name != "node_modules" {
            below(&path, depth + 1, out);
        } else if kind.is_file() && (name.ends_with(".yaml") || name.ends_with(".yml")) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.lines().any(|line| line.starts_with("prompt:")) {
                out.push(path);
            }
        }
    }
}

fn list(files: &[AbsPath], surroundings: &Surroundings, output: &Output) -> Result<ExitCode, CliError> {
    if output.json {
        let data = json!({"scenarios": files});
        output.envelope(&Envelope::new("test", ExitCode::Passed, data));
    } else {
        let lines: Vec<String> = files.iter().map(|path| format!("{}\n", surroundings.shown(path))).collect();
        output.result(&lines.concat());
    }
    Ok(ExitCode::Passed)
}

/// One scenario, in this process, with everything it says.
fn alone(args: &Args, surroundings: &Surroundings, file: &AbsPath, output: &Output) -> Result<Row, CliError> {
    let plays = Plays::scripted(args.scripted);
    let options = &args.options;
    let trial = options.load((file, plays), surroundings, output)??;
    let consent = options.consent([&trial], TrialUse::Run, surroundings, output)?;
    let tried = options.try_scenario(&trial, (plays, &consent), Taping::Off, surroundings, output)?;
    let exit = tried.judgement.conclusion.exit();
    Ok(Row { name: trial.scenario.name.clone(), exit, value: result_json(&trial, &tried) })
}

/// Many scenarios, each in a belljar of its own.
fn together(
    args: &Args,
    surroundings: &Surroundings,
    files: &[AbsPath],
    output: &Output,
) -> Result<Vec<Row>, CliError> {
    if args.options.decider_cmd.is_some() || args.options.decider_dir.is_some() {
        return Err(CliError::new(ExitCode::Invalid, "one decider cannot answer several scenarios at once")
            .hint("name one scenario, or write answers into the scenarios"));
    }
    let agreed = agree(args, surroundings, files, output)?;
    let names: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let shown = surroundings.shown(file);
            (1..=args.repeat).map(move |time| match time {
                1 => shown.clone(),
                _ => format!("{shown} #{time}"),
            })
        })
        .collect();
    let repeated = files.iter().flat_map(|file| (0..args.repeat).map(move |_| file));
    let jobs = repeated.zip(&names).map(|(file, name)| Job {
        name: name.clone(),
        arguments: worker(args, file, agreed.get(file).copied()),
    });
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let request = SuiteRequest {
        program: env::own()?.as_path().to_owned(),
        jobs: jobs.collect(),
        at_once: args.jobs.unwrap_or(processors * 2),
        fail_fast: args.fail_fast,
    };
    let mut display = Display {
        output,
        names: &names,
        quiet: args.options.quiet,
        running: BTreeMap::new(),
        rows: Vec::new(),
    };
    let never = run_suite(&request, &mut |news| display.take(news))
        .map_err(|error| CliError::from_chain(ExitCode::Bug, &error))?;
    let Display { mut rows, .. } = display;
    rows.sort_by_key(|(job, _)| *job);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    summary(&rows, never, output);
    Ok(rows)
}

/// Has the user agree to what all scenarios ask for; gives the digest for each that asks for something. A file that
/// cannot be read is reported by its own worker, which has no agreement then.
fn agree(
    args: &Args,
    surroundings: &Surroundings,
    files: &[AbsPath],
    output: &Output,
) -> Result<BTreeMap<AbsPath, Digest>, CliError> {
    let options = &args.options;
    let plays = Plays::scripted(args.scripted);
    let mut loaded: Vec<(&AbsPath, Trial)> = Vec::new();
    for file in files {
        loaded.extend(options.load((file, plays), surroundings, output)?.ok().map(|trial| (file, trial)));
    }
    let trials = loaded.iter().map(|(_, trial)| trial);
    let consent = options.consent(trials, TrialUse::Run, surroundings, output)?;
    // What was shown, not what the files ask for by now.
    let agreed =
        |(file, trial): &(&AbsPath, Trial)| Some(((*file).clone(), consent.digest_for(&trial.scope.suite)?));
    Ok(loaded.iter().filter_map(agreed).collect())
}

/// A worker agrees to the digest that the user agreed to: what changed in between is refused.
fn worker(args: &Args, file: &AbsPath, agreed: Option<Digest>) -> Vec<OsString> {
    let options = &args.options;
    let mut words: Vec<OsString> = vec!["test".into(), "--json".into(), "--worker".into()];
    let mut flag = |name: &str, value: &OsString| words.extend([name.into(), value.clone()]);
    options.answers.iter().for_each(|answer| flag("--answer", &answer.into()));
    if let Some(policy) = &options.answer_policy {
        flag("--answer-policy", &policy.into());
    }
    if let Some(script) = &options.script {
        flag("--script", &script.into());
    }
    if let Some(cost) = options.max_cost_usd {
        flag("--max-cost-usd", &cost.to_string().trim_start_matches('$').into());
    }
    if let Some(digest) = agreed {
        flag("--agree-to", &digest.to_string().into());
    }
    if let Some(time) = options.timeout {
        flag("--timeout", &time.to_string().into());
    }
    if let Some(backend) = options.walls.backend {
        flag("--backend", &backend.name().into());
    }
    if let Some(image) = &options.walls.image {
        flag("--image", &image.as_str().into());
    }
    if options.decider_llm {
        flag("--decider-model", &(&options.decider_model).into());
        flag("--decider-timeout", &options.decider_timeout.to_string().into());
        if let Some(intent) = &options.intent {
            flag("--intent", &intent.into());
        }
        words.push("--decider-llm".into());
    }
    words.extend(options.first.then(|| "--first".into()));
    words.extend(args.scripted.then(|| "--scripted".into()));
    words.extend(options.keep.then(|| "--keep".into()));
    words.push(file.as_path().into());
    words
}

/// What a person sees while scenarios run: a line for each that ended, and on a terminal one that says what goes on.
struct Display<'a> {
    output: &'a Output,
    names: &'a [String],
    quiet: bool,
    running: BTreeMap<usize, std::time::Instant>,
    rows: Vec<(usize, Row)>,
}

impl Display<'_> {
    fn take(&mut self, news: SuiteNews) {
        match news {
            SuiteNews::Began { job } => {
                self.running.insert(job, std::time::Instant::now());
            }
            SuiteNews::Ended { job, outcome } => {
                self.running.remove(&job);
                let row = row(&self.names[job], outcome);
                self.clear();
                if !self.output.json && (!self.quiet || row.exit != ExitCode::Passed) {
                    self.output.say(&told(&row, self.quiet, self.output));
                }
                self.rows.push((job, row));
            }
            SuiteNews::Tick => {}
            SuiteNews::Stopping => {
                self.clear();
                self.output.say("belljar: stopping; what has begun is ended");
            }
        }
        self.status();
    }

    fn live(&self) -> bool {
        !self.output.json && !self.quiet && std::io::stderr().is_terminal()
    }

    fn clear(&self) {
        if self.live() {
            self.output.paint("");
        }
    }

    fn status(&self) {
        if !self.live() || self.running.is_empty() {
            return;
        }
        let oldest = self.running.iter().min_by_key(|(_, since)| **since);
        let (name, seconds) = oldest
            .map(|(job, since)| (self.names[*job].as_str(), since.elapsed().as_secs()))
            .unwrap_or_default();
        let (done, all, running) = (self.rows.len(), self.names.len(), self.running.len());
        self.output.paint(&format!("{done}/{all} done, {running} running, {name} for {seconds} s"));
    }
}

fn row(name: &str, outcome: WorkerOutcome) -> Row {
    let WorkerOutcome { status, output, complaints, duration } = outcome;
    let envelope: Value = serde_json::from_slice(&output).unwrap_or_default();
    let exit =
        status.and_then(|status| ExitCode::ALL.into_iter().find(|code| i32::from(code.code()) == status));
    let exit = exit.unwrap_or(ExitCode::AgentFailed);
    let mut value = envelope["data"]["results"][0].clone();
    if !value.is_object() {
        // It did not take place: the envelope says why, or what was told to people does.
        value = json!({
            "scenario": name,
            "conclusion": null,
            "exit_code": exit.code(),
            "error": envelope.get("error").cloned().unwrap_or_else(|| json!({"message": complaints})),
            "diagnostics": envelope.get("diagnostics").cloned().unwrap_or_default(),
        });
    }
    value["took_ms"] = json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    Row { name: name.to_owned(), exit, value }
}

fn told(row: &Row, quiet: bool, output: &Output) -> String {
    let style = output.err_style();
    let took = row.value["took_ms"].as_u64().map(belljar_runner::report::seconds).unwrap_or_default();
    if row.exit == ExitCode::Passed {
        return format!("{} {} {}", style.added("passed"), row.name, style.dim(&took));
    }
    let mut text = format!("{} {} {}\n", style.removed(row.exit.meaning()), row.name, style.dim(&took));
    let lines = |text: &mut String, list: &Value, mark: &dyn Fn(&Value) -> Option<String>| {
        for line in list.as_array().into_iter().flatten().filter_map(mark) {
            text.push_str(&format!("    {line}\n"));
        }
    };
    lines(&mut text, &row.value["checks"], &|check| {
        let failed = check["outcome"] != "pass";
        failed.then(|| format!("{}: {}", text_of(&check["check"]), text_of(&check["message"])))
    });
    lines(&mut text, &row.value["signals"], &|signal| {
        let weighs = signal["weight"] != "warn";
        weighs.then(|| format!("{}: {}", text_of(&signal["code"]), text_of(&signal["message"])))
    });
    lines(&mut text, &row.value["diagnostics"], &|found| {
        let (place, message) = (&found["place"], visible(found["message"].as_str()?));
        Some(format!("{}:{}: {message}", text_of(&place["file"]), place["line"]))
    });
    if let Some(message) = row.value["error"]["message"].as_str() {
        text.push_str(&format!("    {}\n", visible_lines(message.trim_end(), "        ")));
        lines(&mut text, &row.value["error"]["causes"], &|cause| {
            Some(format!("caused by: {}", visible(cause.as_str()?)))
        });
    }
    if !quiet {
        lines(&mut text, &row.value["moment"], &|line| {
            Some(style.dim(&format!("| {}", visible(line.as_str()?))))
        });
    }
    if let Some(folder) = row.value["folder"].as_str() {
        text.push_str(&format!("    {}\n", style.dim(&visible(folder))));
    }
    text
}

/// The text of a value, safe to print on a line.
fn text_of(value: &Value) -> Cow<'_, str> {
    visible(value.as_str().unwrap_or_default())
}

fn summary(rows: &[Row], never: usize, output: &Output) {
    if output.json {
        return;
    }
    let passed = rows.iter().filter(|row| row.exit == ExitCode::Passed).count();
    let mut text = format!("{passed} passed, {} not", rows.len() - passed);
    if never > 0 {
        text.push_str(&format!(", {never} never began"));
    }
    let cost: u64 = rows.iter().filter_map(|row| row.value["metrics"]["cost_micros_usd"].as_u64()).sum();
    if cost > 0 {
        text.push_str(&format!(", {}", belljar_runner::report::dollars(cost)));
    }
    let told: BTreeSet<&str> = rows.iter().filter_map(|row| row.value["notice"].as_str()).collect();
    for notice in told {
        text.push_str(&format!("\n{}", output.err_style().warn(&visible(notice))));
    }
    output.say(&text);
}

/// One status for many: what a person must look at first.
pub(super) fn worst(exits: impl Iterator<Item = ExitCode>) -> ExitCode {
    let order = [
        ExitCode::Bug,
        ExitCode::Failed,
        ExitCode::AgentFailed,
        ExitCode::Budget,
        ExitCode::Drifted,
        ExitCode::Unverified,
        ExitCode::Unsupported,
        ExitCode::Invalid,
    ];
    let found: Vec<ExitCode> = exits.filter(|exit| *exit != ExitCode::Passed).collect();
    order.into_iter().find(|code| found.contains(code)).unwrap_or(match found.first() {
        Some(other) => *other,
        None => ExitCode::Passed,
    })
}
