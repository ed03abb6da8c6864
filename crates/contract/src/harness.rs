//! The seam between a plan and a kind of agent.
//!
//! A harness knows one agent: its flags, its files, its variables. It is asked, with everything already
//! resolved, what the agent's directory and command line are to be; it answers as a pure function.

use crate::{
    AbsPath, AgentName, AgentVersions, EnvName, HomeMode, LibraryName, PlannedFile, Prompt, Purpose,
};

/// A kind of agent.
pub trait Harness: Sync {
    /// What is constant about it.
    fn profile(&self) -> &HarnessProfile;

    /// The files and the command line of one agent.
    fn assemble(&self, wanted: &Wanted<'_>) -> Assembly;

    /// The folders that one of the [`HarnessProfile::plugin_records`] names. The text may be anything.
    fn recorded_folders(&self, record: &str, text: &str) -> Vec<RecordedFolder>;
}

/// A variable every agent of the kind gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEnv {
    /// Its name.
    pub name: EnvName,
    /// Its value; public.
    pub value: String,
    /// Why it is set.
    pub why: String,
}

/// Whether a persisted entry is a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersistedKind {
    /// A directory.
    Directory,
    /// A file.
    File,
}

/// A part of the agent's own directory that persists in the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persisted {
    /// Its name in the agent's directory.
    pub name: String,
    /// File or directory.
    pub kind: PersistedKind,
    /// Why it persists.
    pub why: String,
}

/// A part of the user's own agent directory that `home = "shared"` shows, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its name in the agent's directory.
    pub name: String,
    /// Why it is shown.
    pub why: String,
}

/// A folder of the host that a record of the user's plugins names. It is the record's word, nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedFolder {
    /// As recorded.
    pub path: String,
    /// A file, below the folder, that makes it what it is said to be.
    pub mark: String,
    /// What it is said to be, for people.
    pub what: String,
}

/// What is constant about a kind of agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessProfile {
    /// The name the manifest uses.
    pub name: String,
    /// The program that is looked for on the host.
    pub program: String,
    /// The agent's own directory, below the home.
    pub config_directory: String,
    /// The agent's own state file, below the home; holds secrets.
    pub state_file: String,
    /// Members of the state file that `home = "shared"` takes over.
    pub shared_state: Vec<String>,
    /// The words for effort.
    pub efforts: Vec<String>,
    /// What its model's provider can be allowed to do on its own machines.
    pub provider_tools: Vec<String>,
    /// Where the model's credential is looked for, in order.
    pub credentials: Vec<String>,
    /// Variables every agent of the kind gets.
    pub env: Vec<ProfileEnv>,
    /// Variables that it gets when it is tested.
    pub test_env: Vec<ProfileEnv>,
    /// Arguments with which it speaks its protocol on its standard streams.
    pub conversation: Vec<String>,
    /// Its versions.
    pub versions: AgentVersions,
    /// Variables that a manifest may not set, because they would go around the walls.
    pub reserved_env: Vec<EnvName>,
    /// What persists.
    pub persist: Vec<Persisted>,
    /// What `home = "shared"` shows.
    pub shared: Vec<SharedEntry>,
    /// Folders in which a skill without a source is looked for: below the project, then below the user's
    /// home, in order.
    pub skill_folders: Vec<String>,
    /// Files that make a folder a plugin; one of them is enough.
    pub plugin_marks: Vec<String>,
    /// Files of the agent's own directory that name folders in which the user's plugins lie.
    pub plugin_records: Vec<String>,
    /// Files of a plugin that may name MCP servers.
    pub plugin_mcp_files: Vec<String>,
    /// Flags whose value names a conversation that is gone on with.
    pub session_flags: Vec<String>,
    /// Flags that go on with the newest conversation.
    pub newest_session_flags: Vec<String>,
    /// The project's own MCP file.
    pub project_mcp_file: String,
}

/// A skill, resolved.
#[derive(Debug, Clone, Copy)]
pub struct WantedSkill<'a> {
    /// Its name.
    pub name: &'a LibraryName,
    /// The line about it.
    pub description: &'a str,
}

/// A plugin, resolved.
#[derive(Debug, Clone, Copy)]
pub struct WantedPlugin<'a> {
    /// Its name.
    pub name: &'a LibraryName,
    /// Where it lies inside.
    pub directory: &'a AbsPath,
}

/// An MCP server, resolved. Values of its variables come from the agent's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpLaunch {
    /// Its name.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variable, and the variable of the agent's environment that holds the value.
    pub env: Vec<(EnvName, EnvName)>,
}

/// Which tools the agent has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Only these, when given.
    pub allow: Option<Vec<String>>,
    /// Never these.
    pub deny: Vec<String>,
}

/// What the agent asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionRules {
    /// Ask about nothing; the sandbox is the wall.
    pub skip_prompts: bool,
    /// Not asked about.
    pub allow: Vec<String>,
    /// Refused.
    pub deny: Vec<String>,
}

/// Everything a harness needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// What the sandbox is for.
    pub purpose: Purpose,
    /// What of the agent's directory persists.
    pub home: HomeMode,
    /// The home directory inside.
    pub home_directory: &'a AbsPath,
    /// The user's home on the host.
    pub host_home: &'a AbsPath,
    /// Whether the user has a state file, for `home = "shared"`.
    pub host_state: bool,
    /// Where belljar keeps the agent's things inside.
    pub kit: &'a AbsPath,
    /// The project inside.
    pub project: &'a AbsPath,
    /// The role text.
    pub role: Option<&'a str>,
    /// The model.
    pub model: Option<&'a str>,
    /// The effort.
    pub effort: Option<&'a str>,
    /// Tools.
    pub tools: &'a ToolRules,
    /// Permissions.
    pub permissions: &'a PermissionRules,
    /// Skills.
    pub skills: &'a [WantedSkill<'a>],
    /// MCP servers.
    pub mcp: &'a [McpLaunch],
    /// Plugins.
    pub plugins: &'a [WantedPlugin<'a>],
    /// Servers of the project's own MCP file that the agent did not declare.
    pub undeclared_mcp: &'a [String],
    /// The first message.
    pub prompt: Option<&'a str>,
    /// The note on what the agent may and may not do here.
    pub note: &'a str,
}

/// What a harness answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// Where the agent's program is to lie inside.
    pub program: AbsPath,
    /// The command line, without the first message.
    pub argv: Vec<String>,
    /// Files to lay over the mounts.
    pub files: Vec<PlannedFile>,
    /// The folder inside that skills are mounted in, by their names.
    pub skills_directory: AbsPath,
    /// How the first message is delivered.
    pub prompt: Option<Prompt>,
}
