//! A session: read, checked, typed.

use super::document::{Document, DocumentError, DocumentText};
use super::normalisers::normalisers;
use super::session_spec::{
    AgentEnvSpec, DebugSpec, FolderSpec, McpChoiceSpec, PluginsSpec, ProjectSpec, SessionEgressSpec,
    SessionSpec, SkillsSpec, StalenessSpec, WebFetchSpec,
};
use super::words::{
    CompactWindow, Effort, FolderMode, PermissionParity, PluginReference, ThinkingDisplay, ToolSearch,
};
use crate::manifest::{PathText, Positive};
use belljar_contract::decode::{At, Decode, Fault, Faults, Place};
use belljar_contract::{AgentRelease, Diagnostic, HostName, HostPattern, PermissionMode, SuiteNormaliser};

/// A session. Paths are as written, relative to the session's file.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The version of the agent; `None` is the program on the search path.
    pub agent: Option<AgentRelease>,
    pub model: Option<String>,
    /// How hard the model thinks.
    pub effort: Effort,
    /// How long it thinks.
    pub thinking: Option<Thinking>,
    /// How thinking appears in the stream.
    pub thinking_display: Option<ThinkingDisplay>,
    /// How many turns the agent may take for one message.
    pub max_turns: Option<u32>,
    /// What the agent asks about.
    pub permission_mode: PermissionMode,
    /// What is done about a tool that no rule names.
    pub permission_parity: PermissionParity,
    /// Directories that the agent works with.
    pub folders: Vec<Folder>,
    /// Directories below `.projects`, read-only.
    pub projects: Vec<SpaceProject>,
    /// Files below `uploads`, read-only.
    pub uploads: Vec<PathText>,
    pub plugins: PluginChoice,
    pub skills: Vec<PathText>,
    pub mcp: McpChoice,
    /// Hosts that can be reached beside the model.
    pub extra_allow: Vec<HostPattern>,
    /// Hosts that the agent may fetch from without asking.
    pub approved_domains: Vec<HostName>,
    /// What tapes are compared without.
    pub normalise: Vec<SuiteNormaliser>,
    /// Variables of the agent.
    pub agent_env: AgentVariables,
}

/// How long the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// At length, as the platform does.
    Extended,
    Disabled,
    /// Up to so many tokens.
    Tokens(u32),
}

/// A directory that the agent works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub from: PathText,
    /// What the agent may do with it.
    pub mode: FolderMode,
}

/// A directory below `.projects`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceProject {
    pub uuid: String,
    pub from: PathText,
}

/// Plugins, by directory or by the marketplace that lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginChoice {
    /// Directories with a marketplace.
    pub local_marketplaces: Vec<PathText>,
    /// Plugins of these marketplaces.
    pub enabled: Vec<PluginReference>,
    pub local_plugins: Vec<PathText>,
    /// Directories of plugins that the platform would have installed from elsewhere.
    pub remote_plugins: Vec<PathText>,
}

/// MCP servers of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpChoice {
    pub config: Option<PathText>,
    /// Which of its servers are started.
    pub enabled: Vec<String>,
}

/// Variables of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentVariables {
    /// The model of its sub-agents.
    pub subagent_model: Option<String>,
    /// Whether it looks for tools.
    pub tool_search: Option<ToolSearch>,
    /// Whether it keeps to what its model's interface has for good.
    pub disable_experimental_betas: bool,
    /// How long a conversation may become before it is made shorter.
    pub auto_compact_window: Option<CompactWindow>,
}

impl Default for Session {
    /// The session of a scenario that names none.
    fn default() -> Self {
        Self {
            agent: None,
            model: None,
            effort: Effort::default(),
            thinking: None,
            thinking_display: None,
            max_turns: None,
            permission_mode: PermissionMode::Default,
            permission_parity: PermissionParity::Cowork,
            folders: Vec::new(),
            projects: Vec::new(),
            uploads: Vec::new(),
            plugins: PluginChoice::default(),
            skills: Vec::new(),
            mcp: McpChoice::default(),
            extra_allow: Vec::new(),
            approved_domains: Vec::new(),
            normalise: Vec::new(),
            agent_env: AgentVariables::default(),
        }
    }
}

/// A session and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionFile {
    pub session: Session,
    /// Its text, for faults that are found later.
    pub document: Document,
    /// What is worth knowing about it, such as what is not done.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a session.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn parse_session(text: DocumentText) -> Result<SessionFile, DocumentError> {
    let document = Document::read(text)?;
    let mut faults = document.faults();
    let spec = SessionSpec::decode(document.root(), &mut faults);
    let session = spec.map(|spec| session(spec, &mut faults));
    let found = faults.list;
    let (document, warnings) = document.judged(found)?;
    match session {
        Some(session) => Ok(SessionFile { session, document, warnings }),
        None => Err(DocumentError { sources: document.sources(), diagnostics: warnings }),
    }
}

