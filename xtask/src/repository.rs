//! The repository's location and its files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TaskError;

/// A work tree of this project.
pub struct Repository {
    root: PathBuf,
}

impl Repository {
    /// The work tree that this program was built in.
    pub fn this() -> Self {
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: crate_root.parent().unwrap_or(crate_root).to_path_buf() }
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Relative paths of all files that are tracked, or new and not ignored.
    pub fn files(&self) -> Result<Vec<String>, TaskError> {
        let listed = self.output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        // During a merge git lists a file once for each side.
        let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
        // A file removed from the work tree stays in the index until the next commit.
        Ok(names.into_iter().filter(|name| self.path(name).is_file()).map(str::to_owned).collect())
    }

    /// The standard output of a program that is run at the root.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Result<String, TaskError> {
        let ran = Command::new(program)
            .args(arguments)
            .current_dir(&self.root)
            .output()
            .map_err(|cause| format!("cannot start `{program}`: {cause}"))?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("`{program} {}` failed: {}", arguments.join(" "), said.trim()).into());
        }
        Ok(String::from_utf8(ran.stdout)?)
    }
}
