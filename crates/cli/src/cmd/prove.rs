use super::start::Backend;
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{BackendKind, Envelope, ExitCode};
use belljar_runner::report::{render_proof, render_table};
use belljar_runner::{
    LeakRow, LeakVerdict, Leaks, Planner, ProveError, ProveRequest, Proved, leaks, prove, versions,
};
use serde_json::json;

/// Show that the walls hold: try what must not go through, outside and inside
///
/// Every probe is first tried on the bare host, by the same program with the same made-up user and project; one that
/// is closed there already proves nothing about the sandbox and is not counted. Nothing of yours is touched. The
/// status is 0 when everything is closed and the controls work, 1 when something is open, 3 when nothing could be
/// verified, 4 when the backend builds no sandbox here.
///
/// With --leaks, canaries are planted in the places of a made-up user, the real agent looks for them in a run on a
/// scripted model, and every request is searched for them; the same run without walls shows that each could leak.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar prove\n  $ belljar prove --leaks\n  $ belljar prove --json\n")]
pub struct Args {
    /// The backend whose walls are tried
    #[arg(long, value_name = "BACKEND", default_value = "bwrap")]
    backend: Backend,
    /// Show that nothing of yours reaches the model; needs the agent
    #[arg(long)]
    leaks: bool,
    /// Print one JSON object, with how everything was seen and the flags that were used
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let surroundings = planner.surroundings();
    let own = env::own()?;
    let backend = args.backend.kind();
    if args.leaks {
        output.say(
            "belljar: the agent looks for canaries, without walls and inside; that takes some seconds\n",
        );
        let found =
            leaks(ProveRequest { surroundings, own: &own, backend }).map_err(|error| failure(&error))?;
        return Ok(tell_leaks(&found, backend, output));
    }
    let proved = prove(ProveRequest { surroundings, own: &own, backend });
    let Proved { proof, lowered } = proved.map_err(|error| failure(&error))?;
    let exit = proof.exit();
    if output.json {
        let versions = versions(surroundings, env!("CARGO_PKG_VERSION"));
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
    let table =
        render_table(&["canary", "planted in", "without walls", "inside", ""], &rows, output.out_style());
    output.result(&format!("{table}\n{} requests from inside were searched\n", found.requests));
    exit
}

fn failure(error: &ProveError) -> CliError {
    match error {
        ProveError::Backend { words, .. } => {
            let mut out = CliError::from_chain(ExitCode::Unsupported, error);
            for line in words {
                let line = line.trim();
                out = match line.strip_prefix("hint: ") {
                    Some(hint) => out.hint(hint),
                    None => out.cause(line.trim_start_matches("error: ").trim_start_matches("caused by: ")),
                };
            }
            out.hint("`belljar doctor` looks at this machine")
        }
        ProveError::Scene { .. } | ProveError::Guest(_) => CliError::from_chain(ExitCode::Unverified, error),
        ProveError::Table(_) | ProveError::File(_) => CliError::from_chain(ExitCode::Bug, error),
    }
}
