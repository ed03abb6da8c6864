//! Agreements to what a project's manifest or a suite asks for, kept outside the project by digest.

use crate::suite::really;
use belljar_contract::{AbsPath, Digest, Plan, Wishes};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

/// Version of the stored form.
const FORMAT: u64 = 1;
/// The prefix of a file that keeps an agreement to a suite. The name of a plan's agreement begins with the key of an
/// instance, which never starts like this.
const SUITE: &str = "suite-";

/// Something that a user can agree to: a plan, or what a suite asks for.
pub trait Terms {
    /// The JSON key under which the terms are stored.
    const KIND: &'static str;
    /// The name of the file that keeps the agreement; the same for later terms of the same origin.
    fn file_name(&self) -> String;
    /// The digest that the agreement is bound to.
    fn digest(&self) -> Digest;
    /// The terms as they are shown and stored; they hold no secret.
    fn shown(&self) -> Value;
    /// Whether an agreement covers these terms.
    fn are_within(&self, agreement: &Agreement) -> bool;
}

impl Terms for Plan {
    const KIND: &'static str = "plan";

    fn file_name(&self) -> String {
        format!("{}-{}.json", self.instance.key, self.agent)
    }

    fn digest(&self) -> Digest {
        Plan::digest(self)
    }

    fn shown(&self) -> Value {
        json!(self)
    }

    fn are_within(&self, agreement: &Agreement) -> bool {
        agreement.digest == self.digest()
    }
}

impl Terms for Wishes {
    const KIND: &'static str = "wishes";

    fn file_name(&self) -> String {
        suite_file_name(&self.suite)
    }

    fn digest(&self) -> Digest {
        Wishes::digest(self)
    }

    fn shown(&self) -> Value {
        self.to_json()
    }

    fn are_within(&self, agreement: &Agreement) -> bool {
        Wishes::are_within(self, &agreement.shown)
    }
}

/// An agreement as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// The digest of the agreed terms.
    pub digest: Digest,
    /// The terms as they were shown; they hold no secret.
    pub shown: Value,
}

/// How terms compare with the stored agreement of the same origin.
#[derive(Debug, Clone, PartialEq)]
pub enum AgreementStanding {
    /// There is no agreement yet.
    Never,
    /// The agreement covers the terms.
    Agreed,
    /// The agreement covers other terms.
    Changed(Agreement),
}

/// Why an agreement cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    #[error("cannot read the agreement `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
    /// The file is not an agreement, or a newer belljar wrote it.
    #[error("the agreement `{path}` is not one that this version of belljar wrote")]
    Foreign { path: AbsPath },
    #[error("cannot write the agreement `{path}`")]
    Write {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// The agreements of this user, kept in belljar's configuration.
pub struct Agreements {
    directory: AbsPath,
}

impl Agreements {
    /// The agreements below belljar's configuration directory.
    #[must_use]
    pub fn new(config: &AbsPath) -> Self {
        Self { directory: config.child("agreements") }
    }

    fn path(&self, terms: &impl Terms) -> AbsPath {
        self.directory.child(&terms.file_name())
    }

    /// Compares `terms` with the stored agreement.
    ///
    /// # Errors
    /// If the stored agreement cannot be read; that is never taken for an agreement.
    pub fn standing<T: Terms>(&self, terms: &T) -> Result<AgreementStanding, AgreementError> {
        let path = self.path(terms);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(AgreementStanding::Never);
            }
            Err(cause) => return Err(AgreementError::Read { path, cause }),
        };
        let Some(agreement) = parse(&text, T::KIND) else { return Err(AgreementError::Foreign { path }) };
        Ok(if terms.are_within(&agreement) {
            AgreementStanding::Agreed
        } else {
            AgreementStanding::Changed(agreement)
        })
    }

    /// Stores an agreement to `terms`. The file is written completely or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn agree<T: Terms>(&self, terms: &T) -> Result<AbsPath, AgreementError> {
        self.keep(terms, &terms.shown())
    }

    /// Stores an agreement to some of what a suite asks for, added to what was agreed to `before`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn agree_further(&self, wishes: &Wishes, before: Option<&Value>) -> Result<AbsPath, AgreementError> {
        let mut shown = wishes.shown();
        let same = |before: &&Value| ["suite", "root"].iter().all(|key| before.get(key) == shown.get(key));
        let known = before.filter(same).and_then(|before| before.get("wishes")?.as_array()).cloned();
        if let Some(list) = shown.get_mut("wishes").and_then(Value::as_array_mut) {
            list.extend(
                known.unwrap_or_default().into_iter().filter(|wish| !list.contains(wish)).collect::<Vec<_>>(),
            );
        }
        self.keep(wishes, &shown)
    }

    fn keep<T: Terms>(&self, terms: &T, shown: &Value) -> Result<AbsPath, AgreementError> {
        let path = self.path(terms);
        let stored = json!({"format": FORMAT, "digest": terms.digest(), T::KIND: shown});
        let text = format!("{stored:#}\n");
        write_whole(&path, &text).map_err(|cause| AgreementError::Write { path: path.clone(), cause })?;
        Ok(path)
    }

    /// Removes the agreement to terms of this origin. Returns whether there was one.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn revoke(&self, terms: &impl Terms) -> Result<bool, AgreementError> {
        remove(self.path(terms))
    }

    /// Removes every agreement to a suite at this path or below it, and returns their number. The suites themselves are
    /// not read: they may be missing or broken.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn revoke_suites(&self, path: &AbsPath) -> Result<usize, AgreementError> {
        let real = really(path);
        let failed = |cause| AgreementError::Read { path: self.directory.clone(), cause };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(cause) => return Err(failed(cause)),
        };
        let own = suite_file_name(&real);
        let mut revoked = 0;
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(SUITE)) else { continue };
            let file = self.directory.child(name);
            let below = || {
                let agreement = parse(&fs::read_to_string(&file).ok()?, Wishes::KIND)?;
                let suite = AbsPath::new(agreement.shown.get("suite")?.as_str()?).ok()?;
                suite.is_within(&real).then_some(())
            };
            // An agreement that cannot be read any more is identified by the name of its file.
            if name == own || below().is_some() {
                revoked += usize::from(remove(file)?);
            }
        }
        Ok(revoked)
    }
}

/// Writes a file that only the user can read, completely or not at all.
pub(crate) fn write_whole(path: &AbsPath, text: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| path.clone());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut file = tempfile::NamedTempFile::new_in(&directory)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

pub(crate) fn remove(path: AbsPath) -> Result<bool, AgreementError> {
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(AgreementError::Write { path, cause }),
    }
}

fn suite_file_name(suite: &AbsPath) -> String {
    format!("{SUITE}{}.json", &Digest::of(suite.as_bytes()).hex()[..32])
}

fn parse(text: &str, kind: &str) -> Option<Agreement> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    if value.get("format")?.as_u64()? != FORMAT {
        return None;
    }
    let digest = Digest::parse(value.get("digest")?.as_str()?)?;
    Some(Agreement { digest, shown: value.get_mut(kind)?.take() })
}
