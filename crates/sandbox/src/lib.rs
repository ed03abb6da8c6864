//! The walls: a plan is lowered to a launch by a pure function, and only a launch acts.

mod backend;

pub use backend::{
    BackendError, Beginning, LEAF_PREFIX, LaunchError, LaunchRequest, Lowering, Machine, Running, Streams,
    SystemEntry, guest_path, held_limits, launch, look_around, lower,
};
