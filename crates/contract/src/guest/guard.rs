//! What the guard inside holds back, and what it tells.

use serde::{Deserialize, Serialize};

use super::OsText;

/// The most paths that a guard is told of: places that lead elsewhere, and files that somebody named.
pub const GUEST_GUARD_PATHS_MAX: usize = 4096;

/// Where files that the host would execute later can be neither made, written, moved nor linked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestGuard {
    /// The trees; at least one.
    pub roots: Vec<GuestGuardRoot>,
    /// Directories below a root that are no part of it: whatever is made there never reaches the host's own files.
    pub apart: Vec<OsText>,
    /// Files that the user allowed before: absolute, as they are inside, without a link on the way.
    pub allowed: Vec<OsText>,
    /// What happens to a call that is held back.
    pub on_held: GuestOnHeld,
}

/// What happens to a call that is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestOnHeld {
    /// It fails at once.
    Refuse,
    /// It waits while the user is asked, where a yes would let it succeed.
    Ask,
}

/// What the user decided about a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestAnswer {
    /// It fails, and so does the same act at the same place from now on.
    No,
    /// The same, and nothing is asked any more.
    NoMore,
    /// This call may do what was asked about.
    Once,
    /// The file may be made, written and replaced from now on.
    Path,
}

/// What a yes to a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestYes {
    /// The content that was judged, and so this call alone: the next content of the file may be any other.
    Content,
    /// The file, for as long as the user says.
    File,
}

/// A tree that is guarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestGuardRoot {
    /// Absolute, as it is inside, without a link on the way.
    pub path: OsText,
    /// Whether it is a git directory, whatever its name.
    pub is_git: bool,
    /// Places of the class that lead to other places of the tree.
    pub aliases: Vec<GuestAlias>,
    /// Files of the tree that are used outside because somebody named them.
    pub named: Vec<OsText>,
}

/// A place that the host would execute, and the place that stands in for it; both in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestAlias {
    /// Such as `.git/hooks`.
    pub place: OsText,
    /// Where it leads.
    pub leads_to: OsText,
}

/// What was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestAct {
    /// Making a file, a directory, a pipe or a link.
    Make,
    /// Opening for writing, or shortening.
    Write,
    /// Moving, away or into place.
    Move,
    /// Giving a file a second name.
    Link,
}

impl GuestAct {
    /// In a word.
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
