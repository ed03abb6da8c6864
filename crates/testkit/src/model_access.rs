//! The model of a made-up agent: the gateway knows no agent by name.

use belljar_contract::{CredentialPlace, EnvName, LoginFile, ModelAccess};

/// The places of [`model_access`], as they are shown.
pub const KEY: &str = "AGENT_KEY";
pub const TOKEN: &str = "AGENT_TOKEN";
pub const LOGIN: &str = "~/.agent/login.json";

/// # Panics
/// Never: all names are valid.
#[must_use]
pub fn model_access() -> ModelAccess {
    let name = |text: &str| EnvName::new(text).expect("a valid name");
    let members = |last: &str| vec!["login".to_owned(), last.to_owned()];
    ModelAccess {
        credentials: vec![
            CredentialPlace::ApiKey { variable: name(KEY) },
            CredentialPlace::Token { variable: name(TOKEN), made_by: "agent new-token".to_owned() },
            CredentialPlace::Login(LoginFile {
                path: ".agent/login.json".to_owned(),
                token: members("token"),
                expires: members("until"),
            }),
        ],
        login_program: "agent".to_owned(),
        base_url: name("AGENT_URL"),
        output_tokens: name("AGENT_OUTPUT_TOKENS"),
    }
}
