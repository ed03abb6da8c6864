//! Manifest, harness and host facts become a plan. Pure: everything about the world comes in as an answer.

mod access;
mod agent;
mod defaults;
mod env;
mod git;
mod library;
mod mounts;
mod network;
mod note;
mod plugins;
mod questions;
mod ssh;

pub(crate) use agent::TEST_WORKSPACE;
pub use defaults::{BUILT_IN_AGENT, built_in_manifest};
pub use mounts::OF_THE_USER;
pub use plugins::further_questions;
pub use questions::questions;
pub use ssh::{SshNotFound, ssh_files};

use crate::explain::{ExplainedValue, Origin};
use crate::facts::{HostFacts, PathFact};
use crate::manifest::{Manifest, PathText};
use belljar_contract::decode::{At, Place, list};
use belljar_contract::nearest;
use belljar_contract::{
    AbsPath, AgentChoice, AgentName, Diagnostic, Harness, LibraryName, Plan, Plugin, Purpose, SandboxChoice,
    Skill, Sources, UsedOutside,
};
use std::collections::{BTreeMap, BTreeSet};

/// How strictly the host is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rigour {
    /// Everything: a run is about to begin.
    Launch,
    /// The files: a variable that is not set here and now is a warning.
    Check,
}

/// The input of a compilation.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub manifest: &'a Manifest,
    /// The known harnesses.
    pub harnesses: &'a [&'a dyn Harness],
    /// The answers to [`questions`].
    pub facts: &'a HostFacts,
    /// Whether the sandbox is for a session or a test.
    pub purpose: Purpose,
    /// How strictly the host is checked.
    pub rigour: Rigour,
    /// The backend and image of the command line, which override the manifest.
    pub sandbox: &'a SandboxChoice,
    /// The version of the agent that the command line asks for, which overrides the manifest.
    pub agent: Option<&'a AgentChoice>,
}

/// A plan and where each of its values comes from.
#[derive(Debug, Clone)]
pub struct Compiled {
    pub plan: Plan,
    /// Where its values come from.
    pub reasons: Vec<ExplainedValue>,
    /// Whether it names something by a path of the project, which an agent may have replaced by a link.
    pub takes_from_project: bool,
}

/// Compiles agents one after another; library entries are resolved, and their faults reported, once.
pub struct Compiler<'a> {
    request: Request<'a>,
    sources: Sources,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    skills: BTreeMap<LibraryName, Option<Skill>>,
    plugins: BTreeMap<LibraryName, Option<Plugin>>,
    /// Files of the project that the agent's values come from.
    used_outside: BTreeSet<UsedOutside>,
    takes_from_project: bool,
}

/// Maximum number of diagnostics: a hostile file could cause any number.
const FINDING_LIMIT: usize = 1000;

impl<'a> Compiler<'a> {
    /// Creates a compiler without diagnostics.
    #[must_use]
    pub fn new(request: Request<'a>) -> Self {
        Self {
            sources: request.manifest.sources.clone(),
            request,
            diagnostics: Vec::new(),
            errors: 0,
            skills: BTreeMap::new(),
            plugins: BTreeMap::new(),
            used_outside: BTreeSet::new(),
            takes_from_project: false,
        }
    }

    /// Checks every library entry, also those that no agent picks.
    pub fn library(&mut self) {
        for name in self.request.manifest.skills.keys() {
            self.skill(name);
        }
        for name in self.request.manifest.plugins.keys() {
            self.plugin(name);
        }
    }

    /// The plan of one agent; `None` when something about it is wrong, which is then among the findings.
    pub fn agent(&mut self, name: &AgentName) -> Option<Compiled> {
        let layered = self.request.manifest.agents.get(name)?;
        if layered.broken {
            // Known in part only: what is missing from it may be what could not be read. Names it does have can
            // be looked up all the same.
            agent::references(self, name, &layered.spec);
            return None;
        }
        let before = self.errors;
        self.used_outside.clear();
        self.takes_from_project = false;
        let mut compiled = agent::compile(self, name, layered).filter(|_| self.errors == before)?;
        for reason in &mut compiled.reasons {
            if let Origin::Written(place) = &reason.origin
                && let Some(option) = self.request.manifest.given_with(place)
            {
                reason.origin = Origin::Option(option);
            }
        }
        Some(compiled)
    }

    /// The texts and the findings.
    #[must_use]
    pub fn finish(self) -> (Sources, Vec<Diagnostic>) {
        (self.sources, self.diagnostics)
    }

    fn is_full(&self) -> bool {
        self.diagnostics.len() >= FINDING_LIMIT
    }

    fn report(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
        place: &Place,
        label: &str,
    ) -> &mut Diagnostic {
        self.errors += 1;
        self.add(Diagnostic::error(code, message, place.label(label)))
    }

