//! The facts about a trial that a tape records, without those that are specific to a machine, a user or a run.

use super::Taping;
use super::inputs::{Inputs, input_changes, staged_inputs};
use super::trees::tree;
use crate::environment::HostEnvironment;
use crate::launch::Model;
use crate::plan::agent_version::program_digest;
use crate::plan::planned::Planned;
use belljar_contract::{
    AbsPath, Digest, Limits, Plan, TapeHead, TapeScenario, TapeSkillPlace, TapeTrees, TapeUntracked,
    canonical_json,
};
use belljar_session::SkillPlace;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The facts about a trial for a tape. Empty if no tape is involved.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeFacts {
    /// The plan, without parts that are specific to a machine, a user or a run.
    pub plan: Value,
    pub harness: String,
    /// The agent's program on this machine.
    pub program: Option<AbsPath>,
    /// Its digest before a run that is recorded, or why it cannot be read.
    pub(super) program_before: Option<Result<Digest, String>>,
    /// Digests of the skills' directories.
    pub skills: BTreeMap<String, Digest>,
    /// Digests of the plugins' directories.
    pub plugins: BTreeMap<String, Digest>,
    /// Digests of the uploads, directories and projects.
    pub(super) inputs: Inputs,
    /// What these digests cover.
    pub(super) covered: TapeTrees,
    /// The directories of the skills as the agent sees them.
    pub places: Vec<TapeSkillPlace>,
    /// Facts about the environment that can matter.
    pub environment: BTreeMap<String, String>,
}

/// A fact that changed since a tape was recorded. It may explain a drift, but is not one itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Changed {
    pub cause: ChangedCause,
    pub what: String,
    /// A digest or a version; empty if it is not known whether there is a difference.
    pub recorded: String,
    pub present: String,
}

/// What a changed fact belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangedCause {
    Scenario,
    Session,
    Servers,
    /// A normaliser that the session declares.
    Normaliser,
    Skill,
    Plugin,
    /// An upload, a directory or a project of the session.
    Input,
    /// Files that cannot be read, so that it is not known whether they changed.
    Files,
    Plan,
    Agent,
}

impl Changed {
    /// Something of which it is not known whether it changed.
    pub(super) fn unknown(cause: ChangedCause, what: &str, why: &str) -> Self {
        Self::saying(cause, what, format!("cannot be compared: {why}"))
    }

    /// Something of which this is said after its name.
    pub(super) fn saying(cause: ChangedCause, what: &str, says: String) -> Self {
        Self { cause, what: what.to_owned(), recorded: String::new(), present: says }
    }

    /// Whether the test itself is another one now: what it asks for, or what it tests. The plan and the agent are what
    /// it is run with; a replay finds out by itself whether they matter.
    #[must_use]
    pub const fn is_of_the_test(&self) -> bool {
        match self.cause {
            ChangedCause::Scenario
            | ChangedCause::Session
            | ChangedCause::Servers
            | ChangedCause::Normaliser
            | ChangedCause::Skill
            | ChangedCause::Plugin
            | ChangedCause::Input
            | ChangedCause::Files => true,
            ChangedCause::Plan | ChangedCause::Agent => false,
        }
    }

    /// The change in one line.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { cause: _, what, recorded, present } = self;
        match (recorded.as_str(), present.as_str()) {
            ("", present) => format!("{what} {present}"),
            ("nothing", _) => format!("{what} was not there when it was recorded"),
            (_, "nothing") => format!("{what} is not there any more"),
            (before, _) if Digest::parse(before).is_some() => format!("{what} is not what was recorded"),
            (before, now) => format!("{what} was {before} when it was recorded and is {now}"),
        }
    }
}

/// The digests of the skills that a plan has, as they were staged.
pub(crate) fn skill_digests(plan: &Plan, covered: TapeTrees) -> BTreeMap<String, Digest> {
    plan.skills.iter().map(|skill| (skill.name.to_string(), staged_tree(&skill.source, covered))).collect()
}

/// The digests of the plugins that a plan has, as they were staged.
pub(crate) fn plugin_digests(plan: &Plan, covered: TapeTrees) -> BTreeMap<String, Digest> {
    let digest = |source| staged_tree(source, covered);
    plan.plugins.iter().map(|plugin| (plugin.name.to_string(), digest(&plugin.source))).collect()
}

/// The digest of a directory that belljar staged. One that cannot be read equals no other.
fn staged_tree(path: &AbsPath, covered: TapeTrees) -> Digest {
    tree((path.as_path(), None), covered)
        .unwrap_or_else(|error| Digest::of(format!("unread: {path}: {error}").as_bytes()))
}

/// The skills and plugins that differ from those on a tape.
pub(super) fn tree_changes(
    head: &TapeScenario,
    skills: &BTreeMap<String, Digest>,
    plugins: &BTreeMap<String, Digest>,
) -> Vec<Changed> {
    let trees = [
        (ChangedCause::Skill, "skill", &head.skills, skills),
        (ChangedCause::Plugin, "plugin", &head.plugins, plugins),
    ];
    let with = match head.untracked {
        TapeUntracked::LeftOut => "",
        TapeUntracked::Included => " (recorded with `--include-untracked`)",
    };
    let mut out = Vec::new();
    for (cause, kind, recorded, present) in trees {
        let names: BTreeSet<&String> = recorded.keys().chain(present.keys()).collect();
        for name in names.into_iter().filter(|name| recorded.get(*name) != present.get(*name)) {
            let text = |map: &BTreeMap<String, Digest>| {
                map.get(name).map_or("nothing".to_owned(), ToString::to_string)
            };
            let what = format!("the {kind} `{name}`{with}");
            out.push(Changed { cause, what, recorded: text(recorded), present: text(present) });
        }
    }
    out
}

