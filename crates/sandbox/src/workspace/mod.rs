//! The project as the agent gets it, and what becomes of its changes.
//!
//! Whatever the agent writes is data until somebody says otherwise. The class of files that the host would execute
//! later ([`HOST_EXECUTED`]) runs through all of it: in `direct` the existing ones are read-only ([`scan`]) and the
//! others are reported ([`created_since`]); in `overlay` each needs its own yes before it is written to the project
//! ([`Overlay::apply`]).
//!
//! No path of the project is resolved twice: everything is reached from an open descriptor of its top, and no link is
//! followed.

mod class;
mod copy;
mod git_config;
mod git_settings;
mod host_executed;
mod links;
mod matching;
mod overlay;
mod place;
mod removal;
mod scan;
mod since;
mod tree;
mod unfinished;

pub use class::{Alias, Class, EntryKind, NamesOnly, SpecialKind, Surroundings, classify, classify_in};
pub use copy::{CopiedTree, CopyError, copy_tree};
pub use git_settings::{GitSetting, git_settings};
pub use host_executed::{BUILD_OUTPUT, Grade, HOST_EXECUTED, HostExecuted};
pub use overlay::{
    Applied, ApplyRequest, Change, ChangeKind, Changes, Consent, Discarded, LayersError, OnConflict, Overlay,
    Refused, RefusedBecause, Selection, Side, SideContent,
};
pub use scan::{
    LARGEST_CONFIG, Protected, ProtectedKind, Scan, ScanError, Unseen, UnseenBecause, named_by_git, scan,
    scan_named,
};
pub use since::{Created, CreatedSince, Since, created_since};
pub use unfinished::{Recovered, Recovery, UNFINISHED};
