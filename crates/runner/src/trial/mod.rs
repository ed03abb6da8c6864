//! Trials: an agent is given a task in a sandbox of its own, its questions are answered, and what it did is judged.
//!
//! A trial is read and checked ([`load_scenario`]), staged, planned, run and judged ([`Trial::run`]). The verdict is made
//! from the record that the run left, never from memory: an old run and one that has just ended are judged alike.

mod asking;
mod evidence;
mod files;
mod load;
mod original;
mod rehearsal;
mod scope;
pub(crate) mod stage;
mod subject;
mod suite;
mod wishes;

pub use asking::{
    CommandDecider, DECIDER_MODEL, DirectoryDecider, DirectoryError, GATES_DONE, GateError, Gates,
    ModelDecider, ModelWish, OpenGate, Person, leave_answer,
};
pub use belljar_plan::Fidelity;
pub use belljar_verdict::unvouched;
pub use evidence::evidence;
pub(crate) use evidence::evidence_of;
pub use files::FilesWatch;
pub(crate) use load::scenario_alone;
pub use load::{Found, LoadError, Trial, load_policy, load_scenario, load_scenario_alone, skills};
pub use rehearsal::{Rehearsal, Rehearsed, rehearse};
pub(crate) use scope::really;
pub use scope::{Permit, Scope};
pub use stage::{FolderAccess, OUTPUTS, Stage, StageError, UPLOADS};
pub use subject::{Subject, load_subject};
pub use suite::{Job, SuiteError, SuiteNews, SuiteRequest, WorkerOutcome, end_with_input, run_suite};
pub use wishes::{Consent, HostsFrom, TrialUse};

use crate::agent_version::{agent_version, worth_knowing};
use crate::launching::{Attendant, Model, Outcome, Report, RunError, RunRequest, run};
use crate::names::fresh_run_id;
use crate::planning::{Planned, Planner, PlanningError, Surroundings};
use crate::talk::{Deciders, Outside, TalkRequest, TalkTimes, Then};
use crate::tape::{TapeFacts, Taping};
use belljar_contract::{
    AbsPath, AgentVersion, AskedWalls, BackendKind, Errand, Event, HomeMode, Judgement, MountSource, OsText,
    OsTextError, Plan, Run, RunName,
};
use belljar_egress::proxy::{Mode, Reach};
use belljar_plan::{OnUnanswered, PermissionParity, Staged, StagedError, agent_arguments, agent_under_test};
use belljar_record::ReadError;
use belljar_session::decider::{Chain, First, Parity, Rule, Scripted};
use belljar_session::{By, MachineConfig, SkillPlace};

