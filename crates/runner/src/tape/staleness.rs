//! Finds out whether a tape still matches its scenario, skills and plan.

use super::AcrossVersions;
use super::facts::{Changed, ChangedCause, TapeFacts, tree_changes};
use super::inputs::{INPUTS, Inputs, input_changes};

use super::replay::sentences;
use super::scenario_files::ScenarioFiles;
use super::trees::content;
use crate::environment::HostEnvironment;
use crate::plan::agreements::Agreements;
use crate::suite::{
    AgreedBy, Consent, Conversation, Permit, Planning, StageError, Trial, TrialError, TrialUse, Untracked,
    input_digests, library_digest, load_scenario, skill_places,
};
use belljar_contract::{
    AbsPath, AgentChoice, Digest, LibraryName, SandboxChoice, TapeHead, TapeTrees, TapeUntracked, Wishes,
    with_causes,
};
use std::collections::BTreeMap;

/// A tape, compared with what it would be recorded with now.
#[derive(Debug, Default)]
pub struct Compared {
    /// The facts that changed.
    pub changed: Vec<Changed>,
    /// What the tape has no digest of, or what is not found here.
    pub not_compared: Vec<Changed>,
}

/// Compares a tape with its scenario, what that names, its plan and its agent. No agent runs.
///
/// # Errors
/// If the scenario cannot be planned here.
pub fn stale(
    trial: &Trial,
    head: &TapeHead,
    environment: &HostEnvironment,
    (consent, agent): (&Consent, Option<&AgentChoice>),
) -> Result<Compared, TrialError> {
    let sandbox = SandboxChoice::default();
    let planning =
        Planning { environment, sandbox: &sandbox, agent, conversation: &Conversation::Fresh, consent };
    let (_stage, planned) = trial.planned(&planning)?;
    let facts =
        TapeFacts::at((&planned, &skill_places(&planned.compiled.plan)), environment, head.scenario.trees);
    let mut changed = ScenarioFiles::of(trial).changed_since(&head.scenario);
    // A version that is asked for is known without running it.
    let version = agent.map(|choice| choice.release.version.to_string());
    changed.extend(facts.changed_since(head, version.as_deref()));
    let mut out = Compared { changed, not_compared: Vec::new() };
    out.strictly(head, facts.program.as_ref());
    Ok(out)
}

impl Compared {
    /// Compares what a usual comparison takes for the same where it is not known.
    pub(super) fn strictly(&mut self, head: &TapeHead, program: Option<&AbsPath>) {
        const SERVERS: &str = "the file that declares the MCP servers";
        const PROGRAM: &str = "the agent's program";
        let mut unknown = |cause, what, why| self.not_compared.push(Changed::unknown(cause, what, why));
        if head.scenario.inputs.is_none() {
            unknown(ChangedCause::Input, INPUTS, "the tape has no digests of them; record it again");
        }
        if head.scenario.keys.is_empty() {
            unknown(ChangedCause::Servers, SERVERS, "the tape has no digest of it; record it again");
        }
        match (head.agent.program, program.and_then(|path| content(path.as_path()).ok())) {
            (None, _) => {
                unknown(ChangedCause::Agent, PROGRAM, "the tape has no digest of it; record it again")
            }
            (Some(_), None) => unknown(ChangedCause::Agent, PROGRAM, "no agent is found here"),
            (Some(recorded), Some(present)) if recorded == present => {}
            (Some(recorded), Some(present)) => self.changed.push(Changed {
                cause: ChangedCause::Agent,
                what: PROGRAM.to_owned(),
                recorded: recorded.to_string(),
                present: present.to_string(),
            }),
        }
    }

    /// Everything that is not known to be the same.
    pub(super) fn all(self) -> Vec<Changed> {
        [self.changed, self.not_compared].concat()
    }
}

/// The same for a replay that runs nothing. What cannot be found out is not taken for unchanged.
pub(super) fn strictly(
    file: &AbsPath,
    head: &TapeHead,
    environment: &HostEnvironment,
    permit: Permit<'_>,
) -> Vec<Changed> {
    let unknown = |why: &str| vec![Changed::unknown(ChangedCause::Plan, "the plan and the agent", why)];
    let trial = match load_scenario(environment, file, permit) {
        Ok(trial) => as_recorded(trial, head),
        Err(error) => return unknown(&with_causes(&error)),
    };
    let wishes = trial.wishes(&SandboxChoice::default(), TrialUse::Inspect);
    if !wishes.is_empty() && !permit(&wishes) {
        return unknown("no agreement covers the files that the scenario names beyond its directory");
    }
    match stale(&trial, head, environment, (&Consent::to(TrialUse::Inspect, vec![wishes]), None)) {
        Ok(compared) => compared.all(),
        Err(error) => unknown(&with_causes(&error)),
    }
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
    let present = PresentFiles::read((file, TreeRule::of(head)), environment, &permit);
    let mut recorded = head.clone();
    if let (Ok(present), false) = (&present.0, recorded.scenario.keys.is_empty()) {
        for key in CHECKS {
            match present.scenario.keys.get(key) {
                Some(digest) => drop(recorded.scenario.keys.insert(key.to_owned(), *digest)),
                None => drop(recorded.scenario.keys.remove(key)),
            }
        }
    }
    sentences(&present.changed_since(&recorded), AcrossVersions::UserSide).collect()
}

/// How a tape was recorded: which files of trees were staged, and what the digests of trees cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreeRule {
    untracked: TapeUntracked,
    covered: TapeTrees,
}

impl TreeRule {
    pub fn of(head: &TapeHead) -> Self {
        Self { untracked: head.scenario.untracked, covered: head.scenario.trees }
    }
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
        (file, recorded): (&AbsPath, TreeRule),
        environment: &HostEnvironment,
        permit: Permit<'_>,
    ) -> Self {
        let read = load_scenario(environment, file, permit).map_err(|error| with_causes(&error));
        let present = |trial: Trial| {
            let trial = Trial { untracked: untracked(recorded.untracked), ..trial };
            Present::of(&trial, environment, recorded.covered).map_err(|error| with_causes(&error))
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
            Err(why) => vec![Changed::unknown(ChangedCause::Files, "the scenario's files", why)],
        }
    }
}

impl Present {
    fn of(trial: &Trial, environment: &HostEnvironment, covered: TapeTrees) -> Result<Self, StageError> {
        let user = environment.git_files();
        let permitted = |real: &AbsPath| {
            trial.scope.holds_real(real) || trial.named.iter().any(|(_, named)| named == real)
        };
        let digests = |list: &[(LibraryName, AbsPath)]| {
            let digest = |(name, path): &(LibraryName, AbsPath)| {
                Ok((name.to_string(), library_digest((path, &permitted), (&user, trial.untracked), covered)?))
            };
            list.iter().map(digest).collect::<Result<BTreeMap<_, _>, StageError>>()
        };
        Ok(Self {
            scenario: ScenarioFiles::of(trial),
            skills: digests(&trial.found.skills)?,
            plugins: digests(&trial.found.plugins)?,
            inputs: Inputs(
                input_digests(&trial.found, &permitted, covered).map_err(|error| with_causes(&error)),
            ),
        })
    }
}
