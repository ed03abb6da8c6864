//! Names of runs, unique among the running ones.

use crate::store::locks::{Claim, Claimed, Holder, who};
use crate::store::runtime::{RuntimeDirectory, make_private};
use belljar_contract::{AbsPath, AgentName, RunId, RunName};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// More concurrent runs of one agent than any machine can carry.
const MOST: u16 = 10_000;

/// A new id for a run.
///
/// Uses the keys that the standard library draws for its hash maps: random bytes of the kernel, once per thread, and a
/// counter behind a keyed hash after that. An id must differ from those of other runs but need not be secret. If two
/// runs ever had the same id in the same second, with the same name, the second one would be refused.
#[must_use]
pub fn fresh_run_id() -> RunId {
    let number = RandomState::new().build_hasher().finish();
    RunId::new((number ^ (number >> 32)) as u32)
}

/// The requested name of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameWish<'a> {
    /// The agent's name, with a number if it is taken.
    Numbered(&'a AgentName),
    Pinned(&'a RunName),
}

/// Why no name could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum NameClaimError {
    /// The pinned name belongs to another run.
    #[error("the name `{name}` is taken by {}", who(.holder.as_ref()))]
    Taken { name: RunName, holder: Option<Holder> },
    #[error("{MOST} runs of `{agent}` are running")]
    TooMany { agent: AgentName },
    /// The file for the name cannot be created.
    #[error("cannot claim `{path}`")]
    Claim {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

/// The names of this user's running runs.
#[derive(Debug, Clone)]
pub struct RunNames {
    directory: AbsPath,
}

/// A claimed name; released when this is dropped or the process ends.
#[derive(Debug)]
pub struct ClaimedName {
    name: RunName,
    _claim: Claim,
}

impl ClaimedName {
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

    /// Claims a name for the process `pid`. A file of a run that has ended does not count.
    ///
    /// # Errors
    /// If a pinned name is taken (the error names the holder), or the file cannot be created.
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
        // With a suffix, so that no name is `.` or that of another file.
        let path = self.directory.child(&format!("{name}.lock"));
        let holder = Holder { run: name.clone(), pid };
        match make_private(&self.directory).and_then(|()| Claim::take(&path, &holder)) {
            Ok(Claimed::Ours(claim)) => Ok(Ok(ClaimedName { name: name.clone(), _claim: claim })),
            Ok(Claimed::Taken(holder)) => Ok(Err(holder)),
            Err(cause) => Err(NameClaimError::Claim { path, cause }),
        }
    }
}
