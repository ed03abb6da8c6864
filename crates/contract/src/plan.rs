//! The plan: everything a run will see, reach and keep, decided before anything happens.
//!
//! A plan holds no secret value. Where a value is secret it says where the value will come from; a literal
//! from a manifest is carried for the launch but never serialised.

use crate::{
    AbsPath, AgentName, BackendKind, Digest, EnvName, Host, HostName, HostPattern, ImageName, InstanceKey,
    LibraryName, Limits, Port, RequestRule, SshPublicKey, TrustFile, UsedOutside,
};
use serde::{Deserialize, Serialize, Serializer};

/// What the sandbox is for; decides where the project stands inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// `run`, `exec`, `shell`: the project stands at its own absolute path.
    Session,
    /// Tests: the project stands at `/workspace`, so that a tape matches anywhere.
    Test,
}

/// What of the agent's own directory persists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HomeMode {
    /// Nothing persists.
    Clean,
    /// Only what the manifest names, plus the project's history.
    Project,
    /// The user's own agent configuration, read-only, plus the project's history.
    Shared,
}

/// How the agent's changes to the project are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// Written to the project as they happen.
    Direct,
    /// Kept beside the project until they are applied or discarded.
    Overlay,
    /// Made to a copy.
    Copy,
}

/// Whether something can be written inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read-only.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Read and write.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// The project's own state, shared by all worktrees of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// Its key.
    pub key: InstanceKey,
    /// The canonical root it is derived from.
    pub root: AbsPath,
    /// Where it is kept on the host.
    pub directory: AbsPath,
}

/// The project, outside and inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// How changes are kept.
    pub mode: WorkspaceMode,
    /// The project on the host.
    pub source: AbsPath,
    /// The project inside.
    pub target: AbsPath,
    /// The working directory inside.
    pub directory: AbsPath,
    /// What is missing to hold back files that the host would execute later, where the project is changed in place without
    /// that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unguarded: Option<String>,
}

/// One step in building the view of the file system, in order; a later one lies over an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Where it appears inside.
    pub target: AbsPath,
    /// What appears there.
    #[serde(flatten)]
    pub source: MountSource,
    /// Whether it can be written.
    pub access: Access,
    /// Why it is there, for a person.
    pub why: String,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "source")]
pub enum MountSource {
    /// The system's programs and libraries.
    System,
    /// Everything that the container's image holds, but for what later mounts put in its place.
    Image,
    /// A made-up `/etc`: users, hosts, TLS roots.
    SyntheticEtc,
    /// The processes of the sandbox only.
    Proc,
    /// A handful of harmless devices.
    Devices,
    /// Empty memory that ends with the run.
    Temporary,
    /// The agent's own program.
    AgentProgram,
    /// The project, by its workspace mode.
    Workspace,
    /// A path of the host.
    Host(AbsPath),
    /// A directory of the instance, made when absent.
    InstanceDirectory(AbsPath),
    /// A file of the instance, made when absent.
    InstanceFile(AbsPath),
}

/// A file made for the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Where it appears inside.
    pub target: AbsPath,
    /// What it holds.
    #[serde(flatten)]
    pub content: FileContent,
    /// Whether the agent may change its copy.
    pub access: Access,
    /// Why it is there.
    pub why: String,
}

/// What a made file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileContent {
    /// This text.
    Text(String),
    /// A JSON object: `base` with the named members of a host's file taken over at launch. The values are not
    /// read before, because such a file may hold secrets.
    JsonFrom {
        /// The host's file.
        source: AbsPath,
        /// The members that are taken over.
        members: Vec<String>,
        /// What the object holds otherwise.
        base: serde_json::Value,
    },
    /// The keys of the hosts of `ssh`, of which these are looked up in the user's known hosts at launch.
    SshKnownHosts {
        /// The aliases.
        looked_up: Vec<String>,
    },
    /// The public half of a key of ssh, read at launch.
    SshPublicKey {
        /// The alias it is for.
        host: String,
        /// The key's file on the host.
        identity_file: AbsPath,
    },
    /// What makes programs trust the authority of the run, which does not exist before.
    Trust(TrustFile),
    /// What git inside knows of the user, read at launch.
    Git(GitFile),
}

impl FileContent {
    /// Whether the content is decided after the plan was agreed to: the plan says what it is made from.
    #[must_use]
    pub const fn is_made_for_run(&self) -> bool {
        match self {
            Self::Text(_) | Self::JsonFrom { .. } => false,
            Self::SshKnownHosts { .. } | Self::SshPublicKey { .. } | Self::Trust(_) | Self::Git(_) => true,
        }
    }
}

/// The contents of the files that a plan names without one. Nothing else of a plan is decided between the user's
/// agreement and the launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFiles(Vec<(FileContent, Vec<u8>)>);

