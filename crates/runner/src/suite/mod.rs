//! Tests of skills: an agent is given a task in its own sandbox, its questions are answered, and its actions are
//! judged.
//!
//! A trial is read and checked ([`load_scenario`]), staged, planned, run and judged ([`Trial::run`]). The verdict is
//! based on the run's record alone, so an old run and one that has just ended are judged alike.

mod consent;
mod deciders;
mod digests;
mod discover;
mod evidence;
mod files;
mod judge;
mod judge_again;
#[cfg(test)]
mod keys_tests;
mod load;
mod originals;
mod plugins;
mod rehearsal;
mod requests;
mod result;
mod schedule;
mod scope;
pub(crate) mod stage;
mod stage_copy;
mod subject;
mod trial;

pub use crate::git::Untracked;
use crate::launch::{CommandOutcome, LaunchFacts, Model, RunRequest, RunSubject, ScenarioUsed, Stdio, run};
use crate::plan::agent_version::{agent_version, worth_knowing};
use crate::plan::planned::Planned;
use crate::plan::planner::Planner;
use crate::session::conversation::{ConversationRequest, ConversationTimes, Deciders, ExternalDecider};
use crate::store::names::fresh_run_id;
use crate::tape::{RecordedAnswers, TapeFacts, plugin_digests, skill_digests};
use belljar_contract::{
    AbsPath, AgentVersion, BackendKind, ConversationChoice, HomeMode, MountSource, OsText, Plan, RunVerb,
    SessionTuning, Workload,
};
use belljar_egress::proxy::{EgressMode, Reach};
pub use belljar_plan::Fidelity;
use belljar_plan::{OnUnanswered, PermissionParity, Staged, agent_under_test, tuning};
use belljar_session::decider::{Chain, First, Parity, Scripted};
use belljar_session::{By, Harnesses, MachineConfig, SkillPlace};
pub use belljar_verdict::unvouched;
pub use consent::{AgreedBy, ConsentDecision, KnownPart, OpenConsent, OpenWishes, agree, not_agreed};
pub use deciders::{
    CommandDecider, DECIDER_MODEL, DirectoryDecider, DirectoryError, GATES_DONE, GateError, Gates,
    ModelDecider, ModelWish, OpenGate, Person, leave_answer,
};
pub(crate) use digests::{input_digests, library_digest};
pub use discover::{DiscoverError, scenario_files, script_beside};
pub use evidence::evidence;
pub(crate) use evidence::evidence_of;
pub use files::FilesWatch;
pub(crate) use files::kept_of_a_file;
pub use judge::Judge;
pub(crate) use judge::Judged;
pub use judge_again::{JudgeError, JudgedAgain, judge_again};
pub(crate) use load::scenario_alone;
pub use load::{LoadError, NamedFiles, Trial, load_policy, load_scenario, load_scenario_alone};
pub use plugins::skills;
pub use rehearsal::{Rehearsal, Rehearsed, rehearse};
pub use requests::{Consent, HostsFrom, TrialUse};
pub use schedule::{
    EndSignals, InTurn, Job, SuiteEnd, SuiteError, SuiteNews, SuiteRequest, WorkerOutcome, end_with_input,
    run_in_turn, run_suite,
};
pub(crate) use scope::really;
pub use scope::{Permit, Scope};
pub use stage::{DirectoryAccess, OUTPUTS, PROJECTS, Stage, StageError, UPLOADS};
pub use subject::{Subject, load_subject};
use trial::EndedRun;
pub use trial::{
    Answering, Conversation, ConversationName, Keep, LastResort, Planning, TrialError, TrialRequest, Tried,
};

