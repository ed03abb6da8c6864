//! Where the real agent is.

use std::env;
use std::path::{Path, PathBuf};

/// Version of the agent that the tests are written for.
pub const VERSION: &str = "2.1.197";

/// Names the agent's binary, in place of the one in the workspace.
pub const ENV_VAR: &str = "BELLJAR_TEST_AGENT";

/// Where `npm install --prefix .dev/agent` puts the binary, seen from the workspace's root.
const IN_WORKSPACE: &str = ".dev/agent/node_modules/@anthropic-ai/claude-code-linux-x64/claude";

/// Why the agent was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The variable is set, and wrong; nothing else is tried then.
    #[error("{ENV_VAR} names {}, which is not a file", path.display())]
    Named {
        /// What the variable says.
        path: PathBuf,
    },
    /// Neither the variable nor the workspace has it.
    #[error("{ENV_VAR} is not set and no directory from {} upwards has {IN_WORKSPACE}", from.display())]
    Nowhere {
        /// Where the search began.
        from: PathBuf,
    },
}

/// The agent's binary: the one that `BELLJAR_TEST_AGENT` names, else the one that is installed in the workspace.
///
/// # Errors
/// When there is none; the text says where it was looked for.
pub fn real() -> Result<PathBuf, Missing> {
    let from = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    find(env::var_os(ENV_VAR).map(PathBuf::from), Path::new(&from))
}

fn find(named: Option<PathBuf>, from: &Path) -> Result<PathBuf, Missing> {
    match named {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(Missing::Named { path }),
        None => {
            let installed = from.ancestors().map(|directory| directory.join(IN_WORKSPACE));
            let mut installed = installed.filter(|path| path.is_file());
            installed.next().ok_or_else(|| Missing::Nowhere { from: from.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_not_forgiven() {
        let path = PathBuf::from("/nonexistent/agent");
        let missing = find(Some(path.clone()), Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!(missing, Err(Missing::Named { path }));
    }

    #[test]
    fn the_workspace_is_searched_upwards() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("crates/some");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(find(None, &deep), Err(Missing::Nowhere { from: deep.clone() }));
        let binary = root.path().join(IN_WORKSPACE);
        std::fs::create_dir_all(binary.parent().unwrap()).unwrap();
        std::fs::write(&binary, "").unwrap();
        assert_eq!(find(None, &deep), Ok(binary));
    }
}