impl RunFiles {
    /// Adds the bytes for a file of the plan. Bytes for a file whose content the plan already has are not taken.
    pub fn add(&mut self, planned: &FileContent, bytes: Vec<u8>) {
        if planned.is_made_for_run() {
            self.0.push((planned.clone(), bytes));
        }
    }

    /// The bytes for a file of the plan.
    #[must_use]
    pub fn get(&self, planned: &FileContent) -> Option<&[u8]> {
        self.0.iter().find(|(content, _)| content == planned).map(|(_, bytes)| bytes.as_slice())
    }
}

/// A file of git's that holds values of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitFile {
    /// Who commits.
    Config {
        /// Whether the user's own configuration is asked.
        of_user: bool,
        /// The name, where the manifest has one.
        name: Option<String>,
        /// The address, where the manifest has one.
        email: Option<String>,
    },
    /// What is ignored everywhere.
    Ignore,
}

/// Where a value of the environment comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvSource {
    /// Written in the manifest; carried, never printed.
    Literal(String),
    /// A constant of the harness or of belljar; public.
    Constant(String),
    /// A variable of the host.
    Variable(EnvName),
    /// Asked at the terminal, every time, without echo.
    Prompt(String),
    /// Read from a file at launch.
    File(AbsPath),
    /// The output of a command that runs on the host at launch.
    Command(Vec<String>),
    /// Made for one run.
    Run(RunValue),
}

/// A value that does not exist before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunValue {
    /// The URL of the run's proxy, with its token.
    ProxyUrl,
    /// The address of the run's proxy.
    ProxyAddress,
    /// The token that the run's proxy wants.
    ProxyToken,
}

impl RunValue {
    /// In words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            RunValue::ProxyUrl => "made for the run: the address of its proxy, with a token",
            RunValue::ProxyAddress => "made for the run: the address of its proxy",
            RunValue::ProxyToken => "made for the run: the token that its proxy wants",
        }
    }
}

impl EnvSource {
    /// Where the value comes from, in a few words; never the value, unless it is a public constant.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            EnvSource::Literal(_) => "written in the manifest".to_owned(),
            EnvSource::Constant(value) => value.clone(),
            EnvSource::Variable(name) => format!("your variable {name}"),
            EnvSource::Prompt(message) => format!("asked at the terminal: {message}"),
            EnvSource::File(path) => format!("the file {path}"),
            EnvSource::Command(argv) => format!("the output of {argv:?}, run on this machine"),
            EnvSource::Run(value) => value.describe().to_owned(),
        }
    }
}

impl Serialize for EnvSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde_json::json;
        match self {
            EnvSource::Literal(_) => json!({"from": "manifest"}),
            EnvSource::Constant(value) => json!({"from": "constant", "value": value}),
            EnvSource::Variable(name) => json!({"from": "variable", "name": name}),
            EnvSource::Prompt(message) => json!({"from": "prompt", "message": message}),
            EnvSource::File(path) => json!({"from": "file", "path": path}),
            EnvSource::Command(argv) => json!({"from": "command", "argv": argv}),
            EnvSource::Run(value) => json!({"from": "run", "value": value}),
        }
        .serialize(serializer)
    }
}

/// Who wants a variable in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvGiver {
    /// The manifest, for the agent.
    Agent,
    /// The manifest, for an MCP server.
    McpServer(LibraryName),
    /// The harness or belljar itself, and why.
    Harness(String),
}

/// One variable of the agent's environment. There are no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnvEntry {
    /// Its name.
    pub name: EnvName,
    /// Where its value comes from.
    pub source: EnvSource,
    /// Who wants it.
    pub giver: EnvGiver,
}

/// Whether a rule opens or closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    /// May be reached.
    Allow,
    /// May not, whatever else allows it.
    Deny,
}

/// One rule, with the id that log lines and refusals carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressRule {
    /// Stable within the plan: `allow-1`, `deny-1`.
    pub id: String,
    /// Opens or closes.
    pub effect: RuleEffect,
    /// The hosts it speaks of.
    pub host: HostPattern,
    /// Of the requests to them, which; without it, all. TLS to a host is opened to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRule>,
}

/// What can be reached. There is no form that means "everything".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Egress {
    /// Whether the model can be reached through the gateway.
    pub model: bool,
    /// The rules; empty means that nothing else can be reached.
    pub rules: Vec<EgressRule>,
}

/// A piece of a credential's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialPart {
    /// Public text, such as `Bearer `.
    Text(String),
    /// The secret.
    Secret(EnvSource),
}

/// A secret that is added to requests for one host, outside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Credential {
    /// The host it is for; no other sees it.
    pub host: HostName,
    /// The header it is put in.
    pub header: String,
    /// How the header's value is made.
    pub value: Vec<CredentialPart>,
}

