use super::agent_options::{install_failure, installing};
use crate::cmd::{Call, Cleanup, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, UtcTime, visible, with_causes};
use belljar_report::{human_size, render_table};
use belljar_runner::agents::{
    AgentStore, AgentStoreError, AgentWish, AvailableVersion, ChooseError, FoundProgram, Installed,
    InstalledAgent, agent_on_path, available_versions, exact_version, installed_agent, known_agent,
    remove_unfinished_installs,
};
use belljar_runner::{Harnesses, HostEnvironment, Rest};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Install and list versions of the agent itself
///
/// A version is fetched from the npm registry, verified against the integrity that the registry publishes, and stored below
/// belljar's data directory. Neither node nor npm is needed, and no script of the package is run. The registry, tokens,
/// proxy and CA certificates are those of ~/.npmrc and the environment; the .npmrc of a project is not read.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&["list", "install NAME@VERSION"]))]
pub struct AgentArgs {
    #[command(subcommand)]
    deed: AgentDeed,
}

#[derive(Debug, clap::Subcommand)]
enum AgentDeed {
    /// Install versions unless they are installed
    ///
    /// A version that is installed needs no network.
    #[command(after_help = examples(&["install NAME@VERSION"]))]
    Install(InstallArgs),
    /// List the installed versions
    #[command(after_help = examples(&["list", "list NAME --json"]))]
    List(AgentListArgs),
    /// Print the path of a version's program
    ///
    /// Without a version: the program on your PATH, which runs use, and the version that it reports.
    #[command(after_help = examples(&["which NAME", "which NAME@VERSION"]))]
    Which(NamedArgs),
    /// Remove an installed version
    #[command(after_help = examples(&["remove NAME@VERSION"]))]
    Remove(NamedArgs),
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    /// Agents to install, each as NAME, NAME@VERSION or NAME@TAG [default version: latest]
    #[arg(required = true, value_name = "AGENT", value_parser = AgentWish::parse)]
    agents: Vec<AgentWish>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct AgentListArgs {
    /// List the versions of this agent only
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// List the versions that the registry has, newest first
    #[arg(long)]
    available: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct NamedArgs {
    /// Agent, as NAME@VERSION
    #[arg(value_name = "AGENT", value_parser = AgentWish::parse)]
    agent: AgentWish,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Examples with the name and a version of the usual agent.
fn examples(lines: &[&str]) -> String {
    let profile = Harnesses::built_in().usual().profile();
    let version = profile.versions.tested.last().map(ToString::to_string).unwrap_or_default();
    let line = |line: &&str| {
        format!("  $ belljar agent {}\n", line.replace("NAME", &profile.name).replace("VERSION", &version))
    };
    format!("Examples:\n{}", lines.iter().map(line).collect::<String>())
}

impl Command for AgentArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let (environment, output) = (&call.environment()?, call.output);
        match &self.deed {
            AgentDeed::Install(args) => install(args, environment, output),
            AgentDeed::List(args) if args.available => available(args, environment, output),
            AgentDeed::List(args) => list(args, environment, output),
            AgentDeed::Which(args) => which(args, environment, output),
            AgentDeed::Remove(args) => remove(args, environment, output),
        }?;
        Ok(ExitCode::Passed.code())
    }

    fn json(&self) -> bool {
        match &self.deed {
            AgentDeed::Install(args) => args.json,
            AgentDeed::List(args) => args.json,
            AgentDeed::Which(args) | AgentDeed::Remove(args) => args.json,
        }
    }

    fn holds_secrets(&self) -> bool {
        match &self.deed {
            // The token of a registry.
            AgentDeed::Install(_) => true,
            AgentDeed::List(args) => args.available,
            AgentDeed::Which(_) | AgentDeed::Remove(_) => false,
        }
    }

    fn cleanup(&self) -> Option<Cleanup> {
        match &self.deed {
            AgentDeed::Install(_) => Some((Rest::Everything, remove_unfinished_installs)),
            AgentDeed::List(_) | AgentDeed::Which(_) | AgentDeed::Remove(_) => None,
        }
    }
}

fn install(args: &InstallArgs, environment: &HostEnvironment, output: &Output) -> Result<(), CliError> {
    // All names first: a wrong one is reported before the first download.
    args.agents.iter().try_for_each(|wish| known_agent(&wish.name).map(|_known| ()))?;
    let mut rows = Vec::new();
    for wish in &args.agents {
        let installed = installing(wish, environment, output)?;
        let (outcome, words, found) = match &installed {
            Installed::New(found) => ("installed", "installed", found),
            Installed::There(found) => ("there", "already installed:", found),
        };
        rows.push(json!({"outcome": outcome, "agent": machine(found)}));
        if !output.json {
            let InstalledAgent { description, program, .. } = found;
            let at = environment.shown_from_home(program);
            let size = human_size(description.bytes);
            output
                .result(&format!("{words} {}@{} ({size}) at {at}\n", description.name, description.version));
        }
    }
    if output.json {
        output.envelope(&Envelope::new("agent", ExitCode::Passed, json!({"installed": rows})));
    }
    Ok(())
}

fn names(name: Option<&String>) -> Result<Vec<String>, CliError> {
    match name {
        Some(name) => Ok(vec![known_agent(name)?.name.clone()]),
        None => {
            Ok(Harnesses::built_in().list().iter().map(|harness| harness.profile().name.clone()).collect())
        }
    }
}

fn list(args: &AgentListArgs, environment: &HostEnvironment, output: &Output) -> Result<(), CliError> {
    let store = AgentStore::new(&environment.data);
    let mut found = Vec::new();
    for name in names(args.name.as_ref())? {
        let profile = known_agent(&name)?;
        found.extend(store.list((&name, &profile.program)).map_err(ChooseError::from)?);
    }
    let (good, damaged): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
    let good: Vec<InstalledAgent> = good.into_iter().flatten().collect();
    let damaged: Vec<String> =
        damaged.iter().filter_map(|entry| entry.as_ref().err()).map(|error| with_causes(error)).collect();
    if output.json {
        let data = json!({"agents": good.iter().map(machine).collect::<Vec<_>>(), "damaged": damaged});
        output.envelope(&Envelope::new("agent", ExitCode::Passed, data));
        return Ok(());
    }
    for error in &damaged {
        output.say(&format!("warning: {}", visible(error)));
    }
    if good.is_empty() {
        output.say("No version is installed; runs use the agent on your PATH.");
        return Ok(());
    }
    let headings = ["agent", "version", "size", "installed (UTC)", "last use (UTC)", ""];
    let rows: Vec<Vec<String>> = good.iter().map(person).collect();
    output.result(&render_table(&headings, &rows, output.out_style()));
    Ok(())
}

fn person(found: &InstalledAgent) -> Vec<String> {
    let description = &found.description;
    vec![
        description.name.clone(),
        description.version.to_string(),
        human_size(description.bytes),
        UtcTime::from_unix_ms(description.installed_at_ms).to_string(),
        used_ms(found).map_or_else(|| "never".to_owned(), |ms| UtcTime::from_unix_ms(ms).to_string()),
        if found.in_use() { "in use".to_owned() } else { String::new() },
    ]
}

fn machine(found: &InstalledAgent) -> Value {
    let description = &found.description;
    json!({
        "name": description.name, "version": description.version, "path": found.program,
        "package": description.package, "integrity": description.integrity, "digest": description.program,
        "bytes": description.bytes, "installed_at_ms": description.installed_at_ms,
        "last_used_ms": used_ms(found), "in_use": found.in_use(),
    })
}

fn used_ms(found: &InstalledAgent) -> Option<u64> {
    found.last_used.and_then(unix_ms)
}

fn unix_ms(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

fn available(args: &AgentListArgs, environment: &HostEnvironment, output: &Output) -> Result<(), CliError> {
    let mut found: Vec<(String, AvailableVersion)> = Vec::new();
    for name in names(args.name.as_ref())? {
        let versions = available_versions(environment, &known_agent(&name)?.package);
        let versions = versions.map_err(|error| install_failure(&error))?;
        found.extend(versions.into_iter().map(|version| (name.clone(), version)));
    }
    if output.json {
        let one = |(name, AvailableVersion { version, published_ms, tags }): &(String, AvailableVersion)| json!({"name": name, "version": version, "published_ms": published_ms, "tags": tags});
        let data = json!({"available": found.iter().map(one).collect::<Vec<_>>()});
        output.envelope(&Envelope::new("agent", ExitCode::Passed, data));
        return Ok(());
    }
    // Many registries leave the times out.
    let is_dated = found.iter().any(|(_, version)| version.published_ms.is_some());
    let row = |(name, AvailableVersion { version, published_ms, tags }): &(String, AvailableVersion)| {
        let published = published_ms.map(|ms| UtcTime::from_unix_ms(ms).to_string()).unwrap_or_default();
        let mut cells = vec![name.clone(), version.to_string()];
        cells.extend(is_dated.then_some(published));
        cells.push(visible(&tags.join(", ")).to_string());
        cells
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let headings: &[&str] =
        if is_dated { &["agent", "version", "published (UTC)", ""] } else { &["agent", "version", ""] };
    output.result(&render_table(headings, &rows, output.out_style()));
    Ok(())
}

fn which(args: &NamedArgs, environment: &HostEnvironment, output: &Output) -> Result<(), CliError> {
    let (path, version, source, behind) = match &args.agent.version {
        Some(_) => {
            let found = installed_agent(environment, &args.agent)?;
            (found.program, Some(found.description.version.to_string()), "installed", None)
        }
        None => {
            let (FoundProgram { path, behind }, version) = agent_on_path(environment, &args.agent.name)?;
            (path, version.map(|version| version.to_string()), "path", behind)
        }
    };
    if output.json {
        let data = json!({"name": args.agent.name, "version": version, "path": path, "source": source});
        output.envelope(&Envelope::new("agent", ExitCode::Passed, data));
        return Ok(());
    }
    output.result(&format!("{path}\n"));
    if args.agent.version.is_none() {
        let version =
            version.map_or_else(|| "an unknown version".to_owned(), |text| format!("version {text}"));
        let behind = behind.map(|behind| format!(", {behind}")).unwrap_or_default();
        output.say(&format!("It is on your PATH{behind}: {version}."));
    }
    Ok(())
}

fn remove(args: &NamedArgs, environment: &HostEnvironment, output: &Output) -> Result<(), CliError> {
    let (profile, version) = exact_version(&args.agent)?;
    let (removed, size) = match installed_agent(environment, &args.agent) {
        Ok(found) => (machine(&found), human_size(found.description.bytes)),
        Err(ChooseError::Store(AgentStoreError::Damaged { .. })) => {
            (json!({"name": profile.name, "version": version}), "damaged".to_owned())
        }
        Err(error) => return Err(error.into()),
    };
    let store = AgentStore::new(&environment.data);
    store.remove(&profile.name, version).map_err(ChooseError::from)?;
    if output.json {
        output.envelope(&Envelope::new("agent", ExitCode::Passed, json!({"removed": removed})));
        return Ok(());
    }
    output.result(&format!("removed {}@{version} ({size})\n", profile.name));
    Ok(())
}
