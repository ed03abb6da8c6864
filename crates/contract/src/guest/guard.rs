//! What the guard inside the sandbox refuses, and how questions about it are answered.

use serde::{Deserialize, Serialize};

use super::OsText;

/// The maximum number of paths in a guard's spec: aliases, named files and allowed files together.
pub const GUEST_GUARD_PATHS_MAX: usize = 4096;

/// Where files that the host would execute later cannot be created, written, moved or linked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestGuard {
    /// The trees; at least one.
    pub roots: Vec<GuestGuardRoot>,
    /// Directories below a root that are excluded, because files in them never reach the host.
    pub apart: Vec<OsText>,
    /// Files that the user allowed before; absolute paths inside the sandbox without links.
    pub allowed: Vec<OsText>,
    pub on_held: GuestOnHeld,
}

/// What happens to a system call that the guard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestOnHeld {
    /// It fails immediately.
    Refuse,
    /// It waits for the user's answer, if a yes would let it succeed.
    Ask,
}

/// The user's answer about a waiting system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestAnswer {
    /// It fails, and the same act on the same path fails from now on.
    No,
    /// The same, and no further questions are asked.
    NoMore,
    /// This call is allowed.
    Once,
    /// The file may be created, written and replaced from now on.
    Path,
}

/// What a yes allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestYes {
    /// This call with the content that was examined. The next content of the file may be different.
    Content,
    /// The file, for as long as the user says.
    File,
}

/// A directory tree that is guarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestGuardRoot {
    /// An absolute path inside the sandbox without links.
    pub path: OsText,
    /// Whether it is a git directory, regardless of its name.
    pub is_git: bool,
    /// Guarded places that link to other places in the tree.
    pub aliases: Vec<GuestAlias>,
    /// Files of the tree that are used outside the sandbox because a configuration names them.
    pub named: Vec<OsText>,
}

/// A place that the host would execute and the place that it links to; both in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestAlias {
    /// Such as `.git/hooks`.
    pub place: OsText,
    pub leads_to: OsText,
}

/// What the guard refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestAct {
    /// Creating a file, a directory, a pipe or a link.
    Make,
    /// Opening for writing, or truncating.
    Write,
    /// Moving a file away or into place.
    Move,
    /// Giving a file a second name.
    Link,
}

impl GuestAct {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            GuestAct::Make => "create",
            GuestAct::Write => "write",
            GuestAct::Move => "move",
            GuestAct::Link => "link",
        }
    }
}
