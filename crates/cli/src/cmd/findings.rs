use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, Finding, GuestAct, HeldBack, UtcTime, visible};
use belljar_report::{FindingsShown, render_findings};
use belljar_runner::{FindingsEntry, FindingsError, FindingsStore, HostEnvironment};
use serde_json::json;

/// List what a run left in the project that your machine may execute
///
/// The report at the end of `run`, `exec` and `shell` shows the most dangerous part; this lists everything, one entry a
/// line: files that git, a shell, an editor or an agent would run, links that lead out of the project, devices and pipes.
/// First come files that no build writes, then links, then files that builds write too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar findings\n  $ belljar findings --json\n")]
pub struct FindingsArgs {
    /// Run to list, by its id, the beginning of it, or the name in its report [default: the last one in this project]
    run: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for FindingsArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &FindingsArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let failed = |error: FindingsError| CliError::from_chain(ExitCode::Invalid, &error);
    let store = FindingsStore::new(&environment.state);
    let mut list = store.list().map_err(failed)?;
    let found = match &args.run {
        Some(name) => {
            let is_meant = |entry: &FindingsEntry| {
                let id = entry.name.rsplit_once('-').map_or("", |(_, id)| id);
                entry.name.ends_with(name.as_str()) || id.starts_with(name.as_str())
            };
            list.retain(is_meant);
            let Some(entry) = list.pop() else {
                return Err(CliError::new(ExitCode::Invalid, format!("no findings of a run `{name}`"))
                    .hint("the end of a run names its findings; `belljar gc` deletes old ones"));
            };
            let found = store.read(&entry).map_err(failed)?;
            Some((entry, found))
        }
        None => last_here(&store, list, environment, output),
    };
    let Some((entry, found)) = found else {
        if output.json {
            output.envelope(&Envelope::new("findings", ExitCode::Passed, json!({"run": null, "items": []})));
        } else {
            output.say("no findings are kept for this project (lists older than 30 days are deleted)");
        }
        return Ok(ExitCode::Passed);
    };
    if output.json {
        let data = json!({
            "run": entry.name,
            "file": entry.path,
            "agent": found.agent,
            "project": found.project,
            "at_ms": found.at_ms,
            "items": found.items,
            "held": found.held,
            "dropped": found.dropped,
        });
        output.envelope(&Envelope::new("findings", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    let shown = |path: &_| environment.shown(path);
    output.say(&format!("{}, {} UTC", entry.name, UtcTime::from_unix_ms(found.at_ms)));
    output.result(&render_findings(&found.items, &shown, FindingsShown::All, output.out_style()));
    for HeldBack { path, act, why } in &found.held {
        output.result(&format!("{}\n", held_line(path, *act, why, environment)));
    }
    if found.dropped > 0 {
        output.say(&format!("belljar: {} more were not kept: too many", found.dropped));
    }
    Ok(ExitCode::Passed)
}

/// The newest list of the project that belljar is started in. A list that cannot be read may be any project's: it is named
/// and passed over.
fn last_here(
    store: &FindingsStore,
    list: Vec<FindingsEntry>,
    environment: &HostEnvironment,
    output: &Output,
) -> Option<(FindingsEntry, belljar_contract::Findings)> {
    for entry in list.into_iter().rev() {
        match store.read(&entry) {
            Ok(found) if environment.directory.is_within(&found.project) => return Some((entry, found)),
            Ok(_of_another) => {}
            Err(error) => output.say(&format!("belljar: {}", belljar_contract::with_causes(&error))),
        }
    }
    None
}

/// The report at the end of a run.
pub fn report(found: &[Finding], name: Option<&str>, environment: &HostEnvironment, output: &Output) {
    if found.is_empty() {
        return;
    }
    let all = name.map(|name| format!("belljar findings {name}"));
    let shown = |path: &_| environment.shown(path);
    let how = FindingsShown::Short { all: all.as_deref() };
    output.say(&render_findings(found, &shown, how, output.err_style()));
}

/// Attempts that are listed at the end of a run.
const HELD_SHOWN: usize = 20;

/// One attempt to make or change a file that this machine would execute.
pub fn held_line(path: &AbsPath, act: GuestAct, why: &str, environment: &HostEnvironment) -> String {
    format!("belljar: held back: {} {}: {}", act.word(), environment.shown(path), visible(why))
}

/// Prints the attempts that were held back while the command had the terminal.
pub fn report_held(held: &[String], output: &Output) {
    for line in held.iter().take(HELD_SHOWN) {
        output.say(line);
    }
    if held.len() > HELD_SHOWN {
        output.say(&format!("belljar: {} more were held back", held.len() - HELD_SHOWN));
    }
}
