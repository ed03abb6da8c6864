//! `.env` files of the user, and the values that every record redacts besides those of the plan.
//!
//! A value serves where a manifest, a session or the lookup of the model's credential names its variable. No value enters
//! the sandbox by itself, and none becomes a variable of belljar's own process or of a program that it starts.

use crate::environment::HostEnvironment;
use belljar_contract::{AbsPath, EnvName, SCRUBBED_MAX, Secret, Unsearchable, not_redacted};
use belljar_plan::{DotenvFault, parse_dotenv};
use belljar_sys::regular::{open_regular, too_large};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The file's name, in the user's configuration and in the working directory.
const NAME: &str = ".env";
/// The largest file. A longer value could not be redacted.
const LONGEST: u64 = SCRUBBED_MAX as u64;
/// The mode bits with which other users can change a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The files to read and the variables to redact, as the command line names them.
#[derive(Debug, Clone, Default)]
pub struct DotenvRequest {
    /// Files, of which a later one wins over an earlier one.
    pub named: Vec<AbsPath>,
    pub beside: DotenvBeside,
    /// Variables whose values are redacted wherever they come from.
    pub redact: Vec<EnvName>,
}

/// What happens with the `.env` of the working directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DotenvBeside {
    /// It is not read: the working directory is the agent's project.
    #[default]
    Ignored,
    /// It is read, and used by trials that it does not belong to.
    Read,
}

/// Why a `.env` file cannot be used, or a variable cannot be redacted.
#[derive(Debug, thiserror::Error)]
pub enum DotenvError {
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// The text is never quoted.
    #[error("{}", lines(.path, .faults))]
    Invalid { path: AbsPath, faults: Vec<DotenvFault> },
    #[error("`{path}` belongs to another user, who could change your credentials")]
    Foreign { path: AbsPath },
    #[error("other users can change `{path}`, and so your credentials")]
    Writable { path: AbsPath },
    #[error("cannot redact the value of `{name}`: the variable is not set, or empty")]
    Unset { name: EnvName },
    #[error("cannot redact the value of `{name}`: {}", .why.describe())]
    Unsearchable { name: EnvName, why: Unsearchable },
}

fn lines(path: &AbsPath, faults: &[DotenvFault]) -> String {
    let line = |fault: &DotenvFault| format!("{path}:{}: {}", fault.line, fault.what);
    faults.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// A `.env` file in a directory that the agent gets.
#[derive(Debug, thiserror::Error)]
#[error("the .env file `{file}` lies in `{directory}`, which the agent gets: it could read every value")]
pub struct DotenvInside {
    pub file: AbsPath,
    pub directory: AbsPath,
}

/// How a file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// In the user's configuration.
    Own,
    /// In the working directory. It may be part of something that the user only downloaded.
    Beside,
    /// On the command line.
    Named,
}

#[derive(Debug, Clone)]
struct DotenvFile {
    /// Links resolved.
    path: AbsPath,
    origin: Origin,
    values: BTreeMap<EnvName, Arc<Secret>>,
}

/// Values of `.env` files, and values that are redacted on request.
#[derive(Debug, Clone, Default)]
pub struct PrivateValues {
    /// A later file wins over an earlier one.
    files: Vec<DotenvFile>,
    redacted: Vec<(EnvName, Arc<Secret>)>,
    notices: Vec<String>,
}

impl PrivateValues {
    /// Values that were named to be redacted, with their names.
    pub(crate) fn redacted(&self) -> impl Iterator<Item = (&EnvName, &Secret)> {
        self.redacted.iter().map(|(name, value)| (name, &**value))
    }

    /// All values of files, with their names.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = (&EnvName, &Secret)> {
        self.files.iter().flat_map(|file| &file.values).map(|(name, value)| (name, &**value))
    }

    /// Sentences about the file of the working directory, for the user. They have no path, because a tape keeps them.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Checks that no file lies in one of the directories, which are real paths.
    ///
    /// # Errors
    /// If one does.
    pub(crate) fn outside<'d>(
        &self,
        directories: impl Iterator<Item = &'d AbsPath> + Clone,
    ) -> Result<(), DotenvInside> {
        for DotenvFile { path, .. } in &self.files {
            if let Some(directory) = directories.clone().find(|directory| path.is_within(directory)) {
                return Err(DotenvInside { file: path.clone(), directory: directory.clone() });
            }
        }
        Ok(())
    }

    /// The same values without the file of the working directory, if `inside` says that it belongs to a trial.
    pub(crate) fn without_beside(&self, inside: impl Fn(&AbsPath) -> bool) -> Self {
        let mut out = self.clone();
        out.files.retain(|DotenvFile { path, origin, values }| {
            if *origin != Origin::Beside {
                return true;
            }
            if inside(path) {
                let asked = |name: &EnvName| out.redacted.iter().any(|(asked, _)| asked == name);
                let used = if values.keys().any(asked) { "used for --redact-env alone" } else { "not used" };
                out.notices.push(format!(
                    "the `.env` of the working directory is {used}, because it belongs to what is tested or lies above \
                     it; --dotenv FILE names a file that the agent does not get"
                ));
                return false;
            }
            let names: Vec<&str> = values.keys().map(EnvName::as_str).collect();
            out.notices.push(format!("the `.env` of the working directory sets {}", names.join(", ")));
            true
        });
        out
    }

    fn find(&self, name: &str, which: impl Fn(Origin) -> bool) -> Option<(&AbsPath, &Arc<Secret>)> {
        let files = self.files.iter().rev().filter(|file| which(file.origin));
        let values = files.flat_map(|file| file.values.iter().map(move |entry| (&file.path, entry)));
        let mut found = values.filter(|(_, (known, _))| known.as_str() == name);
        found.next().map(|(path, (_, value))| (path, value))
    }
}