fn session(spec: SessionSpec, faults: &mut Faults<'_>) -> Session {
    // Destructured in full: a key that is added stops this function from compiling.
    let SessionSpec {
        agent,
        model,
        effort,
        extended_thinking,
        agent_max_turns,
        account_name,
        permission_mode,
        permission_parity,
        folders,
        projects,
        uploads,
        trusted_folders,
        auto_mount_folders,
        plugins,
        skills,
        mcp,
        egress,
        web_fetch,
        normalise,
        staleness,
        debug,
        agent_env,
    } = spec;
    let defaults = Session::default();
    undone(faults, account_name.map(|at| at.place), "there is no account here", "the agent sees no name");
    let trusted = trusted_folders.into_iter().next().map(|at| at.place);
    undone(faults, trusted, "no directory is trusted here", "list what the agent needs under `folders`");
    let without_asking = "no directory appears without being listed";
    undone(faults, set(auto_mount_folders), without_asking, "list what the agent needs under `folders`");
    let StalenessSpec { hash_ignore } =
        staleness.map_or(StalenessSpec { hash_ignore: Vec::new() }, |at| at.value);
    let ignored = hash_ignore.into_iter().next().map(|at| at.place);
    undone(
        faults,
        ignored,
        "`hash_ignore` has no effect",
        "a tape knows itself which of its requests changed",
    );
    let DebugSpec { max_thinking_tokens, thinking_display } =
        debug.map_or(DebugSpec { max_thinking_tokens: None, thinking_display: None }, |at| at.value);
    Session {
        agent: agent.map(|at| at.value),
        model: model.map(|at| at.value.0),
        effort: effort.map_or(defaults.effort, |at| at.value),
        thinking: thinking(extended_thinking, max_thinking_tokens, faults),
        thinking_display: thinking_display.map(|at| at.value),
        max_turns: agent_max_turns.map(|at| at.value.0),
        permission_mode: permission_mode.map_or(defaults.permission_mode, |at| at.value),
        permission_parity: permission_parity.map_or(defaults.permission_parity, |at| at.value),
        folders: folders.into_iter().map(|at| folder(at.value)).collect(),
        projects: self::projects(projects, faults),
        uploads: values(uploads),
        plugins: plugins.map_or(defaults.plugins, |at| self::plugins(at.value, faults)),
        skills: skills.map_or(defaults.skills, |at| self::skills(at.value, faults)),
        mcp: mcp.map_or(defaults.mcp, |at| self::mcp(at.value, faults)),
        extra_allow: egress.map_or(defaults.extra_allow, |at| reachable(at.value, faults)),
        approved_domains: web_fetch.map_or(defaults.approved_domains, |at| {
            let WebFetchSpec { approved_domains } = at.value;
            approved_domains.into_iter().map(|at| at.value.0).collect()
        }),
        normalise: normalisers(normalise, faults),
        agent_env: agent_env.map_or(defaults.agent_env, |at| variables(at.value)),
    }
}

fn values<T>(list: Vec<At<T>>) -> Vec<T> {
    list.into_iter().map(|at| at.value).collect()
}

/// Where a switch is turned on.
fn set(flag: Option<At<bool>>) -> Option<Place> {
    flag.filter(|at| at.value).map(|at| at.place)
}

/// Says that something written is not done, where nothing is lost by it.
fn undone(faults: &mut Faults<'_>, place: Option<Place>, what: &str, help: &str) {
    if let Some(place) = place {
        faults.warn("not-done", &place.span, Fault::new(what).label("has no effect").help(help));
    }
}

/// Says that something written cannot be done, and that leaving it out would change the test.
fn refused(faults: &mut Faults<'_>, place: Option<Place>, what: &str, help: &str) {
    if let Some(place) = place {
        faults.push("refused", &place.span, Fault::new(what).help(help));
    }
}

fn thinking(
    extended: Option<At<bool>>,
    tokens: Option<At<Positive>>,
    faults: &mut Faults<'_>,
) -> Option<Thinking> {
    match (extended, tokens) {
        (Some(off), Some(tokens)) if !off.value => {
            let fault =
                Fault::new("`extended_thinking: false` and `max_thinking_tokens` contradict each other")
                    .help("keep one of them");
            faults.push("contradiction", &tokens.place.span, fault);
            if let Some(last) = faults.list.last_mut() {
                last.related.push(off.place.label("switched off here"));
            }
            None
        }
        (_, Some(tokens)) => Some(Thinking::Tokens(tokens.value.0)),
        (Some(At { value: true, .. }), None) => Some(Thinking::Extended),
        (Some(At { value: false, .. }), None) => Some(Thinking::Disabled),
        (None, None) => None,
    }
}