impl Trial {
    /// Plans the trial on a stage. No command runs.
    ///
    /// # Errors
    /// If something that it needs is missing.
    pub fn planned(&self, request: &Planning<'_>) -> Result<(Stage, Planned), TrialError> {
        let Planning { environment, sandbox, conversation, consent } = *request;
        // Resolved again: a link may lead elsewhere than when the user agreed.
        let wishes = self.wishes(sandbox, consent.used_for);
        if !consent.covers(&wishes) {
            let list: Vec<String> = wishes.list().iter().map(ToString::to_string).collect();
            return Err(TrialError::NotAgreed { suite: wishes.suite, wishes: list.join("; ") });
        }
        let mut stage = match conversation {
            Conversation::Fresh => Stage::new(&environment.state, &fresh_run_id())?,
            Conversation::Named(name) | Conversation::Resumed(name) => {
                Stage::lasting(&environment.state, &name.uuid())?
            }
        };
        let goes_on = matches!(conversation, Conversation::Resumed(_));
        if goes_on && !stage.was_there() {
            return Err(TrialError::Unsupported(
                "there is no conversation of this name to continue".to_owned(),
            ));
        }
        let permitted =
            |real: &AbsPath| self.scope.holds_real(real) || consent.covers_path(&self.scope.suite, real);
        for (path, access) in &self.found.directories {
            stage.add_directory((path, &permitted), *access)?;
        }
        for (uuid, path) in &self.found.projects {
            stage.project(uuid, (path, &permitted))?;
        }
        for path in &self.found.uploads {
            stage.upload((path, &permitted))?;
        }
        let user = environment.git_files();
        let mut left_out = Vec::new();
        let mut library = |family, list: &[(_, AbsPath)]| {
            let one = |(name, path): &(_, AbsPath)| {
                let which = (&user, self.untracked);
                let (staged, without) = stage.library((family, name), (path, &permitted), which)?;
                left_out.extend(without.into_iter().map(|file| format!("{name}/{}", file.display())));
                Ok((Clone::clone(name), staged))
            };
            list.iter().map(one).collect::<Result<Vec<_>, StageError>>()
        };
        let (skills, plugins) =
            (library("skills", &self.found.skills)?, library("plugins", &self.found.plugins)?);
        let staged = Staged {
            read_only: stage
                .read_only
                .iter()
                .map(|name| (stage.workspace().child(name), name.clone()))
                .collect(),
            skills,
            plugins,
            mcp: self.found.servers.clone(),
            backend: Some(sandbox.backend.map_or_else(|| self.backend(), Ok)?),
            image: sandbox.image.clone(),
            home: match conversation {
                Conversation::Fresh => None,
                Conversation::Named(_) | Conversation::Resumed(_) => Some(HomeMode::Project),
            },
            cost: self.cost,
            variables: Harnesses::built_in().usual().tune(&self.tuning()).variables,
        };
        stage.left_out = left_out;
        let text = agent_under_test(&self.scenario, &self.session, &staged)?;
        let planned =
            Planner::plan_stage(environment, (stage.path(), stage.workspace()), text).map_err(Box::new)?;
        Ok((stage, planned))
    }

    /// The backend for the scenario's tier. `container` is what the format calls a sandbox without a network of its own
    /// and with its own file tree, which bubblewrap is. At `hostloop` and `cowork` other tools run parts of the agent
    /// outside; here all of it is inside, which is stricter.
    fn backend(&self) -> Result<BackendKind, TrialError> {
        match self.scenario.fidelity {
            None | Some(Fidelity::Container | Fidelity::Hostloop | Fidelity::Cowork) => {
                Ok(BackendKind::Bwrap)
            }
            Some(Fidelity::Protocol) => Ok(BackendKind::Host),
            // A sandbox that shares the kernel is weaker than a virtual machine, so it is not chosen instead.
            Some(Fidelity::Microvm) => Err(TrialError::Unsupported(
                "`fidelity: microvm` asks for a virtual machine, and belljar has no such backend; write `fidelity: \
                 container`, or choose a backend for this run with --backend"
                    .to_owned(),
            )),
        }
    }

    /// The tier that a run had: the backend, and the tier of the scenario that it stands for.
    #[must_use]
    pub fn tier(&self, backend: BackendKind) -> String {
        match self.scenario.fidelity {
            Some(tier) if tier.name() != backend.name() => format!("{} for {tier}", backend.name()),
            Some(_) | None => backend.name().to_owned(),
        }
    }

