//! The plan: everything that a run will see, reach and keep, decided before anything is started.
//!
//! A plan contains no secret value. For a secret it states where the value comes from. A literal from a manifest is
//! carried for the launch but never serialised.

use crate::{
    AbsPath, AgentName, BackendKind, Digest, EnvName, Host, HostName, HostPattern, ImageName, InstanceKey,
    LibraryName, Limits, Port, PublishedVersion, RequestRule, SshPublicKey, TrustFile, UsedOutside,
};
use serde::{Deserialize, Serialize, Serializer};

/// The purpose of the sandbox; it decides on the path of the project inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// `run`, `exec`, `shell`: the project has its own absolute path.
    Session,
    /// Tests: the project is at `/workspace`, so that a tape matches on any machine.
    Test,
}

/// Which parts of the agent's own directory persist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HomeMode {
    Clean,
    /// Only the parts that the manifest names, and the project's history.
    Project,
    /// The user's own agent configuration, read-only, and the project's history.
    Shared,
}

/// How the agent's changes to the project are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// Written to the project as they happen.
    Direct,
    /// Kept in an overlay beside the project until they are applied or discarded.
    Overlay,
    /// Made to a copy.
    Copy,
}

/// Whether something is writable inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    #[serde(rename = "ro")]
    ReadOnly,
    #[serde(rename = "rw")]
    ReadWrite,
}

/// The state that belljar keeps for a project, shared by all worktrees of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instance {
    pub key: InstanceKey,
    /// The canonical root it is derived from.
    pub root: AbsPath,
    /// Where the state is stored on the host.
    pub directory: AbsPath,
}

/// The project on the host and inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// How changes are kept.
    pub mode: WorkspaceMode,
    /// The project on the host.
    pub source: AbsPath,
    pub target: AbsPath,
    /// The working directory inside.
    pub directory: AbsPath,
    /// What is missing for a guard over files that the host would execute later, if the project is changed in place
    /// without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unguarded: Option<String>,
}

/// One step in building the file system, in order; a later mount covers an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The path inside.
    pub target: AbsPath,
    #[serde(flatten)]
    pub source: MountSource,
    /// Whether it can be written.
    pub access: Access,
    /// The reason, for people.
    pub why: String,
}

/// The source of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "source")]
pub enum MountSource {
    /// The system's programs and libraries.
    System,
    /// Everything in the container's image, except the paths of later mounts.
    Image,
    /// A generated `/etc`: users, hosts, TLS roots.
    SyntheticEtc,
    /// A `/proc` for the processes of the sandbox only.
    Proc,
    /// A few harmless devices.
    Devices,
    /// An empty file system in memory that ends with the run.
    Temporary,
    /// The agent's own program.
    AgentProgram,
    /// The project, according to its workspace mode.
    Workspace,
    /// A path of the host.
    Host(AbsPath),
    /// A directory of the instance, created if absent.
    InstanceDirectory(AbsPath),
    /// A file of the instance, created if absent.
    InstanceFile(AbsPath),
}

/// A file that is generated for the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// The path inside.
    pub target: AbsPath,
    #[serde(flatten)]
    pub content: FileContent,
    /// Whether the agent may change its copy.
    pub access: Access,
    /// The reason, for people.
    pub why: String,
}

/// The content of a generated file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileContent {
    Text(String),
    /// A JSON object: `base` and the named members of a file of the host, copied at launch. They are not read
    /// earlier, because such a file may contain secrets.
    JsonFrom {
        source: AbsPath,
        /// The members that are taken over.
        members: Vec<String>,
        /// The other members of the object.
        base: serde_json::Value,
    },
    /// The host keys for the `ssh` entries; those of `looked_up` are read from the user's known hosts at launch.
    SshKnownHosts {
        looked_up: Vec<String>,
    },
    /// The public part of an ssh key, read at launch.
    SshPublicKey {
        /// The alias that it is for.
        host: String,
        /// The key's file on the host.
        identity_file: AbsPath,
    },
    /// A file that makes programs trust the run's CA, which is created at launch.
    Trust(TrustFile),
    /// git configuration for the sandbox, read from the user's at launch.
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

/// A git file with values of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitFile {
    /// The author of commits.
    Config {
        /// Whether the user's own configuration is read.
        of_user: bool,
        /// The name, if the manifest has one.
        name: Option<String>,
        /// The email address, if the manifest has one.
        email: Option<String>,
    },
    /// The user's global ignore file.
    Ignore,
}

/// Where a value of the environment comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvSource {
    /// Written in the manifest, or given by hand; carried to the launch, never printed.
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
    /// Generated for each run.
    Run(RunValue),
}

/// A value that is generated for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunValue {
    /// The URL of the run's proxy, with its token.
    ProxyUrl,
    /// The address of the run's proxy.
    ProxyAddress,
    /// The token that the run's proxy requires.
    ProxyToken,
}

impl RunValue {
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            RunValue::ProxyUrl => "generated for the run: the address of its proxy, with a token",
            RunValue::ProxyAddress => "generated for the run: the address of its proxy",
            RunValue::ProxyToken => "generated for the run: the token that its proxy requires",
        }
    }
}

impl EnvSource {
    /// A short description of where the value comes from; never the value, unless it is a public constant.
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

/// What adds a variable to the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvGiver {
    /// The manifest, for the agent.
    Agent,
    /// The manifest, for an MCP server.
    McpServer(LibraryName),
    /// The user, on the command line.
    ByHand,
    /// The harness or belljar itself, with the reason.
    Harness(String),
}

