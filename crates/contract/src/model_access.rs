//! How a kind of agent finds its model on the user's machine. The gateway uses the same places, outside the sandbox.

use crate::EnvName;
use std::fmt;

/// Where the credential for the model is found, and the names that hints to the user need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAccess {
    /// Where the credential is looked for, in order of precedence.
    pub credentials: Vec<CredentialPlace>,
    /// The program that a user logs in with.
    pub login_program: String,
    /// The variable with the base URL of the model's host, if it is not the provider's own.
    pub base_url: EnvName,
    /// The variable that limits the output of each response.
    pub output_tokens: EnvName,
}

/// A place on the user's machine that may hold a credential for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialPlace {
    /// A variable with an API key.
    ApiKey {
        variable: EnvName,
    },
    /// A variable with a bearer token.
    Token {
        variable: EnvName,
        /// The command that makes a new token.
        made_by: String,
    },
    Login(LoginFile),
}

/// The JSON file that a login creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFile {
    /// Relative to the home directory.
    pub path: String,
    /// The members that lead to the bearer token, the outermost first.
    pub token: Vec<String>,
    /// The members that lead to the time when the token expires, in milliseconds since 1970.
    pub expires: Vec<String>,
}

impl ModelAccess {
    /// The variables that may hold a credential.
    pub fn variables(&self) -> impl Iterator<Item = &EnvName> {
        self.credentials.iter().filter_map(|place| match place {
            CredentialPlace::ApiKey { variable } | CredentialPlace::Token { variable, .. } => Some(variable),
            CredentialPlace::Login(_) => None,
        })
    }

    /// The files that a login creates.
    pub fn login_files(&self) -> impl Iterator<Item = &LoginFile> {
        self.credentials.iter().filter_map(|place| match place {
            CredentialPlace::Login(file) => Some(file),
            CredentialPlace::ApiKey { .. } | CredentialPlace::Token { .. } => None,
        })
    }
}

/// The place as it is shown: the variable, or the file below `~`.
impl fmt::Display for CredentialPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiKey { variable } | Self::Token { variable, .. } => write!(f, "{variable}"),
            Self::Login(file) => write!(f, "~/{}", file.path),
        }
    }
}
