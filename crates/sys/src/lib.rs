//! Safe wrappers for the kernel interfaces that belljar uses.
//!
//! This is the only crate of the workspace that contains `unsafe`. Each module covers one area of the kernel's
//! interface; each unsafe block makes one call and states why it is sound. Nothing here decides policy: what
//! to deny, which roots to open and which limits to set arrive as values.
//!
//! Errors are enums by operation. They name the act and the object and keep the kernel's answer as their cause,
//! so that a caller can always reach the errno.

pub mod apart;
pub mod beneath;
pub mod birth;
pub mod caps;
pub mod cgroup;
pub mod fds;
pub mod keyring;
pub mod landlock;
pub mod message;
pub mod mounts;
pub mod names;
pub mod network;
pub mod overlay;
pub mod privs;
pub mod process;
pub mod pty;
pub mod raw;
pub mod regular;
pub mod root;
pub mod seccomp;
pub mod segment;
pub mod session;
pub mod signal;
mod sparse;
pub mod spawn;
pub mod userns;

/// The kernel's answer, as every error of this crate carries it.
pub use rustix::io::Errno;
