//! The text of the manifest. What changed its meaning is said at the top and again where it stands.

use super::{Agent, Imported};
use crate::init::toml_text::{key, quote, quote_lines, quote_list, remark};
use crate::manifest::{EnvText, PathText, SshSpec};
use belljar_contract::decode::{At, list};
use belljar_contract::{EnvName, LibraryName, SourceFile};
use std::collections::BTreeSet;

pub(super) fn manifest(sources: &[SourceFile], agents: &[Agent]) -> Imported {
    let notes = notes(sources, agents);
    let names: Vec<String> = sources.iter().map(|source| remark(&source.name)).collect();
    let mut out = ManifestText::default();
    out.remark(&format!("Written by `belljar import` from {}.", list(&names)));
    out.remark("Read it before the first run. What means something else here than there:");
    for note in &notes {
        out.remark(&format!("- {note}"));
    }
    for skill in agents.iter().flat_map(|agent| &agent.skills).collect::<BTreeSet<_>>() {
        out.blank();
        out.line(format!("[library.skills.{}]", key(skill.as_str())));
        out.line(format!("source = {}", quote(&skill_directory(skill))));
    }
    for each in agents {
        out.blank();
        agent(&mut out, each);
    }
    Imported { toml: out.0, notes }
}

#[derive(Default)]
struct ManifestText(String);

impl ManifestText {
    fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }
    fn remark(&mut self, text: &str) {
        self.line(format!("# {text}"));
    }
    fn blank(&mut self) {
        self.line("");
    }
}

fn skill_directory(name: &LibraryName) -> String {
    format!("~/.claude/skills/{name}")
}

fn agent(out: &mut ManifestText, agent: &Agent) {
    // `file` and `unasked` are in the notes.
    let Agent { name, file: _, env, unasked: _, skills, prompt, ssh } = agent;
    let name = key(name.as_str());
    out.line(format!("[agents.{name}]"));
    if let Some(prompt) = prompt {
        out.remark(
            "This was added to the system prompt; here it is the first message, and the agent acts on it.",
        );
        out.remark(
            "For standing instructions move the text to a file and name that: `role = \"roles/NAME.md\"`.",
        );
        out.line(format!("prompt = {}", quote_lines(prompt)));
    }
    if !skills.is_empty() {
        out.line(format!("skills = {}", quote_list(skills.iter().map(LibraryName::as_str))));
    }
    out.remark("As before, the agent does not ask before it acts: the sandbox protects the machine.");
    out.line("permissions = { skip_prompts = true }");
    if !env.is_empty() {
        out.blank();
        out.line(format!("[agents.{name}.env]"));
        for (variable, value) in env {
            out.line(format!("{variable} = {}", env_value(value)));
        }
    }
    out.blank();
    out.line(format!("[agents.{name}.egress]"));
    out.remark("The network was open. Now only what is listed can be reached, and the model. For example:");
    out.remark("allow = [\"api.example.org\", \"*.example.net\", \"db.internal:5432\"]");
    if !ssh.is_empty() {
        let hosts: BTreeSet<String> = ssh.iter().map(destination).collect();
        let hosts: Vec<String> = hosts.into_iter().collect();
        out.remark(&format!("The ssh entries below are for {}.", list(&hosts)));
    }
    out.line("allow = []");
    for entry in ssh {
        out.blank();
        out.line(format!("[[agents.{name}.ssh]]"));
        ssh_entry(out, entry);
    }
}

fn env_value(value: &EnvText) -> String {
    match value {
        EnvText::Literal(text) if text.starts_with('?') || text.starts_with("${") => {
            format!("{{ value = {} }}", quote(text))
        }
        EnvText::Literal(text) => quote(text),
        EnvText::Variable(name) => quote(&format!("${{{name}}}")),
        EnvText::Prompt(question) => quote(&format!("?{question}")),
        EnvText::File(path) => format!("{{ file = {} }}", quote(&path_text(path))),
        EnvText::Command(words) => format!("{{ command = {} }}", quote_list(words)),
    }
}

