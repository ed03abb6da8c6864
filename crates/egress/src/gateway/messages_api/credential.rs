//! The credential for the model: where it comes from, and how it is sent. It never enters the sandbox.

use std::fmt;
use std::time::{Duration, SystemTime};

use belljar_contract::Secret;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderValue};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::names::LOGIN_PROGRAM;

/// The variable with an API key.
pub const API_KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";

/// The variable with a login token.
pub const TOKEN_VARIABLE: &str = "CLAUDE_CODE_OAUTH_TOKEN";

/// The file that a login creates, relative to the home directory.
pub const LOGIN_FILE: &str = ".claude/.credentials.json";

/// The credential that the model's host expects.
#[derive(Debug)]
pub enum ModelCredential {
    /// An API key, sent as `x-api-key`.
    ApiKey(Secret),
    /// A login token, sent as `authorization: Bearer`.
    Bearer(Secret),
}

impl ModelCredential {
    /// The header that carries it, marked as sensitive so that it is neither printed nor put in HTTP/2's header table.
    pub(in crate::gateway) fn header(&self) -> Result<(HeaderName, HeaderValue), InvalidHeaderValue> {
        let (name, value) = match self {
            Self::ApiKey(key) => {
                (HeaderName::from_static("x-api-key"), HeaderValue::from_bytes(key.expose()))
            }
            Self::Bearer(token) => {
                let value = Zeroizing::new([b"Bearer ", token.expose()].concat());
                (AUTHORIZATION, HeaderValue::from_bytes(&value))
            }
        };
        let mut value = value?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// Whether the bytes contain it.
    pub(in crate::gateway) fn is_in(&self, bytes: &[u8]) -> bool {
        let secret = self.secret().expose();
        !secret.is_empty() && bytes.windows(secret.len()).any(|window| window == secret)
    }

    /// The secret, so that it can be redacted.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        match self {
            Self::ApiKey(secret) | Self::Bearer(secret) => secret,
        }
    }
}

/// Where a credential can come from, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource {
    ApiKeyVariable,
    TokenVariable,
    /// The file that a login of Claude Code creates.
    LoginFile,
    /// The keychain, where Claude Code keeps a login on macOS.
    Keychain,
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiKeyVariable => f.write_str(API_KEY_VARIABLE),
            Self::TokenVariable => f.write_str(TOKEN_VARIABLE),
            Self::LoginFile => write!(f, "~/{LOGIN_FILE}"),
            Self::Keychain => f.write_str("the keychain"),
        }
    }
}

impl CredentialSource {
    /// What a user without a credential can do.
    pub(in crate::gateway) fn ways_to_have_one() -> String {
        format!("set {API_KEY_VARIABLE} or {TOKEN_VARIABLE}, or log in with `{LOGIN_PROGRAM}`")
    }

    /// What the user can do when the host does not accept the credential from here.
    pub(in crate::gateway) fn fix_when_refused(self) -> String {
        match self {
            Self::ApiKeyVariable => format!("check the key in {API_KEY_VARIABLE} and its permissions"),
            Self::TokenVariable => {
                format!("make a new token for {TOKEN_VARIABLE} with `{LOGIN_PROGRAM} setup-token`")
            }
            Self::LoginFile | Self::Keychain => {
                format!("run `{LOGIN_PROGRAM}` and log in again; belljar uses a login, and never renews one")
            }
        }
    }
}

/// What the caller found on the machine. Nothing is read here.
#[derive(Debug, Default)]
pub struct CredentialFacts {
    pub api_key_variable: Option<Secret>,
    pub token_variable: Option<Secret>,
    /// The contents of [`LOGIN_FILE`].
    pub login_file: Option<Secret>,
    /// The output of `KEYCHAIN_COMMAND`, on macOS only.
    pub keychain: Option<Secret>,
}

/// Prints the login of Claude Code. Its output is a secret.
#[cfg(target_os = "macos")]
pub const KEYCHAIN_COMMAND: [&str; 5] =
    ["/usr/bin/security", "find-generic-password", "-s", "Claude Code-credentials", "-w"];

