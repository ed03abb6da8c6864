//! Ids that frames carry.

use serde::{Deserialize, Serialize};

/// Longer than any id the agent makes; an id is kept for the whole run.
const LONGEST: usize = 256;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing there.
    #[error("an id is not empty")]
    Empty,
    /// Too much there.
    #[error("an id has at most {LONGEST} bytes, this one has {bytes}")]
    TooLong {
        /// How many.
        bytes: usize,
    },
}

macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a text.
            ///
            /// # Errors
            /// When it is empty or too long.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                match text.len() {
                    0 => Err(IdError::Empty),
                    bytes if bytes > LONGEST => Err(IdError::TooLong { bytes }),
                    _ => Ok(Self(text)),
                }
            }

            /// As text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

id! {
    /// Pairs a control request with its response, in either direction.
    RequestId
}
id! {
    /// One call of a tool.
    CallId
}
id! {
    /// A conversation; `/clear` begins another in the same process.
    SessionId
}
id! {
    /// A message that belljar sent; the agent names it when it takes the message up.
    MessageId
}