fn ssh_entry(out: &mut ManifestText, entry: &SshSpec) {
    let SshSpec { host, hostname, user, port, identity_file, known_host_key, sign_commits } = entry;
    out.line(format!("host = {}", quote(&host.value.0)));
    out.line(format!("hostname = {}", quote(&hostname.value.to_string())));
    out.line(format!("user = {}", quote(&user.value.0)));
    if let Some(port) = port {
        out.line(format!("port = {}", port.value));
    }
    out.line(format!("identity_file = {}", quote(&path_text(&identity_file.value))));
    if let Some(known) = known_host_key {
        out.line(format!("known_host_key = {}", quote(&known.value.to_string())));
    }
    if let Some(sign) = sign_commits {
        out.line(format!("sign_commits = {}", sign.value));
    }
}

fn destination(entry: &SshSpec) -> String {
    match &entry.port {
        Some(At { value: port, place: _ }) => format!("{}:{port}", entry.hostname.value),
        None => entry.hostname.value.to_string(),
    }
}

fn path_text(path: &PathText) -> String {
    match path {
        // It was read from text, so nothing is lost.
        PathText::Absolute(path) => path.as_path().to_string_lossy().into_owned(),
        PathText::Home(rest) if rest.is_empty() => "~".to_owned(),
        PathText::Home(rest) => format!("~/{rest}"),
        PathText::Beside(rest) => rest.clone(),
    }
}

/// One line for each meaning that changed.
fn notes(sources: &[SourceFile], agents: &[Agent]) -> Vec<String> {
    let mut out = vec![
        "sandbox: an agent had a container; now it has a sandbox of this machine's kernel. `backend = \"container\"` keeps the container".to_owned(),
        "network: it was open; now nothing but the model can be reached until `egress.allow` names it".to_owned(),
        "home: nothing of your home directory is inside; what the agent keeps, it keeps per project (`home`)".to_owned(),
        "permissions: the agent ran with its questions skipped; that is kept, as `permissions.skip_prompts`".to_owned(),
    ];
    let mut say = |agents: Vec<&Agent>, text: &str| {
        let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
        if !names.is_empty() {
            out.push(format!("{text} ({})", list(&names)));
        }
    };
    let with = |test: fn(&Agent) -> bool| agents.iter().filter(|agent| test(agent)).collect::<Vec<_>>();
    say(
        with(|agent| agent.prompt.is_some()),
        "prompt: it was added to the system prompt; now it is the first message. `role` is for standing instructions",
    );
    say(
        with(|agent| !agent.skills.is_empty()),
        "skills: they are read from `~/.claude/skills` of this machine",
    );
    say(
        with(|agent| !agent.ssh.is_empty()),
        "ssh: the keys stay outside; ssh inside can have them sign, for the declared hosts only",
    );
    for agent in agents {
        out.extend(agent.unasked.iter().map(|variable| {
            format!("env: `{variable}` had no question; its name is asked instead (`{}`)", agent.name)
        }));
        out.extend(agent.env.iter().filter(|(variable, _)| is_ours(variable)).map(|(variable, _)| {
            format!(
                "env: `{variable}` may be one that belljar sets itself; `belljar check` reports it (`{}`)",
                agent.name
            )
        }));
        out.extend(agent.ssh.iter().filter_map(|entry| beside(sources, agent, entry)));
    }
    out
}

/// The agent's home, its name, and what the model's credential and address travel in.
fn is_ours(variable: &EnvName) -> bool {
    let name = variable.as_str();
    matches!(name, "HOME" | "USER" | "LOGNAME")
        || name.starts_with("ANTHROPIC_")
        || name.starts_with("CLAUDE_")
}

fn beside(sources: &[SourceFile], agent: &Agent, entry: &SshSpec) -> Option<String> {
    let PathText::Beside(path) = &entry.identity_file.value else { return None };
    let source = sources.get(agent.file).map_or("", |source| &source.name);
    Some(format!(
        "ssh: the key `{}` is now looked for beside the manifest; it is from `{}` (`{}`)",
        remark(path),
        remark(source),
        agent.name
    ))
}
