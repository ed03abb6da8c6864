//! Chooses the credential for the model among the places that the harness names. It never enters the sandbox.

mod login;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use belljar_contract::{CredentialPlace, EnvName, LoginFile, ModelAccess, Secret};

use super::messages_api::ModelCredential;

/// The place that a credential comes from. It may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialSource {
    place: CredentialPlace,
    access: Arc<ModelAccess>,
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl CredentialSource {
    fn login_program(&self) -> &str {
        &self.access.login_program
    }

    /// What the user can do when the host does not accept the credential from here.
    pub(super) fn fix_when_refused(&self) -> String {
        let program = self.login_program();
        match &self.place {
            CredentialPlace::ApiKey { variable } => {
                format!("check the key in {variable} and its permissions")
            }
            CredentialPlace::Token { variable, made_by } => {
                format!("make a new token for {variable} with `{made_by}`")
            }
            CredentialPlace::Login(_) => {
                format!("run `{program}` and log in again; belljar uses a login, and never renews one")
            }
        }
    }
}

/// The ways to have a credential.
fn ways_to_have_one(access: &ModelAccess) -> String {
    let variables: Vec<&str> = access.variables().map(EnvName::as_str).collect();
    let login = access.login_files().next().map(|_| format!("log in with `{}`", access.login_program));
    let set = (!variables.is_empty()).then(|| format!("set {}", variables.join(" or ")));
    set.into_iter().chain(login).collect::<Vec<_>>().join(", or ")
}

#[derive(Debug)]
pub struct FoundCredential {
    pub credential: ModelCredential,
    pub source: CredentialSource,
    /// When it expires, if it says so.
    pub expires: Option<SystemTime>,
}

/// Why no credential can be used. The text is for the user, and contains nothing of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelCredentialError {
    #[error("no credential for the model: {}", ways_to_have_one(.0))]
    Missing(Arc<ModelAccess>),
    #[error(
        "the login in {of} has expired: run `{program}` and log in again (belljar uses a login, and never renews one)",
        program = .of.login_program()
    )]
    Expired { of: CredentialSource },
    #[error("{of} does not have the format of a login of `{program}` (line {line}, column {column})", program = .of.login_program())]
    Form { of: CredentialSource, line: usize, column: usize },
    /// The value cannot be sent in a header.
    #[error("the credential in {of} must not contain spaces, control characters or non-ASCII characters")]
    Characters { of: CredentialSource },
}

impl ModelCredentialError {
    /// What a user without a usable credential can do.
    pub(super) fn fix(&self) -> String {
        ways_to_have_one(self.access())
    }

    fn access(&self) -> &ModelAccess {
        match self {
            Self::Missing(access) => access,
            Self::Expired { of } | Self::Form { of, .. } | Self::Characters { of } => &of.access,
        }
    }
}

/// The variable that limits the output of each response, for hints.
pub(super) fn output_tokens(credential: &Result<FoundCredential, ModelCredentialError>) -> &EnvName {
    match credential {
        Ok(found) => &found.source.access.output_tokens,
        Err(error) => &error.access().output_tokens,
    }
}

