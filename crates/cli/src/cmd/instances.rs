use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, UtcTime};
use belljar_report::{human_size, render_table};
use belljar_runner::{About, HostEnvironment, InstanceEntry, Instances, LayerEntry, ProjectState};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// List what is kept for each project: history, memory, changes
///
/// An instance belongs to one project and is shared by all its worktrees. `belljar gc` removes those whose project is
/// gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar instances\n  $ belljar instances --json\n")]
pub struct InstancesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for InstancesArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(_args: &InstancesArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let list = Instances::new(&environment.data).list()?;
    if output.json {
        let data = json!({"instances": list.iter().map(machine).collect::<Vec<_>>()});
        output.envelope(&Envelope::new("instances", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    if list.is_empty() {
        output.say("There are no instances yet; the first run in a project makes one.");
        return Ok(ExitCode::Passed);
    }
    let rows: Vec<Vec<String>> = list.iter().map(|entry| person(entry, environment)).collect();
    let headings = ["instance", "project", "size", "last use (UTC)", ""];
    output.result(&render_table(&headings, &rows, output.out_style()));
    Ok(ExitCode::Passed)
}

fn person(entry: &InstanceEntry, environment: &HostEnvironment) -> Vec<String> {
    let InstanceEntry { key, directory: _, root, project, size, last_used, in_use, kept } = entry;
    let mut notes = Vec::new();
    if *in_use {
        notes.push("in use".to_owned());
    }
    match project {
        ProjectState::Present => {}
        ProjectState::Gone => notes.push("the project is gone".to_owned()),
        ProjectState::Unknown(why) => notes.push(why.clone()),
    }
    let names = kept.iter().filter(|layer| !layer.is_empty()).map(layer_words);
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        notes.push(format!("changes kept: {}", names.join(", ")));
    }
    let more = if size.whole { "" } else { "more than " };
    vec![
        key.to_string(),
        root.as_ref().map_or_else(|| "?".to_owned(), |root| environment.shown_from_home(root)),
        format!("{more}{}", human_size(size.bytes)),
        last_used
            .and_then(unix_ms)
            .map_or_else(|| "never".to_owned(), |ms| UtcTime::from_unix_ms(ms).to_string()),
        notes.join(", "),
    ]
}

fn machine(entry: &InstanceEntry) -> Value {
    let InstanceEntry { key, directory, root, project, size, last_used, in_use, kept } = entry;
    let (state, why) = match project {
        ProjectState::Present => ("present", None),
        ProjectState::Gone => ("gone", None),
        ProjectState::Unknown(why) => ("unknown", Some(why)),
    };
    json!({
        "key": key,
        "directory": directory,
        "root": root,
        "project": state,
        "project_unknown_because": why,
        "bytes": size.bytes,
        "bytes_counted_whole": size.whole,
        "last_used_ms": last_used.and_then(unix_ms),
        "in_use": in_use,
        "kept": kept.iter().filter(|layer| !layer.is_empty()).map(layer_machine).collect::<Vec<_>>(),
    })
}

/// The name by which `diff`, `apply` and `discard` know a set of changes.
fn layer_words(layer: &LayerEntry) -> String {
    let LayerEntry { name, directory: _, about: _, in_use } = layer;
    if in_use.is_some() { format!("{name} (in use)") } else { name.to_string() }
}

fn layer_machine(layer: &LayerEntry) -> Value {
    let LayerEntry { name, directory, about, in_use } = layer;
    let About { agent, mode, source, repository } = about;
    json!({
        "layer": name, "directory": directory, "agent": agent, "workspace": mode, "project": source,
        "repository": repository, "in_use_by": in_use.as_ref().map(|holder| holder.pid),
    })
}

fn unix_ms(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}
