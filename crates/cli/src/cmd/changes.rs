//! Shared by `diff`, `apply` and `discard`: selecting changes and describing them.

mod naming;
mod text;

use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AgentName, Purpose, RunName, visible_name};
use belljar_runner::Planner;
use belljar_runner::changes::{ChangesError, KeptLayer};
use std::path::{Path, PathBuf};

pub use naming::Naming;
pub use text::{both_line, machine, mark, own_machine, reason, remark, repository_lines, repository_machine};

/// Printed if there is nothing to do.
pub const NOTHING: &str = "No changes are kept.";

/// Options of all three.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Agent name [default: the only declared agent]
    pub agent: Option<String>,
    /// Set of changes, where the agent keeps several [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub layer: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Only these paths, relative to the current directory, and what lies below them; or a ref, as `refs/heads/main`
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

impl Options {
    /// Takes the changes that are meant; `None` where there are none.
    pub fn open(&self, planner: &Planner) -> Result<Option<KeptLayer>, CliError> {
        let planned = planner.plan(self.agent.as_deref(), Purpose::Session)?;
        KeptLayer::open(&planned, self.layer.as_deref()).map_err(|error| match &error {
            ChangesError::Several { found, .. } => {
                let (agent, found) = (planned.called.as_ref().map(AgentName::as_str), found.clone());
                let shows = |name: &RunName| command("diff", agent, Some(name.as_str()));
                let hint = |out: CliError, name| out.hint(format!("`{}` shows that one", shows(name)));
                found.iter().fold(CliError::from(error), hint)
            }
            ChangesError::NotKept { .. }
            | ChangesError::Unknown { .. }
            | ChangesError::Instance(_)
            | ChangesError::Layer(_)
            | ChangesError::Workspace(_)
            | ChangesError::Signals(_)
            | ChangesError::Layers(_) => CliError::from(error),
        })
    }

    /// A verb with what chooses these changes again, to be typed.
    pub fn command(&self, verb: &str) -> String {
        command(verb, self.agent.as_deref(), self.layer.as_deref())
    }
}

/// A verb and what chooses a set of changes.
pub fn command(verb: &str, agent: Option<&str>, layer: Option<&str>) -> String {
    let agent = agent.map(|agent| format!(" {}", visible_name(agent))).unwrap_or_default();
    let layer = layer.map(|layer| format!(" --layer {}", visible_name(layer))).unwrap_or_default();
    format!("belljar {verb}{agent}{layer}")
}

/// Reports what an interrupted apply left in the project.
pub fn report_recovered(kept_layer: &KeptLayer, output: &Output) {
    for path in &kept_layer.recovered().kept {
        output.say(&format!(
            "warning: an interrupted apply left `{}`, which holds a version of a file that changed meanwhile; \
             look at it, then remove it",
            shown(path)
        ));
    }
    for path in &kept_layer.recovered().changed {
        output.say(&format!(
            "warning: an interrupted apply wrote `{}` and you changed it since; it is left as it is",
            shown(path)
        ));
    }
    for path in &kept_layer.recovered().deleted {
        output.say(&format!(
            "warning: you deleted `{}` after an apply was interrupted; it stays deleted",
            shown(path)
        ));
    }
}

/// Text that cannot forge a line.
pub fn shown(path: &Path) -> String {
    visible_name(path)
}
