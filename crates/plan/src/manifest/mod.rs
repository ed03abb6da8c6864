//! The manifest: what is written, and the two files laid over each other.

use belljar_contract::decode::{Decode, titled};

mod allow;
mod bound;
mod by_hand;
mod layers;
mod schema;
mod source;
mod value;

pub(crate) use allow::AllowText;
pub(crate) use bound::Bound;
pub use by_hand::{ByHand, GivenMount, GivenVariable, GivenWord};
pub(crate) use layers::Layered;
pub use layers::{LayerText, Manifest, ManifestError, ManifestLayer, parse};
pub(crate) use schema::{
    AgentSpec, CredentialSpec, EgressSpec, FileSpec, GitSpec, LibrarySpec, LimitsSpec, McpSpec, MountSpec,
    PermissionsSpec, SkillSpec, SshSpec, ToolsSpec,
};
pub(crate) use source::{CredentialText, EnvText};
pub use value::PathText;
pub(crate) use value::{Argument, Line, Positive, Program, Text, Word};

/// The JSON Schema of a manifest, for editors.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    titled("belljar.toml", FileSpec::schema())
}
