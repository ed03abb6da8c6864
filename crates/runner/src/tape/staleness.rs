//! Finds out whether a tape still matches its scenario, skills and plan.

use super::facts::{Changed, ChangedCause, TapeFacts, tree_changes};
use super::inputs::{Inputs, input_changes};
use super::replay::sentences;
use super::scenario_files::ScenarioFiles;
use super::trees::content;
use crate::environment::HostEnvironment;
use crate::plan::agreements::Agreements;
use crate::suite::{
    AgreedBy, Consent, Conversation, Permit, Planning, StageError, Trial, TrialError, Untracked,
    input_digests, library_digest, load_scenario, skill_places,
};
use belljar_contract::{
    AbsPath, Digest, LibraryName, SandboxChoice, TapeHead, TapeUntracked, Wishes, with_causes,
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

/// The keys of a scenario that a recording can be judged by although they changed: they ask for nothing else of the run.
const CHECKS: [&str; 3] = ["name", "assert", "expect_denied"];

/// How the scenario in a file asks for another run than the one on a tape, a sentence each. Files beyond its suite are read
/// if the user agreed to that before.
pub(crate) fn changed_besides_checks(
    file: &AbsPath,
    head: &TapeHead,
    environment: &HostEnvironment,
) -> Vec<String> {
    let agreements = Agreements::new(&environment.config);
    let permit = |wishes: &Wishes| AgreedBy::Agreements.permits(wishes, &agreements);
    let present = PresentFiles::read((file, head.scenario.untracked), environment, &permit);
    let mut recorded = head.clone();
    if let (Ok(present), false) = (&present.0, recorded.scenario.keys.is_empty()) {
        for key in CHECKS {
            match present.scenario.keys.get(key) {
                Some(digest) => drop(recorded.scenario.keys.insert(key.to_owned(), *digest)),
                None => drop(recorded.scenario.keys.remove(key)),
            }
        }
    }
    sentences(&present.changed_since(&recorded)).collect()
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

    /// Files that cannot be compared, for this reason.
    pub(super) fn unknown(why: &str) -> Self {
        Self(Err(why.to_owned()))
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