impl HostEnvironment {
    /// The same with the values of `.env` files: the user's own, the one of the working directory if asked, and the
    /// named ones. A variable of the process wins over all of them.
    ///
    /// # Errors
    /// See [`DotenvError`].
    pub fn with_dotenv(mut self, request: &DotenvRequest) -> Result<Self, DotenvError> {
        let mut private = PrivateValues::default();
        let named: Vec<DotenvFile> =
            request.named.iter().map(|path| read(path, Origin::Named)).collect::<Result<_, _>>()?;
        let beside = self.directory.child(NAME);
        let real = beside.as_path().canonicalize().ok();
        // One that is named as well is read for the user, whatever else would be said of it.
        let is_named = named.iter().any(|file| Some(file.path.as_path()) == real.as_deref());
        // The last file wins: what lies in the working directory never replaces a key of the user's own.
        let own = present(&self.config.child(NAME), Origin::Own)?;
        match request.beside {
            DotenvBeside::Ignored => {}
            DotenvBeside::Read if is_named => {}
            DotenvBeside::Read => match present(&beside, Origin::Beside) {
                Ok(file) => private.files.extend(file),
                // The user did not ask for it, and it may be anything.
                Err(error) => {
                    let why = belljar_contract::with_causes(&error);
                    let why = why.replace(beside.as_path().to_string_lossy().as_ref(), NAME);
                    private.notices.push(format!("ignored in the working directory: {why}"))
                }
            },
        }
        private.files.extend(own);
        private.files.extend(named);
        self.private = private;
        for name in &request.redact {
            let unset = || DotenvError::Unset { name: name.clone() };
            let value = self.secret(name.as_str()).filter(|value| !value.is_empty()).ok_or_else(unset)?;
            if let Some(why) = not_redacted(&value, true) {
                return Err(DotenvError::Unsearchable { name: name.clone(), why });
            }
            self.private.redacted.push((name.clone(), Arc::new(value)));
        }
        Ok(self)
    }

    /// The value of a variable of the process or of a `.env` file.
    pub(crate) fn secret(&self, name: &str) -> Option<Secret> {
        let own = self.variables.get(OsStr::new(name)).map(|value| Secret::new(value.as_bytes()));
        own.or_else(|| Some(Secret::new(self.private.find(name, |_| true)?.1.expose())))
    }

    /// The address in a variable. The file of the working directory is not asked: it could lead a credential to
    /// another host.
    pub(crate) fn address(&self, name: &str) -> Option<String> {
        let trusted = |origin| match origin {
            Origin::Own | Origin::Named => true,
            Origin::Beside => false,
        };
        let own = self.variables.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned());
        let of_file = || {
            let (_, value) = self.private.find(name, trusted)?;
            Some(String::from_utf8_lossy(value.expose()).into_owned())
        };
        own.or_else(of_file).filter(|address| !address.is_empty())
    }

    /// The `.env` file that a variable is taken from; `None` if the process has it or nothing does.
    pub(crate) fn file_of(&self, name: &str) -> Option<&AbsPath> {
        if self.variables.contains_key(OsStr::new(name)) {
            return None;
        }
        self.private.find(name, |_| true).map(|(path, _)| path)
    }

    /// The `.env` of the working directory, if there is one that is not used.
    #[must_use]
    pub fn unread_dotenv(&self) -> Option<AbsPath> {
        let path = self.directory.child(NAME);
        let real = path.as_path().canonicalize().ok()?;
        let is_read = self.private.files.iter().any(|file| file.path.as_path() == real);
        (real.is_file() && !is_read).then_some(path)
    }
}

