//! The only printer of failures: what, why, a hint, and the exit code.

use crate::output::Output;
use belljar_contract::{Diagnostic, Envelope, ErrorText, ExitCode, Sources, causes, visible_lines};
use belljar_report::render_diagnostics;
use belljar_runner::agents::ChooseError;
use belljar_runner::changes::ChangesError;
use belljar_runner::suite::{DiscoverError, JudgeError, LoadError};
use belljar_runner::tape::{FindError, ReplayError, TapeFailure, TapeNormaliserError};
use belljar_runner::{
    AgreementError, BackendError, FindRunError, ImportFailure, InstanceError, PlanningError, RunError,
    StartingError,
};
use serde_json::Value;
use std::error::Error;

/// Indents continuation lines deeper than any line of belljar, so that quoted text cannot imitate one.
const CONTINUED: &str = "        ";

/// A failure of a verb. Boxed, because it is large and rare.
#[derive(Debug)]
pub struct CliError(Box<Failure>);

#[derive(Debug)]
struct Failure {
    exit: ExitCode,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
    /// Lines below the message, such as a list of what it is about.
    details: Vec<String>,
    /// The result of the verb, where a failure has one.
    data: Value,
    findings: Option<(Sources, Vec<Diagnostic>)>,
}

impl CliError {
    pub fn new(exit: ExitCode, message: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            exit,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
            details: Vec::new(),
            data: Value::Null,
            findings: None,
        }))
    }

    pub fn io(message: impl Into<String>, cause: std::io::Error) -> Self {
        let mut error = Self::new(ExitCode::Invalid, message);
        error.0.causes.push(cause.to_string());
        error
    }

    /// The same as a failure of `run`, `exec` or `shell`, whose own codes begin at 125.
    pub fn into_launch(mut self) -> Self {
        self.0.exit = ExitCode::LaunchFailed;
        self
    }

    /// The same with another status.
    pub fn with_exit(mut self, exit: ExitCode) -> Self {
        self.0.exit = exit;
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    pub fn details(mut self, lines: Vec<String>) -> Self {
        self.0.details = lines;
        self
    }

    pub fn data(mut self, data: Value) -> Self {
        self.0.data = data;
        self
    }

    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.0.causes.push(cause.into());
        self
    }

    pub fn from_chain(exit: ExitCode, error: &(dyn Error + 'static)) -> Self {
        let out = Self::new(exit, error.to_string());
        match error.source() {
            Some(cause) => out.caused_by(cause),
            None => out,
        }
    }

    /// Adds an error and its causes.
    pub fn caused_by(mut self, error: &(dyn Error + 'static)) -> Self {
        self.0.causes.extend(causes(error).map(ToString::to_string));
        self
    }

    /// A command line that cannot be parsed. The text of clap is its message, then hints and the usage.
    pub fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let mut parts = text.trim().split("\n\n").map(str::trim);
        let message = parts.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let exit = u8::try_from(error.exit_code()).ok().and_then(|code| ExitCode::from_status(code.into()));
        let out = Self::new(exit.unwrap_or(ExitCode::Invalid), message);
        let hints = parts.map(|part| part.strip_prefix("tip: ").unwrap_or(part));
        hints.filter(|part| !part.is_empty()).fold(out, Self::hint)
    }

    pub fn findings(sources: Sources, diagnostics: Vec<Diagnostic>) -> Self {
        let mut out = Self::new(ExitCode::Invalid, "the file cannot be used");
        out.0.findings = Some((sources, diagnostics));
        out
    }

    /// The exit status.
    pub fn exit(&self) -> ExitCode {
        self.0.exit
    }

    /// The message and its causes in one line.
    pub fn line(&self) -> String {
        let Failure { message, causes, .. } = &*self.0;
        std::iter::once(message).chain(causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Prints the error, as text or as JSON.
    pub fn print(&self, verb: impl Into<Option<&'static str>>, output: &Output) -> ExitCode {
        let Failure { exit, message, causes, hints, details: _, data, findings } = &*self.0;
        if output.json {
            let mut envelope = Envelope::new(verb, *exit, data.clone());
            let (message, causes, hints) = (message.clone(), causes.clone(), hints.clone());
            envelope.error = Some(ErrorText { message, causes, hints });
            if let Some((sources, diagnostics)) = findings {
                envelope.diagnostics =
                    diagnostics.iter().map(|diagnostic| diagnostic.to_json(sources)).collect();
            }
            output.envelope(&envelope);
            return *exit;
        }
        self.print_to_person(output)
    }

    /// Prints the error as text, even with --json.
    pub fn print_to_person(&self, output: &Output) -> ExitCode {
        let Failure { exit, message, causes, hints, details, data: _, findings } = &*self.0;
        if let Some((sources, diagnostics)) = findings {
            output.say(&render_diagnostics(diagnostics, sources, output.err_style()));
            return *exit;
        }
        let mut text = format!("error: {}\n", visible_lines(message, CONTINUED));
        for line in details {
            text.push_str(&format!("{}\n", visible_lines(line, CONTINUED)));
        }
        for cause in causes {
            text.push_str(&format!("  caused by: {}\n", visible_lines(cause, CONTINUED)));
        }
        for hint in hints {
            text.push_str(&format!("  hint: {}\n", visible_lines(hint, CONTINUED)));
        }
        output.say(&text);
        *exit
    }
}

impl From<InstanceError> for CliError {
    fn from(error: InstanceError) -> Self {
        Self::from_chain(ExitCode::Invalid, &error)
    }
}

impl From<ChooseError> for CliError {
    fn from(error: ChooseError) -> Self {
        Self::from(&error)
    }
}

impl From<PlanningError> for CliError {
    fn from(error: PlanningError) -> Self {
        match error {
            PlanningError::Invalid { sources, diagnostics } => Self::findings(sources, diagnostics),
            PlanningError::NoManifest { looked } => {
                let mut out = Self::new(ExitCode::Invalid, "no manifest was found");
                out.0.hints = looked.iter().map(|place| format!("looked for {place}")).collect();
                out.hint("`belljar init` writes a starting manifest")
            }
            PlanningError::Selection(selection) => {
                Self::new(ExitCode::Invalid, selection.message).hint(selection.help)
            }
            PlanningError::Dotenv(_) => Self::from_chain(ExitCode::Invalid, &error)
                .hint("keep it beside the project, or in your configuration: `belljar/.env`"),
            PlanningError::Harness(_) => Self::from_chain(ExitCode::Bug, &error),
            PlanningError::Read { .. } | PlanningError::Path(_) => {
                Self::from_chain(ExitCode::Invalid, &error)
            }
        }
    }
}

impl From<AgreementError> for CliError {
    fn from(error: AgreementError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            AgreementError::Foreign { path } => {
                out.hint(format!("look at `{path}`; delete it to agree anew"))
            }
            AgreementError::Read { .. } | AgreementError::Write { .. } => out,
        }
    }
}

impl From<StartingError> for CliError {
    fn from(error: StartingError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            StartingError::Exists { .. } => {
                out.hint("it was not touched; `--stdout` prints the text instead")
            }
            StartingError::Write { .. } => out,
        }
    }
}