/// Why a trial did not take place, or cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Its stage.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// What was staged cannot be written down.
    #[error(transparent)]
    Staged(#[from] StagedError),
    /// Its plan.
    #[error(transparent)]
    Planning(#[from] Box<PlanningError>),
    /// The run.
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    /// The command could not be executed.
    #[error("the agent's program `{what}` cannot be executed")]
    NotExecuted {
        /// The file or name.
        what: String,
    },
    /// What it left cannot be read.
    #[error("the run cannot be read back")]
    Record(#[from] ReadError),
    /// It left nothing.
    #[error("the run left no record")]
    NoRecord,
    /// An argument that no command line takes.
    #[error("an argument cannot be passed on")]
    Argument(#[from] OsTextError),
    /// What the scenario asks for is not to be had here.
    #[error("{0}")]
    Unsupported(String),
    /// The user did not agree to what the suite asks for now. Nothing was staged.
    #[error("`{suite}` asks for more than was agreed to: {wishes}")]
    NotAgreed {
        /// The suite.
        suite: AbsPath,
        /// What it asks for.
        wishes: String,
    },
}

/// How a trial is carried out.
pub struct TrialRequest<'a> {
    /// The user's side of the world.
    pub surroundings: &'a Surroundings,
    /// Who answers for the model.
    pub model: Model,
    /// What the walls are made of, whatever the scenario says.
    pub walls: AskedWalls,
    /// What the user agreed to.
    pub consent: &'a Consent,
    /// The name of the run, and no other.
    pub name: Option<RunName>,
    /// Who answers.
    pub answering: Answering,
    /// What is said when the prompt is done with.
    pub then: Then,
    /// The conversation that is begun or gone on with.
    pub conversation: Conversation,
    /// Whether the whole workspace is kept, not only what the agent made.
    pub keep: Keep,
    /// Whether the exchanges with the model are kept for a tape.
    pub taping: Taping,
    /// Told of everything as it happens.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// Whether the workspace is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What the agent made or changed.
    Changes,
    /// All of it.
    Workspace,
}

/// Which conversation it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Conversation {
    /// One that nobody goes on with.
    #[default]
    Fresh,
    /// One that can be gone on with, under this name.
    Named(ConversationName),
    /// The one of this name goes on.
    Resumed(ConversationName),
}

/// The name of a conversation, and the id that the agent knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationName(String);

impl ConversationName {
    /// A name of letters, digits and `-`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ((1..=64).contains(&text.len()) && text.chars().all(fits)).then(|| Self(text.to_owned()))
    }

    /// The agent takes a UUID only.
    fn uuid(&self) -> String {
        let parts: Vec<usize> = self.0.split('-').map(str::len).collect();
        if parts == [8, 4, 4, 4, 12] && self.0.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) {
            return self.0.to_lowercase();
        }
        let hex = belljar_contract::Digest::of(self.0.as_bytes()).hex();
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
    }
}

/// Who answers beside the scenario's own rules.
#[derive(Default)]
pub struct Answering {
    /// Rules of the command line, which come first.
    pub flags: Vec<Rule>,
    /// Rules of an answer policy, which come last.
    pub policy: Vec<Rule>,
    /// The one who takes time.
    pub outside: Option<Box<dyn Outside>>,
    /// A model that answers questions where nobody else does.
    pub model: Option<ModelWish>,
    /// What becomes of a question that nobody answers, unless the scenario says.
    pub first: bool,
}

/// A trial that took place.
#[derive(Debug)]
pub struct Tried {
    /// What was made of it.
    pub judgement: Judgement,
    /// Its record.
    pub run: Run,
    /// Where that lies.
    pub folder: AbsPath,
    /// The plan it ran under.
    pub plan: Plan,
    /// How the run itself went.
    pub report: Report,
    /// What a tape says of the trial.
    pub facts: TapeFacts,
    /// What is worth knowing about the agent's version.
    pub notice: Option<String>,
}

impl Trial {
    /// Plans the trial on a stage. Nothing runs.
    ///
    /// # Errors
    /// When something that it needs is not there.
    pub fn planned(&self, request: &Planning<'_>) -> Result<(Stage, Planned), TrialError> {
        let Planning { surroundings, walls, conversation, consent } = *request;
        // Asked of the disk again: a link may lead elsewhere than when the user agreed.
        let wishes = self.wishes(walls, consent.used_for);
        if !consent.covers(&wishes) {
            let list: Vec<String> = wishes.list().iter().map(ToString::to_string).collect();
            return Err(TrialError::NotAgreed { suite: wishes.suite, wishes: list.join("; ") });
        }
        let mut stage = match conversation {
            Conversation::Fresh => Stage::new(&surroundings.state, &fresh_run_id())?,
            Conversation::Named(name) | Conversation::Resumed(name) => {
                Stage::lasting(&surroundings.state, &name.uuid())?
            }
        };
        let goes_on = matches!(conversation, Conversation::Resumed(_));
        if goes_on && !stage.was_there() {
            return Err(TrialError::Unsupported(
                "there is no conversation of this name to go on with".to_owned(),
            ));
        }
        let permitted =
            |real: &AbsPath| self.scope.holds_real(real) || consent.covers_path(&self.scope.suite, real);
        for (path, access) in &self.found.folders {
            stage.folder((path, &permitted), *access)?;
        }
        for path in &self.found.uploads {
            stage.upload((path, &permitted))?;
        }
        let user = surroundings.git_files();
        let library = |family, list: &[(_, AbsPath)]| {
            let one = |(name, path): &(_, AbsPath)| {
                Ok((Clone::clone(name), stage.library((family, name), (path, &permitted), &user)?))
            };
            list.iter().map(one).collect::<Result<Vec<_>, StageError>>()
        };
        let staged = Staged {
            read_only: stage
                .read_only
                .iter()
                .map(|name| (stage.workspace().child(name), name.clone()))
                .collect(),
            skills: library("skills", &self.found.skills)?,
            plugins: library("plugins", &self.found.plugins)?,
            mcp: self.found.servers.clone(),
            backend: Some(walls.backend.map_or_else(|| self.backend(), Ok)?),
            image: walls.image.clone(),
            home: match conversation {
                Conversation::Fresh => None,
                Conversation::Named(_) | Conversation::Resumed(_) => Some(HomeMode::Project),
            },
            cost: self.cost,
        };
        let text = agent_under_test(&self.scenario, &self.session, &staged)?;
        let planned =
            Planner::plan_stage(surroundings, (stage.path(), stage.workspace()), text).map_err(Box::new)?;
        Ok((stage, planned))
    }

