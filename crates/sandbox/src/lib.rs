//! Sandboxes: a plan is lowered to a launch by a pure function, and only a launch acts.

mod backend;
mod workspace;

pub use backend::{
    BackendError, Beginning, BuiltImage, CONTAINER_DIRECTORY_PREFIX, Capacity, ENGINE_VARIABLE, Engine,
    EngineError, EnginePlaces, FromError, Image, ImageAct, ImageNews, KeptAt, LEAF_PREFIX, LaunchError,
    LaunchRequest, Launched, Lowering, MODEL_LISTENER, MachineFacts, NeedsMet, News, OrphanContainer,
    PROXY_ADDRESS, PROXY_LISTENER, Rebuild, Running, SSH_LISTENER, ServiceEnd, SourceIdentities,
    SourceIdentity, StreamEnd, Streams, SystemEntry, UnfinishedImage, Waiting, check_needs, default_limits,
    default_process_limit, guard_lacks, guest_path, held_limits, launch, leaf_maker, look_around, lower,
    open_needs, wanted_of_images,
};
pub use belljar_class::{
    Alias, BUILD_OUTPUT, Class, EntryKind, GitSetting, Grade, LARGEST_CONFIG, Redirected, SpecialKind,
    git_settings, redirected,
};
pub use workspace::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, BothChanged, BranchRequest, BranchUse, Branched, Carried,
    Change, ChangeKind, ChangeSelection, Changes, CopiedTree, CopyError, Created, CreatedSince, Discarded,
    Kept, KeptChanges, KeptRepository, LayersError, NewBranch, NewCommit, ObjectId, OnConflict, Overlay,
    Presence, Protected, ProtectedKind, Recovered, Recovery, RefChange, RefValue, RefusedBecause,
    RefusedChange, RepositoryChanges, RepositoryWatch, Scan, ScanError, Shows, Side, SideContent, Since,
    UNFINISHED, Unmerged, Unseen, UnseenBecause, bad_branch, copy_tree, created_since, git_index,
    named_by_git, named_by_words, note_repository, scan, scan_named, short_ref,
};