impl TapeFacts {
    pub(crate) fn of(
        planned: &Planned,
        places: &[SkillPlace],
        environment: &HostEnvironment,
        (taping, model): (&Taping, &Model),
    ) -> Self {
        if matches!(taping, Taping::Off) && !matches!(model, Model::Replay(_)) {
            return Self::default();
        }
        let covered = match model {
            Model::Replay(replay) => replay.trees(),
            Model::Absent | Model::Live | Model::Script(_) => TapeTrees::Directories,
        };
        let facts = Self::at((planned, places), environment, covered);
        let digest = |path| program_digest(&environment.state, path).map_err(|error| error.to_string());
        let program_before = match taping {
            Taping::On(_) => facts.program.as_ref().map(digest),
            Taping::Off => None,
        };
        Self { program_before, ..facts }
    }

    /// The facts about a plan on this machine.
    pub(super) fn at(
        (planned, places): (&Planned, &[SkillPlace]),
        environment: &HostEnvironment,
        covered: TapeTrees,
    ) -> Self {
        let plan = &planned.compiled.plan;
        let place = |place: &SkillPlace| {
            let SkillPlace { name, directories } = place.clone();
            TapeSkillPlace { name, directories }
        };
        // The text after the version identifies the builder of the kernel.
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let kernel = release.split(['-', '+']).next().unwrap_or_default().to_owned();
        let machine = [
            ("arch", std::env::consts::ARCH.to_owned()),
            ("backend", plan.backend.name().to_owned()),
            ("home", plan.home_directory.to_string()),
            ("kernel", kernel),
            ("os", std::env::consts::OS.to_owned()),
            ("workspace", plan.workspace.target.to_string()),
        ];
        let image = plan.image.iter().map(|image| ("image", image.to_string()));
        Self {
            plan: portable(plan, environment),
            harness: plan.harness.clone(),
            program: planned.program_found().cloned(),
            program_before: None,
            skills: skill_digests(plan, covered),
            plugins: plugin_digests(plan, covered),
            inputs: staged_inputs(&plan.workspace.source, covered),
            covered,
            places: places.iter().map(place).collect(),
            environment: machine
                .into_iter()
                .chain(image)
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    /// The digest of the plan.
    #[must_use]
    pub fn plan_digest(&self) -> Digest {
        Digest::of(canonical_json(&self.plan).as_bytes())
    }

    /// The facts that differ from those on the tape.
    #[must_use]
    pub fn changed_since(&self, head: &TapeHead, version: Option<&str>) -> Vec<Changed> {
        let mut out = Vec::new();
        let mut compare = |cause, what: String, recorded: Option<String>, present: Option<String>| {
            if recorded != present {
                let text = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
                out.push(Changed { cause, what, recorded: text(recorded), present: text(present) });
            }
        };
        // An agent that did not report its version may be the same.
        if let (Some(recorded), Some(present)) = (&head.agent.version, version) {
            compare(
                ChangedCause::Agent,
                "the agent's version".to_owned(),
                Some(recorded.clone()),
                Some(present.to_owned()),
            );
        }
        compare(
            ChangedCause::Plan,
            "the plan".to_owned(),
            Some(head.plan.to_string()),
            Some(self.plan_digest().to_string()),
        );
        out.extend(tree_changes(&head.scenario, &self.skills, &self.plugins));
        out.extend(input_changes(&head.scenario, &self.inputs));
        out
    }
}

/// The plan with names instead of paths of this run, this user and this machine.
fn portable(plan: &Plan, environment: &HostEnvironment) -> Value {
    let stage = plan.workspace.source.parent().unwrap_or_else(|| plan.workspace.source.clone());
    let paths = [
        (stage.to_string(), "<stage>"),
        (plan.instance.directory.to_string(), "<instance>"),
        (plan.instance.key.to_string(), "<instance>"),
        (environment.state.to_string(), "<state>"),
        (environment.data.to_string(), "<data>"),
        (environment.config.to_string(), "<config>"),
        (environment.home.to_string(), "<home>"),
    ];
    // A tape says itself which version it was recorded with, and a cap on the cost of a recording changes no request.
    let limits = Limits { cost_usd: None, ..plan.limits.clone() };
    let mut value = json!(Plan { agent_version: None, limits, ..plan.clone() });
    replace(&mut value, &paths);
    value
}

fn replace(value: &mut Value, paths: &[(String, &str)]) {
    match value {
        Value::String(text) => {
            for (from, to) in paths.iter().filter(|(from, _)| from.len() > 1) {
                if text.contains(from.as_str()) {
                    *text = text.replace(from.as_str(), to);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, paths)),
        Value::Object(members) => members.values_mut().for_each(|item| replace(item, paths)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