/// A key that ssh inside can sign with, for one host. The key itself stays outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SshEntry {
    /// The alias.
    pub host: String,
    /// The real name, or the address.
    #[serde(serialize_with = "shown")]
    pub hostname: Host,
    /// The user there.
    pub user: String,
    /// The port there.
    pub port: Port,
    /// The key's file on the host.
    pub identity_file: AbsPath,
    /// The host's public key; without it the user's own known hosts decide at launch.
    pub known_host_key: Option<SshPublicKey>,
    /// Whether git inside may sign commits and tags with the key.
    pub sign_commits: bool,
}

fn shown<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A skill the agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skill {
    /// Its name in the library and inside.
    pub name: LibraryName,
    /// Its folder on the host.
    pub source: AbsPath,
    /// The line the agent reads about it.
    pub description: String,
}

/// An MCP server the agent gets; it runs inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpServer {
    /// Its name.
    pub name: LibraryName,
    /// The program, found inside.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The names of the variables it gets.
    pub env: Vec<EnvName>,
}

/// A plugin the agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plugin {
    /// Its name in the library.
    pub name: LibraryName,
    /// Its folder on the host.
    pub source: AbsPath,
    /// The MCP servers it bundles.
    pub mcp: Vec<String>,
}

/// The first message, delivered as a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Where it lies inside.
    pub file: AbsPath,
    /// The last word of the command line, which points at the file.
    pub argument: String,
}

/// Something that the agent will be refused, said before it tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What is refused.
    pub what: String,
    /// Why.
    pub why: String,
}

/// A whole plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Version of this form.
    pub format: u32,
    /// The agent.
    pub agent: AgentName,
    /// The kind of agent.
    pub harness: String,
    /// What the sandbox is for.
    pub purpose: Purpose,
    /// What builds the walls.
    pub backend: BackendKind,
    /// The image of the container, when one is named: its system takes the place of this machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// The model, when one is named.
    pub model: Option<String>,
    /// The effort, when one is named.
    pub effort: Option<String>,
    /// The project's state.
    pub instance: Instance,
    /// What of the agent's directory persists.
    pub home: HomeMode,
    /// The home directory inside.
    pub home_directory: AbsPath,
    /// The project.
    pub workspace: Workspace,
    /// The view of the file system, in order.
    pub mounts: Vec<Mount>,
    /// Files made for the run, laid over the mounts.
    pub files: Vec<PlannedFile>,
    /// The whole environment.
    pub env: Vec<EnvEntry>,
    /// What can be reached.
    pub egress: Egress,
    /// Where the model's credential is looked for, in order; it stays outside.
    pub model_credentials: Vec<String>,
    /// What the model's provider may do on its own machines; nothing that is not named.
    pub provider_tools: Vec<String>,
    /// Other credentials that stay outside.
    pub credentials: Vec<Credential>,
    /// Keys that ssh inside can sign with.
    pub ssh: Vec<SshEntry>,
    /// What the run may use up.
    pub limits: Limits,
    /// Skills.
    pub skills: Vec<Skill>,
    /// MCP servers.
    pub mcp: Vec<McpServer>,
    /// Plugins.
    pub plugins: Vec<Plugin>,
    /// The first message.
    pub prompt: Option<Prompt>,
    /// The agent's command line inside. No shell ever sees it.
    pub argv: Vec<String>,
    /// What the agent will be refused.
    pub refused: Vec<Refusal>,
    /// Files of the project that are run or read outside to get values, by content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_outside: Vec<UsedOutside>,
}

impl Egress {
    /// Whether anything but the model can be reached.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.rules.iter().any(|rule| rule.effect == RuleEffect::Allow)
    }
}

impl Plan {
    /// Whether there is a proxy inside. A test has one although nothing can be reached: what is refused is evidence.
    #[must_use]
    pub fn has_proxy(&self) -> bool {
        self.egress.opens() || self.purpose == Purpose::Test
    }

    /// The digest of the plan: equal plans have equal digests, literals included, though no literal is printed.
    #[must_use]
    pub fn digest(&self) -> Digest {
        // A plan has only texts for names, and can always be written.
        let shown = serde_json::to_string(self).unwrap_or_default();
        let literals: Vec<(&EnvName, &str)> = self
            .env
            .iter()
            .filter_map(|entry| match &entry.source {
                EnvSource::Literal(value) => Some((&entry.name, value.as_str())),
                EnvSource::Constant(_)
                | EnvSource::Variable(_)
                | EnvSource::Prompt(_)
                | EnvSource::File(_)
                | EnvSource::Command(_)
                | EnvSource::Run(_) => None,
            })
            .collect();
        Digest::of(serde_json::to_string(&(shown, literals)).unwrap_or_default().as_bytes())
    }
}
