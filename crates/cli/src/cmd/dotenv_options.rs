//! Options of every verb that reads values of the user.

use super::many::option;
use super::scenario_options::TryOptions;
use crate::error::CliError;
use belljar_contract::{EnvName, ExitCode};
use belljar_runner::{DotenvBeside, DotenvError, DotenvRequest, HostEnvironment};
use std::path::PathBuf;

/// Where values come from besides the environment, and what is redacted.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DotenvOptions {
    /// Read variables from this .env file; repeatable, the last one wins
    ///
    /// A variable that is set in your shell wins over all files. Values serve where a manifest, a session or the
    /// credential of the model names them, and are redacted from every record. The file must not lie in a directory
    /// that the agent gets.
    #[arg(long, value_name = "FILE")]
    pub dotenv: Vec<PathBuf>,
    /// Redact the value of this variable from every record; repeatable
    #[arg(long, value_name = "NAME", value_parser = name, hide_short_help = true)]
    pub redact_env: Vec<EnvName>,
}

fn name(text: &str) -> Result<EnvName, String> {
    EnvName::new(text).map_err(|error| error.to_string())
}

impl DotenvOptions {
    /// Adds the values of the files to the environment.
    pub fn read(
        &self,
        environment: HostEnvironment,
        beside: DotenvBeside,
    ) -> Result<HostEnvironment, CliError> {
        let named = TryOptions::paths(&environment, &self.dotenv)?;
        let request = DotenvRequest { named, beside, redact: self.redact_env.clone() };
        Ok(environment.with_dotenv(&request)?)
    }

    /// The same options for another belljar process in the same directory.
    pub fn arguments(&self) -> Vec<std::ffi::OsString> {
        let files = self.dotenv.iter().map(|file| option("--dotenv", file));
        let names = self.redact_env.iter().map(|name| option("--redact-env", name.as_str()));
        files.chain(names).collect()
    }
}

impl From<DotenvError> for CliError {
    fn from(error: DotenvError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            DotenvError::Writable { path } => out.hint(format!("`chmod 600 {path}`")),
            DotenvError::Foreign { path } => out.hint(format!("`chown` it to yourself, or remove `{path}`")),
            DotenvError::Unset { name } => out.hint(format!(
                "`export {name}=…` before you start belljar, or write it to a file for --dotenv"
            )),
            DotenvError::Unsearchable { .. } => out.hint("many texts contain such a value; use a longer one"),
            DotenvError::Invalid { .. } | DotenvError::Read { .. } => out,
        }
    }
}
