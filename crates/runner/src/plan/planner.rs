//! Makes the plan of an agent for a directory.

use crate::agents::{Absence, AgentProgram, ChooseError, absence, kept_agent, program_on_path};
use crate::egress::{first_place, upstream_shown};
use crate::environment::HostEnvironment;
use crate::plan::arguments::HarnessFlags;
use crate::plan::mounted::{identities, mounted};
use crate::plan::planned::{Checked, Planned, PlanningError};
use crate::plan::secret_values::entering;
use crate::plan::shared_values::{self, SharedFile};
use crate::plan::{agreed_files, facts, manifests, project};
use belljar_contract::decode::At;
use belljar_contract::{
    AbsPath, AgentChoice, AgentName, AgentRelease, AgentSource, AgentUsed, AgentVersions, Diagnostic,
    Harness, HarnessProfile, ImageName, NamedBy, Plan, Purpose, SandboxChoice,
};
use belljar_plan::{
    BUILT_IN_AGENT, ByHand, Compiler, ContentFact, HostFacts, LayerText, Manifest, ManifestError,
    ProjectFacts, Questions, Request, Rigour, Selection, UserFacts, built_in_manifest, further_questions,
    questions, select,
};
use belljar_sandbox::Capacity;
use belljar_session::Harnesses;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Makes plans for one directory.
pub struct Planner {
    environment: HostEnvironment,
    harnesses: Harnesses,
    project: ProjectFacts,
    sandbox: SandboxChoice,
    agent: Option<AgentChoice>,
    by_hand: ByHand,
    /// The directory with copies of a suite's files, for the plan of a scenario.
    stage: Option<PlannedStage>,
}

/// The directory with copies of a suite's files.
#[derive(Debug, Clone)]
pub(crate) struct PlannedStage {
    pub path: AbsPath,
    pub workspace: AbsPath,
    pub holds: StageHolds,
}

/// What is removed with a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageHolds {
    /// The workspace, the skills and the plugins.
    Copies,
    /// The agent's home and state as well: without a sandbox they cannot be in memory.
    Everything,
}

impl Planner {
    /// Finds the project; no manifest is read yet.
    ///
    /// # Errors
    /// If the working directory is not valid, or a profile shipped with belljar is invalid.
    pub fn new(environment: HostEnvironment) -> Result<Self, PlanningError> {
        let project = project::find(&environment.directory)?;
        let sandbox = SandboxChoice::default();
        Ok(Self {
            harnesses: Harnesses::load()?,
            project,
            environment,
            sandbox,
            agent: None,
            by_hand: ByHand::default(),
            stage: None,
        })
    }

    /// Sets the isolation that the command line asks for; it overrides the manifest.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: SandboxChoice) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Sets the version of the agent that the command line asks for; it overrides the manifest.
    #[must_use]
    pub fn with_agent(mut self, agent: Option<AgentChoice>) -> Self {
        self.agent = agent;
        self
    }

    /// Sets what the command line gives the agent for one run; it lies above the manifests.
    #[must_use]
    pub fn with_by_hand(mut self, by_hand: ByHand) -> Self {
        self.by_hand = by_hand;
        self
    }

    #[must_use]
    pub fn project(&self) -> &ProjectFacts {
        &self.project
    }

    #[must_use]
    pub fn environment(&self) -> &HostEnvironment {
        &self.environment
    }

    fn places(&self) -> Vec<(belljar_plan::ManifestLayer, AbsPath)> {
        manifests::places(&self.environment.config, &self.project)
    }

    fn texts(&self) -> Result<Vec<LayerText>, PlanningError> {
        manifests::read(&self.places(), |path| self.environment.shown(path))
    }

    fn no_manifest(&self) -> PlanningError {
        let looked = self.places().iter().map(|(_, path)| self.environment.shown(path)).collect();
        PlanningError::NoManifest { looked }
    }

