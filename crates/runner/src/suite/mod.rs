//! Tests of skills: an agent is given a task in its own sandbox, its questions are answered, and its actions are
//! judged.
//!
//! A trial is read and checked ([`load_scenario`]), staged, planned, run and judged ([`Trial::run`]). The verdict is
//! based on the run's record alone, so an old run and one that has just ended are judged alike.

mod chain;
mod check;
mod consent;
mod deciders;
mod denials;
mod digests;
mod discover;
mod evidence;
mod files;
mod job;
mod judge;
mod judge_again;
#[cfg(test)]
mod keys_tests;
mod load;
mod originals;
mod plugins;
mod private;
mod rehearsal;
mod requests;
mod result;
mod scaffold;
mod schedule;
mod scope;
mod script;
pub(crate) mod stage;
mod stage_copy;
mod subject;
mod tier;
mod trial;
pub(crate) mod unsealed;

pub use crate::git::Untracked;
use crate::launch::{CommandOutcome, LaunchFacts, Model, RunRequest, RunSubject, ScenarioUsed, Stdio, run};
use crate::plan::agent_version::worth_knowing;
use crate::plan::planned::Planned;
use crate::plan::planner::{PlannedStage, Planner, StageHolds};
use crate::session::conversation::{ConversationRequest, ConversationTimes};
use crate::store::names::fresh_run_id;
use crate::tape::{RecordedAnswers, TapeFacts, plugin_digests, skill_digests};
use belljar_contract::{
    AbsPath, AgentVersion, ConversationChoice, HomeMode, OsText, Plan, RunVerb, SCENARIO_TIME, SessionTuning,
    TapeTrees, TimeSpan, Workload,
};
use belljar_egress::proxy::{EgressMode, Reach};
pub use belljar_plan::Fidelity;
use belljar_plan::{Scenario, Staged, agent_under_test, tuning};
use belljar_session::{Harnesses, MachineConfig};
pub use belljar_verdict::unvouched;
use chain::ScenarioAnswers;
pub use check::{CheckedFiles, CheckedKind, check_files};
pub use consent::{AgreedBy, ConsentDecision, KnownPart, OpenConsent, OpenWishes, agree, not_agreed};
pub use deciders::{
    AskingState, CommandDecider, DECIDER_MODEL, DirectoryDecider, DirectoryError, GATES_DONE, GateError,
    GateName, GateReply, Gates, GatesWake, ModelDecider, ModelWish, OpenGate, Person, SuiteQuestions,
    leave_answer,
};
pub(crate) use digests::{input_digests, library_digest};
pub use discover::{DiscoverError, Discovered, Skipped, scenario_files, script_beside, selected};
pub use evidence::evidence;
pub(crate) use evidence::evidence_of;
pub use files::FilesWatch;
pub(crate) use files::kept_of_a_file;
pub use job::{JobResult, SuiteOutcome, SuiteVerb};
pub use judge::Judge;
pub(crate) use judge::{Judged, is_reading, recorded_reading};
pub use judge_again::{JudgeError, JudgedAgain, judge_again};
pub(crate) use load::scenario_alone;
pub use load::{LoadError, NamedFiles, Trial, load_policy, load_scenario, load_scenario_alone};
pub(crate) use plugins::skill_places;
pub use plugins::skills;
pub use rehearsal::{Rehearsal, RehearsalError, RehearsalRequest, Rehearsed, RehearsedAnswer, rehearse};
#[cfg(test)]
pub(crate) use requests::tests::environment as test_environment;
pub use requests::{Consent, HostsFrom, TrialUse};
pub(crate) use scaffold::script_text;
pub use scaffold::{
    FromRunError, Overwrite, Scaffold, ScaffoldError, scaffold_from_run, scaffold_new, scaffold_script,
};
pub(crate) use schedule::at_once;
pub use schedule::{
    EndSignals, Job, SuiteEnd, SuiteError, SuiteNews, SuiteRequest, WorkerOutcome, end_with_input, run_suite,
};
pub(crate) use scope::really;
pub use scope::{Permit, Scope};
pub use script::{load_script, script_model};
pub(crate) use stage::staging;
pub use stage::{DirectoryAccess, OUTPUTS, PROJECTS, Stage, StageError, UPLOADS};
use std::time::Duration;
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
        let environment = &self.environment(request.environment)?;
        self.planned_in(&Planning { environment, ..*request }, self.scenario.timeout)
    }

    /// The same with the environment of the trial, and the time limit that the agent is told.
    fn planned_in(
        &self,
        request: &Planning<'_>,
        told: Option<Duration>,
    ) -> Result<(Stage, Planned), TrialError> {
        let Planning { environment, sandbox, agent, conversation, consent } = *request;
        // Resolved again: a link may lead elsewhere than when the user agreed.
        let wishes = self.wishes(sandbox, consent.used_for);
        if !consent.covers(&wishes) {
            let list: Vec<String> = wishes.list().iter().map(ToString::to_string).collect();
            return Err(TrialError::NotAgreed { suite: wishes.suite, wishes: list.join("; ") });
        }
        let backend = self.backend(sandbox)?;
        let mut stage = match conversation {
            Conversation::Fresh if backend.isolates() => {
                Stage::new(&staging(&environment.state), &fresh_run_id())?
            }
            Conversation::Fresh => unsealed::stage(environment)?,
            Conversation::Named(_) | Conversation::Resumed(_) if !backend.isolates() => {
                return Err(unsealed::not_resumed());
            }
            Conversation::Named(name) | Conversation::Resumed(name) => {
                Stage::lasting(&environment.state, &name.uuid())?
            }
        };
        if let Conversation::Named(name) = conversation
            && stage.has_begun()
        {
            return Err(StageError::Begun { name: name.to_string() }.into());
        }
        if let Conversation::Resumed(name) = conversation
            && !stage.was_there()
        {
            return Err(StageError::NotBegun { name: name.to_string() }.into());
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
            // Without a sandbox nothing is read-only; the open needs say so.
            read_only: stage
                .read_only
                .iter()
                .filter(|_| backend.isolates())
                .map(|name| (stage.workspace().child(name), name.clone()))
                .collect(),
            skills,
            plugins,
            mcp: self.found.servers.clone(),
            backend: Some(backend),
            image: sandbox.image.clone(),
            home: match conversation {
                Conversation::Fresh => None,
                Conversation::Named(_) | Conversation::Resumed(_) => Some(HomeMode::Project),
            },
            cost: self.cost,
            variables: Harnesses::built_in().usual().tune(&self.tuning()).variables,
        };
        stage.left_out = left_out;
        let scenario = Scenario { timeout: told, ..self.scenario.clone() };
        let text = agent_under_test(&scenario, &self.session, &staged)?;
        let holds = if backend.isolates() { StageHolds::Copies } else { StageHolds::Everything };
        let (path, workspace) = (stage.path().clone(), stage.workspace().clone());
        let planned =
            Planner::plan_stage(environment, PlannedStage { path, workspace, holds }, (text, agent.cloned()));
        Ok((stage, planned.map_err(Box::new)?))
    }

    /// Runs the trial and judges it.
    ///
    /// # Errors
    /// If it did not run. A failed check is not an error.
    pub fn run(&self, request: TrialRequest<'_>) -> Result<Tried, TrialError> {
        let TrialRequest {
            verb,
            environment,
            mut model,
            sandbox,
            agent,
            consent,
            name,
            answering,
            then,
            conversation,
            keep,
            taping,
            watch,
        } = request;
        let environment = &self.environment(environment)?;
        let planning = Planning {
            environment,
            sandbox: &sandbox,
            agent: agent.as_ref(),
            conversation: &conversation,
            consent,
        };
        unsealed::check(self.backend(&sandbox)?, &model, &taping)?;
        // A recording is replayed with the words that the agent got then.
        let told = match &model {
            Model::Replay(replay) => replay.time_told().unwrap_or(self.scenario.timeout),
            Model::Absent | Model::Live | Model::Script(_) => self.scenario.timeout,
        };
        let (stage, mut planned) = self.planned_in(&planning, told)?;
        let _held = planned.hold_agent(environment)?;
        let version = planned.agent_version(environment);
        planned.agent.version = version.map(|version| version.to_string()).or(planned.agent.version);
        let plan = &planned.compiled.plan;
        if let Model::Replay(replay) = &mut model {
            replay.for_agent(version, self);
        }
        let notice = match planned.program_found() {
            Some(path) => worth_knowing(&path.to_string(), version, &planned.versions),
            // A missing credential is reported when it is needed.
            None => Ok(None),
        };
        let notice = notice.map_err(TrialError::Unsupported)?;
        let dotenv = environment.private.notices().iter().cloned();
        let notices: Vec<String> = notice.into_iter().chain(stage.left_out_line()).chain(dotenv).collect();
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        let files = FilesWatch::begin(&stage);
        let denials = self.answers().denials(&answering);
        let talk = ConversationRequest {
            config: MachineConfig {
                hooks: Harnesses::built_in().background_hooks(),
                skills: skill_places(plan),
                ..MachineConfig::default()
            },
            messages: vec![self.scenario.prompt.clone()],
            then,
            deciders: self.answers().deciders(answering, recorded_answers(&model)),
            react: None,
            times: ConversationTimes::default(),
        };
        let facts = TapeFacts::of(&planned, &skill_places(plan), environment, (&taping, &model));
        let subject = RunSubject { verb, scenario: Some(self.used(plan)) };
        let launch_facts = LaunchFacts::gather(&planned, environment).map_err(Box::new)?;
        let workload = Workload::Agent(self.arguments(&planned, version, &conversation)?);
        let is_new = !stage.has_begun();
        stage.begin()?;
        let report = run(RunRequest {
            planned: &planned,
            facts: launch_facts,
            environment,
            workload: &workload,
            subject: subject.clone(),
            notice: notice.clone(),
            name,
            model,
            mode: EgressMode::Enforce,
            time: self.time_limit(told),
            // The user was asked about the backend with the suite.
            open: &mut |_| {},
            ask: &mut |message| crate::session::terminal::ask_hidden(message),
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
        });
        let started =
            report.as_ref().is_ok_and(|report| !matches!(report.outcome, CommandOutcome::NotExecuted { .. }));
        if is_new && !started {
            stage.not_begun();
        }
        let report = report.map_err(Box::new)?;
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
        let mut judgement = self.checks.judge_redacted(&evidence, &redact);
        denials.hold_against(&mut judgement, &evidence);
        let plan = planned.compiled.plan;
        let tried = Tried { judgement, run, directory, plan, report, facts, notice, subject };
        // A replay is judged further: it may be stale, or have drifted.
        if verb != RunVerb::Replay {
            tried.conclude(environment)?;
        }
        Ok(tried)
    }

    /// The time limit, where it is not the one of the plan, which says what the agent is told.
    fn time_limit(&self, told: Option<Duration>) -> Option<TimeSpan> {
        let own = || self.scenario.timeout.map_or(SCENARIO_TIME, TimeSpan::rounded_up);
        self.time.or_else(|| (told != self.scenario.timeout).then(own))
    }

    /// What the record says about the scenario and what it tests.
    fn used(&self, plan: &Plan) -> ScenarioUsed {
        ScenarioUsed {
            name: self.scenario.name.clone(),
            file: self.file.clone(),
            text: self.text.clone(),
            session: self.described.clone(),
            skills: skill_digests(plan, TapeTrees::Directories),
            plugins: plugin_digests(plan, TapeTrees::Directories),
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

    fn answers(&self) -> ScenarioAnswers<'_> {
        ScenarioAnswers {
            rules: &self.rules,
            on_unanswered: self.scenario.on_unanswered,
            parity: self.session.permission_parity,
            name: Some(&self.scenario.name),
        }
    }
}

/// The answers that were given when a tape was recorded.
fn recorded_answers(model: &Model) -> Option<RecordedAnswers> {
    match model {
        Model::Replay(replay) => Some(replay.answers()),
        Model::Absent | Model::Live | Model::Script(_) => None,
    }
}
