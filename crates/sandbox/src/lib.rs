//! The sandbox: how the agent's changes to a project are kept.

mod workspace;

pub use workspace::{
    Alias, Applied, ApplyRequest, BUILD_OUTPUT, Change, ChangeKind, Changes, Class, Consent, CopiedTree,
    CopyError, Created, CreatedSince, Discarded, EntryKind, Grade, HOST_EXECUTED, HostExecuted, LayersError,
    NamesOnly, OnConflict, Overlay, Protected, ProtectedKind, Refused, RefusedBecause, Scan, ScanError,
    Selection, Side, SideContent, Since, SpecialKind, Surroundings, UNFINISHED, Unseen, UnseenBecause,
    classify, classify_in, copy_tree, created_since, scan,
};
