use crate::cmd::{Call, Command};
use crate::error::CliError;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::SchemaKind;
use clap::builder::PossibleValuesParser;
use serde_json::json;

/// Print the JSON Schema of a file that you write, or of what `--json` prints
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar schema scenario > scenario.schema.json\n")]
pub struct SchemaArgs {
    /// Kind of file; `output` is what `--json` prints
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(SchemaKind::ALL.map(SchemaKind::name)))]
    kind: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Command for SchemaArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        for kind in SchemaKind::ALL.into_iter().filter(|kind| kind.name() == self.kind) {
            let schema = kind.schema();
            if call.output.json {
                let data = json!({"kind": kind.name(), "schema": schema});
                call.output.envelope(&Envelope::new("schema", ExitCode::Passed, data));
            } else {
                call.output.file(&format!("{schema:#}\n"));
            }
        }
        Ok(ExitCode::Passed.code())
    }

    fn json(&self) -> bool {
        self.json
    }
}