    fn warn(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
        place: &Place,
        label: &str,
    ) -> &mut Diagnostic {
        self.add(Diagnostic::error(code, message, place.label(label)).warning())
    }

    /// Past the limit the last finding is replaced, so that an error is never lost behind warnings.
    fn add(&mut self, mut diagnostic: Diagnostic) -> &mut Diagnostic {
        diagnostic.message = belljar_contract::decode::plain(&diagnostic.message);
        if self.is_full() {
            self.diagnostics.truncate(FINDING_LIMIT - 1);
        }
        self.diagnostics.push(diagnostic);
        let last = self.diagnostics.len() - 1;
        &mut self.diagnostics[last]
    }

    /// The absolute form of a path that is written at a place.
    fn resolve(&mut self, path: &At<PathText>) -> Option<AbsPath> {
        let directory = self.request.manifest.directory(&path.place)?;
        match path.resolve(&self.request.facts.user.home, directory) {
            Ok(path) => Some(path),
            Err(error) => {
                self.report("invalid-path", error.to_string(), &path.place, "");
                None
            }
        }
    }

    /// The canonical form of a path that must exist; otherwise reports a fault that names `what` and the path.
    fn existing(&mut self, path: &AbsPath, place: &Place, what: &str, wanted: Wanted) -> Option<AbsPath> {
        self.takes_from_project |= path.is_within(&self.request.facts.project.root);
        let problem = match (self.request.facts.path(path), wanted) {
            (PathFact::Directory(real), Wanted::Directory | Wanted::Either) => return Some(real),
            (PathFact::File(real), Wanted::File | Wanted::Either) => return Some(real),
            (PathFact::Directory(_), Wanted::File) => "is a directory, not a file".to_owned(),
            (PathFact::File(_), Wanted::Directory) => "is a file, not a directory".to_owned(),
            (PathFact::Missing, _) => "does not exist".to_owned(),
            (PathFact::Special, _) => "is neither a file nor a directory".to_owned(),
            (PathFact::Loop, _) => "is a loop of symbolic links".to_owned(),
            (PathFact::Unreadable(why), _) => format!("cannot be looked at: {why}"),
        };
        self.report("no-such-source", format!("{what}: `{path}` {problem}"), place, "this path");
        None
    }
}

#[derive(Clone, Copy)]
enum Wanted {
    File,
    Directory,
    Either,
}

/// The chosen agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    Agent(AgentName),
    /// None is declared: the built-in one.
    BuiltIn,
}

/// Why no agent could be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectionError {
    pub message: String,
    pub help: String,
}

/// Chooses the agent: the named one, or the only one there is.
///
/// # Errors
/// When there is no such agent, or several and none is named.
pub fn select(manifest: &Manifest, name: Option<&str>) -> Result<Selection, SelectionError> {
    let names: Vec<&str> = manifest.agents.keys().map(AgentName::as_str).collect();
    let Some(name) = name else {
        return match names.as_slice() {
            [] => Ok(Selection::BuiltIn),
            [_only] => {
                Ok(manifest.agents.keys().next().cloned().map_or(Selection::BuiltIn, Selection::Agent))
            }
            _ => Err(SelectionError {
                message: "several agents are declared and none was named".to_owned(),
                help: format!("name one of {}", some(&names)),
            }),
        };
    };
    match AgentName::new(name) {
        Ok(agent) if manifest.agents.contains_key(&agent) => Ok(Selection::Agent(agent)),
        _ => Err(SelectionError {
            message: format!("no agent `{}` is declared", belljar_contract::decode::shown(name)),
            help: match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if names.is_empty() => "the manifest declares no agent".to_owned(),
                None => format!("declared: {}", some(&names)),
            },
        }),
    }
}

/// A list that stays readable when there are many.
fn some(names: &[&str]) -> String {
    match names.len() {
        0..=12 => list(names),
        more => format!(
            "{} and {} more",
            names[..12].iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
            more - 12
        ),
    }
}

/// Collects reasons while a plan is built.
#[derive(Default)]
struct Reasons(Vec<ExplainedValue>);

impl Reasons {
    fn add(&mut self, key: impl Into<String>, value: impl Into<String>, origin: Origin) {
        self.0.push(ExplainedValue { key: key.into(), value: value.into(), origin });
    }

    /// The written value, or the default; either way with its reason.
    fn choose<T: Clone>(
        &mut self,
        key: &str,
        written: Option<&At<T>>,
        default: (T, &'static str),
        show: fn(&T) -> String,
    ) -> T {
        let (value, origin) = match written {
            Some(at) => (at.value.clone(), Origin::Written(at.place.clone())),
            None => (default.0, Origin::Default(default.1)),
        };
        self.add(key, show(&value), origin);
        value
    }
}
