//! The defaults, each with its reason.

use crate::manifest::{LayerText, ManifestLayer};
use belljar_contract::{AbsPath, Access, BackendKind, HomeMode, PathError, Port, WorkspaceMode};

/// The built-in agent, used when none is declared.
pub const BUILT_IN_AGENT: &str = "default";

/// Why the first of the known harnesses is the default.
pub(super) const HARNESS: &str = "the first agent belljar knows";
/// Why no version is the default.
pub(super) const AGENT_VERSION: &str = "the program on your PATH, whatever its version is";
pub(super) const HOME: (HomeMode, &str) =
    (HomeMode::Project, "a conversation can be resumed, and nothing of yours is visible");
pub(super) const WORKSPACE: (WorkspaceMode, &str) =
    (WorkspaceMode::Direct, "you see the agent's changes as they happen");
/// The default workspace if the kernel cannot support the guard.
pub(super) const WORKSPACE_UNGUARDED: (WorkspaceMode, &str) = (
    WorkspaceMode::Overlay,
    "this kernel cannot hold back files that your machine would execute; `belljar doctor` says what is missing",
);
pub(super) const BACKEND: (BackendKind, &str) =
    (BackendKind::Bwrap, "starts in milliseconds and needs no daemon");
pub(super) const MOUNT_MODE: Access = Access::ReadOnly;
pub(super) const SSH_PORT: u16 = 22;
pub(super) const HEADER: &str = "Authorization";

pub(super) fn ssh_port() -> Port {
    Port::new(SSH_PORT).unwrap_or(Port::HTTPS)
}

/// The manifest behind the built-in agent, whose harness is named: it goes through the same checks as any other.
///
/// # Errors
/// Never: `/` is absolute.
pub fn built_in_manifest(harness: &str) -> Result<LayerText, PathError> {
    Ok(LayerText {
        layer: ManifestLayer::BuiltIn,
        name: "built-in manifest".to_owned(),
        directory: AbsPath::new("/")?,
        bytes: include_str!("../../defaults.toml").replace("{harness}", harness).into_bytes(),
    })
}
