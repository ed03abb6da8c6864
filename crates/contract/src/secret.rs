//! The one type for secret values. It is never printed.

use std::fmt;
use zeroize::Zeroizing;

/// A secret. It cannot be printed or serialised, and its memory is cleared on drop.
///
/// There is no `Clone`: a secret with two users is shared by `Arc`, so that there is only one copy to clear.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value, for the code that has to send it. Never for a message, a log or a command line.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is empty. An empty secret counts as missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    /// Does not even reveal the length.
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
