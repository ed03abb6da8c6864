//! The registry of agents. A new one is a directory beside this file and a line in [`Harnesses::load`].

mod claude_code;
mod profile;

use belljar_contract::Harness;

/// Why a harness cannot be used: its profile, which is shipped with belljar, is broken.
#[derive(Debug, thiserror::Error)]
#[error("the profile of the harness `{harness}` is invalid: {reason}")]
pub struct HarnessError {
    pub harness: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

/// All agents that belljar knows.
pub struct Harnesses(Vec<Box<dyn Harness>>);

impl Harnesses {
    /// Reads the profiles that are shipped with belljar.
    ///
    /// # Errors
    /// If a profile is invalid; a test of this crate checks that none is.
    pub fn load() -> Result<Self, HarnessError> {
        Ok(Self(vec![Box::new(claude_code::ClaudeCode::load()?)]))
    }

    /// As a list to compile with.
    #[must_use]
    pub fn list(&self) -> Vec<&dyn Harness> {
        self.0.iter().map(AsRef::as_ref).collect()
    }
}