    fn user(&self) -> UserFacts {
        UserFacts {
            home: self.environment.home.clone(),
            instances: match &self.stage {
                Some(stage) if stage.holds == StageHolds::Everything => stage.path.child("instances"),
                Some(_) | None => self.environment.data.child("instances"),
            },
            config: self.environment.config.clone(),
        }
    }

    /// The plan of the named agent; without a name, of the only agent, or of the built-in one if none is declared.
    ///
    /// # Errors
    /// See [`PlanningError`].
    pub fn plan(&self, agent: Option<&str>, purpose: Purpose) -> Result<Planned, PlanningError> {
        let mut texts = self.texts()?;
        if texts.is_empty() && agent.is_some() {
            return Err(self.no_manifest());
        }
        let mut manifest = if texts.is_empty() { None } else { Some(belljar_plan::parse(texts.clone())?) };
        let selection = match &manifest {
            Some(manifest) => select(manifest, agent).map_err(PlanningError::Selection)?,
            None => Selection::BuiltIn,
        };
        let (name, called) = match selection {
            Selection::Agent(name) => (name.clone(), Some(name)),
            Selection::BuiltIn => {
                texts.insert(0, built_in_manifest(&self.harnesses.usual().profile().name)?);
                manifest = Some(belljar_plan::parse(texts)?);
                (AgentName::new(BUILT_IN_AGENT).map_err(|_broken| self.no_manifest())?, None)
            }
        };
        let manifest = manifest.ok_or_else(|| self.no_manifest())?;
        Ok(Planned { called, ..self.compile(&manifest, &name, purpose)? })
    }

    /// The plan of the only agent that a text declares, for a stage. No manifest of the user or of a project takes
    /// part.
    ///
    /// # Errors
    /// See [`PlanningError`].
    pub(crate) fn plan_stage(
        environment: &HostEnvironment,
        stage: PlannedStage,
        (text, agent): (LayerText, Option<AgentChoice>),
    ) -> Result<Planned, PlanningError> {
        let workspace = &stage.workspace;
        let project = ProjectFacts {
            directory: workspace.clone(),
            root: workspace.clone(),
            canonical_root: workspace.clone(),
            outside_repository: None,
        };
        let planner = Self {
            environment: environment.clone(),
            harnesses: Harnesses::load()?,
            project,
            sandbox: SandboxChoice::default(),
            agent,
            by_hand: ByHand::default(),
            stage: Some(stage),
        };
        let manifest = belljar_plan::parse(vec![text])?;
        match select(&manifest, None).map_err(PlanningError::Selection)? {
            Selection::Agent(name) => planner.compile(&manifest, &name, Purpose::Test),
            Selection::BuiltIn => Err(planner.no_manifest()),
        }
    }

    /// The answers, including those to questions that the first answers raise.
    fn facts(&self, asked: Questions, harnesses: &[&dyn Harness]) -> HostFacts {
        let answer = |asked| {
            let is_set = |name: &str| self.environment.is_set(name);
            let seal = |digest| agreed_files::seal(&self.environment.state, digest);
            let (user, project) = (self.user(), self.project.clone());
            facts::answer(asked, (user, project, self.stage.as_ref().map(|stage| &stage.path)), is_set, seal)
        };
        let mut facts = answer(asked);
        let further = further_questions(harnesses, &facts);
        facts.extend(answer(further));
        facts
    }

