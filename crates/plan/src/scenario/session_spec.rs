//! The keys of a session. One definition: decoding, hints and the JSON Schema come from it.

use super::hosts::{WrittenHost, WrittenHostName};
use super::words::{
    CompactWindow, Effort, FolderMode, PermissionParity, PluginReference, ThinkingDisplay, ToolSearch,
};
use crate::manifest::{Line, PathText, Positive, Text, Word};
use belljar_contract::decode::{At, Decode, Fault, Faults, Kind, Node, Scalar, shown, table};
use belljar_contract::{AgentRelease, PermissionMode};
use serde_json::{Value, json};

table! {
    /// A session: what the agent of a scenario is and what it gets.
    "a session"
    pub struct SessionSpec {
        /// The version of the agent to start, of those that belljar keeps, such as `NAME@2.1.197`; the agent on your PATH
        /// when absent. It is never installed because of this key.
        agent: Option<At<AgentRelease>>,
        /// The model; the agent's own default when absent.
        model: Option<At<Word>>,
        /// How hard the model thinks; `medium` when absent. `extra` is `xhigh`.
        effort: Option<At<Effort>>,
        /// Whether the model thinks at length, or not at all.
        extended_thinking: Option<At<bool>>,
        /// How many turns the agent may take for one message.
        agent_max_turns: Option<At<Positive>>,
        /// The name of an account. There is none here: taken with a warning.
        account_name: Option<At<Line>>,
        /// Permission mode: which actions the agent asks about; `default` when absent.
        permission_mode: Option<At<PermissionMode>>,
        /// What is done about a tool that no rule names; `cowork` when absent.
        permission_parity: Option<At<PermissionParity>>,
        /// Directories that the agent works with.
        folders: Vec<At<FolderSpec>>,
        /// Directories below `.projects`, which the agent can read.
        projects: Vec<At<ProjectSpec>>,
        /// Files below `uploads`, which the agent can read.
        uploads: Vec<At<PathText>>,
        /// Directories that the desktop application trusts. Taken with a warning: nothing is trusted here.
        trusted_folders: Vec<At<PathText>>,
        /// Whether directories appear without being listed. Taken with a warning: none does.
        auto_mount_folders: Option<At<bool>>,
        /// Plugins that the agent has.
        plugins: Option<At<PluginsSpec>>,
        /// Skills that the agent has.
        skills: Option<At<SkillsSpec>>,
        /// MCP servers that the agent has.
        mcp: Option<At<McpChoiceSpec>>,
        /// Hosts that the agent can reach.
        egress: Option<At<SessionEgressSpec>>,
        /// Hosts that the agent may fetch from without asking.
        web_fetch: Option<At<WebFetchSpec>>,
        /// Values that differ from run to run and say nothing; tapes are compared without them.
        normalise: Vec<At<NormaliserSpec>>,
        /// What counts as a change of a skill. Taken with a warning.
        staleness: Option<At<StalenessSpec>>,
        /// Settings that the emulated platform does not have.
        debug: Option<At<DebugSpec>>,
        /// Environment variables of the agent.
        agent_env: Option<At<AgentEnvSpec>>,
    }
}

table! {
    /// A directory that the agent works with.
    "an entry of `folders`"
    pub struct FolderSpec {
        /// The directory, relative to this file.
        from: At<PathText>,
        /// `r`, `rw` or `rwd`, which may delete; `rw` when absent.
        mode: Option<At<FolderMode>>,
    }
}

table! {
    /// A directory below `.projects`.
    "a project"
    pub struct ProjectSpec {
        /// Its name below `.projects`.
        uuid: At<ProjectId>,
        /// The directory, relative to this file.
        from: At<PathText>,
    }
}

table! {
    /// Plugins that the agent has.
    "`plugins`"
    pub struct PluginsSpec {
        /// A configuration directory of the agent. Refused unless it is null: a run has its own.
        config_dir: Option<At<Nullable<PathText>>>,
        /// Marketplaces to fetch. Refused unless it is empty: nothing is fetched before a run.
        marketplaces: Vec<At<Line>>,
        /// Directories of marketplaces, each with its list of plugins.
        local_marketplaces: Vec<At<PathText>>,
        /// Plugins of these marketplaces, as `plugin@marketplace`; `plugin@local` is one of `local_plugins`.
        enabled: Vec<At<PluginReference>>,
        /// Directories of plugins.
        local_plugins: Vec<At<PathText>>,
        /// Directories of plugins that the platform would have installed from elsewhere.
        remote_plugins: Vec<At<PathText>>,
    }
}

