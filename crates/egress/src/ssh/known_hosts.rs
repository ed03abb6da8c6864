//! The keys of a host: the declared key, or else those in the user's known hosts.
//!
//! `ssh-keygen -F` reads those files as ssh itself would, including hashed lines and patterns.

use super::host_key::{HostKey, HostKeyError};
use super::tool::SshTools;
use belljar_contract::{Host, Port, SshEntry, SshPublicKey};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The port that known hosts leave out.
const PLAIN_PORT: u16 = 22;

/// Why a host's keys are not known.
#[derive(Debug, thiserror::Error)]
pub enum KnownHostError {
    #[error("cannot run `ssh-keygen`; it comes with OpenSSH's client")]
    Tool(#[source] io::Error),
    #[error("`ssh-keygen` cannot read `{}`: {said}", .file.display())]
    Read { file: PathBuf, said: String },
    #[error(
        "the keys of `{name}` are not known. `{scan}` prints them with their fingerprints: compare those with what the \
         owner of the host publishes, then write the key as `known_host_key`, or connect once with ssh"
    )]
    NotKnown {
        name: String,
        /// The command that asks the host for its keys.
        scan: String,
    },
    #[error("the key of `{name}` is revoked in your known hosts: {fingerprint}")]
    Revoked { name: String, fingerprint: String },
    #[error(
        "`{name}` is known by a certificate authority only, which belljar does not support; set `known_host_key` to one of its keys"
    )]
    Authority { name: String },
    #[error("the key of `{name}` cannot be used")]
    Unusable {
        name: String,
        #[source]
        cause: HostKeyError,
    },
}

/// The files in which ssh looks up hosts, for a user with this home directory.
#[must_use]
pub fn known_hosts_files(home: &Path) -> Vec<PathBuf> {
    let own = ["known_hosts", "known_hosts2"].map(|name| home.join(".ssh").join(name));
    let shared = ["ssh_known_hosts", "ssh_known_hosts2"].map(|name| Path::new("/etc/ssh").join(name));
    own.into_iter().chain(shared).collect()
}

/// The keys of an entry's host. The signatures of all of them can be verified.
///
/// # Errors
/// See [`KnownHostError`].
pub fn host_keys(
    entry: &SshEntry,
    files: &[PathBuf],
    tools: &SshTools,
) -> Result<Vec<SshPublicKey>, KnownHostError> {
    let plain = match &entry.hostname {
        Host::Name(name) => name.to_string(),
        Host::Address(address) => address.to_string(),
    };
    let name = name_at(&plain, entry.port);
    let mut lines = look_up(&name, files, tools)?;
    if lines.keys.is_empty() && name != plain {
        // As in ssh, a host that is known without a port is known on every port.
        lines.extend(look_up(&plain, files, tools)?);
    }
    let declared = entry.known_host_key.iter().cloned().collect::<Vec<_>>();
    let candidates = if declared.is_empty() { lines.keys } else { declared };
    let (revoked, valid): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|key| lines.revoked.contains(key));
    let mut unusable = None;
    let mut usable = Vec::new();
    for key in valid {
        match HostKey::new(key.clone()) {
            Ok(_) => usable.push(key),
            Err(cause) => unusable = Some(cause),
        }
    }
    if !usable.is_empty() {
        return Ok(usable);
    }
    Err(match (revoked.first(), unusable, lines.authority) {
        (Some(key), _, _) => KnownHostError::Revoked { name, fingerprint: key.fingerprint() },
        (None, Some(cause), _) => KnownHostError::Unusable { name, cause },
        (None, None, true) => KnownHostError::Authority { name },
        (None, None, false) => KnownHostError::NotKnown { name, scan: scan(&plain, entry.port) },
    })
}

fn name_at(host: &str, port: Port) -> String {
    if port.get() == PLAIN_PORT { host.to_owned() } else { format!("[{host}]:{port}") }
}

fn scan(host: &str, port: Port) -> String {
    let at = if port.get() == PLAIN_PORT { String::new() } else { format!("-p {port} ") };
    format!("ssh-keyscan {at}{host} | tee /dev/stderr | ssh-keygen -l -f -")
}

/// The keys and markers of a host in known hosts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    keys: Vec<SshPublicKey>,
    revoked: Vec<SshPublicKey>,
    authority: bool,
}

impl Lines {
    fn extend(&mut self, other: Lines) {
        let Lines { keys, revoked, authority } = other;
        self.keys.extend(keys);
        self.revoked.extend(revoked);
        self.authority |= authority;
    }

    /// Parses the output of `ssh-keygen -F`. Lines without a valid key are ignored.
    fn parse(text: &str) -> Self {
        let mut out = Lines::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (marker, rest) = match line.strip_prefix('@') {
                Some(marked) => marked.split_once(char::is_whitespace).unwrap_or((marked, "")),
                None => ("", line),
            };
            let Some((_names, key)) = rest.trim_start().split_once(char::is_whitespace) else { continue };
            match marker {
                "" => out.keys.extend(SshPublicKey::parse(key)),
                "revoked" => out.revoked.extend(SshPublicKey::parse(key)),
                "cert-authority" => out.authority = true,
                _ => {}
            }
        }
        out.keys.dedup();
        out
    }
}

fn look_up(name: &str, files: &[PathBuf], tools: &SshTools) -> Result<Lines, KnownHostError> {
    let mut out = Lines::default();
    for file in files.iter().filter(|file| file.is_file()) {
        let ended = tools
            .tool("ssh-keygen")
            .map_err(KnownHostError::Tool)?
            .arg("-F")
            .arg(name)
            .arg("-f")
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .map_err(KnownHostError::Tool)?;
        let said = String::from_utf8_lossy(&ended.stderr).trim().escape_debug().to_string();
        // ssh-keygen fails without a message if the host is not in the file.
        if !ended.status.success() && !said.is_empty() {
            return Err(KnownHostError::Read { file: file.clone(), said });
        }
        out.extend(Lines::parse(&String::from_utf8_lossy(&ended.stdout)));
    }
    Ok(out)
}