    /// Runs the trial and judges it.
    ///
    /// # Errors
    /// If it did not run. A failed check is not an error.
    pub fn run(&self, request: TrialRequest<'_>) -> Result<Tried, TrialError> {
        let TrialRequest {
            verb,
            environment,
            model,
            sandbox,
            consent,
            name,
            answering,
            then,
            conversation,
            keep,
            taping,
            watch,
        } = request;
        let planning = Planning { environment, sandbox: &sandbox, conversation: &conversation, consent };
        let (stage, planned) = self.planned(&planning)?;
        let plan = &planned.compiled.plan;
        let version = planned.program_found.as_ref().filter(|path| !environment.is_of_the_project(path));
        let version = version.and_then(|path| agent_version(&environment.state, path));
        let notice = match &planned.program_found {
            Some(path) => worth_knowing(&path.to_string(), version, &planned.versions),
            // A missing credential is reported when it is needed.
            None => Ok(None),
        };
        let notice = notice.map_err(TrialError::Unsupported)?;
        let notices: Vec<String> = notice.into_iter().chain(stage.left_out_line()).collect();
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        let files = FilesWatch::begin(&stage);
        let talk = ConversationRequest {
            config: MachineConfig {
                hooks: Harnesses::built_in().background_hooks(),
                skills: skill_places(plan),
                ..MachineConfig::default()
            },
            messages: vec![self.scenario.prompt.clone()],
            then,
            deciders: self.deciders(answering, recorded_answers(&model)),
            react: None,
            times: ConversationTimes::default(),
        };
        let facts = TapeFacts::of(&planned, &skill_places(plan), environment, (&taping, &model));
        let subject = RunSubject { verb, scenario: Some(self.used(plan)) };
        let mut ask = |message: &str| crate::session::terminal::ask_hidden(message);
        let report = run(RunRequest {
            planned: &planned,
            facts: LaunchFacts::gather(&planned, environment).map_err(Box::new)?,
            environment,
            workload: &Workload::Agent(self.arguments(&planned, version, &conversation)?),
            subject: subject.clone(),
            notice: notice.clone(),
            name,
            model,
            mode: EgressMode::Enforce,
            // The scenario has it, with the one of the command line.
            time: None,
            // The user was asked about the backend with the suite.
            open: &mut |_| {},
            ask: &mut ask,
            stdio: Stdio::Conversation(Box::new(talk)),
            // The stage must exist before the sandbox is started.
            waiting: None,
            files: Some(files),
            judge: Judge::of(self.checks.claims()),
            taping,
            reach: match consent.used_for {
                TrialUse::Run => Reach::AsRuled,
                TrialUse::RunOffline | TrialUse::Inspect => Reach::Nowhere,
            },
            watch,
        })
        .map_err(Box::new)?;
        if let CommandOutcome::NotExecuted { what, .. } = &report.outcome {
            return Err(TrialError::NotExecuted { what: what.clone() });
        }
        let Some(directory) = report.directory.clone() else { return Err(TrialError::NoRecord) };
        let ended = EndedRun { report: &report, directory: &directory, subject: &subject, environment };
        let (run, evidence) = ended.read(self.scenario.lane, || match keep {
            Keep::Workspace => stage.keep_workspace(&directory.child("workspace")),
            Keep::Changes => Ok(()),
        })?;
        let redact =
            |text: &str| report.redact.scrub_bytes(text.as_bytes()).map(|_| report.redact.scrub(text));
        let judgement = self.checks.judge_redacted(&evidence, &redact);
        let plan = planned.compiled.plan;
        let tried = Tried { judgement, run, directory, plan, report, facts, notice, subject };
        // A replay is judged further: it may be stale, or have drifted.
        if verb != RunVerb::Replay {
            tried.conclude(environment)?;
        }
        Ok(tried)
    }

    /// What the record says about the scenario and what it tests.
    fn used(&self, plan: &Plan) -> ScenarioUsed {
        ScenarioUsed {
            name: self.scenario.name.clone(),
            file: self.file.clone(),
            text: self.text.clone(),
            skills: skill_digests(plan),
            plugins: plugin_digests(plan),
        }
    }

