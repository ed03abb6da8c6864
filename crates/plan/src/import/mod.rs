//! A `claude-bottle.json` becomes the text of a `belljar.toml`, with a word wherever the meaning changed.

mod spec;
#[cfg(test)]
mod tests;
mod write;

use crate::manifest::{EnvText, ManifestError, SshSpec};
use crate::syntax::parse_json;
use crate::text::{self, whole_file};
use belljar_contract::decode::{Decode, Faults, list};
use belljar_contract::{AgentName, EnvName, LibraryName, Sources};
use spec::{BottleAgentSpec, BottleEnv, BottleSpec};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the file.
pub const BOTTLE_NAME: &str = "claude-bottle.json";

/// A file as it was read.
#[derive(Debug, Clone)]
pub struct ImportText {
    /// The name people know it by.
    pub name: String,
    /// What it holds; at most a little more than [`crate::SIZE_LIMIT`], so that a larger one is noticed.
    pub bytes: Vec<u8>,
}

/// What an import gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The text of a manifest.
    pub toml: String,
    /// What means something else now, one line each.
    pub notes: Vec<String>,
}

/// Why the files cannot be imported: everything that is wrong, in all of them.
pub type ImportError = ManifestError;

/// Writes the manifest for files in rising order of precedence; on the same name the later agent wins whole.
///
/// # Errors
/// Every fault of every file.
pub fn import(inputs: Vec<ImportText>) -> Result<Imported, ImportError> {
    let mut sources = Sources::new();
    let mut diagnostics = Vec::new();
    let mut agents: Vec<Agent> = Vec::new();
    for (file, input) in inputs.into_iter().enumerate() {
        let (source, finding) = text::read(file, input.name, input.bytes);
        let mut faults = Faults::new(file, &source.text);
        let spec = match finding {
            None => decode(&source.name, &source.text, &mut faults),
            Some(finding) => {
                faults.list.push(finding);
                None
            }
        };
        diagnostics.append(&mut faults.list);
        sources.push(source);
        lay(&mut agents, spec);
    }
    if diagnostics.is_empty() && agents.is_empty() {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let message = match names.as_slice() {
            [] => "there is no file to import".to_owned(),
            names => format!("no agent is declared in {}", list(names)),
        };
        diagnostics.push(whole_file("empty", message, "`belljar init` writes a starting manifest"));
    }
    if !diagnostics.is_empty() {
        return Err(ImportError { sources, diagnostics, partial: None });
    }
    Ok(write::manifest(&sources, &agents))
}

/// An agent, in the manifest's terms.
struct Agent {
    name: AgentName,
    /// The file it is declared in.
    file: usize,
    env: Vec<(EnvName, EnvText)>,
    /// Variables whose question was missing.
    unasked: Vec<EnvName>,
    skills: Vec<LibraryName>,
    prompt: Option<String>,
    ssh: Vec<SshSpec>,
}

fn decode(name: &str, text: &str, faults: &mut Faults<'_>) -> Option<BottleSpec> {
    if text.trim().is_empty() {
        let help = "it should hold `{\"agents\": {…}}`; or delete the file";
        faults.list.push(whole_file("empty", format!("`{name}` is empty"), help));
        return None;
    }
    let node = parse_json(text, faults)?;
    BottleSpec::decode(&node, faults)
}

/// Lays the agents of one file over those of the files before it; the order of appearance is kept.
fn lay(agents: &mut Vec<Agent>, spec: Option<BottleSpec>) {
    let mut index: BTreeMap<AgentName, usize> =
        agents.iter().enumerate().map(|(at, agent)| (agent.name.clone(), at)).collect();
    for named in spec.into_iter().flat_map(|spec| spec.agents) {
        let agent = agent(named.name, named.name_place.file, named.value);
        match index.get(&agent.name).and_then(|at| agents.get_mut(*at)) {
            Some(older) => *older = agent,
            None => {
                index.insert(agent.name.clone(), agents.len());
                agents.push(agent);
            }
        }
    }
}

fn agent(name: AgentName, file: usize, spec: BottleAgentSpec) -> Agent {
    let BottleAgentSpec { env, skills, prompt, ssh } = spec;
    let mut unasked = Vec::new();
    let env = env.into_iter().map(|entry| {
        let value = match entry.value {
            BottleEnv::Value(value) => value,
            BottleEnv::Asked => {
                unasked.push(entry.name.clone());
                EnvText::Prompt(entry.name.to_string())
            }
        };
        (entry.name, value)
    });
    let env = env.collect();
    let mut seen = BTreeSet::new();
    let once = |name: &LibraryName| seen.insert(name.clone());
    let skills = skills.into_iter().map(|skill| skill.value).filter(once).collect();
    let prompt = prompt.map(|prompt| prompt.value.0).filter(|text| !text.trim().is_empty());
    let ssh = ssh.into_iter().map(|entry| entry.value.0).collect();
    Agent { name, file, env, unasked, skills, prompt, ssh }
}