impl From<ImportFailure> for CliError {
    fn from(error: ImportFailure) -> Self {
        match error {
            ImportFailure::Invalid(findings) => Self::findings(findings.sources, findings.diagnostics),
            ImportFailure::Read(error) => Self::from(*error),
            ImportFailure::Missing(_) => Self::from_chain(ExitCode::Invalid, &error),
        }
    }
}

impl From<BackendError> for CliError {
    fn from(error: BackendError) -> Self {
        let mut out = Self::new(ExitCode::Unsupported, error.to_string());
        for unmet in &error.unmet {
            out.0.causes.push(format!("{}: {}", unmet.need.describe(), unmet.why));
            if !out.0.hints.contains(&unmet.fix) {
                out = out.hint(unmet.fix.clone());
            }
        }
        out
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Unmet(unmet) => Self::from(unmet).into_launch(),
            RunError::Allowed(error) => Self::from(error).into_launch(),
            RunError::Value { .. }
            | RunError::EgressServices(_)
            | RunError::Workspace(_)
            | RunError::Instance(_)
            | RunError::Session(_)
            | RunError::Journal(_)
            | RunError::UnrecordedConversation
            | RunError::Terminal(_)
            | RunError::TapeKey(_)
            | RunError::Guest(_)
            | RunError::Launch(_)
            | RunError::Supervise(_) => Self::from_chain(ExitCode::LaunchFailed, &error),
        }
    }
}

