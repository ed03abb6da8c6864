use crate::cmd::{Call, Command};
use crate::error::CliError;
use belljar_contract::ExitCode;
use belljar_runner::SchemaKind;
use clap::builder::PossibleValuesParser;

/// Print the JSON Schema of a file that you write, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar schema scenario > scenario.schema.json\n")]
pub struct SchemaArgs {
    /// Kind of file
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(SchemaKind::ALL.map(SchemaKind::name)))]
    kind: String,
}

impl Command for SchemaArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        for kind in SchemaKind::ALL.into_iter().filter(|kind| kind.name() == self.kind) {
            call.output.file(&format!("{:#}\n", kind.schema()));
        }
        Ok(ExitCode::Passed.code())
    }

    fn json(&self) -> bool {
        false
    }
}
