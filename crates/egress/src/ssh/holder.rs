//! Makes an ssh agent hold the private keys: the user's own agent, or one that is started for the run.
//!
//! belljar itself never reads a private key. `ssh-add` reads it and asks for its passphrase; `ssh-agent` keeps it in memory
//! that other processes of the user cannot read. This works for every type of key that ssh supports.

use super::grant::SshGrant;
use super::known_hosts::{KnownHostError, host_keys};
use super::outer_agent;
use super::public_half::{PrivateHalf, PublicHalf, PublicHalfError, public_half};
use super::tool::SshTools;
use belljar_contract::{SshEntry, SshFound, SshPublicKey};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How much of a tool's error output is quoted.
const SAID_MAX: usize = 2000;

/// Why the keys of an `ssh` entry are not known.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    #[error("the key of the ssh host `{host}` cannot be used")]
    Key {
        host: String,
        #[source]
        cause: PublicHalfError,
    },
    #[error("the host keys of the ssh host `{host}` are not known")]
    Host {
        host: String,
        #[source]
        cause: KnownHostError,
    },
}

/// Finds the public key of each entry, and the keys of its host.
///
/// # Errors
/// See [`LookUpError`].
pub fn look_up(
    entries: &[SshEntry],
    known_hosts: &[PathBuf],
    tools: &SshTools,
) -> Result<Vec<SshFound>, LookUpError> {
    let one = |entry: &SshEntry| {
        let host = || entry.host.clone();
        let half = public_half(entry.identity_file.as_path());
        let half = half.map_err(|cause| LookUpError::Key { host: host(), cause })?;
        let keys = host_keys(entry, known_hosts, tools);
        let host_keys = keys.map_err(|cause| LookUpError::Host { host: host(), cause })?;
        Ok(SshFound { host: host(), public_key: half.key, host_keys })
    };
    entries.iter().map(one).collect()
}

/// Why no agent holds a key.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The file has changed or is gone.
    #[error(transparent)]
    Key(#[from] PublicHalfError),
    #[error(
        "`{}` is a public key, and your ssh agent does not have its private key; add it with `ssh-add`, or name the file of the private key", .0.display()
    )]
    NotOffered(PathBuf),
    #[error(
        "the key `{}` has a passphrase and there is no terminal to ask for it; add the key to your own agent with `ssh-add`, or set SSH_ASKPASS", .0.display()
    )]
    NoTerminal(PathBuf),
    #[error("cannot create the directory `{}`", .path.display())]
    Directory {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot run `{program}`; it comes with OpenSSH's client")]
    Tool {
        program: &'static str,
        #[source]
        cause: io::Error,
    },
    #[error("`ssh-agent` did not start: {0}")]
    Agent(String),
    #[error("`ssh-add` could not add the key `{}`: {said}", .path.display())]
    Add { path: PathBuf, said: String },
    #[error(
        "the private key in `{path}` does not belong to its public key; is `{path}.pub` from another key?"
    )]
    OtherKey { path: String },
}

/// How the user can be asked for a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    Terminal,
    /// Only with the program in SSH_ASKPASS, if it is set.
    NoTerminal,
}

/// Everything that [`hold`] needs.
#[derive(Debug, Clone)]
pub struct HoldRequest<'a> {
    pub tools: &'a SshTools,
    /// The socket of the user's own agent, from SSH_AUTH_SOCK.
    pub user_agent: Option<&'a Path>,
    /// A directory that does not exist yet, for the socket of the run's agent. Only the user gets access to it.
    pub directory: &'a Path,
    pub asking: Asking,
    /// The value of SSH_ASKPASS.
    pub askpass: Option<OsString>,
    /// How long `ssh-add` may take without a terminal: it asks a program again after each wrong answer.
    pub patience: Duration,
}

/// The keys are held as long as this value exists.
#[derive(Debug)]
pub struct HeldKeys {
    /// What the broker may do with the keys.
    pub grants: Vec<SshGrant>,
    /// The run's own agent, if one was needed.
    _agent: Option<PrivateAgent>,
}

/// Makes an agent hold each key.
///
/// # Errors
/// See [`HoldError`]; nothing is left behind then.
pub fn hold(
    entries: &[SshEntry],
    found: &[SshFound],
    request: &HoldRequest<'_>,
) -> Result<HeldKeys, HoldError> {
    // An agent that cannot be reached has no keys.
    let offered: Vec<SshPublicKey> =
        request.user_agent.and_then(|socket| outer_agent::offered(socket).ok()).unwrap_or_default();
    let mut agent = None;
    let mut grants = Vec::new();
    for entry in entries {
        // An entry without a lookup gets nothing.
        let Some(found) = found.iter().find(|found| found.host == entry.host) else { continue };
        let socket = match request.user_agent {
            Some(socket) if offered.contains(&found.public_key) => socket.to_owned(),
            Some(_) | None => {
                let path = entry.identity_file.as_path();
                let half = public_half(path)?;
                may_be_added(path, &half, request)?;
                let agent = match &mut agent {
                    Some(agent) => agent,
                    none => none.insert(PrivateAgent::start(request.directory, request.tools)?),
                };
                agent.add(path, &found.public_key, request)?;
                agent.socket.clone()
            }
        };
        grants.push(SshGrant::new(entry, found, socket));
    }
    Ok(HeldKeys { grants, _agent: agent })
}

