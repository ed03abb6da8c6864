//! Code that several backends share.

pub(super) mod etc;
pub(super) mod files;
pub(super) mod guest_root;
pub(super) mod guest_session;
pub(super) mod guest_spec;
pub(super) mod listeners;
pub(super) mod needs;
pub(super) mod root;
pub(super) mod source_identities;

use belljar_contract::{AbsPath, LaunchArgument, OsText};

/// Arguments without placeholders.
pub(super) fn texts(arguments: &[&str]) -> Vec<LaunchArgument> {
    arguments.iter().filter_map(|argument| OsText::new(*argument).ok().map(LaunchArgument::Text)).collect()
}

/// Where the guest's program is in every sandbox that has one.
pub(super) fn guest_inside(on_host: &AbsPath) -> AbsPath {
    AbsPath::new(belljar_contract::GUEST_PROGRAM).unwrap_or_else(|_| on_host.clone())
}