#[derive(Debug)]
pub struct FoundCredential {
    pub credential: ModelCredential,
    /// Its source, which may be shown.
    pub source: CredentialSource,
    /// When it expires, if it says so.
    pub expires: Option<SystemTime>,
}

/// Why no credential can be used. The text is for the user, and contains nothing of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelCredentialError {
    #[error("no credential for the model: {}", CredentialSource::ways_to_have_one())]
    Missing,
    #[error(
        "the login in {source_name} has expired: run `{LOGIN_PROGRAM}` and log in again (belljar uses a login, and never renews one)",
        source_name = .0
    )]
    Expired(CredentialSource),
    #[error("{source_name} does not have the format of a login of `{LOGIN_PROGRAM}` (line {line}, column {column})", source_name = .of)]
    Form { of: CredentialSource, line: usize, column: usize },
    /// The value cannot be sent in a header.
    #[error("the credential in {source_name} must not contain spaces, control characters or non-ASCII characters", source_name = .0)]
    Characters(CredentialSource),
}

/// The part of a login file that is used. The refresh token is not read.
#[derive(Deserialize)]
struct LoginFile<'d> {
    #[serde(borrow, rename = "claudeAiOauth")]
    login: Option<ClaudeLogin<'d>>,
}

#[derive(Deserialize)]
struct ClaudeLogin<'d> {
    /// Borrowed, so that no copy is left in memory.
    #[serde(rename = "accessToken")]
    access_token: &'d str,
    /// Milliseconds since 1970.
    #[serde(rename = "expiresAt")]
    expires_at: Option<u64>,
}

/// Chooses the credential, in the order of [`CredentialSource`].
///
/// A source that is present but unusable ends the search: a key that the user set must not be replaced silently by
/// another account. An empty variable counts as missing.
///
/// # Errors
/// See [`ModelCredentialError`].
pub fn find_credential(
    facts: CredentialFacts,
    now: SystemTime,
) -> Result<FoundCredential, ModelCredentialError> {
    let CredentialFacts { api_key_variable, token_variable, login_file, keychain } = facts;
    if let Some(key) = api_key_variable.and_then(|value| filled(&value)) {
        return sendable(ModelCredential::ApiKey(key), CredentialSource::ApiKeyVariable, None);
    }
    if let Some(token) = token_variable.and_then(|value| filled(&value)) {
        return sendable(ModelCredential::Bearer(token), CredentialSource::TokenVariable, None);
    }
    let logins = [(login_file, CredentialSource::LoginFile), (keychain, CredentialSource::Keychain)];
    for (login, source) in logins {
        let Some(login) = login.filter(|login| !login.is_empty()) else { continue };
        if let Some(found) = read_login(&login, source, now)? {
            return Ok(found);
        }
    }
    Err(ModelCredentialError::Missing)
}

