//! From a directory to a plan.

use crate::entering::entering;
use crate::git::UserFiles;
use crate::guest_program::GuestProgram;
use crate::shared_values::{self, SharedFile};
use crate::{agreed_files, facts, manifests, project};
use belljar_contract::{
    AbsPath, AgentName, AgentVersions, AskedWalls, DefaultLimit, Diagnostic, Entering, Harness,
    HarnessProfile, ImageName, PathError, Plan, Purpose, Sources,
};
use belljar_plan::{
    BUILT_IN_AGENT, Compiled, Compiler, ContentFact, HostFacts, LayerText, Manifest, ManifestError,
    ProjectFacts, Questions, Request, Rigour, Selection, SelectionError, UserFacts, built_in_manifest,
    further_questions, questions, select,
};
use belljar_sandbox::Capacity;
use belljar_session::{HarnessError, Harnesses};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The user's side of the world, as the caller found it.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The working directory, canonical.
    pub directory: AbsPath,
    /// The home, canonical.
    pub home: AbsPath,
    /// belljar's configuration.
    pub config: AbsPath,
    /// belljar's data: instances.
    pub data: AbsPath,
    /// The program that finishes a sandbox from inside.
    pub guest: GuestProgram,
    /// belljar's state: runs.
    pub state: AbsPath,
    /// What belljar has only while something runs: names, sockets.
    pub runtime: AbsPath,
    /// The environment.
    pub variables: BTreeMap<OsString, OsString>,
}

impl Surroundings {
    /// The user's own files that git reads.
    pub(crate) fn git_files(&self) -> UserFiles {
        let config = self.variables.get(OsStr::new("XDG_CONFIG_HOME")).map(std::path::PathBuf::from);
        let config = config.filter(|path| path.is_absolute());
        let config = config.unwrap_or_else(|| self.home.child(".config").as_path().to_owned());
        UserFiles { home: self.home.clone(), config }
    }

    fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(std::ffi::OsStr::new(name))
    }

    /// A program on the search path that may run outside, symbolic links followed. Relative entries of the path do not
    /// count, nor do programs of the project, such as those in its `node_modules/.bin`.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<AbsPath> {
        let path = self.variables.get(std::ffi::OsStr::new("PATH"))?;
        programs_on(path, name).find(|program| !self.is_of_the_project(program))
    }

    /// The same for a program that runs inside: one of the project will do.
    #[must_use]
    pub fn program_inside(&self, name: &str) -> Option<AbsPath> {
        programs_on(self.variables.get(std::ffi::OsStr::new("PATH"))?, name).next()
    }

    /// The search path for programs that are started outside and look for others: directories that exist, by their real
    /// names, and none of the project.
    #[must_use]
    pub fn outside_path(&self) -> OsString {
        let path = self.variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        let entries = std::env::split_paths(&path).filter(|entry| entry.is_absolute());
        let real = entries.filter_map(|entry| AbsPath::new(entry.canonicalize().ok()?).ok());
        let outside = real.filter(|entry| !self.is_of_the_project(entry));
        std::env::join_paths(outside.map(|entry| entry.as_path().to_owned())).unwrap_or_default()
    }

    /// Whether a program belongs to the project, so that an agent may have written it: it must not run outside. In
    /// doubt it does. Programs of the system are not the project's, even where the project is `/`.
    #[must_use]
    pub fn is_of_the_project(&self, program: &AbsPath) -> bool {
        let system = Path::new("/usr");
        project::find(&self.directory).map_or(true, |project| {
            let of_the_system =
                program.as_path().starts_with(system) && !project.root.as_path().starts_with(system);
            program.is_within(&project.root) && !of_the_system
        })
    }

    /// The program that a command's first word names, links not followed: that path where it has a
    /// slash, else on the search path, whose relative entries do not count.
    pub(crate) fn program_of(&self, name: &str) -> std::io::Result<AbsPath> {
        if name.contains('/') {
            return self.directory.join(name).map_err(std::io::Error::other);
        }
        let path = self.variables.get(OsStr::new("PATH"));
        let found =
            path.and_then(|path| all_on_path(path, name).next()).and_then(|found| AbsPath::new(found).ok());
        found.ok_or_else(|| std::io::Error::other(format!("`{name}` is not on your PATH")))
    }

    /// A path the way the user would write it.
    #[must_use]
    pub fn shown(&self, path: &AbsPath) -> String {
        if let Some(below) = path.relative_to(&self.directory) {
            return AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| p.to_string()[1..].to_owned());
        }
        self.shown_from_home(path)
    }

    /// A path with `~` for the home; never relative, for lists of places all over the disk.
    #[must_use]
    pub fn shown_from_home(&self, path: &AbsPath) -> String {
        match path.relative_to(&self.home) {
            Some(below) => AbsPath::new(Path::new("/").join(below))
                .map_or_else(|_| path.to_string(), |p| format!("~{p}")),
            None => path.to_string(),
        }
    }
}

