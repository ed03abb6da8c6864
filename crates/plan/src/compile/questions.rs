//! The facts about the host that a compilation needs.

use super::env::written_out;
use super::library::skill_candidates;
use crate::facts::{Holds, ProjectFacts, Questions};
use crate::manifest::{AgentSpec, EnvText, Layered, Manifest, McpSpec, PathText};
use belljar_contract::decode::{Named, Place};
use belljar_contract::{AbsPath, AgentName, EnvName, Harness, HomeMode, may_use};

/// The questions for some agents, or for the whole manifest when none is named.
#[must_use]
pub fn questions(
    manifest: &Manifest,
    agents: Option<&[AgentName]>,
    harnesses: &[&dyn Harness],
    home: &AbsPath,
    project: &ProjectFacts,
) -> Questions {
    let mut asker = Asker { manifest, harnesses, home, project, out: Questions::default() };
    for harness in harnesses {
        asker.harness(*harness);
    }
    match agents {
        None => {
            for (name, skill) in &manifest.skills {
                asker.skill(name, skill);
            }
            for plugin in manifest.plugins.values() {
                asker.plugin(&plugin.spec.source.value, &plugin.spec.source.place);
            }
            for server in manifest.mcp.values() {
                asker.server(server);
            }
            for agent in manifest.agents.values() {
                asker.agent(agent);
            }
        }
        Some(names) => {
            for agent in names.iter().filter_map(|name| manifest.agents.get(name)) {
                asker.picked(&agent.spec);
                asker.agent(agent);
            }
        }
    }
    asker.out
}

struct Asker<'a> {
    manifest: &'a Manifest,
    harnesses: &'a [&'a dyn Harness],
    home: &'a AbsPath,
    project: &'a ProjectFacts,
    out: Questions,
}

impl Asker<'_> {
    fn harness(&mut self, harness: &dyn Harness) {
        let profile = harness.profile();
        self.out.texts.insert(self.project.root.child(&profile.project_mcp_file));
        self.out.paths.insert(self.home.child(&profile.state_file));
        let directory = self.home.child(&profile.config_directory);
        self.out.paths.extend(profile.shared.iter().map(|entry| directory.child(&entry.name)));
    }

    /// Where the user's own plugins come from.
    fn records(&mut self) {
        for harness in self.harnesses {
            let profile = harness.profile();
            let directory = self.home.child(&profile.config_directory);
            self.out.texts.extend(profile.plugin_records.iter().map(|record| directory.child(record)));
        }
    }

    /// Only what the agent picks from the library.
    fn picked(&mut self, spec: &AgentSpec) {
        for name in &spec.skills {
            if let Some(skill) = self.manifest.skills.get(&name.value) {
                self.skill(&name.value, skill);
            }
        }
        for name in &spec.plugins {
            if let Some(plugin) = self.manifest.plugins.get(&name.value) {
                self.plugin(&plugin.spec.source.value, &plugin.spec.source.place);
            }
        }
        for name in &spec.mcp {
            if let Some(server) = self.manifest.mcp.get(&name.value) {
                self.server(server);
            }
        }
    }

    fn agent(&mut self, agent: &Layered<AgentSpec>) {
        let spec = &agent.spec;
        if spec.home.as_ref().is_some_and(|home| home.value == HomeMode::Shared) {
            self.records();
        }
        if let Some(path) = spec.role.as_ref().and_then(|role| self.resolve(&role.value, &role.place)) {
            self.out.texts.insert(path.clone());
            self.out.paths.insert(path);
        }
        for mount in &spec.mounts {
            self.path(&mount.source.value, &mount.source.place);
        }
        for entry in &spec.ssh {
            self.path(&entry.identity_file.value, &entry.identity_file.place);
        }
        for credential in &spec.credentials {
            let value = &credential.value.value;
            self.value(&value.value.secret, &value.place);
        }
        self.out.variables.extend(spec.redact.iter().map(|name| name.value.clone()));
        self.values(&spec.env);
    }

    fn server(&mut self, server: &Layered<McpSpec>) {
        self.values(&server.spec.env);
    }

    fn values(&mut self, entries: &[Named<EnvName, EnvText>]) {
        for entry in entries {
            self.value(&entry.value, &entry.place);
        }
    }

    fn value(&mut self, value: &EnvText, place: &Place) {
        match value {
            EnvText::Literal(_) | EnvText::Prompt(_) => {}
            EnvText::Command(argv) => {
                let Some(directory) = self.manifest.directory(place) else { return };
                let paths = may_use(&written_out(argv, directory), &self.project.directory);
                paths.into_iter().for_each(|path| self.out.content(path, Holds::Code));
            }
            EnvText::Variable(name) => {
                self.out.variables.insert(name.clone());
            }
            EnvText::File(path) => {
                if let Some(path) = self.resolve(path, place) {
                    self.out.content(path, Holds::Value);
                }
                self.path(path, place);
            }
        }
    }

    fn skill(&mut self, name: &belljar_contract::LibraryName, skill: &Layered<crate::manifest::SkillSpec>) {
        let candidates =
            skill_candidates(name, skill, self.manifest, self.harnesses, self.home, &self.project.root);
        for candidate in candidates {
            self.out.texts.insert(candidate.child("SKILL.md"));
            self.out.paths.insert(candidate);
        }
    }

    fn plugin(&mut self, source: &PathText, place: &Place) {
        let Some(path) = self.resolve(source, place) else { return };
        for harness in self.harnesses {
            let profile = harness.profile();
            self.out.paths.extend(profile.plugin_marks.iter().map(|mark| path.child(mark)));
            self.out.texts.extend(profile.plugin_mcp_files.iter().map(|file| path.child(file)));
        }
        self.out.paths.insert(path);
    }

    fn path(&mut self, path: &PathText, place: &Place) {
        self.out.paths.extend(self.resolve(path, place));
    }

    fn resolve(&self, path: &PathText, place: &Place) -> Option<AbsPath> {
        path.resolve(self.home, self.manifest.directory(place)?).ok()
    }
}
