//! Options that change one run without a change of the manifest.

use crate::error::CliError;
use belljar_contract::{ExitCode, HomeMode, HostPattern, OsText, WorkspaceMode};
use belljar_runner::{AgentWords, ByHand, Continued, GivenMount, GivenVariable, GivenWord};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// What is given to the agent by hand. It lies above the manifests and needs no agreement.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ByHandOptions {
    /// Also allow this host, for this run; written as in the manifest
    #[arg(long, value_name = "HOST", value_parser = host)]
    allow: Vec<HostPattern>,
    /// Set a variable for this run; NAME alone takes your shell's value
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = GivenVariable::parse)]
    env: Vec<GivenVariable>,
    /// Mount a file or directory for this run: SOURCE[:TARGET][:ro|rw]
    ///
    /// It is read-only unless `rw` is given. Without a target it has the same path inside. In a path, `\:` is a colon and `\\` a backslash.
    #[arg(long, value_name = "SOURCE", value_parser = GivenMount::parse)]
    mount: Vec<GivenMount>,
    /// How changes to the project are kept, overriding the manifest
    #[arg(long, value_name = "MODE", value_parser = workspace())]
    workspace: Option<WorkspaceMode>,
    /// How much of the agent's directory persists, overriding the manifest
    #[arg(long, value_name = "MODE", value_parser = home())]
    home: Option<HomeMode>,
    /// Model of the agent, overriding the manifest
    #[arg(long, value_name = "NAME", value_parser = GivenWord::parse)]
    model: Option<GivenWord>,
}

/// What is said to the agent by hand.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WordOptions {
    /// Send this message, print the answer and exit; replaces the manifest's prompt
    #[arg(short, long, value_name = "TEXT", value_parser = message, allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Go on with the newest conversation of this project
    #[arg(long = "continue", conflicts_with = "resume")]
    newest: bool,
    /// Go on with the conversation that has this id
    #[arg(long, value_name = "ID", value_parser = GivenWord::parse)]
    resume: Option<GivenWord>,
}

fn host(text: &str) -> Result<HostPattern, String> {
    HostPattern::parse(text).map_err(|error| match error.instead() {
        Some(instead) => format!("{error}; write `{instead}`"),
        None => error.to_string(),
    })
}

fn message(text: &str) -> Result<String, &'static str> {
    match text {
        _ if text.trim().is_empty() => Err("the message is empty"),
        _ if text.starts_with('-') => Err("the agent would take it for a flag; put a space in front of it"),
        _ => Ok(text.to_owned()),
    }
}

fn workspace() -> impl TypedValueParser<Value = WorkspaceMode> {
    one_of([
        ("direct", "Changes are made in place", WorkspaceMode::Direct),
        ("overlay", "Changes are kept beside the project", WorkspaceMode::Overlay),
        ("copy", "Changes are made to a copy", WorkspaceMode::Copy),
    ])
}

fn home() -> impl TypedValueParser<Value = HomeMode> {
    one_of([
        ("clean", "Nothing persists", HomeMode::Clean),
        ("project", "This project's conversations persist", HomeMode::Project),
        ("shared", "The same, and your own configuration is visible", HomeMode::Shared),
    ])
}

fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    known: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let values = known.map(|(name, about, _)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(move |name| {
        known.iter().find(|(known, ..)| *known == name).map(|(.., value)| *value).ok_or("unknown mode")
    })
}

impl ByHandOptions {
    /// What is given.
    ///
    /// # Errors
    /// If two options contradict each other.
    pub fn given(&self) -> Result<ByHand, CliError> {
        let Self { allow, env, mount, workspace, home, model } = self.clone();
        let given = ByHand { allow, env, mounts: mount, workspace, home, model };
        match given.given_twice() {
            Some(name) => {
                Err(CliError::new(ExitCode::Invalid, format!("`--env` gives the variable `{name}` twice")))
            }
            None => Ok(given),
        }
    }
}

impl WordOptions {
    /// What is said, with further arguments as they are.
    pub fn spoken(&self, further: Vec<OsText>) -> AgentWords {
        let named = self.resume.as_ref().map(|id| Continued::Named(id.as_str().to_owned()));
        let continued = if self.newest { Some(Continued::Newest) } else { named };
        AgentWords { continued, message: self.prompt.clone(), further }
    }
}