/// One variable of the agent's environment. There are no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnvEntry {
    pub name: EnvName,
    /// Where its value comes from.
    pub source: EnvSource,
    pub giver: EnvGiver,
}

/// Whether a rule allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    Allow,
    /// Must not be reached, even if another rule allows it.
    Deny,
}

/// One egress rule, with the id that log lines and refusals name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressRule {
    /// Stable within the plan: `allow-1`, `deny-1`.
    pub id: String,
    pub effect: RuleEffect,
    /// The hosts that it applies to.
    pub host: HostPattern,
    /// The requests to them that it applies to; `None` is all. With a request rule the proxy intercepts TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRule>,
}

/// The egress of a plan. No value of this type means "everything".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Egress {
    /// Whether the model can be reached through the gateway.
    pub model: bool,
    /// The rules; empty means that nothing but the model can be reached.
    pub rules: Vec<EgressRule>,
}

/// A part of a credential's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialPart {
    /// Public text, such as `Bearer `.
    Text(String),
    Secret(EnvSource),
}

/// A secret that is added outside the sandbox to requests for one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Credential {
    /// The host that it is for; it is never sent to another.
    pub host: HostName,
    /// The header that contains it.
    pub header: String,
    /// The parts of the header's value.
    pub value: Vec<CredentialPart>,
}

/// A key that ssh inside can sign with, for one host. The key itself stays outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SshEntry {
    pub host: String,
    /// The real name or address.
    #[serde(serialize_with = "shown")]
    pub hostname: Host,
    /// The user name on the host.
    pub user: String,
    /// The port on the host.
    pub port: Port,
    /// The key's file on the host.
    pub identity_file: AbsPath,
    /// The host's public key; `None` reads the user's known hosts at launch.
    pub known_host_key: Option<SshPublicKey>,
    /// Whether git inside may sign commits and tags with the key.
    pub sign_commits: bool,
}

fn shown<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A skill that the agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skill {
    /// Its name in the library and inside.
    pub name: LibraryName,
    /// Its directory on the host.
    pub source: AbsPath,
    /// The description that the agent reads.
    pub description: String,
}

/// An MCP server that the agent gets; it runs inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpServer {
    pub name: LibraryName,
    /// The program; it is looked up inside.
    pub command: String,
    pub args: Vec<String>,
    /// The names of the variables that it gets.
    pub env: Vec<EnvName>,
}

/// A plugin that the agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plugin {
    /// Its name in the library.
    pub name: LibraryName,
    /// Its directory on the host.
    pub source: AbsPath,
    /// The MCP servers that it bundles.
    pub mcp: Vec<String>,
}

/// The first message, delivered as a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prompt {
    pub text: String,
    /// Its path inside.
    pub file: AbsPath,
    /// The last argument of the command line, which refers to the file.
    pub argument: String,
}

/// Something that the agent will be refused; known before it tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// [`crate::PLAN_FORMAT`].
    pub format: u32,
    pub agent: AgentName,
    /// The kind of agent.
    pub harness: String,
    /// The version of the agent that belljar keeps and that is started; `None` is the program on the search path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<PublishedVersion>,
    pub purpose: Purpose,
    pub backend: BackendKind,
    /// The container image, if one is named: its system replaces this machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// The model; `None` is the agent's default.
    pub model: Option<String>,
    /// The effort; `None` is the agent's default.
    pub effort: Option<String>,
    pub instance: Instance,
    /// Which parts of the agent's directory persist.
    pub home: HomeMode,
    /// The home directory inside.
    pub home_directory: AbsPath,
    pub workspace: Workspace,
    /// The mounts of the file system, in order.
    pub mounts: Vec<Mount>,
    /// Files generated for the run, placed over the mounts.
    pub files: Vec<PlannedFile>,
    pub env: Vec<EnvEntry>,
    pub egress: Egress,
    /// Where to look for the model's credential, in order; it stays outside.
    pub model_credentials: Vec<String>,
    /// Tools that the model's provider may run on its own machines; no others.
    pub provider_tools: Vec<String>,
    /// Other credentials that stay outside the sandbox.
    pub credentials: Vec<Credential>,
    /// Variables of the host whose values records redact, although nothing brings them inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<EnvName>,
    /// Keys that ssh inside can sign with.
    pub ssh: Vec<SshEntry>,
    pub limits: Limits,
    pub skills: Vec<Skill>,
    pub mcp: Vec<McpServer>,
    pub plugins: Vec<Plugin>,
    pub prompt: Option<Prompt>,
    /// The agent's command line inside. It never passes through a shell.
    pub argv: Vec<String>,
    pub refused: Vec<Refusal>,
    /// Files of the project that are run or read outside the sandbox to get values, with digests of their content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_outside: Vec<UsedOutside>,
}

impl Egress {
    /// Whether anything except the model can be reached.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.rules.iter().any(|rule| rule.effect == RuleEffect::Allow)
    }

    /// Whether there is a proxy inside. A sandbox always has one: what is refused is seen and explained, even where no
    /// rule allows anything. So has every test, because refused requests are evidence.
    #[must_use]
    pub fn has_proxy(&self, backend: BackendKind, purpose: Purpose) -> bool {
        backend.isolates() || purpose == Purpose::Test || self.opens()
    }
}

impl Plan {
    /// Whether there is a proxy inside.
    #[must_use]
    pub fn has_proxy(&self) -> bool {
        self.egress.has_proxy(self.backend, self.purpose)
    }

    /// The digest of the plan. Equal plans have equal digests; literals are included, although they are never
    /// printed.
    #[must_use]
    pub fn digest(&self) -> Digest {
        // All keys of a plan are strings, so serialisation does not fail.
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
