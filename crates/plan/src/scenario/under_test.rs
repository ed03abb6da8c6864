//! From a scenario and its session to the agent that is tested: a manifest, flags and variables.
//!
//! The manifest goes through the same checks as one that a person wrote, so nothing is granted here that could not be
//! written there.

use super::mcp_config::{McpEntry, McpEnv};
use super::scenario_file::Scenario;
use super::session_file::{AgentVariables, Session, Thinking};
use super::words::{CompactWindow, ThinkingDisplay, ToolSearch};
use crate::compile::TEST_WORKSPACE;
use crate::init::toml_text::{key, quote, quote_list, remark};
use crate::manifest::{LayerText, ManifestLayer};
use belljar_contract::{
    AbsPath, BackendKind, ConversationChoice, EnvName, HomeMode, ImageName, LibraryName, PathError,
    PermissionMode, SessionTuning, ThinkingLimit, TimeSpan, Usd,
};

/// The name of the agent in the manifest.
pub const AGENT_UNDER_TEST: &str = "under-test";

/// How long the platform lets a model think, in tokens.
const EXTENDED_THINKING: u32 = 31_999;

/// What was laid out on disk for the agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staged {
    /// What appears read-only: on the host, and its path below the workspace.
    pub read_only: Vec<(AbsPath, String)>,
    /// Directories of skills.
    pub skills: Vec<(LibraryName, AbsPath)>,
    /// Directories of plugins.
    pub plugins: Vec<(LibraryName, AbsPath)>,
    /// Servers that run beside the agent.
    pub mcp: Vec<McpEntry>,
    /// The sandbox backend.
    pub backend: Option<BackendKind>,
    /// The image of the container.
    pub image: Option<ImageName>,
    /// What of the agent's own directory persists; nothing unless this says so.
    pub home: Option<HomeMode>,
    /// What the model may cost.
    pub cost: Option<Usd>,
    /// Variables of the agent, which its harness makes of the session's [`tuning`].
    pub variables: Vec<(EnvName, String)>,
}

/// Why what was staged cannot be written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StagedError {
    /// A manifest is text.
    #[error("`{path}` is not UTF-8, so no manifest can name it")]
    NotText { path: AbsPath },
    /// It would appear somewhere else.
    #[error("`{path}` does not lie below the workspace")]
    Outside {
        /// The path as it was given.
        path: String,
    },
    /// Never for a path of ours; the types cannot say so.
    #[error("cannot say where the workspace is")]
    Workspace(#[source] PathError),
}

/// The manifest of the agent that a scenario tests.
///
/// # Errors
/// When a path cannot be written down, or would appear outside the workspace.
pub fn agent_under_test(
    scenario: &Scenario,
    session: &Session,
    staged: &Staged,
) -> Result<LayerText, StagedError> {
    // Destructured in full: whatever is added is either written here or named as somebody else's.
    let Session {
        agent,
        model,
        effort,
        thinking: _,
        thinking_display: _,
        max_turns: _,
        permission_mode,
        permission_parity: _,
        folders: _,
        projects: _,
        uploads: _,
        plugins: _,
        skills: _,
        mcp: _,
        extra_allow,
        approved_domains,
        // Tapes are compared without them; the agent is not asked for anything.
        normalise: _,
        agent_env: _,
    } = session;
    let Staged { read_only, skills, plugins, mcp, backend, image, home, cost, variables } = staged;
    let mut out = GuideText::default();
    out.line(format!("# The agent of the scenario {}.", quote(&remark(&scenario.name))));
    for (family, entries) in [("skills", skills), ("plugins", plugins)] {
        for (name, source) in entries {
            out.line(format!("[library.{family}.{}]", key(name.as_str())));
            out.line(format!("source = {}", path(source)?));
        }
    }
    mcp.iter().for_each(|server| self::server(&mut out, server));
    out.line(format!("[agents.{AGENT_UNDER_TEST}]"));
    let home = match home {
        None | Some(HomeMode::Clean) => "clean",
        Some(HomeMode::Project) => "project",
        Some(HomeMode::Shared) => "shared",
    };
    out.line(format!("home = {}\nworkspace = \"direct\"", quote(home)));
    if let Some(agent) = agent {
        out.line(format!("agent = {}", quote(&agent.to_string())));
    }
    if let Some(backend) = backend {
        out.line(format!("backend = {}", quote(backend.name())));
    }
    if let Some(image) = image {
        out.line(format!("image = {}", quote(image.as_str())));
    }
    if let Some(model) = model {
        out.line(format!("model = {}", quote(model)));
    }
    out.line(format!("effort = {}", quote(effort.name())));
    out.line(format!("skills = {}", quote_list(skills.iter().map(|(name, _)| name.as_str()))));
    out.line(format!("plugins = {}", quote_list(plugins.iter().map(|(name, _)| name.as_str()))));
    out.line(format!("mcp = {}", quote_list(mcp.iter().map(|server| server.name.as_str()))));
    let fetched = approved_domains.iter().map(|domain| format!("WebFetch(domain:{domain})"));
    out.line(format!(
        "permissions = {{ skip_prompts = {}, allow = {} }}",
        *permission_mode == PermissionMode::BypassPermissions,
        quote_list(fetched)
    ));
    let mounts = read_only.iter().map(|(host, below)| mount(host, below)).collect::<Result<Vec<_>, _>>()?;
    out.line(format!("mounts = [{}]", mounts.join(", ")));
    let hosts = extra_allow.iter().map(ToString::to_string);
    out.line(format!("egress = {{ allow = {} }}", quote_list(hosts)));
    let time =
        scenario.timeout.map(|time| format!("time = {}", quote(&TimeSpan::rounded_up(time).to_string())));
    let cost = cost.map(|cost| format!("cost_usd = {}", dollars(cost)));
    let limits: Vec<String> = time.into_iter().chain(cost).collect();
    if !limits.is_empty() {
        out.line(format!("limits = {{ {} }}", limits.join(", ")));
    }
    out.line(format!("[agents.{AGENT_UNDER_TEST}.env]"));
    for (name, value) in variables {
        out.line(format!("{name} = {{ value = {} }}", quote(value)));
    }
    Ok(LayerText {
        layer: ManifestLayer::Project,
        name: format!("agent of {}", remark(&scenario.name)),
        directory: AbsPath::new("/").map_err(StagedError::Workspace)?,
        bytes: out.0.into_bytes(),
    })
}

