//! Nouns that outlive a process, and the total functions on them.
//!
//! Everything here is pure: no clock, no disk, no environment, no network.

mod exit;
mod guest;

pub use exit::ExitCode;
pub use guest::{
    GUEST_LISTENERS_MAX, GUEST_PROTOCOL, GUEST_REPORT_MAX, GUEST_SPEC_MAX, GuestAddress, GuestCodecError,
    GuestEnd, GuestFiles, GuestFilter, GuestLandlock, GuestLimit, GuestListener, GuestOrder, GuestReport,
    GuestResource, GuestSpec, GuestStep, GuestStream, GuestTerminal, GuestVariable, GuestWall, OsText,
    OsTextError,
};
