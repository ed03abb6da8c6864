//! The library of a starting manifest.

use super::page::{Mark, Page};
use super::toml_text::{key, quote, quote_list};
use super::{FoundPlugin, FoundServer, FoundSkill};
use crate::manifest::{LayerText, ManifestLayer, parse};
use belljar_contract::AbsPath;
use std::collections::BTreeSet;

/// What one family of the library has, by name.
#[derive(Default)]
pub(super) struct Shelf {
    pub live: Vec<String>,
    pub shown: Vec<String>,
    taken: BTreeSet<String>,
}

struct Entry<'a> {
    family: &'a str,
    name: &'a str,
    lines: Vec<String>,
    about: Option<&'a str>,
    mark: Mark,
}

impl Shelf {
    /// Writes an entry, or why it is left out: what does not pass the manifest's own checks is never written.
    fn add(&mut self, page: &mut Page, entry: Entry<'_>) {
        let Entry { family, name, mut lines, about, mark } = entry;
        page.blank();
        lines.insert(0, format!("[library.{family}.{}]", key(name)));
        let problem = if self.taken.contains(name) {
            Some("the name is taken".to_owned())
        } else {
            fault(lines.join("\n"))
        };
        if let Some(problem) = problem {
            page.say(&format!("Left out: `{}`: {problem}", belljar_contract::decode::shown(name)));
            return;
        }
        if let Some(about) = about.filter(|about| !about.trim().is_empty()) {
            page.say(about);
        }
        for line in &lines {
            page.mark(mark, line);
        }
        self.taken.insert(name.to_owned());
        match mark {
            Mark::Live => self.live.push(name.to_owned()),
            Mark::Example => self.shown.push(name.to_owned()),
        }
    }

    /// A name that no entry has, for the entry that shows all keys.
    fn free(&mut self) -> String {
        let mut name = "example".to_owned();
        let mut number = 1;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("example-{number}");
        }
        if self.live.is_empty() && self.shown.is_empty() {
            self.shown.push(name.clone());
        }
        name
    }
}

/// What the manifest's own checks say against a text.
fn fault(text: String) -> Option<String> {
    let directory = match AbsPath::new("/") {
        Ok(directory) => directory,
        Err(error) => return Some(error.to_string()),
    };
    let text =
        LayerText { layer: ManifestLayer::Project, name: String::new(), directory, bytes: text.into_bytes() };
    let error = parse(vec![text]).err()?;
    Some(error.diagnostics.into_iter().next().map_or_else(String::new, |fault| fault.message))
}

pub(super) fn skills(page: &mut Page, project: &[FoundSkill], user: &[FoundSkill]) -> Shelf {
    let mut shelf = Shelf::default();
    let mut add = |page: &mut Page, found: &[FoundSkill], mark: Mark| {
        for FoundSkill { name, path_text, description } in found {
            let lines = vec![format!("source = {}", quote(path_text))];
            shelf.add(page, Entry { family: "skills", name, lines, about: description.as_deref(), mark });
        }
    };
    if !project.is_empty() {
        page.blank();
        page.say("Skills of this project.");
        add(page, project, Mark::Live);
    }
    if !user.is_empty() {
        page.blank();
        page.say("Your own skills. Everyone else who uses this file needs them too.");
        add(page, user, Mark::Example);
    }
    let name = shelf.free();
    page.block(
        "library.skills",
        &format!("[library.skills.{name}]"),
        &[
            ("source", &quote(&format!("skills/{name}"))),
            ("description", "\"Use when release notes are asked for\""),
        ],
    );
    shelf
}

pub(super) fn servers(page: &mut Page, found: &[FoundServer]) -> Shelf {
    let mut shelf = Shelf::default();
    if !found.is_empty() {
        page.blank();
        page.say("MCP servers of this project. They run code, so the agent below uses none of them yet.");
    }
    for FoundServer { name, command, args, env_names } in found {
        let mut lines = vec![format!("command = {}", quote(command))];
        if !args.is_empty() {
            lines.push(format!("args = {}", quote_list(args)));
        }
        let names: BTreeSet<&String> = env_names.iter().collect();
        lines.extend(
            names.iter().map(|name| format!("env.{} = {}", key(name), quote(&format!("${{{name}}}")))),
        );
        shelf.add(page, Entry { family: "mcp", name, lines, about: None, mark: Mark::Example });
    }
    let name = shelf.free();
    page.block(
        "library.mcp",
        &format!("[library.mcp.{name}]"),
        &[
            ("command", "\"tickets-mcp\""),
            ("args", "[\"--read-only\"]"),
            ("env.TICKETS_TOKEN", "\"${TICKETS_TOKEN}\""),
        ],
    );
    shelf
}

pub(super) fn plugins(page: &mut Page, found: &[FoundPlugin]) -> Shelf {
    let mut shelf = Shelf::default();
    if !found.is_empty() {
        page.blank();
        page.say("Plugins. They can run code, so the agent below uses none of them yet.");
    }
    for FoundPlugin { name, path_text } in found {
        let lines = vec![format!("source = {}", quote(path_text))];
        shelf.add(page, Entry { family: "plugins", name, lines, about: None, mark: Mark::Example });
    }
    let name = shelf.free();
    page.block(
        "library.plugins",
        &format!("[library.plugins.{name}]"),
        &[("source", &quote(&format!("~/plugins/{name}")))],
    );
    shelf
}
