//! The walls: a plan is lowered to a launch by a pure function, and only a launch acts.

mod backend;

pub use backend::{
    BackendError, Beginning, LaunchError, LaunchRequest, Lowering, Machine, Running, Streams, SystemEntry,
    launch, look_around, lower,
};
