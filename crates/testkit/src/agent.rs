//! Finds the real agent for tests.

use std::env;
use std::path::{Path, PathBuf};

/// The version of the agent that the tests are written for.
pub const VERSION: &str = "2.1.327";

/// An older version, with which the conversation with the agent is tested as well.
pub const OLDER_VERSION: &str = "2.1.197";

/// Where one of the agents is searched for.
struct Place {
    /// The variable that names the binary; it takes precedence over the workspace.
    variable: &'static str,
    /// Where `./dev` installs the binary, relative to the root of the workspace.
    in_workspace: &'static str,
}

const PINNED: Place = Place {
    variable: "BELLJAR_TEST_AGENT",
    in_workspace: ".dev/agent/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
};

const OLDER: Place = Place {
    variable: "BELLJAR_TEST_AGENT_OLDER",
    in_workspace: ".dev/agent-older/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The variable is set but wrong; no other place is tried.
    #[error("{variable} names {}, which is not a file", path.display())]
    Named {
        variable: &'static str,
        /// The value of the variable.
        path: PathBuf,
    },
    #[error("{variable} is not set and no directory from {} upwards has {in_workspace}", from.display())]
    Nowhere {
        variable: &'static str,
        /// The path that was searched for.
        in_workspace: &'static str,
        /// The directory where the search started.
        from: PathBuf,
    },
}

/// The agent's binary: the file that `BELLJAR_TEST_AGENT` names, otherwise the one installed in the workspace.
///
/// # Errors
/// When it is not found; the text says where it was searched for.
pub fn real() -> Result<PathBuf, Missing> {
    PINNED.look()
}

/// The older agent's binary: the file that `BELLJAR_TEST_AGENT_OLDER` names, otherwise the one installed in the
/// workspace.
///
/// # Errors
/// When it is not found; the text says where it was searched for.
pub fn older() -> Result<PathBuf, Missing> {
    OLDER.look()
}

impl Place {
    fn look(&self) -> Result<PathBuf, Missing> {
        let from = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        self.find(env::var_os(self.variable).map(PathBuf::from), Path::new(&from))
    }

    fn find(&self, named: Option<PathBuf>, from: &Path) -> Result<PathBuf, Missing> {
        let Self { variable, in_workspace } = *self;
        match named {
            Some(path) if path.is_file() => Ok(path),
            Some(path) => Err(Missing::Named { variable, path }),
            None => {
                let installed = from.ancestors().map(|directory| directory.join(in_workspace));
                let mut installed = installed.filter(|path| path.is_file());
                installed.next().ok_or_else(|| Missing::Nowhere {
                    variable,
                    in_workspace,
                    from: from.to_owned(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_not_forgiven() {
        let path = PathBuf::from("/nonexistent/agent");
        let missing = PINNED.find(Some(path.clone()), Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!(missing, Err(Missing::Named { variable: PINNED.variable, path }));
    }

    #[test]
    fn the_workspace_is_searched_upwards() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("crates/some");
        std::fs::create_dir_all(&deep).unwrap();
        for place in [PINNED, OLDER] {
            let Place { variable, in_workspace } = place;
            let nowhere = Missing::Nowhere { variable, in_workspace, from: deep.clone() };
            assert_eq!(place.find(None, &deep), Err(nowhere));
            let binary = root.path().join(in_workspace);
            std::fs::create_dir_all(binary.parent().unwrap()).unwrap();
            std::fs::write(&binary, "").unwrap();
            assert_eq!(place.find(None, &deep), Ok(binary));
        }
    }
}