    fn compile(
        &self,
        manifest: &Manifest,
        name: &AgentName,
        purpose: Purpose,
    ) -> Result<Planned, PlanningError> {
        let list = self.harnesses.list();
        let laid = (!self.by_hand.is_empty())
            .then(|| manifest.with_by_hand(name, &self.by_hand, &self.project.directory));
        let mut asked = Questions::default();
        for manifest in std::iter::once(manifest).chain(&laid) {
            let agents = Some(std::slice::from_ref(name));
            asked.extend(questions(manifest, agents, &list, &self.environment.home, &self.project));
        }
        // Gathered once, so that what is agreed to and what is started are made from the same facts.
        let facts = self.facts(asked, &list);
        let plan = |manifest, rigour| {
            let (harnesses, facts) = (list.as_slice(), &facts);
            let (sandbox, agent) = (&self.sandbox, self.agent.as_ref());
            self.planned(Request { manifest, harnesses, facts, purpose, rigour, sandbox, agent }, name)
        };
        let Some(laid) = &laid else { return plan(manifest, Rigour::Launch) };
        // A variable that is not set may be given by hand.
        let of_manifests = plan(manifest, Rigour::Check)?;
        Ok(Planned {
            needs_agreement: of_manifests.needs_agreement,
            used_by_others: of_manifests.used_by_others.clone(),
            of_manifests: Some(Box::new(of_manifests)),
            ..plan(laid, Rigour::Launch)?
        })
    }

    fn planned(&self, request: Request<'_>, name: &AgentName) -> Result<Planned, PlanningError> {
        let Request { manifest, harnesses, .. } = request;
        let mut compiler = Compiler::new(request);
        let compiled = compiler.agent(name);
        let (sources, diagnostics) = compiler.finish();
        let Some(compiled) = compiled else {
            return Err(PlanningError::Invalid { sources, diagnostics });
        };
        self.environment.private.outside(mounted(&compiled.plan))?;
        let shared_files = self.shared_files(&compiled.plan);
        let (program, agent) = self.program(&compiled.plan);
        let path = program.as_ref().ok().and_then(AgentProgram::path);
        let profile = self.profile(&compiled.plan.harness);
        let model = profile.map(|profile| &profile.model);
        Ok(Planned {
            entering: entering(&compiled.plan, &shared_files, &self.environment),
            shared_files,
            open: belljar_sandbox::open_needs(&compiled.plan),
            defaults: belljar_sandbox::default_limits(&compiled.plan, Capacity::here()),
            credential_found: model.and_then(|model| first_place(model, &self.environment)),
            upstream: model.and_then(|model| upstream_shown(model, &self.environment)),
            called: Some(name.clone()),
            repository: self.project.outside_repository.clone(),
            used_by_others: self.used_by_others(manifest, harnesses),
            git_files: self.environment.git_files(),
            identities: identities(&compiled.plan, path),
            flags: profile.map(HarnessFlags::of).unwrap_or_default(),
            conversation_arguments: self.conversation_arguments(&compiled.plan.harness),
            versions: self.versions(&compiled.plan.harness),
            needs_agreement: manifest.has_project_layer()
                || compiled.plan.workspace.unguarded.is_some()
                || compiled.takes_from_project
                || !compiled.plan.used_outside.is_empty(),
            of_manifests: None,
            program,
            agent,
            compiled,
            sources,
            warnings: diagnostics,
        })
    }

    /// The files and directories of the project that the values of all agents come from.
    fn used_by_others(&self, manifest: &Manifest, harnesses: &[&dyn Harness]) -> Vec<AbsPath> {
        let asked = questions(manifest, None, harnesses, &self.environment.home, &self.project).contents;
        let place = |path: &AbsPath| match facts::content_fact(path, &self.project) {
            ContentFact::Digest(real, _) => Some(real),
            ContentFact::Elsewhere | ContentFact::Unusable(_) => None,
        };
        asked.keys().filter_map(place).collect()
    }

