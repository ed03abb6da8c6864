//! The shape of a `claude-bottle.json`. Values are checked by the manifest's own types, so that what is taken
//! in can be written out.

use crate::manifest::{EnvText, SshSpec};
use belljar_contract::decode::{
    At, Decode, Fault, Faults, Key, KeySpec, Kind, Named, Node, Scalar, Table, known_table, table,
};
use belljar_contract::{AgentName, EnvName, LibraryName};
use serde_json::{Value, json};

table! {
    /// A `claude-bottle.json`.
    "the file"
    pub struct BottleSpec {
        /// The agents, by name.
        agents: Vec<Named<AgentName, BottleAgentSpec>>,
    }
}

table! {
    /// An agent.
    "an agent"
    pub struct BottleAgentSpec {
        /// Variables of the environment.
        env: Vec<Named<EnvName, BottleEnv>>,
        /// Names of directories in the user's skill directory.
        skills: Vec<At<LibraryName>>,
        /// Text that is appended to the system prompt.
        prompt: Option<At<BottlePrompt>>,
        /// Hosts and keys of ssh.
        ssh: Vec<At<BottleSsh>>,
    }
}

/// A text of any number of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct BottlePrompt(pub String);

impl Scalar for BottlePrompt {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.contains('\0') {
            return Err(Fault::new("a prompt cannot hold a NUL character").label("a `\\u0000` is in here"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum BottleEnv {
    /// `"?"`: asked for, without a question.
    Asked,
    Value(EnvText),
}

impl Decode for BottleEnv {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a string");
        };
        let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let (form, text) = match (text.strip_prefix('?'), name) {
            (Some(question), _) if question.trim().is_empty() => return Some(Self::Asked),
            (Some(question), _) => ("prompt", question),
            (None, Some(name)) if EnvName::new(name).is_ok() => ("env", name),
            (None, _) => ("value", text.as_str()),
        };
        EnvText::decode(&long_form(form, text, node), faults).map(Self::Value)
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// `{ form = text }`, all at the place of `node`.
fn long_form(form: &str, text: &str, node: &Node) -> Node {
    let key = Key { text: form.to_owned(), span: node.span.clone() };
    let value = Node { span: node.span.clone(), kind: Kind::String(text.to_owned()) };
    Node { span: node.span.clone(), kind: Kind::Table(Table(vec![(key, value)])) }
}

/// A host and a key of ssh: the manifest's entry under other names.
#[derive(Debug, Clone)]
pub struct BottleSsh(pub SshSpec);

/// The key, the manifest's key, and what it is.
const SSH_KEYS: [(KeySpec, &str); 6] = [
    (ssh_key("Host", true, &["The alias that is typed."]), "host"),
    (ssh_key("IdentityFile", true, &["The private key's file."]), "identity_file"),
    (ssh_key("Hostname", true, &["The real name."]), "hostname"),
    (ssh_key("User", true, &["The user there."]), "user"),
    (ssh_key("Port", true, &["The port there, such as 22."]), "port"),
    (ssh_key("KnownHostKey", false, &["The host's public key."]), "known_host_key"),
];

const fn ssh_key(name: &'static str, required: bool, doc: &'static [&'static str]) -> KeySpec {
    KeySpec { name, required, doc, schema: || json!({"type": "string"}) }
}

impl Decode for BottleSsh {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let keys = SSH_KEYS.map(|(key, _)| key);
        let table = known_table(node, "an ssh entry", &keys, faults)?;
        let renamed = SSH_KEYS.iter().filter_map(|(key, ours)| {
            let (written, value) = table.0.iter().find(|(written, _)| written.text == key.name)?;
            let key = Key { text: (*ours).to_owned(), span: written.span.clone() };
            Some((key, if *ours == "port" { port(value) } else { value.clone() }))
        });
        let ours = Node { span: node.span.clone(), kind: Kind::Table(Table(renamed.collect())) };
        let before = faults.list.len();
        let entry = SshSpec::decode(&ours, faults);
        // What is missing was reported above, under the name that this file has for it.
        let own = faults.list.split_off(before);
        faults.list.extend(own.into_iter().filter(|fault| fault.code != "missing-key"));
        entry.map(Self)
    }

    fn schema() -> Value {
        json!({"type": "object"})
    }
}

/// A port may be written as a number or as a string of digits.
fn port(node: &Node) -> Node {
    let number = match &node.kind {
        Kind::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        Kind::Null
        | Kind::String(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Table(_)
        | Kind::Foreign(_) => None,
    };
    Node { span: node.span.clone(), kind: number.map_or_else(|| node.kind.clone(), Kind::Integer) }
}
