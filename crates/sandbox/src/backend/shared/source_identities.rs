//! What the sources of mounts must be when a sandbox is launched.

use crate::backend::LaunchError;
use belljar_contract::AbsPath;
use belljar_sys::mounts::{Identity, try_identity};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The identity of a source, or the kernel's reason why it has none.
pub type SourceIdentity = Result<Identity, Errno>;

/// The identities of the sources of mounts. A source without one is refused.
#[derive(Debug, Default)]
pub struct SourceIdentities {
    /// Of everything that existed before the user agreed to the plan, taken with the facts of the host: the user's files, the
    /// project and the guarded files in it, the agent's program.
    pub agreed: BTreeMap<AbsPath, SourceIdentity>,
    /// Of what belljar makes in its own data directory after the user agreed: the guest program, the instance's files, a copy
    /// of the project. They are taken when belljar has made it.
    pub own: BTreeMap<AbsPath, Identity>,
}

impl SourceIdentities {
    /// Checks that a source is still what it must be.
    ///
    /// # Errors
    /// Says why the source must not be used.
    pub fn confirm(&self, path: &AbsPath) -> Result<(), LaunchError> {
        let expected = self.expected(path)?;
        let failed = |cause: Errno| LaunchError::Source { path: path.clone(), cause: cause.into() };
        match try_identity(path.as_path()).map_err(failed)? == expected {
            true => Ok(()),
            false => Err(LaunchError::Changed { path: path.clone() }),
        }
    }

    /// The identity that a source must have.
    pub(in crate::backend) fn expected(&self, path: &AbsPath) -> Result<Identity, LaunchError> {
        match self.agreed.get(path) {
            Some(Ok(identity)) => Ok(*identity),
            Some(Err(Errno::NOENT)) => Err(LaunchError::Missing { path: path.clone() }),
            Some(Err(cause)) => Err(LaunchError::Unreadable { path: path.clone(), cause: (*cause).into() }),
            None => self.own.get(path).copied().ok_or_else(|| LaunchError::Unplanned { path: path.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::backend::shared::guest_root::open_source;
    use belljar_contract::with_causes;
    use std::fs;

    #[test]
    fn a_source_is_opened_only_if_it_is_what_it_was_and_the_refusal_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| AbsPath::new(directory.path().join(name)).unwrap();
        for name in ["same", "own", "replaced", "unreadable", "appeared", "unknown"] {
            fs::write(at(name), "x").unwrap();
        }
        let found = |name: &str| try_identity(at(name).as_path());
        let identities = SourceIdentities {
            agreed: BTreeMap::from([
                (at("same"), found("same")),
                (at("replaced"), found("replaced")),
                (at("unreadable"), Err(Errno::ACCESS)),
                (at("appeared"), found("missing")),
            ]),
            own: BTreeMap::from([(at("own"), found("own").unwrap())]),
        };
        fs::write(at("new"), "x").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        let refusal = |name: &str| open_source(&at(name), &identities).err().map(|error| with_causes(&error));
        for name in ["same", "own"] {
            assert_eq!(refusal(name), None);
            identities.confirm(&at(name)).unwrap();
        }
        for (name, why) in [
            ("replaced", "is not what it was when the plan was made"),
            ("unreadable", "could not be examined when the plan was made: Permission denied (os error 13)"),
            ("appeared", "was not there when the plan was made"),
            ("unknown", "is not part of the plan"),
        ] {
            let why = format!("`{}` {why}", at(name));
            assert_eq!(with_causes(&identities.confirm(&at(name)).unwrap_err()), why);
            assert_eq!(refusal(name), Some(why));
        }
    }
}
