//! Attributes of the process: no-new-privileges, dumpable, death signal, reaper, name.

use std::ffi::CStr;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};

/// Why an attribute of the process could not be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot set {attribute}")]
pub struct PrivsError {
    /// The attribute, for the error message.
    pub attribute: &'static str,
    /// The kernel's answer.
    #[source]
    pub cause: Errno,
}

fn named(attribute: &'static str) -> impl Fn(Errno) -> PrivsError {
    move |cause| PrivsError { attribute, cause }
}

/// No `exec` of this process or its children will ever gain a privilege.
///
/// # Errors
/// Only on a kernel older than 3.5.
pub fn no_new_privs() -> Result<(), PrivsError> {
    rustix::thread::set_no_new_privs(true).map_err(named("no-new-privileges"))
}

/// Whether no-new-privileges is set.
///
/// # Errors
/// Only on a kernel older than 3.5.
pub fn has_no_new_privs() -> Result<bool, PrivsError> {
    rustix::thread::no_new_privs().map_err(named("no-new-privileges"))
}

/// Closes the process to `ptrace`, core dumps and `/proc/<pid>/{mem,fd,environ}` of its own user, until it `exec`s.
///
/// # Errors
/// Never on a known kernel.
pub fn not_dumpable() -> Result<(), PrivsError> {
    // rustix reads the auxiliary vector once, before Linux 6.4 from a file in `/proc` that is closed from here on, and
    // panics if it cannot. So it is read now.
    rustix::param::page_size();
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(named("dumpable"))
}

/// No core file of this process is ever written, nor of its children; a handler that the machine pipes cores to gets
/// none either as long as the process is not dumpable.
///
/// # Errors
/// Never: a limit can always be lowered.
pub fn no_core_files() -> Result<(), PrivsError> {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none)
        .map_err(named("the limit of core files"))
}

/// Asks for `signal` when the *thread* that forked this process ends.
///
/// # Errors
/// Never with a valid signal.
pub fn death_signal(signal: Signal) -> Result<(), PrivsError> {
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(named("the parent death signal"))
}

/// Makes the process the parent of orphans below it.
///
/// # Errors
/// Never on a known kernel.
pub fn child_subreaper() -> Result<(), PrivsError> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(named("child subreaper"))
}

/// The name shown by `ps`; the kernel keeps 15 bytes.
///
/// # Errors
/// Never: a longer name is cut.
pub fn name(name: &CStr) -> Result<(), PrivsError> {
    rustix::thread::set_name(name).map_err(named("the process name"))
}
