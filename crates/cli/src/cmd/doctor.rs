use crate::cmd::{Call, Cleanup, Command};
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{CheckupState, Envelope, ExitCode};
use belljar_report::render_checkups;
use belljar_runner::{Planner, Rest, examine, remove_leftovers, versions};
use serde_json::json;

/// Report what this machine can enforce, what it cannot, and how to change that
///
/// Each mechanism is tried: a sandbox is built, a namespace created, a limit set, and everything removed again. A container
/// engine keeps its own storage, and the image that containers start from. The status is 0 if this machine can enforce the
/// default plan of `run`, 4 otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar doctor\n  $ belljar doctor --json\n")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for DoctorArgs {
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

fn run(_args: &DoctorArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let environment = planner.environment();
    let checkups = examine(environment, &env::own()?, &planner.images());
    let bad = checkups.iter().any(|checkup| checkup.state == CheckupState::Bad);
    let exit = if bad { ExitCode::Unsupported } else { ExitCode::Passed };
    if output.json {
        let versions = versions(environment, env!("CARGO_PKG_VERSION"));
        let data = json!({"honoured": !bad, "versions": versions, "checks": checkups});
        output.envelope(&Envelope::new("doctor", exit, data));
        return Ok(exit);
    }
    let last = if bad {
        "The default plan cannot be honoured here; what is marked NO is why.\n"
    } else {
        "The default plan can be honoured here.\n"
    };
    output.result(&format!("{}\n{last}", render_checkups(&checkups, output.out_style())));
    Ok(exit)
}
