//! The backends by name, with what the crates that cannot see them need to know about each.

use serde::{Deserialize, Serialize};

/// What isolates a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// No sandbox: HOME and configuration are redirected, nothing else.
    Host,
    /// Namespaces made by bubblewrap.
    Bwrap,
    /// A container of the user's engine.
    Container,
}

impl BackendKind {
    /// Every backend, in the order in which help and error messages list them.
    pub const ALL: [Self; 3] = [BackendKind::Host, BackendKind::Bwrap, BackendKind::Container];

    /// Its name in the manifest, on the command line and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            BackendKind::Host => "host",
            BackendKind::Bwrap => "bwrap",
            BackendKind::Container => "container",
        }
    }

    /// What a plan calls it when it is shown.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            BackendKind::Host => "no sandbox (host)",
            BackendKind::Bwrap => "bubblewrap",
            BackendKind::Container => "container",
        }
    }

    /// What the help of the command line says about it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            BackendKind::Host => "No sandbox: home and configuration are redirected, nothing is isolated",
            BackendKind::Bwrap => "bubblewrap",
            BackendKind::Container => "A container of Podman or Docker",
        }
    }

    /// Whether it isolates the command from this machine.
    #[must_use]
    pub const fn isolates(self) -> bool {
        match self {
            BackendKind::Host => false,
            BackendKind::Bwrap | BackendKind::Container => true,
        }
    }

    /// Whether its sandbox can be started before the plan is known, and be used by any plan that fits.
    #[must_use]
    pub const fn starts_early(self) -> bool {
        match self {
            BackendKind::Bwrap => true,
            BackendKind::Host | BackendKind::Container => false,
        }
    }

    /// Whether an engine of the user makes its sandboxes.
    #[must_use]
    pub const fn needs_engine(self) -> bool {
        match self {
            BackendKind::Container => true,
            BackendKind::Host | BackendKind::Bwrap => false,
        }
    }

    /// Whether a plan may name an image for it.
    #[must_use]
    pub const fn takes_image(self) -> bool {
        match self {
            BackendKind::Container => true,
            BackendKind::Host | BackendKind::Bwrap => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::BackendKind;

    #[test]
    fn the_name_is_the_word_that_is_stored() {
        for kind in BackendKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
