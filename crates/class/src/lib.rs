//! The class of files that a host executes later: which names, which contents, and why.
//!
//! Pure: the caller describes the tree around an entry ([`TreeFacts`]), and nothing is read here. The guard inside the
//! sandbox, the scan before and after a run, `diff` and `apply` all use this crate, so that they agree on the class of
//! every file.

mod class;
mod git_config;
mod git_harmless;
mod git_redirect;
mod git_settings;
mod held;
mod links;
mod matching;
mod table;

pub use class::{
    Alias, Class, EntryKind, LINK_IN_GIT, NamesOnly, SpecialKind, TreeFacts, classify, classify_in, stronger,
};
pub use git_config::{NamedPath, What, named};
pub use git_harmless::{Unfit, may_replace, powerful_settings};
pub use git_redirect::{Redirected, redirected};
pub use git_settings::{GitSetting, git_settings, git_settings_strict};
pub use held::{Held, Making, Unless, held, is_git_sign, is_in_git_by_name};
pub use links::{Leads, follow, follow_noting};
pub use matching::{Extent, GitSigns, GitTop, Hit, at, at_or_below, is_exempt, lexical_tops, names, whole};
pub use table::{
    BUILD_OUTPUT, GIT_POINTER, Grade, HOOK, HOST_EXECUTED, HostExecuted, LARGEST_CONFIG, NEVER_RUN,
    NOT_TAKEN, SET_ID, USED_OUTSIDE,
};
