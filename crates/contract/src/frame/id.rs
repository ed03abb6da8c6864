//! Ids in frames.

use serde::{Deserialize, Serialize};

/// Longer than any id of the agent. The limit bounds memory: ids are kept for the whole run.
const LONGEST: usize = 256;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("id must not be empty")]
    Empty,
    #[error("id must have at most {LONGEST} bytes, not {bytes}")]
    TooLong { bytes: usize },
}

macro_rules! id {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Accepts any text of 1 to 256 bytes.
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
    /// Identifies one tool call.
    CallId
}
id! {
    /// Identifies a conversation; `/clear` starts another one in the same process.
    SessionId
}
id! {
    /// Identifies a message that belljar sent; the agent repeats it when it starts to process the message.
    MessageId
}