fn may_be_added(path: &Path, half: &PublicHalf, request: &HoldRequest<'_>) -> Result<(), HoldError> {
    let can_ask = request.asking == Asking::Terminal || request.askpass.is_some();
    match half.private {
        PrivateHalf::Elsewhere => Err(HoldError::NotOffered(path.to_owned())),
        PrivateHalf::Passphrase if !can_ask => Err(HoldError::NoTerminal(path.to_owned())),
        PrivateHalf::Passphrase | PrivateHalf::Plain | PrivateHalf::Unknown => Ok(()),
    }
}

/// Runs the agent as long as its standard input is open. It closes when belljar ends, for whatever reason, so that no
/// signal has to arrive. The agent is killed because it would keep the keys otherwise.
const KEEPER: &str = "ssh-agent -D -a \"$0\" & agent=$!\n\
                      exec >/dev/null; { while read -r line; do :; done; kill -9 $agent; } 2>/dev/null; wait $agent";

/// An agent that was started for the run. Dropping the value ends it and removes its directory.
#[derive(Debug)]
struct PrivateAgent {
    child: Child,
    directory: PathBuf,
    socket: PathBuf,
}

impl PrivateAgent {
    fn start(directory: &Path, tools: &SshTools) -> Result<Self, HoldError> {
        let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
        made.map_err(|cause| HoldError::Directory { path: directory.to_owned(), cause })?;
        let socket = directory.join("agent.sock");
        let spawned = tools.tool("sh").and_then(|mut shell| {
            shell
                .args(["-c", KEEPER])
                .arg(&socket)
                .stdin(Stdio::piped())
                .process_group(0)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        });
        let child = match spawned {
            Ok(child) => child,
            Err(cause) => {
                // The directory is empty.
                std::fs::remove_dir(directory).ok();
                return Err(HoldError::Tool { program: "ssh-agent", cause });
            }
        };
        let mut agent = Self { child, directory: directory.to_owned(), socket };
        let complaint = agent.child.stderr.take().map(heard);
        // The agent prints its socket when it listens; the end of its output means that it has ended.
        let mut line = String::new();
        if let Some(output) = agent.child.stdout.take() {
            BufReader::new(output).read_line(&mut line).ok();
        }
        if line.is_empty() {
            // The agent may still run with its output closed; closing its input ends it.
            drop(agent.child.stdin.take());
            let text = complaint.and_then(|complaint| complaint.recv().ok()).unwrap_or_default();
            return Err(HoldError::Agent(said(&text)));
        }
        Ok(agent)
    }

    fn add(
        &self,
        path: &Path,
        public_key: &SshPublicKey,
        request: &HoldRequest<'_>,
    ) -> Result<(), HoldError> {
        let mut command =
            request.tools.tool("ssh-add").map_err(|cause| HoldError::Tool { program: "ssh-add", cause })?;
        command.arg("-q").arg("--").arg(path).env("SSH_AUTH_SOCK", &self.socket).stdin(Stdio::null());
        match (request.asking, &request.askpass) {
            (Asking::Terminal, _) => {}
            (Asking::NoTerminal, Some(program)) => {
                command.env("SSH_ASKPASS", program).env("SSH_ASKPASS_REQUIRE", "force");
            }
            (Asking::NoTerminal, None) => {
                command.env("SSH_ASKPASS_REQUIRE", "force").env("SSH_ASKPASS", "/bin/false");
            }
        }
        // At a terminal the user decides how long to try.
        let within = match request.asking {
            Asking::Terminal => Duration::MAX,
            Asking::NoTerminal => request.patience,
        };
        let ended = ended_within(&mut command, within)
            .map_err(|cause| HoldError::Tool { program: "ssh-add", cause })?;
        if let Err(said) = ended {
            return Err(HoldError::Add { path: path.to_owned(), said });
        }
        let held = outer_agent::offered(&self.socket).map_err(|cause| HoldError::Agent(cause.to_string()))?;
        if held.contains(public_key) {
            Ok(())
        } else {
            Err(HoldError::OtherKey { path: path.display().to_string() })
        }
    }
}

impl Drop for PrivateAgent {
    fn drop(&mut self) {
        // Closing its input ends the agent. If it has already ended, the rest is the same.
        drop(self.child.stdin.take());
        self.child.wait().ok();
        std::fs::remove_file(&self.socket).ok();
        std::fs::remove_dir(&self.directory).ok();
    }
}

/// Runs a tool, for `within` at most; the inner error is its error output. ssh-add asks for passphrases on /dev/tty, so
/// that its error output is about the key.
fn ended_within(command: &mut Command, within: Duration) -> io::Result<Result<(), String>> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let complaint = child.stderr.take().map(heard);
    let ended = complaint.and_then(|complaint| complaint.recv_timeout(within).ok());
    let Some(text) = ended else {
        child.kill()?;
        child.wait()?;
        return Ok(Err(format!("it did not end within {} seconds", within.as_secs())));
    };
    Ok(if child.wait()?.success() { Ok(()) } else { Err(said(&text)) })
}

/// Reads an output to its end, so that a full pipe cannot block the tool; keeps the beginning.
fn heard(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // An error ends the output too, and the receiver may be gone.
        output.by_ref().take(SAID_MAX as u64).read_to_end(&mut text).ok();
        io::copy(&mut output, &mut io::sink()).ok();
        send.send(text).ok();
    });
    receive
}

/// A tool's output on one line, shortened.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..SAID_MAX).unwrap_or(bytes));
    let parts: Vec<&str> = text.split_whitespace().filter(|part| !part.chars().all(|c| c == '@')).collect();
    parts.join(" ").chars().filter(|c| !c.is_control()).collect()
}