/// Chooses the credential, in the order of [`ModelAccess::credentials`]. `value` returns what the machine holds at a
/// place: the value of a variable, or the content of a file.
///
/// A place whose value is unusable ends the search: a key that the user set must not be replaced silently by another
/// account. An empty variable counts as missing.
///
/// # Errors
/// See [`ModelCredentialError`].
pub fn find_credential(
    access: &Arc<ModelAccess>,
    mut value: impl FnMut(&CredentialPlace) -> Option<Secret>,
    now: SystemTime,
) -> Result<FoundCredential, ModelCredentialError> {
    for place in &access.credentials {
        let Some(value) = value(place).filter(|value| !value.is_empty()) else { continue };
        let source = CredentialSource { place: place.clone(), access: Arc::clone(access) };
        let of_variable = |credential: fn(Secret) -> ModelCredential, source| {
            filled(value.expose()).map(|value| sendable(credential(value), source, None)).transpose()
        };
        let found = match place {
            CredentialPlace::ApiKey { .. } => of_variable(ModelCredential::ApiKey, source)?,
            CredentialPlace::Token { .. } => of_variable(ModelCredential::Bearer, source)?,
            CredentialPlace::Login(file) => read_login(file, &value, source, now)?,
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(ModelCredentialError::Missing(Arc::clone(access)))
}

/// The login in a file, if it contains one.
fn read_login(
    file: &LoginFile,
    content: &Secret,
    source: CredentialSource,
    now: SystemTime,
) -> Result<Option<FoundCredential>, ModelCredentialError> {
    let login = match login::read(file, content) {
        Ok(Some(login)) => login,
        Ok(None) => return Ok(None),
        // The message of the JSON parser can quote the text, so that only the position is kept.
        Err(error) => {
            return Err(ModelCredentialError::Form {
                of: source,
                line: error.line(),
                column: error.column(),
            });
        }
    };
    let Some(token) = filled(login.token.as_bytes()) else { return Ok(None) };
    if login.expires.is_some_and(|expires| expires <= now) {
        return Err(ModelCredentialError::Expired { of: source });
    }
    sendable(ModelCredential::Bearer(token), source, login.expires).map(Some)
}

/// The value without surrounding white space, unless it is empty.
fn filled(value: &[u8]) -> Option<Secret> {
    let value = value.trim_ascii();
    (!value.is_empty()).then(|| Secret::new(value))
}

fn sendable(
    credential: ModelCredential,
    source: CredentialSource,
    expires: Option<SystemTime>,
) -> Result<FoundCredential, ModelCredentialError> {
    if !credential.secret().expose().iter().all(u8::is_ascii_graphic) {
        return Err(ModelCredentialError::Characters { of: source });
    }
    Ok(FoundCredential { credential, source, expires })
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_testkit::model_access::{KEY, LOGIN, TOKEN, model_access};
    use std::time::Duration;

    const NOW_MILLIS: u64 = 1_800_000_000_000;

    /// What a made-up machine holds, by the place as it is shown.
    type Machine<'a> = &'a [(&'a str, &'a str)];

    fn login(token: &str, expires_at: u64) -> String {
        format!(
            r#"{{"login":{{"token":"{token}","refresh":"r-hush","until":{expires_at},"scopes":["user:inference"]}}}}"#
        )
    }

    fn found(machine: Machine<'_>) -> Result<(String, String), ModelCredentialError> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW_MILLIS);
        let value = |place: &CredentialPlace| {
            let held = machine.iter().find(|(name, _)| *name == place.to_string());
            held.map(|(_, value)| Secret::new(*value))
        };
        let found = find_credential(&Arc::new(model_access()), value, now)?;
        let value = String::from_utf8(found.credential.secret().expose().to_vec()).unwrap();
        let shown = match &found.credential {
            ModelCredential::ApiKey(_) => format!("key {value}"),
            ModelCredential::Bearer(_) => format!("bearer {value}"),
        };
        assert!(!format!("{found:?}").contains(&value));
        Ok((found.source.to_string(), shown))
    }

    #[test]
    fn the_order_is_kept_and_empty_is_missing() {
        let good = login("tok-3", NOW_MILLIS + 1);
        let here = |place: &str, shown: &str| Ok((place.to_owned(), shown.to_owned()));
        assert_eq!(found(&[(KEY, " sk-1\n"), (TOKEN, "tok-2"), (LOGIN, &good)]), here(KEY, "key sk-1"));
        assert_eq!(found(&[(KEY, ""), (TOKEN, "tok-2"), (LOGIN, &good)]), here(TOKEN, "bearer tok-2"));
        assert_eq!(found(&[(TOKEN, " "), (LOGIN, &good)]), here(LOGIN, "bearer tok-3"));
        for nothing in ["", "{}", r#"{"other":{}}"#, r#"{"login":null}"#, &login("", NOW_MILLIS + 1)] {
            assert!(matches!(found(&[(LOGIN, nothing)]), Err(ModelCredentialError::Missing(_))), "{nothing}");
        }
        let missing = found(&[]).unwrap_err().to_string();
        assert_eq!(
            missing,
            format!("no credential for the model: set {KEY} or {TOKEN}, or log in with `agent`")
        );
    }

    #[test]
    fn an_expired_login_says_so_and_is_not_renewed() {
        let error = found(&[(LOGIN, &login("tok", NOW_MILLIS))]).unwrap_err();
        assert!(matches!(error, ModelCredentialError::Expired { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "the login in {LOGIN} has expired: run `agent` and log in again \
                 (belljar uses a login, and never renews one)"
            )
        );
        let without_end = r#"{"login":{"token":"tok-4","until":null}}"#;
        assert!(found(&[(LOGIN, without_end)]).is_ok());
    }

    /// An account that the user did not choose must not be charged.
    #[test]
    fn a_place_that_is_unusable_ends_the_search() {
        let mut access = model_access();
        let later =
            LoginFile { path: "later.json".to_owned(), ..access.login_files().next().unwrap().clone() };
        access.credentials.push(CredentialPlace::Login(later));
        let value = |place: &CredentialPlace| match place {
            CredentialPlace::Login(file) if file.path == "later.json" => {
                Some(Secret::new(login("tok", NOW_MILLIS)))
            }
            CredentialPlace::Login(_) => Some(Secret::new(login("tok", 1))),
            CredentialPlace::ApiKey { .. } | CredentialPlace::Token { .. } => None,
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(2);
        assert!(find_credential(&Arc::new(access), value, now).is_err());
        let both = [(KEY, "sk hush"), (TOKEN, "tok")];
        assert!(matches!(found(&both), Err(ModelCredentialError::Characters { .. })));
    }

    #[test]
    fn errors_do_not_contain_the_value() {
        for text in [
            " ",
            "sk-hush",
            r#""sk-hush""#,
            r#"{"login":"sk-hush"}"#,
            r#"{"login":{}}"#,
            r#"{"login":{"token":null}}"#,
            r#"{"login":{"token":["sk-hush"]}}"#,
            r#"{"login":{"token":"sk-hush","until":"sk-hush"}}"#,
            r#"{"login":{"token":"a","token":"sk-hush"}}"#,
            r#"{"login":{"token":"sk-hush"}} sk-hush"#,
            "{\"\u{1}",
        ] {
            let error = found(&[(LOGIN, text)]).unwrap_err();
            assert!(matches!(error, ModelCredentialError::Form { .. }), "{text} {error:?}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
        let error = found(&[(KEY, "sk hush")]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    }

    #[test]
    fn a_refused_credential_is_renewed_where_it_was_made() {
        let fix = |machine: Machine<'_>| {
            let value = |place: &CredentialPlace| {
                let held = machine.iter().find(|(name, _)| *name == place.to_string());
                held.map(|(_, value)| Secret::new(*value))
            };
            let found = find_credential(&Arc::new(model_access()), value, SystemTime::UNIX_EPOCH).unwrap();
            found.source.fix_when_refused()
        };
        assert_eq!(fix(&[(KEY, "k")]), format!("check the key in {KEY} and its permissions"));
        assert_eq!(fix(&[(TOKEN, "t")]), format!("make a new token for {TOKEN} with `agent new-token`"));
        assert_eq!(
            fix(&[(LOGIN, &login("t", 1))]),
            "run `agent` and log in again; belljar uses a login, and never renews one"
        );
    }
}
