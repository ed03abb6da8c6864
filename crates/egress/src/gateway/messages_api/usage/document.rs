//! A response that is a single JSON document.

use serde::Deserialize;

use super::WireUsage;

/// How much of a document is kept. The longest response of a model is a fraction of it.
const MAX_DOCUMENT_BYTES: usize = 8 * 1024 * 1024;

/// Collects a document.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Document {
    bytes: Vec<u8>,
    oversize: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct WireMessage {
    pub model: Option<String>,
    pub usage: Option<WireUsage>,
}

impl Document {
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.oversize || self.bytes.len() + bytes.len() > MAX_DOCUMENT_BYTES {
            self.oversize = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The message, if the document is complete and is one.
    pub(super) fn message(&self) -> Option<WireMessage> {
        serde_json::from_slice(&self.bytes).ok()
    }
}
