//! The keys of a manifest. One definition per table: decoding, hints and the JSON Schema come from it.

use super::allow::AllowText;
use super::bound::Bound;
use super::source::{CredentialText, EnvText};
use super::value::{Argument, HeaderName, Line, PathText, Positive, Program, SshWord, Text, Word};
use belljar_contract::decode::{At, Many, Named, table};
use belljar_contract::{
    AbsPath, Access, AgentName, AgentRelease, BackendKind, ByteSize, Cpus, EnvName, HomeMode, Host, HostName,
    HostPattern, ImageName, LibraryName, Port, SshPublicKey, TimeSpan, Usd, WorkspaceMode,
};

table! {
    /// A manifest: the library and the agents that pick from it.
    "a manifest"
    pub struct FileSpec {
        /// Skills, MCP servers and plugins that agents pick by name.
        library: Option<At<LibrarySpec>>,
        /// The agents, by name.
        agents: Vec<Named<AgentName, AgentSpec>>,
    }
}

table! {
    /// What agents pick from, by name.
    "the library"
    pub struct LibrarySpec {
        /// Skills, by name.
        skills: Vec<Named<LibraryName, SkillSpec>>,
        /// MCP servers, by name.
        mcp: Vec<Named<LibraryName, McpSpec>>,
        /// Plugins, by name.
        plugins: Vec<Named<LibraryName, PluginSpec>>,
    }
}

table! {
    /// A skill: a directory with a `SKILL.md`.
    "a skill"
    pub struct SkillSpec {
        /// The directory. Without it the skill is looked for by its name in the project and in your agent directory.
        source: Option<At<PathText>>,
        /// The line the agent reads about the skill; `SKILL.md` has one too.
        description: Option<At<Line>>,
    }
}

table! {
    /// An MCP server that runs inside the sandbox.
    "an MCP server"
    pub struct McpSpec {
        /// The program, found inside the sandbox.
        command: At<Program>,
        /// Its arguments, passed without a shell.
        args: Vec<At<Argument>>,
        /// Its environment variables.
        env: Vec<Named<EnvName, EnvText>>,
    }
}

table! {
    /// A plugin of the agent: a directory.
    "a plugin"
    pub struct PluginSpec {
        /// The directory that holds the plugin's files.
        source: At<PathText>,
    }
}

table! {
    /// An agent: what it is, what it sees, what it can reach.
    "an agent"
    pub struct AgentSpec {
        /// The kind of agent; the first one that belljar knows when absent.
        harness: Option<At<Word>>,
        /// The version to start, of those that belljar keeps, such as `NAME@2.1.197`; the agent on your PATH when absent.
        agent: Option<At<AgentRelease>>,
        /// The model; the agent's own default when absent.
        model: Option<At<Word>>,
        /// How hard the model thinks.
        effort: Option<At<Word>>,
        /// A text file that becomes the agent's standing instructions.
        role: Option<At<PathText>>,
        /// The first message, delivered as a file.
        prompt: Option<At<Text>>,
        /// Skills from the library.
        skills: Vec<At<LibraryName>>,
        /// MCP servers from the library.
        mcp: Vec<At<LibraryName>>,
        /// Plugins from the library.
        plugins: Vec<At<LibraryName>>,
        /// The tools that the agent has.
        tools: Option<At<ToolsSpec>>,
        /// Which actions the agent asks about.
        permissions: Option<At<PermissionsSpec>>,
        /// How much of the agent's own directory persists: `clean`, `project` or `shared`.
        home: Option<At<HomeMode>>,
        /// How changes to the project are kept: `direct`, `overlay` or `copy`.
        workspace: Option<At<WorkspaceMode>>,
        /// The sandbox backend; `host` means no sandbox.
        backend: Option<At<BackendKind>>,
        /// The container's image, such as `debian:12`: its system takes the place of this machine's. Never fetched.
        image: Option<At<ImageName>>,
        /// Directories and files of the host that appear inside.
        mounts: Vec<At<MountSpec>>,
        /// Environment variables. The agent gets no others from this machine.
        env: Vec<Named<EnvName, EnvText>>,
        /// Hosts that the agent can reach.
        egress: Option<At<EgressSpec>>,
        /// Secrets that are added to requests outside the sandbox.
        credentials: Vec<At<CredentialSpec>>,
        /// Variables of yours whose values are redacted from every record, besides those that this manifest uses.
        redact: Vec<At<EnvName>>,
        /// Keys that ssh inside can sign with.
        ssh: Vec<At<SshSpec>>,
        /// The author of commits made inside.
        git: Option<At<GitSpec>>,
        /// Limits of a run.
        limits: Option<At<LimitsSpec>>,
    }
}

