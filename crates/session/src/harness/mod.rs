//! The registry of agents. A new one is a directory beside this file and a line in [`Harnesses::load`].

mod claude_code;
mod profile;

use crate::machine::Hook;
use belljar_contract::Harness;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A profile that is shipped with belljar is invalid.
#[derive(Debug, thiserror::Error)]
#[error("the profile of the harness `{harness}` is invalid: {reason}")]
pub struct HarnessError {
    pub harness: &'static str,
    pub reason: String,
}

/// All agents that belljar knows.
pub struct Harnesses {
    usual: Box<dyn Harness>,
    others: Vec<Box<dyn Harness>>,
}

impl Harnesses {
    /// Reads the profiles that are shipped with belljar.
    ///
    /// # Errors
    /// If a profile is invalid; a test of this crate checks that none is.
    pub fn load() -> Result<Self, HarnessError> {
        Ok(Self { usual: Box::new(claude_code::ClaudeCode::load()?), others: Vec::new() })
    }

    /// The agents of this version of belljar.
    ///
    /// # Panics
    /// Never: a test loads them.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Harnesses> =
            LazyLock::new(|| Harnesses::load().expect("a test loads the built-in profiles"));
        &BUILT_IN
    }

    /// As a list to compile with, the usual one first.
    #[must_use]
    pub fn list(&self) -> Vec<&dyn Harness> {
        std::iter::once(&self.usual).chain(&self.others).map(AsRef::as_ref).collect()
    }

    /// The agent with this name in a manifest.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&dyn Harness> {
        self.list().into_iter().find(|known| known.profile().name == name)
    }

    /// The agent that is used when a manifest names none.
    #[must_use]
    pub fn usual(&self) -> &dyn Harness {
        self.usual.as_ref()
    }
}

impl Harnesses {
    /// Hooks of a test: no call goes on in the background, where its end could come after the verdict.
    #[must_use]
    pub fn background_hooks(&self) -> Vec<Hook> {
        vec![claude_code::background_hook()]
    }
}

/// The version of the agent, among the versions that its first frame reports.
pub(crate) fn reported_version(mut versions: BTreeMap<String, String>) -> Option<String> {
    let known = Harnesses::built_in().list();
    known.into_iter().find_map(|harness| versions.remove(&harness.profile().version_member))
}