    /// The backend that the scenario's tier stands for.
    fn backend(&self) -> Result<BackendKind, TrialError> {
        match self.scenario.fidelity {
            None | Some(Fidelity::Container) => Ok(BackendKind::Bwrap),
            Some(Fidelity::Protocol) => Ok(BackendKind::Host),
            Some(other @ (Fidelity::Microvm | Fidelity::Hostloop | Fidelity::Cowork)) => {
                Err(TrialError::Unsupported(format!("the tier {other:?} is not to be had here")))
            }
        }
    }

    /// Carries the trial out and judges it.
    ///
    /// # Errors
    /// When it did not take place. A trial that failed is no error.
    pub fn run(&self, request: TrialRequest<'_>) -> Result<Tried, TrialError> {
        let TrialRequest {
            surroundings,
            model,
            walls,
            consent,
            name,
            answering,
            then,
            conversation,
            keep,
            taping,
            watch,
        } = request;
        let planning = Planning { surroundings, walls: &walls, conversation: &conversation, consent };
        let (stage, planned) = self.planned(&planning)?;
        let plan = &planned.compiled.plan;
        let version = planned.program_found.as_ref().filter(|path| !surroundings.is_of_the_project(path));
        let version = version.and_then(|path| agent_version(&surroundings.state, path));
        let notice = match &planned.program_found {
            Some(path) => worth_knowing(&path.to_string(), version, &planned.versions),
            // That there is none is told where it is missed.
            None => Ok(None),
        };
        let notice = notice.map_err(TrialError::Unsupported)?;
        let files =
            FilesWatch::begin(stage.workspace().clone(), stage.visible.clone(), stage.read_only.clone());
        let talk = TalkRequest {
            config: MachineConfig { skills: skill_places(plan), ..MachineConfig::default() },
            messages: vec![self.scenario.prompt.clone()],
            then,
            deciders: self.deciders(answering),
            react: None,
            times: TalkTimes::default(),
        };
        let facts = TapeFacts::of(&planned, &skill_places(plan), surroundings, (&taping, &model));
        let mut ask = |message: &str| crate::terminal::ask_hidden(message);
        let report = run(RunRequest {
            planned: &planned,
            surroundings,
            errand: &Errand::Agent(self.arguments(&planned, version, &conversation)?),
            notice: notice.clone(),
            name,
            model,
            mode: Mode::Enforce,
            ask: &mut ask,
            attendant: Attendant::Talk(Box::new(talk)),
            // The stage comes first.
            waiting: None,
            files: Some(files),
            taping,
            reach: match consent.used_for {
                TrialUse::Run => Reach::AsRuled,
                TrialUse::RunOffline | TrialUse::Inspect => Reach::Nowhere,
            },
            watch,
        })
        .map_err(Box::new)?;
        if let Outcome::NotExecuted { what, .. } = &report.outcome {
            return Err(TrialError::NotExecuted { what: what.clone() });
        }
        let Some(folder) = report.folder.clone() else { return Err(TrialError::NoRecord) };
        if keep == Keep::Workspace {
            stage.keep_workspace(&folder.child("workspace"))?;
        }
        let (run, evidence) = evidence(&folder, self.scenario.lane)?;
        let judgement = self.checks.judge(&evidence);
        let plan = planned.compiled.plan;
        Ok(Tried { judgement, run, folder, plan, report, facts, notice })
    }

