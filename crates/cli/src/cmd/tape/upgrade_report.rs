use crate::cmd::agent_options::AgentOptions;
use crate::cmd::agree::{AgreeOptions, Agreeing, shell_word};
use crate::cmd::dotenv_options::DotenvOptions;
use crate::cmd::many::{self, ManyOptions, Suite};
use crate::cmd::replay::opened;
use crate::cmd::scenario_options::{TryOptions, dollars, patience, say_skipped, untracked};
use crate::cmd::start::SandboxOptions;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{
    AbsPath, Digest, Envelope, ExitCode, PathUse, RecordAgain, TimeSpan, UpgradeReport, Usd,
};
use belljar_report::{render_upgrade, upgrade_html};
use belljar_runner::suite::{JobResult, SuiteOutcome, SuiteVerb, Trial, TrialUse, script_beside, selected};
use belljar_runner::tape::{Scenarios, not_replayed, upgrade_report};
use belljar_runner::{AgreementStanding, Agreements, HostEnvironment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Replay tapes on another version of the agent, and report what moved
///
/// For each tape: whether it replays with the verdict of its recording, or where it drifts; the requests, and the size of
/// the agent's own prompt and tools. Then what the other version sends otherwise, each difference once, and the recordings
/// that should be made again, with the command that does so. The status is 0 if every tape replays with its verdict, 1 if a
/// verdict changed, and 7 if one drifted. With --record-again these recordings are made again at once; what was made again
/// is not counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape upgrade-report --html upgrade.html scenarios\n  \
    $ belljar tape upgrade-report --json -k hello scenarios\n")]
pub struct TapeUpgradeReportArgs {
    /// Tapes, or directories to search for them
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    many: ManyOptions,
    /// Also write the report to this file, as a self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Record again what drifted, has another verdict or is stale; needs --max-cost-usd
    #[arg(long, requires = "max_cost_usd")]
    record_again: bool,
    /// With --record-again: refuse requests that would make one recording cost more than this
    #[arg(long, value_name = "DOLLARS", value_parser = dollars, requires = "record_again")]
    max_cost_usd: Option<Usd>,
    /// With --record-again: take the script beside each scenario, NAME.script.json, as the model
    #[arg(long, requires = "record_again")]
    scripted: bool,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    agent: AgentOptions,
    #[command(flatten)]
    agree: AgreeOptions,
    #[command(flatten)]
    pub dotenv: DotenvOptions,
    /// End a run after this time, overriding the scenario [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience, hide_short_help = true)]
    timeout: Option<TimeSpan>,
    /// Stage files of skills and plugins that git does not track, for tapes that were recorded so
    #[arg(long, hide_short_help = true)]
    include_untracked: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

type Agreed = BTreeMap<AbsPath, Digest>;

/// The scenarios of the tapes that can be opened.
type Loaded<'a> = Vec<(&'a AbsPath, Arc<Trial>)>;

pub fn run(
    args: &TapeUpgradeReportArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    args.many.begin()?;
    let tapes = super::tapes(&args.paths, environment)?;
    for path in TryOptions::paths(environment, &args.paths)? {
        say_skipped(&not_replayed(&path, &tapes, environment), environment, output);
    }
    let tapes = selected(tapes, args.many.filter.as_deref(), ("tapes", environment))?;
    if args.many.list {
        return Ok(many::list(SuiteVerb::Replay, (&tapes, &[]), environment, output));
    }
    let (loaded, replays) = args.agreed(&tapes, TrialUse::RunOffline, environment, output)?;
    let recordings = match args.record_again {
        true => args.agreed(&tapes, TrialUse::Run, environment, output)?.1,
        false => Agreed::new(),
    };
    let html = args.html.as_ref().map(|path| page(path, environment)).transpose()?;
    let outcome = args.together((SuiteVerb::Replay, &tapes, &replays), environment, output)?;
    let agreements = Agreements::new(&environment.config);
    let permit =
        |wishes: &_| args.agree.yes || matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed));
    let agent = args.agent.asked().map(|choice| choice.release.to_string());
    let mut report = upgrade_report((&tapes, &outcome), agent, environment, &permit);
    if args.record_again && !report.interrupted && !report.record_again.is_empty() {
        let files: Vec<AbsPath> = report.record_again.iter().map(|again| again.tape.clone()).collect();
        let recorded = args.together((SuiteVerb::Refresh, &files, &recordings), environment, output)?;
        note_recorded(&mut report, &recorded);
    }
    report.commands = args.commands(&report, &loaded, environment);
    print(&report, html, environment, output)
}

/// Opens the file of the page, before anything is replayed.
fn page(path: &PathBuf, environment: &HostEnvironment) -> Result<(File, String), CliError> {
    let path = TryOptions::path(environment, path)?;
    let opened = File::options().write(true).create(true).truncate(false).open(&path);
    let shown = environment.shown(&path);
    let file = opened.map_err(|cause| CliError::io(format!("cannot write `{shown}`"), cause))?;
    Ok((file, shown))
}

fn print(
    report: &UpgradeReport,
    html: Option<(File, String)>,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let (exit, shown) = (report.exit(), |path: &AbsPath| environment.shown(path));
    let written = html.map_or(Ok(()), |(mut file, name)| {
        let text = upgrade_html(report, &shown);
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|cause| CliError::io(format!("cannot write `{name}`"), cause))
    });
    if let Err(error) = written {
        // The report is not lost with its page.
        output.result(&render_upgrade(report, &shown, output.out_style()));
        return Err(error);
    }
    if output.json {
        output.envelope(&Envelope::new("tape", exit, json!(report)));
    } else {
        output.result(&render_upgrade(report, &shown, output.out_style()));
    }
    Ok(exit)
}

