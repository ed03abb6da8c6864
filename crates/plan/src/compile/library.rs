//! Skills, plugins and MCP servers: from names to what is on disk.

use super::{Compiler, Wanted};
use crate::facts::{PathFact, TextFact};
use crate::manifest::{Layered, Manifest, SkillSpec};
use crate::skill;
use belljar_contract::decode::{At, Faults, list};
use belljar_contract::nearest;
use belljar_contract::{AbsPath, AgentName, Harness, LibraryName, Plugin, Skill, SourceFile};
use std::collections::{BTreeMap, BTreeSet};

/// Where a skill is looked for, in order.
pub(super) fn skill_candidates(
    name: &LibraryName,
    skill: &Layered<SkillSpec>,
    manifest: &Manifest,
    harnesses: &[&dyn Harness],
    home: &AbsPath,
    project: &AbsPath,
) -> Vec<AbsPath> {
    if let Some(source) = &skill.spec.source {
        let directory = manifest.directory(&source.place);
        return directory.and_then(|directory| source.resolve(home, directory).ok()).into_iter().collect();
    }
    let mut out: Vec<AbsPath> = Vec::new();
    for base in [project, home] {
        for below in harnesses.iter().flat_map(|harness| &harness.profile().skill_directories) {
            let candidate = base.child(below).child(name.as_str());
            if !out.contains(&candidate) {
                out.push(candidate);
            }
        }
    }
    out
}

