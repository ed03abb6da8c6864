//! From a manifest to a plan: parsing, layering, checking and compiling. Everything here is pure.

mod compile;
mod dotenv;
mod explain;
mod facts;
mod import;
mod init;
mod manifest;
mod scenario;
mod skill;
mod syntax;
mod text;

pub use belljar_contract::decode::Place;
pub use compile::{
    BUILT_IN_AGENT, Compiled, Compiler, OF_THE_USER, Request, Rigour, Selection, SelectionError, SshNotFound,
    built_in_manifest, further_questions, questions, select, ssh_files,
};
pub use dotenv::{DotenvFault, DotenvFaultKind, parse_dotenv};
pub use explain::{ExplainedValue, Origin, why};
pub use facts::{ContentFact, Holds, HostFacts, PathFact, ProjectFacts, Questions, TextFact, UserFacts};
pub use import::{BOTTLE_NAME, ImportError, ImportText, Imported, import};
pub use init::{Found, FoundPlugin, FoundServer, FoundSkill, HarnessFacts, starting_manifest};
pub use manifest::{
    ByHand, GivenMount, GivenVariable, GivenWord, LayerText, Manifest, ManifestError, ManifestLayer,
    PathText, json_schema, parse,
};
pub use scenario::{
    AGENT_UNDER_TEST, AgentVariables, Capability, Document, DocumentError, DocumentText, Effort, Fidelity,
    Folder, FolderMode, Ground, Marketplace, MarketplacePlugin, McpChoice, McpEntry, McpEnv, OnUnanswered,
    PermissionParity, PluginChoice, PluginReference, PluginReferenceError, PluginSource, SUITE_MARKS,
    Scenario, ScenarioFile, ScenarioParts, Session, SessionFile, SessionReference, SpaceProject, Staged,
    StagedError, SuiteRoot, Thinking, ThinkingDisplay, ToolSearch, agent_under_test, parse_document,
    parse_json_file, parse_marketplace, parse_mcp_config, parse_scenario, parse_session, scenario_schema,
    session_schema, suite_root, tuning,
};
pub use skill::{SkillDocument, SkillFile, parse_skill};
pub use text::SIZE_LIMIT;