    fn arguments(
        &self,
        planned: &Planned,
        version: Option<AgentVersion>,
        conversation: &Conversation,
    ) -> Result<Vec<OsText>, TrialError> {
        let mut words = planned.conversation_arguments.clone();
        for lacking in version.iter().flat_map(|version| planned.versions.lacking(*version)) {
            words.retain(|word| !lacking.arguments.contains(word));
        }
        match conversation {
            Conversation::Fresh => {}
            Conversation::Named(name) => words.extend(["--session-id".to_owned(), name.uuid()]),
            Conversation::Resumed(name) => words.extend(["--resume".to_owned(), name.uuid()]),
        }
        words.extend(agent_arguments(&self.session));
        Ok(words.into_iter().map(|word| OsText::new(word.into_bytes())).collect::<Result<_, _>>()?)
    }

    fn deciders(&self, answering: Answering) -> Deciders {
        let Answering { flags, policy, outside, model, first } = answering;
        let scripted = Scripted::default()
            .with(flags, By::CommandLine)
            .with(self.rules.clone(), By::Scenario)
            .with(policy, By::Policy);
        let mut chain = Chain::default().then(scripted);
        // Whoever was brought to answer is asked about tools as well.
        if outside.is_none() {
            chain = chain.then(match self.session.permission_parity {
                PermissionParity::Cowork => Parity::Cowork,
                PermissionParity::Strict => Parity::Strict,
            });
        }
        // Whom the command line names comes before what the scenario says.
        let (first, model) = match (self.scenario.on_unanswered, model) {
            (_, Some(wish)) => (false, Some(wish)),
            (Some(OnUnanswered::First), None) => (true, None),
            (Some(OnUnanswered::Llm), None) => (false, Some(ModelWish::default())),
            // `prompt` is refused where there is nobody to ask.
            (Some(OnUnanswered::Fail | OnUnanswered::Prompt), None) => (false, None),
            (None, None) => (first, None),
        };
        if first && outside.is_none() {
            chain = chain.then(First);
        }
        let outside =
            outside.or_else(|| model.map(|wish| Box::new(ModelDecider::new(wish)) as Box<dyn Outside>));
        Deciders { chain, outside }
    }
}

/// What a trial is planned for.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// The user's side of the world.
    pub surroundings: &'a Surroundings,
    /// What the walls are made of, whatever the scenario says.
    pub walls: &'a AskedWalls,
    /// Which conversation it is.
    pub conversation: &'a Conversation,
    /// What the user agreed to.
    pub consent: &'a Consent,
}

/// Where each skill lies for the agent, so that its use is seen. A plugin's skills carry the plugin's name.
pub(crate) fn skill_places(plan: &Plan) -> Vec<SkillPlace> {
    let inside = |source: &AbsPath| {
        let mount = plan.mounts.iter().find(|mount| mount.source == MountSource::Host(source.clone()));
        mount.map(|mount| mount.target.clone())
    };
    let own = plan.skills.iter().filter_map(|skill| {
        let directories = vec![inside(&skill.source)?.to_string()];
        Some(SkillPlace { name: skill.name.to_string(), directories })
    });
    let of_plugins = plan.plugins.iter().flat_map(|plugin| {
        let folder = plugin.source.child("skills");
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let place = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let directory = inside(&plugin.source)?.child("skills").child(&name);
            Some(SkillPlace {
                name: format!("{}:{name}", plugin.name),
                directories: vec![directory.to_string()],
            })
        };
        entries.filter_map(place).collect::<Vec<_>>()
    });
    own.chain(of_plugins).collect()
}
