//! Names of runs, distinct among those that are going on.

use crate::store::locks::{Claim, Claimed, Holder, who};
use crate::store::runtime::{RuntimeDirectory, make_private};
use belljar_contract::{AbsPath, AgentName, RunId, RunName};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// More runs of one agent at once than any machine carries.
const MOST: u16 = 10_000;

/// A new id for a run.
///
/// From the keys that the standard library draws for its hash maps: the kernel's randomness, once a thread, and a count
/// behind a keyed hash after that. An id must differ from those of other runs and need not be secret, so nothing more
/// is asked for; should two ever be equal in one second and name, the second run is refused, not mixed with the first.
#[must_use]
pub fn fresh_run_id() -> RunId {
    let number = RandomState::new().build_hasher().finish();
    RunId::new((number ^ (number >> 32)) as u32)
}

/// What name a run would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameWish<'a> {
    /// The agent's, with a number where that is taken.
    Numbered(&'a AgentName),
    /// This and no other.
    Pinned(&'a RunName),
}

/// Why there is no name.
#[derive(Debug, thiserror::Error)]
pub enum NameClaimError {
    /// The pinned name is another run's.
    #[error("the name `{name}` is taken by {}", who(.holder.as_ref()))]
    Taken {
        /// The name.
        name: RunName,
        /// Who has it.
        holder: Option<Holder>,
    },
    /// Every number is taken.
    #[error("{MOST} runs of `{agent}` are going on")]
    TooMany {
        /// The agent.
        agent: AgentName,
    },
    /// The name's file cannot be made.
    #[error("cannot claim `{path}`")]
    Claim {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// The names of all runs of this user that are going on.
#[derive(Debug, Clone)]
pub struct RunNames {
    directory: AbsPath,
}

/// A name that is ours until this is dropped, or until we die.
#[derive(Debug)]
pub struct ClaimedName {
    name: RunName,
    _claim: Claim,
}

impl ClaimedName {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &RunName {
        &self.name
    }
}

impl RunNames {
    /// The names in a runtime directory.
    #[must_use]
    pub fn new(runtime: &RuntimeDirectory) -> Self {
        Self { directory: runtime.path().child("names") }
    }

    /// Claims a name for the process `pid`. A file whose run is gone counts for nothing.
    ///
    /// # Errors
    /// When a pinned name is taken, which the error tells by whom; when the file cannot be made.
    pub fn claim(&self, wish: NameWish<'_>, pid: u32) -> Result<ClaimedName, NameClaimError> {
        match wish {
            NameWish::Pinned(name) => {
                self.one(name, pid)?.map_err(|holder| NameClaimError::Taken { name: name.clone(), holder })
            }
            NameWish::Numbered(agent) => {
                for number in 1..=MOST {
                    if let Ok(claimed) = self.one(&RunName::numbered(agent, number), pid)? {
                        return Ok(claimed);
                    }
                }
                Err(NameClaimError::TooMany { agent: agent.clone() })
            }
        }
    }

    fn one(&self, name: &RunName, pid: u32) -> Result<Result<ClaimedName, Option<Holder>>, NameClaimError> {
        // A suffix of our own, so that no name is `.` or another file's.
        let path = self.directory.child(&format!("{name}.lock"));
        let holder = Holder { run: name.clone(), pid };
        match make_private(&self.directory).and_then(|()| Claim::take(&path, &holder)) {
            Ok(Claimed::Ours(claim)) => Ok(Ok(ClaimedName { name: name.clone(), _claim: claim })),
            Ok(Claimed::Taken(holder)) => Ok(Err(holder)),
            Err(cause) => Err(NameClaimError::Claim { path, cause }),
        }
    }
}