table! {
    /// The tools that the agent has.
    "`tools`"
    pub struct ToolsSpec {
        /// Offer only these tools.
        allow: Option<At<Many<At<Word>>>>,
        /// Never offer these tools.
        deny: Vec<At<Word>>,
        /// Tools that the model's provider runs on its own machines, such as `web_search`; none when absent.
        provider: Vec<At<Word>>,
    }
}

table! {
    /// The author of commits made inside; your own name and address when absent.
    "`git`"
    pub struct GitSpec {
        /// Whether your `user.name`, `user.email`, `init.defaultBranch` and ignore file arrive inside; `true` when absent.
        identity: Option<At<bool>>,
        /// A name instead of yours.
        name: Option<At<Word>>,
        /// An email address instead of yours.
        email: Option<At<Word>>,
    }
}

table! {
    /// Which actions the agent asks about.
    "`permissions`"
    pub struct PermissionsSpec {
        /// Ask about nothing: the sandbox is the boundary.
        skip_prompts: Option<At<bool>>,
        /// Allow these without asking.
        allow: Vec<At<Word>>,
        /// Always refuse these.
        deny: Vec<At<Word>>,
    }
}

table! {
    /// A directory or file of the host that appears inside.
    "a mount"
    pub struct MountSpec {
        /// The directory or file on the host.
        source: At<PathText>,
        /// The absolute path inside; the same path as on the host when absent.
        target: Option<At<AbsPath>>,
        /// `ro` or `rw`; read-only when absent.
        mode: Option<At<Access>>,
    }
}

table! {
    /// Hosts that the agent can reach; when absent, only the model.
    "`egress`"
    pub struct EgressSpec {
        /// Hosts, `*.domain`, addresses or ranges, each with an optional port, 443 without one; or a table with
        /// `host`, `methods` and `paths`.
        allow: Vec<At<AllowText>>,
        /// Hosts that are refused even if `allow` has them; without a port, on every port.
        deny: Vec<At<HostPattern>>,
    }
}

table! {
    /// A secret that is added to requests for one host, outside the sandbox.
    "a credential"
    pub struct CredentialSpec {
        /// The host; the secret is sent to no other.
        host: At<HostName>,
        /// The header; `Authorization` when absent.
        header: Option<At<HeaderName>>,
        /// Its value, around `${NAME}`, or a table with `prefix` and one of `env`, `prompt`, `file`, `command`.
        value: At<CredentialText>,
    }
}

table! {
    /// A key that ssh inside can sign with, for one host.
    "an ssh entry"
    pub struct SshSpec {
        /// The alias that is typed, as in `ssh forge`.
        host: At<SshWord>,
        /// The real name of the host, or its address.
        hostname: At<Host>,
        /// The user on that host.
        user: At<SshWord>,
        /// The port of that host; 22 when absent.
        port: Option<At<Port>>,
        /// The private key's file; it stays on the host.
        identity_file: At<PathText>,
        /// The host's public key; without it your own known hosts decide.
        known_host_key: Option<At<SshPublicKey>>,
        /// Let git inside sign commits and tags with the key.
        sign_commits: Option<At<bool>>,
    }
}

table! {
    /// Limits of a run. A limit that this machine cannot enforce is an error. Processes, time and file systems in memory are
    /// limited by default; `"none"` removes such a default.
    "`limits`"
    pub struct LimitsSpec {
        /// Memory, swap included, such as `4G`.
        memory: Option<At<ByteSize>>,
        /// Processes and threads; 4096 when absent.
        pids: Option<At<Bound<Positive>>>,
        /// Processors, such as `1.5`.
        cpu: Option<At<Cpus>>,
        /// Time limit, such as `30m`; when absent 1h for a scenario and 12h for `run` without a terminal.
        time: Option<At<Bound<TimeSpan>>>,
        /// Maximum cost of the model, in US dollars.
        cost_usd: Option<At<Usd>>,
        /// All file systems in memory together (`/tmp`, the home, `/dev/shm`), such as `2G`; half of memory when absent.
        tmpfs: Option<At<Bound<ByteSize>>>,
    }
}