fn folder(spec: FolderSpec) -> Folder {
    let FolderSpec { from, mode } = spec;
    Folder { from: from.value, mode: mode.map_or(FolderMode::ReadWrite, |at| at.value) }
}

fn projects(specs: Vec<At<ProjectSpec>>, faults: &mut Faults<'_>) -> Vec<SpaceProject> {
    let mut out: Vec<SpaceProject> = Vec::new();
    for At { value: ProjectSpec { uuid, from }, .. } in specs {
        if out.iter().any(|known| known.uuid == uuid.value.0) {
            let fault =
                Fault::new(format!("the project `{}` is there twice", uuid.value.0)).label("the second");
            faults.push("duplicate-name", &uuid.place.span, fault);
        }
        out.push(SpaceProject { uuid: uuid.value.0, from: from.value });
    }
    out
}

fn plugins(spec: PluginsSpec, faults: &mut Faults<'_>) -> PluginChoice {
    let PluginsSpec { config_dir, marketplaces, local_marketplaces, enabled, local_plugins, remote_plugins } =
        spec;
    refused(
        faults,
        config_dir.filter(|at| at.value.0.is_some()).map(|at| at.place),
        "`config_dir` is refused: a run has a configuration directory of its own; one of this machine is never used",
        "name plugins, skills and servers one by one, and leave `config_dir` out",
    );
    refused(
        faults,
        marketplaces.into_iter().next().map(|at| at.place),
        "`marketplaces` is refused: nothing is fetched before a run, so this marketplace is not there",
        "clone it, and name its directory under `local_marketplaces`",
    );
    if local_marketplaces.is_empty() {
        let named = |at: &&At<PluginReference>| !at.value.is_local();
        refused(
            faults,
            enabled.iter().find(named).map(|at| at.place.clone()),
            "`enabled` takes a plugin from a marketplace, and `local_marketplaces` names none",
            "name the marketplace's directory under `local_marketplaces`; a plugin of `local_plugins` is `NAME@local`",
        );
        let local = enabled.iter().find(|at| at.value.is_local() && local_plugins.is_empty());
        refused(
            faults,
            local.map(|at| at.place.clone()),
            "`@local` means a plugin of `local_plugins`, and that list is empty",
            "name the plugin's directory under `local_plugins`",
        );
    }
    PluginChoice {
        local_marketplaces: values(local_marketplaces),
        enabled: values(enabled),
        local_plugins: values(local_plugins),
        remote_plugins: values(remote_plugins),
    }
}

fn skills(spec: SkillsSpec, faults: &mut Faults<'_>) -> Vec<PathText> {
    let SkillsSpec { local, suggest_enabled, proactive_suggest_enabled } = spec;
    for suggested in [suggest_enabled, proactive_suggest_enabled] {
        undone(faults, set(suggested), "skills are not suggested here", "name the skills under `local`");
    }
    values(local)
}

fn mcp(spec: McpChoiceSpec, faults: &mut Faults<'_>) -> McpChoice {
    let McpChoiceSpec { config, enabled } = spec;
    let config = config.and_then(|at| at.value.0);
    if config.is_none() {
        refused(
            faults,
            enabled.first().map(|at| at.place.clone()),
            "`enabled` starts a server of a file, and `config` names none",
            "name the file with `mcpServers` under `config`",
        );
    }
    McpChoice { config, enabled: enabled.into_iter().map(|at| at.value.0).collect() }
}

fn reachable(spec: SessionEgressSpec, faults: &mut Faults<'_>) -> Vec<HostPattern> {
    let SessionEgressSpec { extra_allow, unrestricted } = spec;
    refused(
        faults,
        set(unrestricted),
        "`unrestricted` would open everything, and no rule does that",
        "name the hosts under `extra_allow`",
    );
    extra_allow.into_iter().map(|at| at.value.0).collect()
}

fn variables(spec: AgentEnvSpec) -> AgentVariables {
    let AgentEnvSpec { subagent_model, tool_search, disable_experimental_betas, auto_compact_window } = spec;
    AgentVariables {
        subagent_model: subagent_model.map(|at| at.value.0),
        tool_search: tool_search.map(|at| at.value),
        disable_experimental_betas: disable_experimental_betas.is_some_and(|at| at.value),
        auto_compact_window: auto_compact_window.map(|at| at.value),
    }
}