/// The file, if it exists and only the user can change it.
fn present(path: &AbsPath, origin: Origin) -> Result<Option<DotenvFile>, DotenvError> {
    match read(path, origin) {
        Err(DotenvError::Read { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn read(path: &AbsPath, origin: Origin) -> Result<DotenvFile, DotenvError> {
    let failed = |cause| DotenvError::Read { path: path.clone(), cause };
    let file = open_regular(path.as_path()).map_err(failed)?;
    match origin {
        Origin::Own | Origin::Beside => only_the_users(path, &file)?,
        Origin::Named => {}
    }
    // The path of the opened file, so that a link that changes in between leads nowhere else.
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let real = real.and_then(|real| AbsPath::new(real).map_err(io::Error::other)).map_err(failed)?;
    // Allocated at its final size: a growing buffer would leave copies of the values in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SCRUBBED_MAX + 64));
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(failed(too_large(LONGEST)));
    }
    let assigned =
        parse_dotenv(&bytes).map_err(|faults| DotenvError::Invalid { path: path.clone(), faults })?;
    let values = assigned.into_iter().map(|(name, value)| (name, Arc::new(value))).collect();
    Ok(DotenvFile { path: real, origin, values })
}

fn only_the_users(path: &AbsPath, file: &File) -> Result<(), DotenvError> {
    let found = file.metadata().map_err(|cause| DotenvError::Read { path: path.clone(), cause })?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(DotenvError::Foreign { path: path.clone() });
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(DotenvError::Writable { path: path.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn world() -> (tempfile::TempDir, AbsPath, HostEnvironment) {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let environment = crate::suite::test_environment(&top);
        std::fs::create_dir_all(&environment.directory).unwrap();
        (directory, top, environment)
    }

    fn write(path: &AbsPath, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn beside() -> DotenvRequest {
        DotenvRequest { beside: DotenvBeside::Read, ..DotenvRequest::default() }
    }

    #[test]
    fn the_file_of_the_working_directory_leads_no_credential_to_another_host() {
        let (_directory, top, environment) = world();
        write(&environment.directory.child(NAME), "URL=http://127.0.0.1:1\nKEY=of-the-file\n");
        let found = environment.clone().with_dotenv(&beside()).unwrap();
        assert_eq!(found.address("URL"), None);
        assert_eq!(found.secret("KEY").unwrap().expose(), b"of-the-file");
        write(&top.child("named"), "URL=http://127.0.0.1:2\n");
        let found =
            environment.with_dotenv(&DotenvRequest { named: vec![top.child("named")], ..beside() }).unwrap();
        assert_eq!(found.address("URL").as_deref(), Some("http://127.0.0.1:2"));
    }

    #[test]
    fn the_users_own_file_wins_over_the_one_of_the_working_directory() {
        let (_directory, _top, environment) = world();
        std::fs::create_dir_all(&environment.config).unwrap();
        write(&environment.config.child(NAME), "KEY=of-the-user\n");
        write(&environment.directory.child(NAME), "KEY=of-a-stranger\nOTHER=x\n");
        let found = environment.with_dotenv(&beside()).unwrap();
        assert_eq!(found.secret("KEY").unwrap().expose(), b"of-the-user");
        assert_eq!(found.secret("OTHER").unwrap().expose(), b"x");
    }

    #[test]
    fn a_file_of_the_working_directory_that_others_can_change_is_ignored_aloud() {
        let (_directory, _top, environment) = world();
        let path = environment.directory.child(NAME);
        write(&path, "KEY=of-the-file\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let found = environment.with_dotenv(&beside()).unwrap();
        assert!(found.secret("KEY").is_none());
        let notices = found.private.notices();
        assert!(notices[0].contains("other users can change `.env`"), "{notices:?}");
    }

    #[test]
    fn a_file_of_the_working_directory_that_is_named_is_no_other_file() {
        let (_directory, _top, environment) = world();
        let path = environment.directory.child(NAME);
        write(&path, "KEY=of-the-file\n");
        let request = DotenvRequest { named: vec![path], ..beside() };
        let found = environment.with_dotenv(&request).unwrap().private.without_beside(|_| true);
        assert_eq!(found.notices(), [""; 0]);
        assert_eq!(found.of_files().count(), 1);
    }

    /// What the file of the suite is used for is said as it is.
    #[test]
    fn a_file_of_the_suite_is_used_for_redaction_on_request_alone() {
        let (_directory, _top, environment) = world();
        write(&environment.directory.child(NAME), "KEY=of-the-suite\nMORE=another-value\n");
        for (redact, said, redacted) in
            [(vec![], "is not used", 0), (vec!["KEY"], "is used for --redact-env alone", 1)]
        {
            let redact = redact.into_iter().map(|name| EnvName::new(name).unwrap()).collect();
            let found = environment.clone().with_dotenv(&DotenvRequest { redact, ..beside() }).unwrap();
            let private = found.private.without_beside(|_| true);
            assert!(private.notices()[0].contains(said), "{:?}", private.notices());
            assert!(!private.notices()[0].contains('/'), "no path gets on a tape: {:?}", private.notices());
            assert_eq!((private.of_files().count(), private.redacted().count()), (0, redacted));
        }
    }

    #[test]
    fn where_a_link_leads_decides() {
        let (_directory, top, environment) = world();
        std::fs::create_dir(top.child("mounted")).unwrap();
        write(&top.child("mounted/real"), "KEY=of-the-file\n");
        symlink("mounted/real", top.child("link")).unwrap();
        let request = DotenvRequest { named: vec![top.child("link")], ..DotenvRequest::default() };
        let found = environment.with_dotenv(&request).unwrap();
        let inside = found.private.outside([top.child("mounted")].iter()).unwrap_err();
        assert_eq!(inside.file, top.child("mounted/real"));
        assert!(found.private.outside([top.child("mount")].iter()).is_ok(), "names are compared whole");
        assert!(!format!("{found:?}").contains("of-the-file"));
    }
}
