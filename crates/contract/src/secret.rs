//! A value that is never shown: the one type that secrets travel in.

use std::fmt;
use zeroize::Zeroizing;

/// A secret. It cannot be printed or serialised, and its memory is cleared when it goes.
///
/// There is no `Clone`: a secret that two parts need is shared by `Arc`, so that one copy exists to be cleared.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value over.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value, for the one place that has to send it. Never for a message, a log or a command line.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is nothing in it: an empty secret is a missing one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    /// Not even its length.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_it_is_shown() {
        let secret = Secret::new("sk-hush");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "Secret(…) Some(\n    Secret(…),\n)");
        assert_eq!(secret.expose(), b"sk-hush");
        assert!(Secret::new("").is_empty());
    }
}
