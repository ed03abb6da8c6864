//! The project as the agent gets it, and what becomes of its changes.
//!
//! Whatever the agent writes is data until somebody says otherwise. The class of files that the host would execute
//! later ([`belljar_class::HOST_EXECUTED`]) runs through all of it: in `direct` the guest holds them back, the existing ones are
//! read-only ([`scan`]) as well, and the others are reported ([`created_since`]); in `overlay` each needs its own yes before it is written to the project
//! ([`Overlay::apply`]).
//!
//! No path of the project is resolved twice: everything is reached from an open descriptor of its top, and no link is
//! followed.

mod class;
mod copy;
mod git;
mod named;
mod overlay;
mod place;
mod removal;
mod scan;
mod shows;
mod since;
mod tree;
mod unfinished;

pub use copy::{CopiedTree, CopyError, copy_tree};
pub use git::{
    Carried, NewCommit, ObjectId, RefChange, RefValue, RepositoryChanges, RepositoryWatch, bad_branch,
    index as git_index, short_ref,
};
pub use named::{named_by_git, named_by_words};
pub use overlay::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, BothChanged, BranchRequest, BranchUse, Branched, Change,
    ChangeKind, ChangeSelection, Changes, Discarded, Kept, KeptChanges, KeptRepository, LayersError,
    NewBranch, OnConflict, Overlay, Presence, RefusedBecause, RefusedChange, Side, SideContent, Unmerged,
    note_repository,
};
pub use scan::{Protected, ProtectedKind, Scan, ScanError, Unseen, UnseenBecause, scan, scan_named};
pub use shows::Shows;
pub use since::{Created, CreatedSince, Since, created_since};
pub use unfinished::{Recovered, Recovery, UNFINISHED};
