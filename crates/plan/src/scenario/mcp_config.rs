//! An `mcp.json`: the servers that a session starts.
//!
//! The agent passes over what it does not understand in such a file, so that a server is simply not there. Here every
//! fault is reported before anything starts.

use super::document::{DocumentError, DocumentText};
use super::json_file;
use crate::manifest::{Argument, Program};
use crate::text::whole_file;
use belljar_contract::decode::{
    At, Decode, Fault, Faults, Field, KeySpec, Kind, Named, Node, Scalar, Table, known_table, list, shown,
};
use belljar_contract::nearest;
use belljar_contract::{EnvName, LibraryName, SourceFile};
use serde_json::{Value, json};
use std::fmt;

/// A server that runs beside the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpEntry {
    /// What the agent calls it.
    pub name: LibraryName,
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(EnvName, McpEnv)>,
}

/// Where the value of a server's variable comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum McpEnv {
    /// It stands in the file.
    Literal(String),
    /// The host's variable of this name.
    Variable(EnvName),
}

impl fmt::Debug for McpEnv {
    /// People keep secrets in such files, so a literal is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("Literal(…)"),
            Self::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
        }
    }
}

impl Scalar for McpEnv {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        let crate::manifest::Text(text) = crate::manifest::Text::parse(text)?;
        let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        match whole.map(EnvName::new) {
            Some(Ok(name)) => Ok(Self::Variable(name)),
            None if !text.contains("${") => Ok(Self::Literal(text)),
            Some(Err(_)) | None => {
                Err(Fault::new("expected `${NAME}` and nothing else, or text without `${`")
                    .help("a value is either one variable of the host or text; defaults are not taken"))
            }
        }
    }
}

fn any() -> Value {
    json!({})
}

const fn key(name: &'static str, required: bool, doc: &'static [&'static str]) -> KeySpec {
    KeySpec { name, required, doc, schema: any }
}

const FILE_KEYS: [KeySpec; 1] = [key("mcpServers", true, &["the servers, by name"])];
const SERVER_KEYS: [KeySpec; 6] = [
    key("type", false, &["`stdio`"]),
    key("command", false, &["the program"]),
    key("args", false, &["its arguments"]),
    key("env", false, &["its variables"]),
    key("url", false, &["the address of a server elsewhere"]),
    key("headers", false, &["what is sent to a server elsewhere"]),
];

/// The servers of an `mcp.json` that are `enabled`; all of them when nothing is.
///
/// # Errors
/// Everything that is wrong with the file, and names in `enabled` that it does not have.
pub fn parse_mcp_config(text: DocumentText, enabled: &[String]) -> Result<Vec<McpEntry>, DocumentError> {
    json_file::read(text, |node, source, faults| {
        let file = known_table(node, "the file", &FILE_KEYS, faults)?;
        let servers = file.get("mcpServers")?;
        let Kind::Table(servers) = &servers.kind else { return faults.mismatch(servers, "a table") };
        missing(servers, enabled, source, faults);
        let wanted = |name: &str| enabled.is_empty() || enabled.iter().any(|enabled| enabled == name);
        let chosen = servers.0.iter().filter(|(key, _)| wanted(&key.text));
        Some(
            chosen
                .filter_map(|(key, node)| {
                    let name = LibraryName::new(&key.text);
                    let name = name.map_err(|error| {
                        faults.push("invalid-name", &key.span, Fault::new(error.to_string()))
                    });
                    let server = server(node, faults);
                    let (command, args, env) = server?;
                    Some(McpEntry { name: name.ok()?, command, args, env })
                })
                .collect(),
        )
    })
}

fn missing(servers: &Table, enabled: &[String], source: &SourceFile, faults: &mut Faults<'_>) {
    let known: Vec<&str> = servers.0.iter().map(|(key, _)| key.text.as_str()).take(100).collect();
    for name in enabled.iter().filter(|name| servers.get(name).is_none()) {
        if !faults.has_room() {
            return;
        }
        let near =
            nearest(name, known.iter().copied()).map(|near| format!("did you mean `{}`? ", shown(near)));
        let known: Vec<String> = known.iter().map(|name| shown(name)).collect();
        let help = format!("{}it has {}", near.unwrap_or_default(), list(&known));
        let message = format!("`{}` has no server `{}`", shown(&source.name), shown(name));
        faults.list.push(whole_file("dangling-reference", message, &help));
    }
}

type Server = (String, Vec<String>, Vec<(EnvName, McpEnv)>);

fn server(node: &Node, faults: &mut Faults<'_>) -> Option<Server> {
    let table = known_table(node, "an MCP server", &SERVER_KEYS, faults)?;
    let elsewhere = Fault::new("a server on the network is not started by belljar")
        .help("name a program that speaks with it, under `command`, and its host under `egress.extra_allow`");
    let kind = table.get("type");
    match kind.map(|kind| &kind.kind) {
        None => {}
        Some(Kind::String(word)) if word == "stdio" => {}
        Some(Kind::String(_)) => {
            faults.push("refused", &kind?.span, elsewhere);
            return None;
        }
        Some(_) => return faults.mismatch(kind?, "`\"stdio\"`"),
    }
    if let Some(url) = table.get("url").or_else(|| table.get("headers")) {
        faults.push("refused", &url.span, elsewhere);
        return None;
    }
    let command = match table.get("command") {
        Some(command) => Program::decode(command, faults),
        None => {
            let fault = Fault::new("an MCP server lacks `command`").label("`command` belongs here");
            faults.push("missing-key", &node.span, fault);
            None
        }
    };
    let args = <Vec<At<Argument>>>::decode_field(table.get("args"), faults)?;
    let env = <Vec<Named<EnvName, McpEnv>>>::decode_field(table.get("env"), faults)?;
    let args = args.into_iter().map(|argument| argument.value.0).collect();
    Some((command?.0, args, env.into_iter().map(|entry| (entry.name, entry.value)).collect()))
}
