//! The facts about a trial that a tape records, without those that are specific to a machine, a user or a run.

use super::Taping;
use crate::environment::HostEnvironment;
use crate::launch::Model;
use crate::plan::planned::Planned;
use belljar_contract::{AbsPath, Digest, Plan, TapeHead, TapeSkillPlace, canonical_json};
use belljar_session::SkillPlace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// More files than a skill or a plugin has.
const MOST: usize = 20_000;

/// The facts about a trial for a tape. Empty if no tape is involved.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeFacts {
    /// The plan, without parts that are specific to a machine, a user or a run.
    pub plan: Value,
    pub harness: String,
    /// The agent's program on this machine.
    pub program: Option<AbsPath>,
    /// Digests of the skills' directories.
    pub skills: BTreeMap<String, Digest>,
    /// Digests of the plugins' directories.
    pub plugins: BTreeMap<String, Digest>,
    /// The directories of the skills as the agent sees them.
    pub places: Vec<TapeSkillPlace>,
    /// Facts about the environment that can matter.
    pub environment: BTreeMap<String, String>,
}

/// A fact that changed since a tape was recorded. It may explain a drift, but is not one itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Changed {
    /// A stable identifier: `scenario`, `session`, `skill`, `plugin`, `plan` or `agent`.
    pub cause: &'static str,
    pub what: String,
    pub recorded: String,
    pub present: String,
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
        Self::at(planned, places, environment)
    }

    /// The facts about a plan on this machine.
    pub(super) fn at(planned: &Planned, places: &[SkillPlace], environment: &HostEnvironment) -> Self {
        let plan = &planned.compiled.plan;
        let skills = plan.skills.iter().map(|skill| (skill.name.to_string(), tree(&skill.source)));
        let plugins = plan.plugins.iter().map(|plugin| (plugin.name.to_string(), tree(&plugin.source)));
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
            program: planned.program_found.clone(),
            skills: skills.collect(),
            plugins: plugins.collect(),
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
                "agent",
                "the agent's version".to_owned(),
                Some(recorded.clone()),
                Some(present.to_owned()),
            );
        }
        compare(
            "plan",
            "the plan".to_owned(),
            Some(head.plan.to_string()),
            Some(self.plan_digest().to_string()),
        );
        let trees = [
            ("skill", &head.scenario.skills, &self.skills),
            ("plugin", &head.scenario.plugins, &self.plugins),
        ];
        for (cause, recorded, present) in trees {
            let names: std::collections::BTreeSet<&String> = recorded.keys().chain(present.keys()).collect();
            for name in names {
                let text = |map: &BTreeMap<String, Digest>| map.get(name).map(ToString::to_string);
                compare(cause, format!("the {cause} `{name}`"), text(recorded), text(present));
            }
        }
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
    let mut value = json!(plan);
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

/// The digest of a directory: names, contents, and executable bits. Unreadable entries are left out.
pub(crate) fn tree(root: &AbsPath) -> Digest {
    let mut lines = Vec::new();
    walk(root.as_path(), "", &mut lines);
    lines.sort();
    Digest::of(lines.concat().as_bytes())
}

fn walk(directory: &Path, below: &str, lines: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        let (Ok(found), true) = (entry.metadata(), lines.len() < MOST) else { continue };
        if found.is_dir() {
            walk(&entry.path(), &name, lines);
        } else if found.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            lines.push(format!("link {name} {}\n", target.display()));
        } else if found.is_file() {
            let mode = if found.permissions().mode() & 0o111 != 0 { "run" } else { "file" };
            let digest = content(&entry.path()).map(|digest| digest.to_string()).unwrap_or_default();
            lines.push(format!("{mode} {name} {digest}\n"));
        }
    }
}

/// The digest of a file.
pub(super) fn content(path: &Path) -> io::Result<Digest> {
    Digest::of_reader(&mut File::open(path)?)
}
