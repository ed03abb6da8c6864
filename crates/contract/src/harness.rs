//! The interface between a plan and a kind of agent.
//!
//! A harness knows one kind of agent: its flags, its files and its variables. With all inputs resolved, it returns
//! the content of the agent's directory and its command line. It is a pure function.

use crate::{
    AbsPath, AgentName, AgentVersions, EnvName, HomeMode, LibraryName, ModelAccess, Observation,
    PermissionMode, PlannedFile, Prompt, Purpose,
};

/// A kind of agent.
pub trait Harness: Send + Sync {
    /// The constants of this kind of agent.
    fn profile(&self) -> &HarnessProfile;

    /// The files and the command line for one agent.
    fn assemble(&self, wanted: &Wanted<'_>) -> Assembly;

    /// The directories that one of the [`HarnessProfile::plugin_records`] names. `text` is untrusted.
    fn recorded_directories(&self, record: &str, text: &str) -> Vec<RecordedDirectory>;

    /// The arguments and variables for what a session asks of the agent beyond its manifest.
    fn tune(&self, tuning: &SessionTuning<'_>) -> TunedAgent;

    /// The user's own files that the agent reads without being asked. `project` is the path of the project.
    fn personal_files(&self, project: &str) -> Vec<PersonalFile>;

    /// The conversation in one of the transcripts that the agent keeps. `text` is untrusted; lines that are not part of
    /// the conversation or cannot be read are skipped.
    fn transcript(&self, text: &str) -> Vec<TranscriptEntry>;
}

/// One step of a conversation, as the agent wrote it down itself.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptEntry {
    /// Milliseconds since 1970, if the agent noted the time.
    pub at_ms: Option<u64>,
    pub what: Observation,
}

/// What a session asks of the agent beyond its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTuning<'a> {
    pub conversation: ConversationChoice<'a>,
    pub permission_mode: PermissionMode,
    pub thinking: Option<ThinkingLimit>,
    /// How thinking is shown, in the word of the session file.
    pub thinking_display: Option<&'a str>,
    pub max_turns: Option<u32>,
    /// The model of sub-agents.
    pub subagent_model: Option<&'a str>,
    /// Whether the agent searches for tools instead of listing them all.
    pub tool_search: Option<bool>,
    /// Whether the agent uses only the stable parts of its model's API.
    pub stable_api_only: bool,
    /// The number of tokens after which a conversation is shortened.
    pub compact_after: Option<u32>,
    /// Whether nothing that the agent starts may go on in the background.
    pub foreground_only: bool,
}

/// The conversation that the agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationChoice<'a> {
    /// A new one, which the agent names.
    Fresh,
    /// A new one with this id.
    Named(&'a str),
    /// The earlier one with this id.
    Resumed(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingLimit {
    Disabled,
    Tokens(u32),
}

/// The arguments and variables for a [`SessionTuning`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TunedAgent {
    pub arguments: Vec<String>,
    pub variables: Vec<(EnvName, String)>,
}

/// A file in the user's home that the agent reads on its own. The leak test puts a canary in each.
#[derive(Debug, Clone)]
pub struct PersonalFile {
    /// What the file is for, in one word.
    pub name: &'static str,
    /// Relative to the home directory.
    pub path: String,
    /// The path without parts that say nothing, for a report.
    pub shown: String,
    pub form: PersonalForm,
}

/// The form of a [`PersonalFile`], given the text that it should hold.
pub type PersonalForm = fn(&str) -> String;

/// A variable that every agent of the kind gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEnv {
    pub name: EnvName,
    /// Its value, which is public.
    pub value: String,
    /// Why it is set.
    pub why: String,
}

/// Whether a persisted entry is a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersistedKind {
    Directory,
    File,
}

/// A part of the agent's own directory that persists in the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persisted {
    /// Its name in the agent's directory.
    pub name: String,
    pub kind: PersistedKind,
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

/// A directory of the host that a record of the user's plugins names. The record is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedDirectory {
    /// The path as recorded.
    pub path: String,
    /// A file below the directory that must exist in a directory of this kind.
    pub mark: String,
    /// The kind of directory, for messages.
    pub what: String,
}

/// The npm package of an agent. Its optional dependencies are packages with the program for one platform each; their
/// names begin with its own name and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPackage {
    pub name: String,
    /// The path of the program in the archive of a platform's package.
    pub program: String,
}

