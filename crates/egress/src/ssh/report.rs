//! What the broker tells of its work.

use super::gate::{BindRefusal, SignRefusal};
use std::io;

/// One signature or refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshUse {
    /// The alias of the entry that it is by.
    pub entry: Option<String>,
    /// The fingerprint of the key that was asked for, as far as it is a declared one.
    pub key: Option<String>,
    /// What was asked for.
    pub act: SshAct,
    /// What came of it.
    pub verdict: SshVerdict,
}

/// What is asked of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshAct {
    /// To speak for a host.
    Bind,
    /// A signature, for what could not be told.
    Sign,
    /// A signature for a login.
    Login,
    /// A signature of a commit.
    Commit,
    /// Something that the broker does not do.
    Other,
}

impl SshAct {
    /// In a word, for a log.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            SshAct::Bind => "bind",
            SshAct::Sign => "sign",
            SshAct::Login => "login",
            SshAct::Commit => "commit",
            SshAct::Other => "other",
        }
    }
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshVerdict {
    /// It is allowed; the agent outside is asked next.
    Allowed,
    /// It is not.
    Refused(SshRefusal),
    /// It was allowed, and the agent outside did not sign.
    Failed(String),
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshRefusal {
    /// Not speaking for a host.
    #[error(transparent)]
    Bind(#[from] BindRefusal),
    /// Not signing.
    #[error(transparent)]
    Sign(#[from] SignRefusal),
    /// More signatures than a person's work needs.
    #[error("more than {0} signatures in a minute")]
    TooMany(usize),
    /// A request that the broker does not know, or that it never grants.
    #[error("{0} is not for the inside")]
    NotForInside(String),
    /// Not a request.
    #[error("the request cannot be read")]
    Unreadable,
    /// Longer than any request.
    #[error("a frame of {0} bytes is too long")]
    Long(usize),
}

/// Hears of each signature before it is made, and of each refusal.
pub trait SshSink: Send + Sync {
    /// Takes note.
    ///
    /// # Errors
    /// When it cannot be noted; what was to be signed then is not.
    fn decided(&self, used: &SshUse) -> io::Result<()>;
}

/// What there was, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SshSummary {
    /// Connections from inside.
    pub connections: u64,
    /// Signatures made.
    pub signatures: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Signatures that were allowed and not made, or could not be noted.
    pub failures: u64,
    /// Refusals that the sink was not told of: there were too many in a minute.
    pub unreported: u64,
}
