//! What an entry of the policy is.

use rustix::io::Errno;

/// One rule of the policy. Several entries for the same call are alternatives: one that matches is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name of the call.
    pub call: &'static str,
    /// The number of the call on this processor.
    pub number: i64,
    /// Which arguments the entry matches.
    pub when: When,
    /// What happens to a call that matches.
    pub action: Action,
    /// Why the policy has this entry.
    pub why: &'static str,
}

/// Which arguments an entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Every call matches.
    Always,
    /// A call matches if all of the checks hold.
    Arguments(&'static [Check]),
}

/// A check of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The index of the argument, from 0.
    pub argument: u8,
    /// What the low 32 bits of the argument must be. The kernel ignores the others, or refuses a call that has them set.
    pub is: Is,
}

/// A comparison of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// The argument is this value.
    Equal(u32),
    /// The argument is any other value.
    Not(u32),
    /// The bits of the mask have exactly this value.
    Masked {
        /// The bits that are compared.
        mask: u32,
        /// Their value.
        value: u32,
    },
}

/// What happens to a call that matches an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It fails with `ENOSYS`, so that a library falls back to an older call.
    Absent,
    /// It fails with `EPERM`.
    Deny,
    /// It waits for the answer of the filter's listener.
    Notify,
}

impl Action {
    /// The error that the call fails with; none where the listener decides.
    #[must_use]
    pub const fn errno(self) -> Option<Errno> {
        match self {
            Action::Absent => Some(Errno::NOSYS),
            Action::Deny => Some(Errno::PERM),
            Action::Notify => None,
        }
    }
}
