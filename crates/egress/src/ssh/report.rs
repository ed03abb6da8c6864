//! What the broker reports.

use super::gate::{BindRefusal, SignRefusal};
use std::io;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshUse {
    /// The alias of the entry that allows it.
    pub entry: Option<String>,
    /// The fingerprint of the key, if it is a declared one.
    pub key: Option<String>,
    pub act: SshAct,
    pub verdict: SshVerdict,
}

/// What a client asks the broker for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshAct {
    /// To bind the connection to a host.
    Bind,
    /// A signature of unknown data.
    Sign,
    Login,
    Commit,
    /// Any other request.
    Other,
}

impl SshAct {
    /// The word for the log.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshVerdict {
    /// The request is allowed; the agent outside is asked next.
    Allowed,
    Refused(SshRefusal),
    /// The request was allowed, but the agent outside did not sign.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshRefusal {
    #[error(transparent)]
    Bind(#[from] BindRefusal),
    #[error(transparent)]
    Sign(#[from] SignRefusal),
    /// More signatures than normal work needs.
    #[error("more than {0} signatures in a minute")]
    TooMany(usize),
    /// A request that the broker does not know, or never allows.
    #[error("{0} is not allowed inside the sandbox")]
    NotAllowed(String),
    #[error("the request is malformed")]
    Unreadable,
    #[error("a frame of {0} bytes is too long")]
    Long(usize),
}

/// Receives each decision, before a signature is made.
pub trait SshSink: Send + Sync {
    /// # Errors
    /// When the decision could not be kept; nothing is signed then.
    fn decided(&self, used: &SshUse) -> io::Result<()>;
}

/// Counts of a broker that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SshSummary {
    pub connections: u64,
    pub signatures: u64,
    pub refusals: u64,
    /// Signatures that were allowed and not made, or whose decision could not be kept.
    pub failures: u64,
    /// Refusals that were not reported, because there were too many in a minute.
    pub unreported: u64,
}
