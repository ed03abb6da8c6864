//! What is allowed: which key, for which host, as which user.

use super::host_key::HostKey;
use belljar_contract::{SshEntry, SshFound, SshPublicKey};
use std::path::PathBuf;

/// One `ssh` entry, with its keys looked up and an agent that holds its private key.
#[derive(Debug, Clone)]
pub struct SshGrant {
    /// The alias of the entry.
    pub host: String,
    /// The user on the host.
    pub user: String,
    /// The key.
    pub key: SshPublicKey,
    /// The keys by which the host is known.
    pub host_keys: Vec<HostKey>,
    /// The socket of the agent that holds the key; outside.
    pub agent: PathBuf,
    /// Whether commits may be signed with it.
    pub sign_commits: bool,
}

impl SshGrant {
    /// Puts an entry, what was looked up for it and the agent that holds its key together. Keys of the host that
    /// cannot be checked are left out: the host cannot be reached by them.
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