/// The login in a file, if it contains one.
fn read_login(
    file: &Secret,
    source: CredentialSource,
    now: SystemTime,
) -> Result<Option<FoundCredential>, ModelCredentialError> {
    // The message of the JSON parser can quote the text, so that only the position is kept.
    let form = |error: serde_json::Error| ModelCredentialError::Form {
        of: source,
        line: error.line(),
        column: error.column(),
    };
    let file: LoginFile<'_> = serde_json::from_slice(file.expose()).map_err(form)?;
    let Some(ClaudeLogin { access_token, expires_at }) = file.login else { return Ok(None) };
    let Some(token) = filled(&Secret::new(access_token.as_bytes())) else { return Ok(None) };
    let expires = expires_at.map(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    let expires = expires.flatten();
    if expires.is_some_and(|expires| expires <= now) {
        return Err(ModelCredentialError::Expired(source));
    }
    sendable(ModelCredential::Bearer(token), source, expires).map(Some)
}

/// The value without surrounding white space, unless it is empty.
fn filled(value: &Secret) -> Option<Secret> {
    let value = value.expose().trim_ascii();
    (!value.is_empty()).then(|| Secret::new(value))
}

fn sendable(
    credential: ModelCredential,
    source: CredentialSource,
    expires: Option<SystemTime>,
) -> Result<FoundCredential, ModelCredentialError> {
    if !credential.secret().expose().iter().all(u8::is_ascii_graphic) {
        return Err(ModelCredentialError::Characters(source));
    }
    Ok(FoundCredential { credential, source, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MILLIS: u64 = 1_800_000_000_000;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(NOW_MILLIS)
    }

    fn secret(value: &str) -> Option<Secret> {
        Some(Secret::new(value))
    }

    fn login(token: &str, expires_at: u64) -> Option<Secret> {
        secret(&format!(
            r#"{{"claudeAiOauth":{{"accessToken":"{token}","refreshToken":"r-hush","expiresAt":{expires_at},"scopes":["user:inference"]}}}}"#
        ))
    }

    fn found(facts: CredentialFacts) -> Result<(CredentialSource, String), ModelCredentialError> {
        let found = find_credential(facts, now())?;
        let value = String::from_utf8(found.credential.secret().expose().to_vec()).unwrap();
        let shown = match &found.credential {
            ModelCredential::ApiKey(_) => format!("key {value}"),
            ModelCredential::Bearer(_) => format!("bearer {value}"),
        };
        assert!(!format!("{found:?}").contains(&value));
        Ok((found.source, shown))
    }

    #[test]
    fn the_order_is_kept_and_empty_is_missing() {
        let all = || CredentialFacts {
            api_key_variable: secret(" sk-1\n"),
            token_variable: secret("tok-2"),
            login_file: login("tok-3", NOW_MILLIS + 1),
            keychain: login("tok-4", NOW_MILLIS + 1),
        };
        assert_eq!(found(all()), Ok((CredentialSource::ApiKeyVariable, "key sk-1".into())));
        let rest = CredentialFacts { api_key_variable: secret(""), ..all() };
        assert_eq!(found(rest), Ok((CredentialSource::TokenVariable, "bearer tok-2".into())));
        let rest = CredentialFacts { api_key_variable: None, token_variable: secret(" "), ..all() };
        assert_eq!(found(rest), Ok((CredentialSource::LoginFile, "bearer tok-3".into())));
        let rest = CredentialFacts { keychain: login("tok-4", NOW_MILLIS + 1), ..CredentialFacts::default() };
        assert_eq!(found(rest), Ok((CredentialSource::Keychain, "bearer tok-4".into())));
        assert_eq!(found(CredentialFacts::default()), Err(ModelCredentialError::Missing));
        let other =
            CredentialFacts { login_file: secret(r#"{"mcpOAuth":{}}"#), ..CredentialFacts::default() };
        assert_eq!(found(other), Err(ModelCredentialError::Missing));
    }

    #[test]
    fn an_expired_login_says_so_and_is_not_renewed() {
        let facts = CredentialFacts { login_file: login("tok", NOW_MILLIS), ..CredentialFacts::default() };
        let error = found(facts).unwrap_err();
        assert_eq!(error, ModelCredentialError::Expired(CredentialSource::LoginFile));
        let text = error.to_string();
        assert!(
            text.contains("expired") && text.contains("log in again") && text.contains("never renews"),
            "{text}"
        );
        // An expired login must not lead to the use of another account.
        let facts = CredentialFacts {
            login_file: login("tok", 1),
            keychain: login("tok", NOW_MILLIS + 1),
            ..CredentialFacts::default()
        };
        assert!(found(facts).is_err());
    }

    #[test]
    fn errors_do_not_contain_the_value() {
        for text in [
            "sk-hush",
            r#"{"claudeAiOauth":"sk-hush"}"#,
            r#"{"claudeAiOauth":{"accessToken":["sk-hush"]}}"#,
            "{\"\u{1}",
        ] {
            let facts = CredentialFacts { login_file: secret(text), ..CredentialFacts::default() };
            let error = found(facts).unwrap_err();
            assert!(matches!(error, ModelCredentialError::Form { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
        let facts = CredentialFacts { api_key_variable: secret("sk hush"), ..CredentialFacts::default() };
        let error = found(facts).unwrap_err();
        assert_eq!(error, ModelCredentialError::Characters(CredentialSource::ApiKeyVariable));
        assert!(!error.to_string().contains("hush"));
    }
}
