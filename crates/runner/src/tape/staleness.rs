//! Finds out whether a tape still matches its scenario, skills and plan.

use super::facts::{Changed, ChangedCause, TapeFacts, tree_changes};
use super::inputs::{Inputs, input_changes};
use super::scenario_files::ScenarioFiles;
use super::trees::content;
use crate::environment::HostEnvironment;
use crate::suite::{
    Consent, Conversation, Permit, Planning, StageError, Trial, TrialError, Untracked, input_digests,
    library_digest, load_scenario, skill_places,
};
use belljar_contract::{
    AbsPath, AgentChoice, Digest, LibraryName, SandboxChoice, TapeHead, TapeUntracked, with_causes,
};
use std::collections::BTreeMap;

/// The facts that changed since the tape was recorded. No agent runs.
///
/// # Errors
/// If the scenario cannot be planned here.
pub fn stale(
    trial: &Trial,
    head: &TapeHead,
    environment: &HostEnvironment,
    (consent, agent): (&Consent, Option<&AgentChoice>),
) -> Result<Vec<Changed>, TrialError> {
    let sandbox = SandboxChoice::default();
    let planning =
        Planning { environment, sandbox: &sandbox, agent, conversation: &Conversation::Fresh, consent };
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
    inputs: Inputs,
}

/// The trial with the rule about files that git does not track that the tape was recorded with. It is for a comparison:
/// only the user decides which files an agent gets.
#[must_use]
pub fn as_recorded(trial: Trial, head: &TapeHead) -> Trial {
    Trial { untracked: untracked(head.scenario.untracked), ..trial }
}

const fn untracked(recorded: TapeUntracked) -> Untracked {
    match recorded {
        TapeUntracked::LeftOut => Untracked::LeftOut,
        TapeUntracked::Included => Untracked::Included,
    }
}

impl PresentFiles {
    /// Reads the files that a scenario names. Those beyond its suite are read with a permit only.
    pub(super) fn read(
        (file, recorded): (&AbsPath, TapeUntracked),
        environment: &HostEnvironment,
        permit: Permit<'_>,
    ) -> Self {
        let read = load_scenario(environment, file, permit).map_err(|error| with_causes(&error));
        let present = |trial: Trial| {
            let trial = Trial { untracked: untracked(recorded), ..trial };
            Present::of(&trial, environment).map_err(|error| with_causes(&error))
        };
        Self(read.and_then(present))
    }

    /// Whether all of them could be read.
    pub(super) fn is_known(&self) -> bool {
        self.0.is_ok()
    }

    /// The files that differ from those that were recorded. Files that cannot be read count as changed.
    pub(super) fn changed_since(&self, head: &TapeHead) -> Vec<Changed> {
        match &self.0 {
            Ok(Present { scenario, skills, plugins, inputs }) => {
                let mut out = scenario.changed_since(&head.scenario);
                out.extend(tree_changes(&head.scenario, skills, plugins));
                out.extend(input_changes(&head.scenario, inputs));
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
                Ok((name.to_string(), library_digest((path, &permitted), (&user, trial.untracked))?))
            };
            list.iter().map(digest).collect::<Result<BTreeMap<_, _>, StageError>>()
        };
        Ok(Self {
            scenario: ScenarioFiles::of(trial),
            skills: digests(&trial.found.skills)?,
            plugins: digests(&trial.found.plugins)?,
            inputs: Inputs(input_digests(&trial.found, &permitted).map_err(|error| with_causes(&error))),
        })
    }
}
