//! The registry of agents. A new one is a directory beside this file and a line in [`Harnesses::load`].

mod claude_code;
mod profile;

use belljar_contract::Harness;

/// A profile that is shipped with belljar is invalid.
#[derive(Debug, thiserror::Error)]
#[error("the profile of the harness `{harness}` is invalid: {reason}")]
pub struct HarnessError {
    pub harness: &'static str,
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

    /// The list that a compilation takes.
    #[must_use]
    pub fn list(&self) -> Vec<&dyn Harness> {
        self.0.iter().map(AsRef::as_ref).collect()
    }
}