/// A program on a search path, see [`Surroundings::program`].
fn programs_on(path: &OsStr, name: &str) -> impl Iterator<Item = AbsPath> {
    all_on_path(path, name).filter_map(|found| AbsPath::new(found.canonicalize().ok()?).ok())
}

/// A program of the system on a search path, for those who do not know the project yet.
pub(crate) fn system_program(path: &OsStr, name: &str) -> Option<AbsPath> {
    programs_on(path, name).next().filter(|program| program.as_path().starts_with("/usr"))
}

fn all_on_path(path: &OsStr, name: &str) -> impl Iterator<Item = std::path::PathBuf> {
    belljar_sys::spawn::all_on_path(name.as_bytes(), path.as_bytes())
        .map(|file| std::path::PathBuf::from(OsString::from_vec(file)))
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    /// No manifest where one is needed.
    #[error("no manifest was found")]
    NoManifest {
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// A file is there but cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The files, or what they refer to, are wrong.
    #[error("the manifest cannot be used")]
    Invalid {
        /// The texts.
        sources: Sources,
        /// What is wrong.
        diagnostics: Vec<Diagnostic>,
    },
    /// The agent that was named, or not named, is none.
    #[error("{}", .0.message)]
    Selection(SelectionError),
    /// A path that no file system has.
    #[error("a path cannot be used")]
    Path(#[from] PathError),
    /// A profile that is shipped with belljar is broken.
    #[error("belljar itself is broken")]
    Harness(#[from] HarnessError),
}

impl From<ManifestError> for PlanningError {
    fn from(ManifestError { sources, diagnostics, partial: _ }: ManifestError) -> Self {
        PlanningError::Invalid { sources, diagnostics }
    }
}

/// A plan, with what the caller shows beside it.
#[derive(Debug)]
pub struct Planned {
    /// The plan and its reasons.
    pub compiled: Compiled,
    /// The texts that reasons and warnings point into.
    pub sources: Sources,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
    /// Whether the project's own file takes part, or the user's names something of the project, so that there must be an
    /// agreement.
    pub needs_agreement: bool,
    /// Where the model's credential is now, if anywhere.
    pub credential_found: Option<String>,
    /// Where the model is, when it is not where it usually is.
    pub upstream: Option<String>,
    /// The name that the agent is given on the command line; the one that is built in has none.
    pub called: Option<AgentName>,
    /// Where the agent's program is now, if anywhere.
    pub program_found: Option<AbsPath>,
    /// The repository of the project, where it lies elsewhere.
    pub repository: Option<AbsPath>,
    /// What other agents of the manifests have run or read outside: a run of this one must not change it either.
    pub used_by_others: Vec<AbsPath>,
    /// The user's own files that git reads: what they name is executed in every project.
    pub git_files: UserFiles,
    /// How the agent is asked to go on with a conversation.
    pub session_flags: SessionFlags,
    /// Arguments with which it speaks its protocol, those of every ability included.
    pub conversation_arguments: Vec<String>,
    /// What is known of its versions.
    pub versions: AgentVersions,
    /// Values that enter the sandbox as secrets, by name.
    pub entering: Vec<Entering>,
    /// Limits that hold without being declared, on this machine.
    pub defaults: Vec<DefaultLimit>,
    /// Files of the user's own configuration whose values enter with them.
    pub shared_files: Vec<SharedFile>,
}

/// How an agent is asked to go on with a conversation.
#[derive(Debug, Clone, Default)]
pub struct SessionFlags {
    /// Flags whose value names it.
    pub named: Vec<String>,
    /// Flags that mean the newest.
    pub newest: Vec<String>,
}

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// The texts.
    pub sources: Sources,
    /// Errors and warnings.
    pub diagnostics: Vec<Diagnostic>,
    /// How many agents there are.
    pub agents: usize,
    /// How many library entries there are.
    pub library: usize,
    /// The files that were read.
    pub files: Vec<String>,
}

/// Makes plans for one directory.
pub struct Planner {
    surroundings: Surroundings,
    harnesses: Harnesses,
    project: ProjectFacts,
    walls: AskedWalls,
    /// Where copies of a suite's files lie, for the plan of a trial.
    stage: Option<AbsPath>,
}

impl Planner {
    /// Finds the project; reads no manifest yet.
    ///
    /// # Errors
    /// When belljar itself is broken.
    pub fn new(surroundings: Surroundings) -> Result<Self, PlanningError> {
        let project = project::find(&surroundings.directory)?;
        let walls = AskedWalls::default();
        Ok(Self { harnesses: Harnesses::load()?, project, surroundings, walls, stage: None })
    }

    /// The same, with the walls that the command line asks for, whatever the manifest says.
    #[must_use]
    pub fn with_walls(mut self, walls: AskedWalls) -> Self {
        self.walls = walls;
        self
    }

    /// The project.
    #[must_use]
    pub fn project(&self) -> &ProjectFacts {
        &self.project
    }

    /// The surroundings it was made for.
    #[must_use]
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    fn places(&self) -> Vec<(belljar_plan::Layer, AbsPath)> {
        manifests::places(&self.surroundings.config, &self.project)
    }

    fn texts(&self) -> Result<Vec<LayerText>, PlanningError> {
        manifests::read(&self.places(), |path| self.surroundings.shown(path))
    }

    fn no_manifest(&self) -> PlanningError {
        let looked = self.places().iter().map(|(_, path)| self.surroundings.shown(path)).collect();
        PlanningError::NoManifest { looked }
    }

    fn user(&self) -> UserFacts {
        UserFacts {
            home: self.surroundings.home.clone(),
            instances: self.surroundings.data.child("instances"),
            config: self.surroundings.config.clone(),
        }
    }

    /// The plan of the named agent, of the only one, or of the built-in one where none is declared.
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
                texts.insert(0, built_in_manifest()?);
                manifest = Some(belljar_plan::parse(texts)?);
                (AgentName::new(BUILT_IN_AGENT).map_err(|_broken| self.no_manifest())?, None)
            }
        };
        let manifest = manifest.ok_or_else(|| self.no_manifest())?;
        Ok(Planned { called, ..self.compile(&manifest, &name, purpose)? })
    }

    /// The plan of the only agent of a text, for a stage. No manifest of the user or of a project takes part.
    ///
    /// # Errors
    /// See [`PlanningError`].
    pub(crate) fn plan_stage(
        surroundings: &Surroundings,
        (stage, workspace): (&AbsPath, &AbsPath),
        text: LayerText,
    ) -> Result<Planned, PlanningError> {
        let project = ProjectFacts {
            directory: workspace.clone(),
            root: workspace.clone(),
            canonical_root: workspace.clone(),
            outside_repository: None,
        };
        let planner = Self {
            surroundings: surroundings.clone(),
            harnesses: Harnesses::load()?,
            project,
            walls: AskedWalls::default(),
            stage: Some(stage.clone()),
        };
        let manifest = belljar_plan::parse(vec![text])?;
        match select(&manifest, None).map_err(PlanningError::Selection)? {
            Selection::Agent(name) => planner.compile(&manifest, &name, Purpose::Test),
            Selection::BuiltIn => Err(planner.no_manifest()),
        }
    }

    /// The answers, and those to what the first ones lead to.
    fn facts(&self, asked: Questions, harnesses: &[&dyn Harness]) -> HostFacts {
        let answer = |asked| {
            let is_set = |name: &str| self.surroundings.is_set(name);
            let seal = |digest| agreed_files::seal(&self.surroundings.state, digest);
            let (user, project) = (self.user(), self.project.clone());
            facts::answer(asked, (user, project, self.stage.as_ref()), is_set, seal)
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
        let asked = questions(
            manifest,
            Some(std::slice::from_ref(name)),
            &list,
            &self.surroundings.home,
            &self.project,
        );
        let facts = self.facts(asked, &list);
        let mut compiler = Compiler::new(Request {
            manifest,
            harnesses: &list,
            facts: &facts,
            purpose,
            rigour: Rigour::Launch,
            walls: &self.walls,
        });
        let compiled = compiler.agent(name);
        let (sources, diagnostics) = compiler.finish();
        let Some(compiled) = compiled else {
            return Err(PlanningError::Invalid { sources, diagnostics });
        };
        let shared_files = self.shared_files(&compiled.plan);
        Ok(Planned {
            entering: entering(&compiled.plan, &shared_files, &self.surroundings),
            shared_files,
            defaults: belljar_sandbox::default_limits(&compiled.plan, Capacity::here()),
            credential_found: self.credential(&compiled.plan.model_credentials),
            upstream: crate::outward::upstream_shown(&self.surroundings),
            called: Some(name.clone()),
            program_found: self.program(&compiled.plan.harness),
            repository: self.project.outside_repository.clone(),
            used_by_others: self.used_by_others(manifest, &list),
            git_files: self.surroundings.git_files(),
            session_flags: self.session_flags(&compiled.plan.harness),
            conversation_arguments: self.conversation_arguments(&compiled.plan.harness),
            versions: self.versions(&compiled.plan.harness),
            needs_agreement: manifest.has_project_layer()
                || compiled.plan.workspace.unguarded.is_some()
                || compiled.takes_from_project
                || !compiled.plan.used_outside.is_empty(),
            compiled,
            sources,
            warnings: diagnostics,
        })
    }

    /// The files and directories of the project that the values of all agents come from.
    fn used_by_others(&self, manifest: &Manifest, harnesses: &[&dyn Harness]) -> Vec<AbsPath> {
        let asked = questions(manifest, None, harnesses, &self.surroundings.home, &self.project).contents;
        let place = |path: &AbsPath| match facts::content_fact(path, &self.project) {
            ContentFact::Digest(real, _) => Some(real),
            ContentFact::Elsewhere | ContentFact::Unusable(_) => None,
        };
        asked.keys().filter_map(place).collect()
    }

    /// The images that the manifests name, as far as they can be read.
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

    /// Everything that can be wrong with the files, whichever agent it concerns.
    ///
    /// # Errors
    /// When no file is there, one cannot be read, or they cannot be parsed.
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
        let asked = questions(&manifest, None, &list, &self.surroundings.home, &self.project);
        let facts = self.facts(asked, &list);
        let walls = AskedWalls::default();
        let mut compiler = Compiler::new(Request {
            manifest: &manifest,
            harnesses: &list,
            facts: &facts,
            purpose: Purpose::Session,
            rigour: Rigour::Check,
            walls: &walls,
        });
        compiler.library();
        for name in manifest.agents.keys() {
            compiler.agent(name);
        }
        let (sources, diagnostics) = compiler.finish();
        found.extend(diagnostics);
        // In the order of the files, whoever found it.
        found.sort_by_key(|finding| finding.label.as_ref().map(|label| (label.file, label.span.start)));
        Ok(Checked {
            files: manifest.sources.iter().map(|source| source.name.clone()).collect(),
            agents: manifest.agents.len(),
            library: manifest.skills.len() + manifest.mcp.len() + manifest.plugins.len(),
            sources,
            diagnostics: found,
        })
    }

    /// The first place of the model's credential that holds one now. Its value is not read.
    fn credential(&self, order: &[String]) -> Option<String> {
        let here = |place: &&String| match place.strip_prefix("~/") {
            Some(below) => self.surroundings.home.child(below).as_path().is_file(),
            None => self.surroundings.is_set(place),
        };
        order.iter().find(here).cloned()
    }

    fn shared_files(&self, plan: &Plan) -> Vec<SharedFile> {
        let list = self.harnesses.list();
        let profile = list.iter().map(|known| known.profile()).find(|profile| profile.name == plan.harness);
        profile.map(|profile| shared_values::files(plan, profile)).unwrap_or_default()
    }

    fn session_flags(&self, harness: &str) -> SessionFlags {
        let list = self.harnesses.list();
        let profile = list.iter().map(|known| known.profile()).find(|profile| profile.name == harness);
        profile.map_or_else(SessionFlags::default, |profile| SessionFlags {
            named: profile.session_flags.clone(),
            newest: profile.newest_session_flags.clone(),
        })
    }

    fn conversation_arguments(&self, harness: &str) -> Vec<String> {
        let list = self.harnesses.list();
        let profile = list.iter().map(|known| known.profile()).find(|profile| profile.name == harness);
        let abilities = |profile: &HarnessProfile| {
            let abilities = profile.versions.abilities.iter();
            let arguments = abilities.flat_map(|ability| ability.arguments.clone());
            profile.conversation.iter().cloned().chain(arguments).collect()
        };
        profile.map(abilities).unwrap_or_default()
    }

    fn versions(&self, harness: &str) -> AgentVersions {
        let list = self.harnesses.list();
        let profile = list.iter().map(|known| known.profile()).find(|profile| profile.name == harness);
        profile.map(|profile| profile.versions.clone()).unwrap_or_default()
    }

    /// The agent's program on the search path, symbolic links followed.
    fn program(&self, harness: &str) -> Option<AbsPath> {
        let list = self.harnesses.list();
        let program = &list.iter().find(|known| known.profile().name == harness)?.profile().program;
        self.surroundings.program_inside(program)
    }
}
