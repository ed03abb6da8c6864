//! Scenario and session files: what a test does and what its agent gets.
//!
//! The format is one that other tools write too, so its keys are theirs and its meaning is kept. What belljar does not
//! do is never passed over: it is a warning where nothing is lost, and an error where a test would mean something
//! else than it says.

mod data;
mod document;
mod hosts;
mod json_file;
mod json_schema;
mod lint;
mod marketplace;
mod mcp_config;
mod normalisers;
mod scenario_file;
mod scenario_spec;
mod session_file;
mod session_spec;
mod suite;
mod under_test;
mod words;

pub use document::{Document, DocumentError, DocumentText, parse_document};
pub use json_file::read as parse_json_file;
pub use json_schema::{scenario_schema, session_schema};
pub use marketplace::{Marketplace, MarketplacePlugin, PluginSource, parse_marketplace};
pub use mcp_config::{McpEntry, McpEnv, parse_mcp_config};
pub use scenario_file::{Scenario, ScenarioFile, ScenarioParts, parse_scenario};
pub use scenario_spec::SessionReference;
pub use session_file::{
    AgentVariables, Folder, McpChoice, PluginChoice, Session, SessionFile, SpaceProject, Thinking,
    parse_session,
};
pub use suite::{Ground, SUITE_MARKS, SuiteRoot, suite_root};
pub use under_test::{AGENT_UNDER_TEST, Staged, StagedError, agent_under_test, tuning};
pub use words::{
    Capability, Effort, Fidelity, FolderMode, OnUnanswered, PermissionParity, PluginReference,
    PluginReferenceError, ThinkingDisplay, ToolSearch,
};