    /// The images that the manifests name, as far as they can be parsed.
    #[must_use]
    pub fn images(&self) -> Vec<ImageName> {
        let manifest = match self.texts().map(belljar_plan::parse) {
            Ok(Ok(manifest)) => manifest,
            Ok(Err(ManifestError { partial: Some(partial), .. })) => *partial,
            Ok(Err(ManifestError { partial: None, .. })) | Err(_) => return Vec::new(),
        };
        let named = manifest.agents.values().filter_map(|agent| agent.spec.image.as_ref());
        named.map(|image| image.value.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// All errors and warnings in the manifests, for every agent.
    ///
    /// # Errors
    /// If there is no manifest, or one cannot be read or parsed.
    pub fn check(&self) -> Result<Checked, PlanningError> {
        let texts = self.texts()?;
        if texts.is_empty() {
            return Err(self.no_manifest());
        }
        let (manifest, mut found) = match belljar_plan::parse(texts) {
            Ok(manifest) => (manifest, Vec::new()),
            Err(ManifestError { diagnostics, partial: Some(partial), .. }) => (*partial, diagnostics),
            Err(error) => return Err(error.into()),
        };
        let list = self.harnesses.list();
        let asked = questions(&manifest, None, &list, &self.environment.home, &self.project);
        let facts = self.facts(asked, &list);
        let sandbox = SandboxChoice::default();
        let mut compiler = Compiler::new(Request {
            manifest: &manifest,
            harnesses: &list,
            facts: &facts,
            purpose: Purpose::Session,
            rigour: Rigour::Check,
            sandbox: &sandbox,
            agent: None,
        });
        compiler.library();
        for name in manifest.agents.keys() {
            compiler.agent(name);
        }
        let (sources, diagnostics) = compiler.finish();
        found.extend(diagnostics);
        found.extend(manifest.releases().filter_map(|At { value, place }| {
            let Absence { message, help } = absence(&self.environment, value)?;
            Some(Diagnostic::error("not-installed", message, place.label("")).warning().help(help))
        }));
        // Sorted by position in the files, because several checks report in their own order.
        found.sort_by_key(|finding| finding.label.as_ref().map(|label| (label.file, label.span.start)));
        Ok(Checked {
            files: manifest.sources.iter().map(|source| source.name.clone()).collect(),
            agents: manifest.agents.len(),
            library: manifest.skills.len() + manifest.mcp.len() + manifest.plugins.len(),
            sources,
            diagnostics: found,
        })
    }

    fn profile(&self, harness: &str) -> Option<&HarnessProfile> {
        self.harnesses.named(harness).map(Harness::profile)
    }

    fn shared_files(&self, plan: &Plan) -> Vec<SharedFile> {
        self.profile(&plan.harness).map(|profile| shared_values::files(plan, profile)).unwrap_or_default()
    }

    fn conversation_arguments(&self, harness: &str) -> Vec<String> {
        let abilities = |profile: &HarnessProfile| {
            let abilities = profile.versions.abilities.iter();
            let arguments = abilities.flat_map(|ability| ability.arguments.clone());
            profile.conversation.iter().cloned().chain(arguments).collect()
        };
        self.profile(harness).map(abilities).unwrap_or_default()
    }

    fn versions(&self, harness: &str) -> AgentVersions {
        self.profile(harness).map(|profile| profile.versions.clone()).unwrap_or_default()
    }

    /// The version that is named, or the agent's program on the search path, links and wrappers followed.
    fn program(&self, plan: &Plan) -> (Result<AgentProgram, Arc<ChooseError>>, AgentUsed) {
        let name = plan.harness.clone();
        let Some(version) = plan.agent_version.clone() else {
            let found = self.profile(&name).map(|profile| program_on_path(&self.environment, profile));
            let found = found.transpose().map(|found| found.flatten().map(|found| found.path));
            let used = AgentUsed { name, version: None, source: AgentSource::Path };
            return (found.map(AgentProgram::OnPath).map_err(|error| Arc::new(error.into())), used);
        };
        let named_by = match (&self.agent, &self.stage) {
            (Some(asked), _) => asked.named_by,
            (None, Some(_)) => NamedBy::Session,
            (None, None) => NamedBy::Manifest,
        };
        let source = AgentSource::Kept { named_by };
        let used = AgentUsed { name: name.clone(), version: Some(version.to_string()), source };
        let found = kept_agent(&self.environment, &AgentRelease { name, version });
        (found.map(|found| AgentProgram::Kept(Box::new(found))).map_err(Arc::new), used)
    }
}