/// Adds what became of the recordings, which began in their order.
fn note_recorded(report: &mut UpgradeReport, recorded: &SuiteOutcome) {
    let before: BTreeMap<&AbsPath, u8> =
        report.results.iter().map(|tape| (&tape.tape, tape.exit_code)).collect();
    for (again, JobResult { exit, row, run: _ }) in report.record_again.iter_mut().zip(&recorded.jobs) {
        let error = row["error"].as_str().or(row["not_recorded"]["why"].as_str());
        again.status = Some(exit.code());
        again.error = error.map(|why| why.trim().to_owned());
        if *exit == ExitCode::Passed && row["refreshed"] != true {
            again.status = before.get(&again.tape).copied();
            again.error = Some("nothing that it was recorded with has changed".to_owned());
        }
        let meanwhile: Vec<&str> =
            row["changed_meanwhile"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !meanwhile.is_empty() {
            again.status = Some(exit.code().max(ExitCode::Unverified.code()));
            again.error = Some(format!("stale, changed while it was recorded: {}", meanwhile.join("; ")));
        }
    }
    report.interrupted |= recorded.end.interrupted;
}

impl TapeUpgradeReportArgs {
    /// Has the user agree to what the scenarios of all tapes ask for. A tape that cannot be used is reported by its worker.
    fn agreed<'t>(
        &self,
        tapes: &'t [AbsPath],
        used_for: TrialUse,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<(Loaded<'t>, Agreed), CliError> {
        let sandbox = self.sandbox.asked();
        let agreeing = Agreeing { options: &self.agree, sandbox: &sandbox, used_for, environment, output };
        let scenarios = Scenarios::within(self.timeout);
        let scripted = self.scripted && used_for == TrialUse::Run;
        let change = |trial: Trial| {
            let mut trial = Trial { untracked: untracked(self.include_untracked), ..trial };
            let script = trial.file.as_ref().filter(|_| scripted).map(script_beside);
            script.into_iter().for_each(|script| trial.reads(PathUse::Script, script));
            trial
        };
        let load = |tape| Some((tape, opened(tape, &agreeing, &scenarios, &change).ok()?.1));
        let loaded: Loaded<'t> = tapes.iter().filter_map(load).collect();
        let asked = self.agent.asked();
        let wanted = loaded.iter().filter_map(|(_, trial)| trial.release(asked.as_ref()));
        self.agent.ready(wanted, environment, output)?;
        let consent = agreeing.ask(loaded.iter().map(|(_, trial)| &**trial))?;
        let agreed = many::agreed(&consent, loaded.iter().map(|(tape, trial)| (*tape, &**trial)));
        Ok((loaded, agreed))
    }

    /// Replays or records many tapes, each in a belljar of its own.
    fn together(
        &self,
        (verb, files, agreed): (SuiteVerb, &[AbsPath], &Agreed),
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<SuiteOutcome, CliError> {
        let suite = Suite {
            verb,
            files,
            times: 1,
            many: &self.many,
            deciders: None,
            quiet: false,
            worker: &|tape, _questions| self.for_worker(verb, agreed.get(tape).copied()),
            print: &|_tape, _job| {},
            environment,
            output,
        };
        suite.run()
    }

    /// The options for the worker of one tape, which agrees to what the user agreed to.
    fn for_worker(&self, verb: SuiteVerb, agreed: Option<Digest>) -> Vec<OsString> {
        let Self {
            paths: _,
            many: _,
            html: _,
            record_again: _,
            max_cost_usd,
            scripted,
            sandbox,
            agent,
            agree: _,
            dotenv,
            timeout,
            include_untracked,
            json: _,
        } = self;
        let mut out = sandbox.arguments();
        out.extend(agent.arguments());
        out.extend(dotenv.arguments());
        let mut flag = |name: &str, value: OsString| out.extend([name.into(), value]);
        timeout.iter().for_each(|time| flag("--timeout", time.to_string().into()));
        agreed.iter().for_each(|digest| flag("--agree-to", digest.to_string().into()));
        let records = verb == SuiteVerb::Refresh;
        let cost = |cost: &Usd| cost.to_string().trim_start_matches('$').into();
        max_cost_usd.iter().filter(|_| records).for_each(|usd| flag("--max-cost-usd", cost(usd)));
        out.extend((records && *scripted).then(|| "--scripted".into()));
        out.extend(include_untracked.then(|| "--include-untracked".into()));
        out
    }

    /// The lines that make the recordings again: those with a script by it, the others with the model.
    fn commands(
        &self,
        report: &UpgradeReport,
        loaded: &Loaded<'_>,
        environment: &HostEnvironment,
    ) -> Vec<String> {
        let has_script = |again: &&RecordAgain| {
            let trial = loaded.iter().find(|(tape, _)| **tape == again.tape);
            let file = trial.and_then(|(_, trial)| trial.file.as_ref());
            file.is_some_and(|file| script_beside(file).as_path().is_file())
        };
        let left = report.record_again.iter().filter(|again| again.status != Some(0));
        let (scripted, live): (Vec<&RecordAgain>, Vec<&RecordAgain>) = left.partition(has_script);
        let agent =
            self.agent.asked().map(|choice| format!(" --agent {}", choice.release)).unwrap_or_default();
        let line = |(option, tapes): (&str, Vec<&RecordAgain>)| {
            let word = |again: &RecordAgain| shell_word(&again.tape, &environment.shown(&again.tape));
            let words: Vec<String> = tapes.into_iter().filter_map(word).collect();
            let line = format!("belljar tape refresh{option}{agent} {}", words.join(" "));
            (!words.is_empty()).then_some(line)
        };
        [(" --scripted", scripted), ("", live)].into_iter().filter_map(line).collect()
    }
}