table! {
    /// Skills that the agent has.
    "`skills`"
    pub struct SkillsSpec {
        /// Directories of skills.
        local: Vec<At<PathText>>,
        /// Whether the desktop application suggests skills. Taken with a warning: nothing is suggested.
        suggest_enabled: Option<At<bool>>,
        /// Whether it does so unasked. Taken with a warning: nothing is suggested.
        proactive_suggest_enabled: Option<At<bool>>,
    }
}

table! {
    /// MCP servers that the agent has.
    "`mcp`"
    pub struct McpChoiceSpec {
        /// A file with `mcpServers`.
        config: Option<At<Nullable<PathText>>>,
        /// Which of its servers are started.
        enabled: Vec<At<Line>>,
    }
}

table! {
    /// Hosts that the agent can reach, beside the model.
    "`egress`"
    pub struct SessionEgressSpec {
        /// Hosts or `*.domain`, each with an optional port, 443 without one.
        extra_allow: Vec<At<WrittenHost>>,
        /// Whether every host can be reached. Refused unless it is false: list hosts instead.
        unrestricted: Option<At<bool>>,
    }
}

table! {
    /// Hosts that the agent may fetch from without asking.
    "`web_fetch`"
    pub struct WebFetchSpec {
        /// Hosts, without patterns.
        approved_domains: Vec<At<WrittenHostName>>,
    }
}

table! {
    /// What counts as a change of a skill.
    "`staleness`"
    pub struct StalenessSpec {
        /// Files whose change does not count. Taken with a warning: it has no effect.
        hash_ignore: Vec<At<Line>>,
    }
}

table! {
    /// A value that differs from run to run and says nothing.
    "a normaliser"
    pub struct NormaliserSpec {
        /// Its name: 1 to 40 of `a` to `z`, `0` to `9` and `-`.
        name: At<Line>,
        /// A regular expression for the value; with a group, only what the group matches.
        pattern: At<Text>,
        /// Why the value says nothing; shown with each verdict.
        reason: At<Line>,
    }
}

table! {
    /// Settings that the emulated platform does not have.
    "`debug`"
    pub struct DebugSpec {
        /// How much the model may think.
        max_thinking_tokens: Option<At<Positive>>,
        /// How thinking appears in the stream.
        thinking_display: Option<At<ThinkingDisplay>>,
    }
}

table! {
    /// Environment variables of the agent.
    "`agent_env`"
    pub struct AgentEnvSpec {
        /// The model of its sub-agents.
        subagent_model: Option<At<Word>>,
        /// Whether it looks for tools instead of carrying them all.
        tool_search: Option<At<ToolSearch>>,
        /// Whether it keeps to what its model's interface has for good.
        disable_experimental_betas: Option<At<bool>>,
        /// How long a conversation may become, in tokens, before the agent makes it shorter.
        auto_compact_window: Option<At<CompactWindow>>,
    }
}

/// A value, or the word for "none".
#[derive(Debug, Clone, PartialEq)]
pub struct Nullable<T>(pub Option<T>);

impl<T: Decode> Decode for Nullable<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match node.kind {
            Kind::Null => Some(Self(None)),
            Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => T::decode(node, faults).map(|value| Self(Some(value))),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [T::schema(), {"type": "null"}]})
    }
}

/// The name of a directory below `.projects`; it becomes a part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectId(pub String);

impl Scalar for ProjectId {
    const EXPECTED: &'static str = "an identifier of letters, digits, `-` and `_`";
    fn parse(text: &str) -> Result<Self, Fault> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) {
            return Err(Fault::new(format!("expected {}, found `{}`", Self::EXPECTED, shown(text))));
        }
        Ok(Self(text.to_owned()))
    }
    fn pattern() -> Option<&'static str> {
        Some("^[A-Za-z0-9_-]{1,64}$")
    }
}
