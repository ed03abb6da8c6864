//! Agreements to what a project's manifest asks for, kept outside the project by digest of the plan.

use belljar_contract::{AbsPath, Digest, Plan};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

/// Version of the stored form.
const FORMAT: u64 = 1;

/// What was agreed to.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    /// The digest of the plan.
    pub digest: Digest,
    /// The plan as it was shown; it holds no secret.
    pub plan: Value,
}

/// How a plan stands to what was agreed to.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nothing was agreed to yet.
    Never,
    /// This very plan was.
    Agreed,
    /// Another plan of this agent was.
    Changed(Agreement),
}

/// Why an agreement cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// Reading failed.
    #[error("cannot read the agreement `{path}`")]
    Read {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Not a file of ours, or of a newer belljar.
    #[error("the agreement `{path}` is not one that this version of belljar wrote")]
    Foreign {
        /// The file.
        path: AbsPath,
    },
    /// Writing failed.
    #[error("cannot write the agreement `{path}`")]
    Write {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// The agreements of this user.
pub struct Agreements {
    directory: AbsPath,
}

impl Agreements {
    /// The agreements below belljar's configuration.
    #[must_use]
    pub fn new(config: &AbsPath) -> Self {
        Self { directory: config.child("agreements") }
    }

    fn path(&self, plan: &Plan) -> AbsPath {
        self.directory.child(&format!("{}-{}.json", plan.instance.key, plan.agent))
    }

    /// How `plan` stands.
    ///
    /// # Errors
    /// When the stored agreement cannot be read; that is never taken for an agreement.
    pub fn standing(&self, plan: &Plan) -> Result<Standing, AgreementError> {
        let path = self.path(plan);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Standing::Never),
            Err(cause) => return Err(AgreementError::Read { path, cause }),
        };
        let Some(agreement) = parse(&text) else { return Err(AgreementError::Foreign { path }) };
        Ok(if agreement.digest == plan.digest() { Standing::Agreed } else { Standing::Changed(agreement) })
    }

    /// Keeps the agreement to `plan`; the file is complete or absent.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn agree(&self, plan: &Plan) -> Result<AbsPath, AgreementError> {
        let path = self.path(plan);
        let text = format!("{:#}\n", json!({"format": FORMAT, "digest": plan.digest(), "plan": plan}));
        let write = || -> std::io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|cause| AgreementError::Write { path: path.clone(), cause })?;
        Ok(path)
    }

    /// Takes the agreement to the plan's agent back; whether there was one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn revoke(&self, plan: &Plan) -> Result<bool, AgreementError> {
        let path = self.path(plan);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(AgreementError::Write { path, cause }),
        }
    }
}

fn parse(text: &str) -> Option<Agreement> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    if value.get("format")?.as_u64()? != FORMAT {
        return None;
    }
    let digest = Digest::parse(value.get("digest")?.as_str()?)?;
    Some(Agreement { digest, plan: value.get_mut("plan")?.take() })
}