impl Compiler<'_> {
    /// The names an agent picks from one family, each of which must be in the library.
    pub(super) fn pick<T>(
        &mut self,
        agent: &AgentName,
        family: &str,
        picked: &[At<LibraryName>],
        library: &BTreeMap<LibraryName, T>,
    ) -> Vec<LibraryName> {
        let mut seen = BTreeSet::new();
        let mut out: Vec<LibraryName> = Vec::new();
        for name in picked {
            if self.is_full() || self.request.manifest.is_broken(&name.value) {
                continue;
            }
            if !seen.insert(&name.value) {
                let message = format!("agent `{agent}` picks the {family} `{}` twice", name.value);
                self.report("duplicate-reference", message, &name.place, "once is enough");
            } else if library.contains_key(&name.value) {
                out.push(name.value.clone());
            } else {
                let message = format!(
                    "agent `{agent}` picks the {family} `{}`, which the library does not have",
                    name.value
                );
                let near = nearest(name.value.as_str(), library.keys().map(LibraryName::as_str));
                let label =
                    near.map_or("not in the library".to_owned(), |near| format!("did you mean `{near}`?"));
                let table = if family == "skill" {
                    "skills"
                } else if family == "plugin" {
                    "plugins"
                } else {
                    "mcp"
                };
                let help =
                    format!("declare it as `[library.{table}.{}]`, or pick from what is there", name.value);
                self.report("dangling-reference", message, &name.place, &label).help = Some(help);
            }
        }
        out
    }

    /// A skill of the library, found and checked once.
    pub(super) fn skill(&mut self, name: &LibraryName) -> Option<Skill> {
        if let Some(known) = self.skills.get(name) {
            return known.clone();
        }
        let found = self.find_skill(name);
        self.skills.insert(name.clone(), found.clone());
        found
    }

    fn find_skill(&mut self, name: &LibraryName) -> Option<Skill> {
        let request = self.request;
        let layered = request.manifest.skills.get(name).filter(|layered| !layered.broken)?;
        let facts = request.facts;
        let candidates = skill_candidates(
            name,
            layered,
            request.manifest,
            request.harnesses,
            &facts.user.home,
            &facts.project.root,
        );
        let place = layered.spec.source.as_ref().map_or(&layered.place, |source| &source.place);
        let found = candidates.iter().find(|path| facts.path(path) != PathFact::Missing);
        let Some(path) = found else {
            let checked: Vec<String> =
                candidates.iter().map(|path| path.child("SKILL.md").to_string()).collect();
            let message = format!("the skill `{name}` is not on this machine");
            self.report("missing-skill", message, place, "no SKILL.md here").help =
                Some(format!("checked {}", list(&checked)));
            return None;
        };
        let real = self.existing(path, place, &format!("the skill `{name}`"), Wanted::Directory)?;
        let file = path.child("SKILL.md");
        let text = match facts.text(&file) {
            TextFact::Text(text) => text,
            TextFact::Missing => {
                let message = format!("the skill `{name}` has no `SKILL.md`");
                self.report("missing-skill", message, place, "this directory").help =
                    Some(format!("checked `{file}`"));
                return None;
            }
            TextFact::Unusable(why) => {
                self.report("missing-skill", format!("`{file}` cannot be read: {why}"), place, "");
                return None;
            }
        };
        let mut faults = Faults::new(self.sources.len(), &text);
        let parsed = skill::parse(&text, &mut faults);
        let found = faults.list;
        if !found.is_empty() {
            self.sources.push(SourceFile { name: file.to_string(), text });
            self.errors += found.len();
            self.diagnostics.extend(found);
        }
        let parsed = parsed?;
        let own_name = real.file_name().map(|own_name| own_name.to_string_lossy().into_owned());
        if own_name.as_deref() != Some(parsed.name.as_str()) && parsed.name != name.as_str() {
            let message = format!(
                "`{file}` calls itself `{}`, the library calls it `{name}`; inside it is known as `{name}`",
                parsed.name
            );
            self.warn("skill-name", message, place, "");
        }
        let description =
            layered.spec.description.as_ref().map_or(parsed.description, |line| line.value.0.clone());
        Some(Skill { name: name.clone(), source: real, description })
    }

    /// A plugin of the library, found and checked once.
    pub(super) fn plugin(&mut self, name: &LibraryName) -> Option<Plugin> {
        if let Some(known) = self.plugins.get(name) {
            return known.clone();
        }
        let found = self.find_plugin(name);
        self.plugins.insert(name.clone(), found.clone());
        found
    }

    fn find_plugin(&mut self, name: &LibraryName) -> Option<Plugin> {
        let request = self.request;
        let layered = request.manifest.plugins.get(name).filter(|layered| !layered.broken)?;
        let source = &layered.spec.source;
        let path = self.resolve(source)?;
        let real = self.existing(&path, &source.place, &format!("the plugin `{name}`"), Wanted::Directory)?;
        let profiles: Vec<_> = request.harnesses.iter().map(|harness| harness.profile()).collect();
        let marks: Vec<&String> = profiles.iter().flat_map(|profile| &profile.plugin_marks).collect();
        if !marks.iter().any(|mark| {
            matches!(request.facts.path(&path.child(mark)), PathFact::File(_) | PathFact::Directory(_))
        }) {
            let message = format!("`{path}` is not a plugin");
            self.report("not-a-plugin", message, &source.place, "this directory").help =
                Some(format!("a plugin has one of {}", list(&marks)));
            return None;
        }
        let mut mcp = Vec::new();
        for file in profiles.iter().flat_map(|profile| &profile.plugin_mcp_files) {
            let file = path.child(file);
            match request.facts.text(&file) {
                TextFact::Missing => {}
                TextFact::Unusable(why) => {
                    self.report("not-a-plugin", format!("`{file}` cannot be read: {why}"), &source.place, "");
                }
                TextFact::Text(text) => match server_names(&text) {
                    Ok(names) => mcp.extend(names),
                    Err(why) => {
                        self.report(
                            "not-a-plugin",
                            format!("`{file}` is not JSON: {why}"),
                            &source.place,
                            "of this plugin",
                        );
                    }
                },
            }
        }
        mcp.sort();
        mcp.dedup();
        Some(Plugin { name: name.clone(), source: real, mcp })
    }
}

/// The names of the MCP servers that a JSON text declares under `mcpServers`.
pub(super) fn server_names(text: &str) -> Result<Vec<String>, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let servers = value.get("mcpServers").and_then(serde_json::Value::as_object);
    Ok(servers.map(|servers| servers.keys().cloned().collect()).unwrap_or_default())
}