impl From<ChangesError> for CliError {
    fn from(error: ChangesError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            ChangesError::NotKept { .. } => out.hint(
                "`workspace = \"overlay\"` or `\"copy\"` keeps an agent's changes apart from the project",
            ),
            ChangesError::Unknown { found, .. } => {
                found.iter().fold(out, |out, name| out.hint(format!("there is `--layer {name}`")))
            }
            ChangesError::Several { .. }
            | ChangesError::Instance(_)
            | ChangesError::Layer(_)
            | ChangesError::Workspace(_)
            | ChangesError::Signals(_)
            | ChangesError::Layers(_) => out,
        }
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Invalid { sources, diagnostics } => Self::findings(sources, diagnostics),
            LoadError::Planning(error) => Self::from(*error),
            LoadError::Read { .. }
            | LoadError::Named { .. }
            | LoadError::Beyond { .. }
            | LoadError::Asks { .. }
            | LoadError::Unfit(_)
            | LoadError::Path(_) => Self::from_chain(ExitCode::Invalid, &error),
        }
    }
}

impl From<DiscoverError> for CliError {
    fn from(error: DiscoverError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            DiscoverError::NoScenario { .. } => out.hint("a scenario is a `.yaml` file with a `prompt`"),
            DiscoverError::Filtered { .. } | DiscoverError::Read { .. } => out,
        }
    }
}

impl From<FindError> for CliError {
    fn from(error: FindError) -> Self {
        let hint = match &error {
            FindError::NoTape { .. } => "`belljar record` makes one",
            FindError::NoScenario { .. } => "a tape lies where it can find its scenario",
            FindError::Beyond { .. } => "`.git` or `belljar.toml` marks the directory that both belong to",
        };
        Self::from_chain(ExitCode::Invalid, &error).hint(hint)
    }
}

impl From<TapeFailure> for CliError {
    fn from(error: TapeFailure) -> Self {
        let exit = if error.fault.is_absence() { ExitCode::Unverified } else { ExitCode::Invalid };
        Self::from_chain(exit, &error).hint("record it again with `belljar record`")
    }
}

impl From<ReplayError> for CliError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Tape(error) => Self::from(error),
            ReplayError::Find(error) => Self::from(error),
            ReplayError::Load(error) => Self::from(error),
            ReplayError::Cassette { ref cause, .. } => {
                let exit = if cause.is_absence() { ExitCode::Unverified } else { ExitCode::Invalid };
                Self::from_chain(exit, &error)
            }
            ReplayError::Protocol(_) => Self::from_chain(ExitCode::Unverified, &error),
            ReplayError::CassetteProtocol(_) => Self::from_chain(ExitCode::Invalid, &error),
            ReplayError::Normaliser(TapeNormaliserError::Unknown(_)) => {
                Self::from_chain(ExitCode::Invalid, &error).hint("a newer belljar may have it")
            }
            ReplayError::Normaliser(TapeNormaliserError::Suite { .. }) => {
                Self::from_chain(ExitCode::Invalid, &error).hint("record the scenario again")
            }
            ReplayError::NothingToRun { .. } => Self::from_chain(ExitCode::Invalid, &error)
                .hint("--protocol judges it without running anything"),
            ReplayError::Trial(ref cause) => Self::from_chain(cause.exit(), &error),
            ReplayError::Interrupted => Self::from_chain(ExitCode::Interrupted, &error),
            ReplayError::NotRecorded { .. } => Self::from_chain(ExitCode::LaunchFailed, &error),
        }
    }
}

impl From<FindRunError> for CliError {
    fn from(error: FindRunError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            FindRunError::NoRun { runs, .. } => {
                out.hint(format!("runs are in {runs}; `belljar runs` lists them"))
            }
            FindRunError::Ambiguous { names, count, .. } => {
                let more = count - names.len();
                let mut lines: Vec<String> = names.into_iter().map(|name| format!("  {name}")).collect();
                lines.extend((more > 0).then(|| format!("  and {more} more")));
                out.details(lines).hint("write more of the id, the last part of the name")
            }
            FindRunError::Path(_) | FindRunError::List(_) => out,
        }
    }
}

impl From<JudgeError> for CliError {
    fn from(error: JudgeError) -> Self {
        match error {
            JudgeError::Load(error) => Self::from(error),
            JudgeError::NoScenario { .. } => Self::from_chain(ExitCode::Invalid, &error)
                .hint("name the scenario to judge it by: `belljar judge RUN SCENARIO`"),
            JudgeError::Redacted => Self::from_chain(ExitCode::Unverified, &error)
                .hint("name the file of the scenario: `belljar judge RUN SCENARIO`"),
            JudgeError::Tape { .. } => Self::from_chain(ExitCode::Invalid, &error)
                .hint("judge it by its scenario with `belljar replay --protocol TAPE`, or name a scenario"),
            JudgeError::Kept(ref kept) => Self::from_chain(kept.exit(), &error),
            JudgeError::Read(_) | JudgeError::Scenario { .. } => Self::from_chain(ExitCode::Invalid, &error),
        }
    }
}
