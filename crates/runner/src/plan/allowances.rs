//! Files of a project that the user allows every run to change although this machine executes them.
//!
//! They are stored beside the agreements, in the user's configuration, which no sandbox can read; one file for each
//! project.

use crate::environment::HostEnvironment;
use crate::plan::agreements::{AgreementError, remove, write_whole};
use belljar_contract::{AbsPath, Digest};
use serde::{Deserialize, Serialize};
use std::fs;

/// Version of the stored form.
const FORMAT: u64 = 1;
/// Far more than a user allows by hand.
const MOST: usize = 1000;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u64,
    project: AbsPath,
    allowed: Vec<AbsPath>,
}

/// The files that the user allows runs of one project to change.
#[derive(Debug, Clone)]
pub struct Allowances {
    project: AbsPath,
    file: AbsPath,
}

impl Allowances {
    /// The allowances of the project with this root.
    #[must_use]
    pub fn of(config: &AbsPath, project: &AbsPath) -> Self {
        let name = format!("files-{}.json", &Digest::of(project.as_bytes()).hex()[..32]);
        Self { project: project.clone(), file: config.child("agreements").child(&name) }
    }

    /// The allowed files, sorted.
    ///
    /// # Errors
    /// If they cannot be read, or belong to another project; no file is allowed then.
    pub fn read(&self) -> Result<Vec<AbsPath>, AgreementError> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(AgreementError::Read { path: self.file.clone(), cause }),
        };
        match serde_json::from_str(&text) {
            Ok(Stored { format: FORMAT, project, allowed }) if project == self.project => Ok(allowed),
            Ok(_) | Err(_) => Err(AgreementError::Foreign { path: self.file.clone() }),
        }
    }

    /// Allows one more file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, path: &AbsPath) -> Result<(), AgreementError> {
        let mut allowed = self.read()?;
        if allowed.contains(path) {
            return Ok(());
        }
        if allowed.len() >= MOST {
            let cause =
                std::io::Error::other("too many files are allowed; `belljar trust --revoke` removes them");
            return Err(AgreementError::Write { path: self.file.clone(), cause });
        }
        allowed.push(path.clone());
        allowed.sort();
        let stored = Stored { format: FORMAT, project: self.project.clone(), allowed };
        let failed = |cause| AgreementError::Write { path: self.file.clone(), cause };
        let text = serde_json::to_string_pretty(&stored).map_err(|error| failed(error.into()))?;
        write_whole(&self.file, &format!("{text}\n")).map_err(failed)
    }

    /// The line that is printed about them at every start.
    #[must_use]
    pub fn notice(allowed: &[AbsPath], environment: &HostEnvironment) -> Option<String> {
        const SHOWN: usize = 5;
        let mut shown: Vec<String> = allowed.iter().take(SHOWN).map(|path| environment.shown(path)).collect();
        if allowed.len() > SHOWN {
            shown.push(format!("{} more", allowed.len() - SHOWN));
        }
        let list = shown.join(", ");
        (!allowed.is_empty())
            .then(|| format!("allowed by you: changes to {list}; `belljar trust --revoke` revokes this"))
    }

    /// Revokes all allowances and returns their number. A file that cannot be read is removed as well.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn revoke(&self) -> Result<usize, AgreementError> {
        let count = self.read().map_or(1, |allowed| allowed.len());
        Ok(if remove(self.file.clone())? { count } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn they_are_of_one_project_and_of_the_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let config = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let path = |text: &[u8]| AbsPath::new(std::ffi::OsStr::from_bytes(text)).unwrap();
        let one = Allowances::of(&config, &path(b"/p"));
        let other = Allowances::of(&config, &path(b"/q"));
        assert_eq!(one.read().unwrap(), []);
        for added in [&b"/p/\xff"[..], b"/p/.envrc", b"/p/.envrc"] {
            one.add(&path(added)).unwrap();
        }
        assert_eq!(one.read().unwrap(), [path(b"/p/.envrc"), path(b"/p/\xff")]);
        assert_eq!(other.read().unwrap(), []);
        assert_eq!(fs::metadata(&one.file).unwrap().permissions().mode() & 0o777, 0o600);
        // A file of another project, or a damaged one, allows no change.
        fs::copy(&one.file, &other.file).unwrap();
        assert!(matches!(other.read(), Err(AgreementError::Foreign { .. })));
        fs::write(&other.file, "{").unwrap();
        assert!(matches!(other.add(&path(b"/q/x")), Err(AgreementError::Foreign { .. })));
        assert_eq!((one.revoke().unwrap(), one.revoke().unwrap()), (2, 0));
        assert_eq!(one.read().unwrap(), []);
    }
}
