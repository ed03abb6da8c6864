//! Finds out whether a tape still matches its scenario, skills and plan.

use super::facts::{Changed, ChangedCause, TapeFacts, content, tree_changes};
use super::scenario_files::ScenarioFiles;
use crate::environment::HostEnvironment;
use crate::suite::{
    Consent, Conversation, Permit, Planning, StageError, Trial, TrialError, library_digest, load_scenario,
    skill_places,
};
use belljar_contract::{AbsPath, Digest, LibraryName, SandboxChoice, TapeHead, with_causes};
use std::collections::BTreeMap;

/// The facts that changed since the tape was recorded. No agent runs.
///
/// # Errors
/// If the scenario cannot be planned here.
pub fn stale(
    trial: &Trial,
    head: &TapeHead,
    environment: &HostEnvironment,
    consent: &Consent,
) -> Result<Vec<Changed>, TrialError> {
    let sandbox = SandboxChoice::default();
    let planning = Planning { environment, sandbox: &sandbox, conversation: &Conversation::Fresh, consent };
    let (_stage, planned) = trial.planned(&planning)?;
    let facts = TapeFacts::at(&planned, &skill_places(&planned.compiled.plan), environment);
    let mut out = ScenarioFiles::of(trial).changed_since(&head.scenario);
    out.extend(facts.changed_since(head, None));
    // An agent that is not installed here may be the same.
    let program = facts.program.and_then(|path| content(path.as_path()).ok());
    if let (Some(recorded), Some(present)) = (head.agent.program, program)
        && recorded != present
    {
        out.push(Changed {
            cause: ChangedCause::Agent,
            what: "the agent's program".to_owned(),
            recorded: recorded.to_string(),
            present: present.to_string(),
        });
    }
    Ok(out)
}

/// The files of a scenario as they are now, for a replay that runs nothing.
pub(super) struct PresentFiles(Result<Present, String>);

struct Present {
    scenario: ScenarioFiles,
    skills: BTreeMap<String, Digest>,
    plugins: BTreeMap<String, Digest>,
}

impl PresentFiles {
    /// Reads the files that a scenario names. Those beyond its suite are read with a permit only.
    pub(super) fn read(file: &AbsPath, environment: &HostEnvironment, permit: Permit<'_>) -> Self {
        let read = load_scenario(environment, file, permit).map_err(|error| with_causes(&error));
        Self(read.and_then(|trial| Present::of(&trial, environment).map_err(|error| with_causes(&error))))
    }

    /// The files that differ from those that were recorded. Files that cannot be read count as changed.
    pub(super) fn changed_since(&self, head: &TapeHead) -> Vec<Changed> {
        match &self.0 {
            Ok(Present { scenario, skills, plugins }) => {
                let mut out = scenario.changed_since(&head.scenario);
                out.extend(tree_changes(&head.scenario, skills, plugins));
                out
            }
            Err(why) => vec![Changed {
                cause: ChangedCause::Files,
                what: "the scenario's files".to_owned(),
                recorded: String::new(),
                present: format!("cannot be compared: {why}"),
            }],
        }
    }
}

impl Present {
    fn of(trial: &Trial, environment: &HostEnvironment) -> Result<Self, StageError> {
        let user = environment.git_files();
        let permitted = |real: &AbsPath| {
            trial.scope.holds_real(real) || trial.named.iter().any(|(_, named)| named == real)
        };
        let digests = |list: &[(LibraryName, AbsPath)]| {
            let digest = |(name, path): &(LibraryName, AbsPath)| {
                Ok((name.to_string(), library_digest((path, &permitted), &user)?))
            };
            list.iter().map(digest).collect::<Result<BTreeMap<_, _>, StageError>>()
        };
        Ok(Self {
            scenario: ScenarioFiles::of(trial),
            skills: digests(&trial.found.skills)?,
            plugins: digests(&trial.found.plugins)?,
        })
    }
}
