use super::start::backend_parser;
use crate::cmd::{Call, Cleanup, Command};
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{BackendKind, Envelope, ExitCode, WorkspaceMode, with_causes};
use belljar_report::{Proven, proofs_html, render_proof, render_proofs, render_table};
use belljar_runner::{
    LeakRow, LeakVerdict, Leaks, Planner, ProveError, ProveRequest, Proved, Rest, leaks, prove,
    remove_leftovers, versions,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Try escapes on the bare host and in the sandbox, and report which ones are stopped
///
/// Every probe is first tried on the bare host, by the same program with the same made-up user and project; one that
/// is closed there already proves nothing about the sandbox and is not counted. Your own files are not
/// touched. What is not prevented but reported when the run ends counts as reported, not as closed. The status is 0 if
/// nothing is open and the controls work, 1 if something is open or broken, 3 if nothing could be verified, 4 if the
/// backend cannot build a sandbox on this machine. With --all it is the worst of all backends.
///
/// With --leaks, canaries are placed in the files of a made-up user, the real agent looks for them in a run with a
/// scripted model, and every request is searched for them; the same run without a sandbox shows that each could leak.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar prove\n  $ belljar prove --leaks\n  $ belljar prove --json\n")]
pub struct ProveArgs {
    /// Backend to try
    #[arg(long, value_name = "BACKEND", default_value = "bwrap", conflicts_with = "all", value_parser = backend_parser())]
    backend: BackendKind,
    /// Workspace mode of the sandbox [default: the one that this machine defaults to]
    #[arg(long, value_name = "MODE", conflicts_with = "leaks")]
    workspace: Option<Workspace>,
    /// Check that no private data reaches the model; needs the agent
    #[arg(long, conflicts_with = "all")]
    leaks: bool,
    /// Try every backend of this machine and compare them
    #[arg(long)]
    all: bool,
    /// With --all: also write the table to this file, as a self-contained page
    #[arg(long, value_name = "FILE", requires = "all")]
    html: Option<PathBuf>,
    /// Print one JSON object, with the observations and the flags of the sandbox
    #[arg(long)]
    pub json: bool,
}

/// Workspace modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workspace {
    /// Written to the project as they happen
    Direct,
    /// Kept beside the project until they are applied or discarded
    Overlay,
    /// Made to a copy
    Copy,
}

impl Workspace {
    fn mode(self) -> WorkspaceMode {
        match self {
            Workspace::Direct => WorkspaceMode::Direct,
            Workspace::Overlay => WorkspaceMode::Overlay,
            Workspace::Copy => WorkspaceMode::Copy,
        }
    }
}

impl Command for ProveArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn cleanup(&self) -> Option<Cleanup> {
        Some((Rest::Everything, remove_leftovers))
    }
}

fn run(args: &ProveArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    if args.all {
        return all(args, planner, output);
    }
    let environment = planner.environment();
    let own = env::own()?;
    let backend = args.backend;
    let workspace = args.workspace.map(Workspace::mode);
    if args.leaks {
        output.say(
            "belljar: the agent looks for canaries, on the host and in the sandbox; that takes some seconds\n",
        );
        let found = leaks(ProveRequest { environment, own: &own, backend, workspace })
            .map_err(|error| failure(&error))?;
        return Ok(tell_leaks(&found, backend, output));
    }
    let proved = prove(ProveRequest { environment, own: &own, backend, workspace });
    let Proved { proof, lowered, engine } = proved.map_err(|error| failure(&error))?;
    let exit = proof.exit();
    if output.json {
        let mut versions = versions(environment, env!("CARGO_PKG_VERSION"));
        versions["engine"] = json!(engine);
        let data = json!({"backend": backend, "versions": versions, "rows": proof.rows, "launch": lowered});
        output.envelope(&Envelope::new("prove", exit, data));
        return Ok(exit);
    }
    output.result(&render_proof(&proof, output.out_style()));
    Ok(exit)
}

