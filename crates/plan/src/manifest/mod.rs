//! The manifest: what is written, and the two files laid over each other.

use belljar_contract::decode::Decode;

mod allow;
mod bound;
mod layers;
mod schema;
mod source;
mod value;

pub(crate) use allow::AllowText;
pub(crate) use bound::Bound;
pub(crate) use layers::Layered;
pub use layers::{Layer, LayerText, Manifest, ManifestError, parse};
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

/// A schema as a file of its own.
pub(crate) fn titled(title: &str, mut schema: serde_json::Value) -> serde_json::Value {
    let object = schema.as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut out = serde_json::Map::new();
    out.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    out.insert("title".to_owned(), title.into());
    out.extend(object);
    out.into()
}
