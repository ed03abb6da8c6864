//! What is allowed: which key, for which host, as which user.

use super::host_key::HostKey;
use belljar_contract::{SshEntry, SshFound, SshPublicKey};
use std::path::PathBuf;

/// One `ssh` entry, with its keys looked up and an agent that holds its private key.
#[derive(Debug, Clone)]
pub struct SshGrant {
    pub host: String,
    pub user: String,
    pub key: SshPublicKey,
    /// The host's public keys.
    pub host_keys: Vec<HostKey>,
    /// The socket of the agent outside that holds the key.
    pub agent: PathBuf,
    /// Whether commits may be signed with the key.
    pub sign_commits: bool,
}

impl SshGrant {
    /// Combines an entry, the keys that were found for it, and the agent that holds its private key. Host keys whose
    /// signatures cannot be verified are left out: the host cannot be reached with them.
    #[must_use]
    pub fn new(entry: &SshEntry, found: &SshFound, agent: PathBuf) -> Self {
        Self {
            host: entry.host.clone(),
            user: entry.user.clone(),
            key: found.public_key.clone(),
            host_keys: found.host_keys.iter().filter_map(|key| HostKey::new(key.clone()).ok()).collect(),
            agent,
            sign_commits: entry.sign_commits,
        }
    }
}
