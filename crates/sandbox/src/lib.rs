//! The walls: a plan is lowered to a launch by a pure function, and only a launch acts.

mod backend;
mod workspace;

pub use backend::{
    BackendError, Beginning, BuiltImage, CONTAINER_FOLDER_PREFIX, Capacity, ENGINE_VARIABLE, Engine,
    EngineError, EnginePlaces, FromError, Image, ImageAct, ImageNews, LEAF_PREFIX, LaunchError,
    LaunchRequest, Lowering, MODEL_LISTENER, Machine, News, OrphanContainer, PROXY_ADDRESS, PROXY_LISTENER,
    Rebuild, Running, SSH_LISTENER, ServiceEnd, StreamEnd, Streams, SystemEntry, UnfinishedImage, Waiting,
    copy_directory, default_limits, default_process_limit, guest_path, held_limits, launch, look_around,
    lower, overlay_directory, wanted_of_images,
};
pub use workspace::{
    Alias, Applied, ApplyRequest, BUILD_OUTPUT, Change, ChangeKind, Changes, Class, Consent, CopiedTree,
    CopyError, Created, CreatedSince, Discarded, EntryKind, GitSetting, Grade, HOST_EXECUTED, HostExecuted,
    LARGEST_CONFIG, LayersError, NamesOnly, OnConflict, Overlay, Protected, ProtectedKind, Recovered,
    Recovery, Refused, RefusedBecause, Scan, ScanError, Selection, Side, SideContent, Since, SpecialKind,
    Surroundings, UNFINISHED, Unseen, UnseenBecause, classify, classify_in, copy_tree, created_since,
    git_settings, named_by_git, scan, scan_named,
};