/// The constants of a kind of agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessProfile {
    /// The name in the manifest.
    pub name: String,
    /// The name of the program that is searched for on the host.
    pub program: String,
    /// The command that installs the program.
    pub install: String,
    /// The npm package that the program is published in.
    pub package: AgentPackage,
    /// A model to show in a new manifest.
    pub example_model: String,
    /// The agent's own directory, relative to the home directory.
    pub config_directory: String,
    /// The agent's own state file, relative to the home directory; it contains secrets.
    pub state_file: String,
    /// Members of the state file that `home = "shared"` copies.
    pub shared_state: Vec<String>,
    /// The accepted values of `effort`.
    pub efforts: Vec<String>,
    /// Tools that the model's provider can run on its own machines.
    pub provider_tools: Vec<String>,
    /// Where the model's credential is found, and the variables about the model.
    pub model: ModelAccess,
    /// The member of the agent's first frame that holds its version.
    pub version_member: String,
    /// The file with instructions that the agent reads in a project, in the directories above it, and in its own
    /// directory.
    pub instructions_file: String,
    /// Files and directories that the agent reads in every directory above its working directory.
    pub read_above: Vec<String>,
    /// The file with settings, in the agent's own directory and in plugins.
    pub settings_file: String,
    /// Settings in a project that may name programs.
    pub project_settings: Vec<String>,
    /// The keys of such a file whose values are command lines.
    pub settings_commands: Vec<String>,
    /// Variables that every agent of the kind gets.
    pub env: Vec<ProfileEnv>,
    /// Variables that the agent gets in tests.
    pub test_env: Vec<ProfileEnv>,
    /// Arguments before a message that make the agent answer it and end.
    pub one_message: Vec<String>,
    /// Arguments that make the agent speak its protocol on its standard streams.
    pub conversation: Vec<String>,
    pub versions: AgentVersions,
    /// Variables that a manifest may not set, because they would weaken the isolation.
    pub reserved_env: Vec<EnvName>,
    /// The parts of the agent's directory that persist.
    pub persist: Vec<Persisted>,
    /// The parts of the user's agent directory that `home = "shared"` shows.
    pub shared: Vec<SharedEntry>,
    /// Directories that are searched for a skill without a source, in order: each below the project, then below the
    /// user's home directory.
    pub skill_directories: Vec<String>,
    /// The directory of a plugin or marketplace that holds its description.
    pub plugin_directory: String,
    /// The description of a plugin.
    pub plugin_file: String,
    /// The list of a marketplace's plugins.
    pub marketplace_file: String,
    /// Files that identify a plugin's directory; one of them is enough.
    pub plugin_marks: Vec<String>,
    /// Files of the agent's own directory that name the directories of the user's plugins.
    pub plugin_records: Vec<String>,
    /// Files of a plugin that may declare MCP servers.
    pub plugin_mcp_files: Vec<String>,
    /// Flags whose value names a conversation to continue.
    pub session_flags: Vec<String>,
    /// Flags that continue the newest conversation.
    pub newest_session_flags: Vec<String>,
    /// The MCP configuration file in a project.
    pub project_mcp_file: String,
}

/// A resolved skill.
#[derive(Debug, Clone, Copy)]
pub struct WantedSkill<'a> {
    pub name: &'a LibraryName,
    /// The description from its `SKILL.md`.
    pub description: &'a str,
}

/// A resolved plugin.
#[derive(Debug, Clone, Copy)]
pub struct WantedPlugin<'a> {
    pub name: &'a LibraryName,
    /// Its path inside.
    pub directory: &'a AbsPath,
}

/// A resolved MCP server. The values of its variables come from the agent's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpLaunch {
    pub name: String,
    pub command: String,
    pub args: Vec<String>,
    /// Its variables, each with the variable of the agent's environment that has the value.
    pub env: Vec<(EnvName, EnvName)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// If present, only these tools.
    pub allow: Option<Vec<String>>,
    /// These tools are never available.
    pub deny: Vec<String>,
}

/// When the agent asks for a permission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionRules {
    /// The agent never asks; the sandbox is the protection.
    pub skip_prompts: bool,
    /// Calls that need no question.
    pub allow: Vec<String>,
    /// Calls that are refused.
    pub deny: Vec<String>,
}

/// The inputs of a harness.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub agent: &'a AgentName,
    pub purpose: Purpose,
    /// Which parts of the agent's directory persist.
    pub home: HomeMode,
    /// The home directory inside.
    pub home_directory: &'a AbsPath,
    /// The user's home on the host.
    pub host_home: &'a AbsPath,
    /// Whether the user has a state file, for `home = "shared"`.
    pub host_state: bool,
    /// The directory inside that belljar puts the agent's files in.
    pub kit: &'a AbsPath,
    /// The path of the project inside.
    pub project: &'a AbsPath,
    /// The text that is added to the agent's role.
    pub role: Option<&'a str>,
    pub model: Option<&'a str>,
    pub effort: Option<&'a str>,
    pub tools: &'a ToolRules,
    pub permissions: &'a PermissionRules,
    pub skills: &'a [WantedSkill<'a>],
    pub mcp: &'a [McpLaunch],
    pub plugins: &'a [WantedPlugin<'a>],
    /// Servers of the project's own MCP file that the manifest does not declare.
    pub undeclared_mcp: &'a [String],
    pub prompt: Option<&'a str>,
    /// Text that explains to the agent what it may do in the sandbox.
    pub note: &'a str,
}

/// The output of a harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// Where the agent's program is mounted inside.
    pub program: AbsPath,
    /// The command line, without the first message.
    pub argv: Vec<String>,
    /// Files to place over the mounts.
    pub files: Vec<PlannedFile>,
    /// The directory inside that skills are mounted in, by name.
    pub skills_directory: AbsPath,
    pub prompt: Option<Prompt>,
}