    fn arguments(
        &self,
        planned: &Planned,
        version: Option<AgentVersion>,
        conversation: &Conversation,
    ) -> Result<Vec<OsText>, TrialError> {
        let mut arguments = planned.conversation_arguments.clone();
        for lacking in version.iter().flat_map(|version| planned.versions.lacking(*version)) {
            arguments.retain(|argument| !lacking.arguments.contains(argument));
        }
        let id = match conversation {
            Conversation::Fresh => String::new(),
            Conversation::Named(name) | Conversation::Resumed(name) => name.uuid(),
        };
        let conversation = match conversation {
            Conversation::Fresh => ConversationChoice::Fresh,
            Conversation::Named(_) => ConversationChoice::Named(&id),
            Conversation::Resumed(_) => ConversationChoice::Resumed(&id),
        };
        let tuning = SessionTuning { conversation, ..self.tuning() };
        arguments.extend(Harnesses::built_in().usual().tune(&tuning).arguments);
        let arguments = arguments.into_iter().map(|argument| OsText::new(argument.into_bytes()));
        Ok(arguments.collect::<Result<_, _>>()?)
    }

    /// What the session asks of the agent. The platform keeps everything in the foreground; the other tiers leave the
    /// agent's list of tools as it is, because a change of it makes every tape drift.
    fn tuning(&self) -> SessionTuning<'_> {
        let foreground_only = match self.scenario.fidelity {
            Some(Fidelity::Cowork | Fidelity::Hostloop) => true,
            None | Some(Fidelity::Protocol | Fidelity::Container | Fidelity::Microvm) => false,
        };
        SessionTuning { foreground_only, ..tuning(&self.session) }
    }

    fn deciders(&self, answering: Answering, recorded: Option<RecordedAnswers>) -> Deciders {
        let Answering { flags, policy, outside, model, last } = answering;
        let scripted = Scripted::default()
            .with(flags, By::CommandLine)
            .with(self.rules.clone(), By::Scenario)
            .with(policy, By::Policy);
        let mut chain = Chain::default().then(scripted);
        if let Some(recorded) = recorded {
            chain = chain.then(recorded);
        }
        // The scenario's own `on_unanswered` wins over the last resort of the command line.
        let (first, person) = match (self.scenario.on_unanswered, last) {
            (Some(_), _) | (None, LastResort::Fail) => (false, None),
            (None, LastResort::First) => (true, None),
            (None, LastResort::Person(person)) => (false, Some(person)),
        };
        let outside = outside.or(person);
        // An external decider is asked about tools as well.
        if outside.is_none() {
            chain = chain.then(match self.session.permission_parity {
                PermissionParity::Cowork => Parity::Cowork,
                PermissionParity::Strict => Parity::Strict,
            });
        }
        // A model that the command line names overrides the scenario.
        let (first, model) = match (self.scenario.on_unanswered, model) {
            (_, Some(wish)) => (false, Some(wish)),
            (Some(OnUnanswered::First), None) => (true, None),
            (Some(OnUnanswered::Llm), None) => (false, Some(ModelWish::default())),
            // `prompt` was refused earlier for runs without a terminal.
            (Some(OnUnanswered::Fail | OnUnanswered::Prompt), None) => (false, None),
            (None, None) => (first, None),
        };
        if first && outside.is_none() {
            chain = chain.then(First);
        }
        let outside = outside
            .or_else(|| model.map(|wish| Box::new(ModelDecider::new(wish)) as Box<dyn ExternalDecider>));
        Deciders { chain, outside }
    }
}

/// The answers that were given when a tape was recorded.
fn recorded_answers(model: &Model) -> Option<RecordedAnswers> {
    match model {
        Model::Replay(replay) => Some(replay.answers()),
        Model::Absent | Model::Live | Model::Script(_) => None,
    }
}

/// The directories of skills as the agent sees them, so that their use is noticed. Names of a plugin's skills have the
/// plugin's name as prefix.
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
        let skills = plugin.source.child("skills");
        let entries = std::fs::read_dir(&skills).into_iter().flatten().flatten();
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