/// What a session asks of the agent that a manifest cannot express, for a new conversation.
#[must_use]
pub fn tuning(session: &Session) -> SessionTuning<'_> {
    let AgentVariables { subagent_model, tool_search, disable_experimental_betas, auto_compact_window } =
        &session.agent_env;
    SessionTuning {
        conversation: ConversationChoice::Fresh,
        permission_mode: session.permission_mode,
        thinking: session.thinking.map(|thinking| match thinking {
            Thinking::Extended => ThinkingLimit::Tokens(EXTENDED_THINKING),
            Thinking::Tokens(tokens) => ThinkingLimit::Tokens(tokens),
            Thinking::Disabled => ThinkingLimit::Disabled,
        }),
        thinking_display: session.thinking_display.map(ThinkingDisplay::name),
        max_turns: session.max_turns,
        subagent_model: subagent_model.as_deref(),
        tool_search: tool_search.map(|search| match search {
            ToolSearch::Auto => true,
            ToolSearch::Off => false,
        }),
        stable_api_only: *disable_experimental_betas,
        compact_after: auto_compact_window.map(CompactWindow::tokens),
        foreground_only: false,
    }
}

#[derive(Default)]
struct GuideText(String);

impl GuideText {
    fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }
}

fn path(path: &AbsPath) -> Result<String, StagedError> {
    let text = path.as_path().to_str().ok_or_else(|| StagedError::NotText { path: path.clone() })?;
    Ok(quote(text))
}

fn mount(host: &AbsPath, below: &str) -> Result<String, StagedError> {
    let workspace = AbsPath::new(TEST_WORKSPACE).map_err(StagedError::Workspace)?;
    let outside = || StagedError::Outside { path: below.to_owned() };
    // `..` could lead out of the workspace and back in; no staged file needs it.
    if below.starts_with('/') || below.split('/').any(|part| part == "..") {
        return Err(outside());
    }
    let target = workspace.join(below).map_err(|_nul| outside())?;
    if target == workspace {
        return Err(outside());
    }
    Ok(format!("{{ source = {}, target = {}, mode = \"ro\" }}", path(host)?, path(&target)?))
}

fn server(out: &mut GuideText, server: &McpEntry) {
    let McpEntry { name, command, args, env } = server;
    out.line(format!("[library.mcp.{}]", key(name.as_str())));
    out.line(format!("command = {}", quote(command)));
    out.line(format!("args = {}", quote_list(args)));
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| match value {
            McpEnv::Literal(text) => format!("{name} = {{ value = {} }}", quote(text)),
            McpEnv::Variable(from) => format!("{name} = {{ env = {} }}", quote(from.as_str())),
        })
        .collect();
    out.line(format!("env = {{ {} }}", env.join(", ")));
}

/// As a manifest writes it.
fn dollars(cost: Usd) -> String {
    format!("{}.{:06}", cost.micros() / 1_000_000, cost.micros() % 1_000_000)
}
