//! A starting manifest, from what was found in the project: it reads from top to bottom, and shows every key.
//!
//! What the project brings as text for the agent is picked; what runs code, and what is the user's own, is
//! shown and not picked.

mod agent;
mod library;
mod page;
#[cfg(test)]
mod tests;
pub(crate) mod toml_text;

use belljar_contract::{AgentName, HostName};
use library::Shelf;
use page::Page;

/// What was found. Names and texts may be anything: they come from files of the project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The name of the project's directory.
    pub project_name: String,
    /// Skills of the project.
    pub project_skills: Vec<FoundSkill>,
    /// The user's own skills.
    pub user_skills: Vec<FoundSkill>,
    /// MCP servers that the project's own file declares.
    pub project_mcp: Vec<FoundServer>,
    pub plugins: Vec<FoundPlugin>,
    /// Whether the project has a file with instructions for the agent.
    pub has_instructions: bool,
    /// Names of build files, such as `package.json`.
    pub markers: Vec<String>,
    /// The host of the repository's remote.
    pub git_remote_host: Option<String>,
}

/// What a starting manifest shows of the kind of agent that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HarnessFacts<'a> {
    pub name: &'a str,
    /// A version to show as an example.
    pub example_version: &'a str,
    /// A model to show as an example.
    pub example_model: &'a str,
    /// The file with instructions that the agent reads in a project.
    pub instructions_file: &'a str,
}

/// A skill that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSkill {
    /// The name of its directory.
    pub name: String,
    /// The directory, as a manifest has it: beside it, or with `~`.
    pub path_text: String,
    /// What its `SKILL.md` says about it.
    pub description: Option<String>,
}

/// An MCP server that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundServer {
    pub name: String,
    pub command: String,
    pub args: Vec<String>,
    /// The names of its variables; their values are not read.
    pub env_names: Vec<String>,
}

/// A plugin that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlugin {
    pub name: String,
    /// The directory, as a manifest has it.
    pub path_text: String,
}

/// The text of a manifest to begin with, for an agent of this kind.
#[must_use]
pub fn starting_manifest(found: &Found, harness: &HarnessFacts<'_>) -> String {
    let Found {
        project_name,
        project_skills,
        user_skills,
        project_mcp,
        plugins,
        has_instructions,
        markers,
        git_remote_host,
    } = found;
    let mut page = Page::default();
    head(&mut page);
    page.title("The library: what agents pick from, by name");
    let skills = library::skills(&mut page, project_skills, user_skills);
    let mcp = library::servers(&mut page, project_mcp);
    let plugins = library::plugins(&mut page, plugins);
    let remote = git_remote_host.as_deref().and_then(|host| HostName::new(host).ok());
    agent::write(
        &mut page,
        &agent::AgentSection {
            name: agent_name(project_name),
            shelves: [("skills", skills), ("mcp", mcp), ("plugins", plugins)],
            harness,
            has_instructions: *has_instructions,
            markers,
            remote,
        },
    );
    page.text()
}

fn head(page: &mut Page) {
    page.say("The agents of this project: what each one is, what it sees and what it can reach.");
    page.say(
        "A line that begins with `# ` explains; a line that begins with `#` and no space is an example, and",
    );
    page.say("counts once you delete the `#`. Lines under a header in brackets go together.");
    page.say("The agent gets nothing else: no other file, variable or host, except for the model's.");
    page.say("`belljar check` checks this file; `belljar plan` shows what follows from it.");
}

/// The project's name as far as it can name an agent, or `coder`.
fn agent_name(project: &str) -> String {
    let mut name = String::new();
    for c in project.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name: String = name.trim_matches(['.', '_', '-']).chars().take(64).collect();
    AgentName::new(name).map_or_else(|_nothing_left| "coder".to_owned(), |name| name.to_string())
}