fn tell_leaks(found: &Leaks, backend: BackendKind, output: &Output) -> ExitCode {
    let exit = found.exit();
    if output.json {
        output.envelope(&Envelope::new("prove", exit, json!({"backend": backend, "leaks": found})));
        return exit;
    }
    let word = |found: bool| if found { "found" } else { "not found" }.to_owned();
    let row = |row: &LeakRow| {
        let verdict = match row.verdict {
            LeakVerdict::Sealed => "sealed",
            LeakVerdict::Control => "meant to be seen",
            LeakVerdict::Leaks => "LEAKS",
            LeakVerdict::Unproved => "proves nothing",
        };
        vec![
            row.canary.to_owned(),
            row.place.clone(),
            word(row.outside),
            word(row.inside),
            verdict.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = found.rows.iter().map(row).collect();
    let table = render_table(&["canary", "planted in", "host", "sandbox", ""], &rows, output.out_style());
    output.result(&format!("{table}\n{} requests from inside were searched\n", found.requests));
    exit
}

fn all(args: &ProveArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let environment = planner.environment();
    let own = env::own()?;
    let workspace = args.workspace.map(Workspace::mode);
    let mut tried = Vec::new();
    for backend in BackendKind::ALL.into_iter().filter(|kind| kind.isolates()) {
        if !output.json {
            output.say(&format!("trying to escape from {}", backend.name()));
        }
        let proved = match prove(ProveRequest { environment, own: &own, backend, workspace }) {
            Ok(proved) => Ok(proved),
            Err(error @ (ProveError::Backend { .. } | ProveError::Engine(_))) => {
                let message = match &error {
                    ProveError::Backend { messages, .. } => messages.join("; "),
                    ProveError::Scene { .. }
                    | ProveError::Engine(_)
                    | ProveError::Guest(_)
                    | ProveError::Table(_)
                    | ProveError::File(_) => with_causes(&error),
                };
                Err(message)
            }
            Err(error) => return Err(failure(&error)),
        };
        tried.push((backend, proved));
    }
    let exits: Vec<ExitCode> =
        tried.iter().filter_map(|(_, proved)| Some(proved.as_ref().ok()?.proof.exit())).collect();
    let worst = |wanted: ExitCode| exits.contains(&wanted).then_some(wanted);
    let exit = match exits.is_empty() {
        true => ExitCode::Unsupported,
        false => worst(ExitCode::Failed).or(worst(ExitCode::Unverified)).unwrap_or(ExitCode::Passed),
    };
    let mut versions = versions(environment, env!("CARGO_PKG_VERSION"));
    let mut engines = tried.iter().filter_map(|(_, proved)| proved.as_ref().ok()?.engine.clone());
    versions["engine"] = json!(engines.next());
    let proven: Vec<Proven<'_>> = tried
        .iter()
        .map(|(backend, proved)| Proven {
            backend: backend.name(),
            proof: proved.as_ref().map(|proved| &proved.proof).map_err(String::as_str),
            flags: proved.as_ref().map(|proved| flags(&proved.lowered)).unwrap_or_default(),
        })
        .collect();
    if let Some(file) = &args.html {
        std::fs::write(file, proofs_html(&proven, &versions))
            .map_err(|cause| CliError::io(format!("cannot write `{}`", file.display()), cause))?;
    }
    if output.json {
        let backends: Vec<Value> = tried
            .iter()
            .map(|(backend, proved)| match proved {
                Ok(Proved { proof, lowered, .. }) => {
                    json!({"backend": backend, "rows": proof.rows, "launch": lowered})
                }
                Err(why) => json!({"backend": backend, "absent": why}),
            })
            .collect();
        let data = json!({"versions": versions, "backends": backends});
        output.envelope(&Envelope::new("prove", exit, data));
        return Ok(exit);
    }
    output.result(&render_proofs(&proven, output.out_style()));
    Ok(exit)
}

/// The command line that built the sandbox, an option a line.
fn flags(lowered: &Value) -> String {
    let arguments = lowered["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str);
    arguments.fold(lowered["program"].as_str().unwrap_or_default().to_owned(), |line, argument| {
        let join = if argument.starts_with("--") { "\n  " } else { " " };
        format!("{line}{join}{argument}")
    })
}

fn failure(error: &ProveError) -> CliError {
    match error {
        ProveError::Backend { messages, .. } => {
            let mut out = CliError::from_chain(ExitCode::Unsupported, error);
            for line in messages {
                let line = line.trim();
                out = match line.strip_prefix("hint: ") {
                    Some(hint) => out.hint(hint),
                    None => out.cause(line.trim_start_matches("error: ").trim_start_matches("caused by: ")),
                };
            }
            out.hint("run `belljar doctor` for details")
        }
        ProveError::Engine(engine) => {
            let out = CliError::from_chain(ExitCode::Unsupported, error);
            engine.hint().into_iter().fold(out, CliError::hint)
        }
        ProveError::Scene { .. } | ProveError::Guest(_) => CliError::from_chain(ExitCode::Unverified, error),
        ProveError::Table(_) | ProveError::File(_) => CliError::from_chain(ExitCode::Bug, error),
    }
}
