//! Who holds the private keys: the user's own agent, or one that is started for the run.
//!
//! belljar itself never does. `ssh-add` reads the key and asks for its passphrase; `ssh-agent` keeps it, in memory that
//! no other process of the user can look at. Every kind of key that ssh knows works that way.

use super::grant::SshGrant;
use super::known_hosts::{KnownHostError, host_keys};
use super::public_half::{PrivateHalf, PublicHalf, PublicHalfError, public_half};
use super::tool::Tools;
use super::upstream;
use belljar_contract::{SshEntry, SshFound, SshPublicKey};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How much of a tool's complaint is repeated.
const SAID_MAX: usize = 2000;

/// Why what has to be known about an `ssh` entry is not.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// Its key.
    #[error("the key of the ssh host `{host}` cannot be used")]
    Key {
        /// The alias.
        host: String,
        /// Why.
        #[source]
        cause: PublicHalfError,
    },
    /// Its host.
    #[error("the ssh host `{host}` cannot be told from another")]
    Host {
        /// The alias.
        host: String,
        /// Why.
        #[source]
        cause: KnownHostError,
    },
}

/// Finds the public half of each entry's key, and the keys of its host.
///
/// # Errors
/// See [`LookUpError`].
pub fn look_up(
    entries: &[SshEntry],
    known_hosts: &[PathBuf],
    tools: &Tools,
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

/// Why nobody holds a key.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The file changed, or is gone.
    #[error(transparent)]
    Key(#[from] PublicHalfError),
    /// The file is a public key, and the user's agent does not have the other half.
    #[error(
        "`{}` is a public key, and your ssh agent does not offer the private half; `ssh-add` it, or name the private key's file", .0.display()
    )]
    NotOffered(PathBuf),
    /// Nobody can be asked for the passphrase.
    #[error(
        "the key `{}` has a passphrase and there is no terminal to ask for it; `ssh-add` it to your own agent first, or set SSH_ASKPASS", .0.display()
    )]
    NoTerminal(PathBuf),
    /// The folder for the socket.
    #[error("cannot make the folder `{}`", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A program of OpenSSH's client cannot be run.
    #[error("cannot run `{program}`; it comes with OpenSSH's client")]
    Tool {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The agent ended before it began.
    #[error("`ssh-agent` did not start: {0}")]
    Agent(String),
    /// The key was not taken.
    #[error("`ssh-add` did not take the key `{}`: {said}", .path.display())]
    Add {
        /// The key's file.
        path: PathBuf,
        /// What it said.
        said: String,
    },
    /// The file holds another private key than its public half says.
    #[error(
        "the private key in `{path}` is another than its public half says; is `{path}.pub` of another key?"
    )]
    OtherKey {
        /// The key's file.
        path: String,
    },
}

/// Where a passphrase can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// At the user's terminal.
    Terminal,
    /// Nowhere but by the program that SSH_ASKPASS names, where one is named.
    NoTerminal,
}

/// What holding keys needs to know.
#[derive(Debug, Clone)]
pub struct HoldRequest<'a> {
    /// OpenSSH's programs.
    pub tools: &'a Tools,
    /// The socket of the user's own agent, as SSH_AUTH_SOCK outside says.
    pub user_agent: Option<&'a Path>,
    /// A folder that is not there yet, for the socket of an agent of ours; made for the user alone.
    pub folder: &'a Path,
    /// Where a passphrase is asked for.
    pub asking: Asking,
    /// What SSH_ASKPASS outside says.
    pub askpass: Option<OsString>,
    /// How long a key may take where there is no terminal: a program that answers wrongly is asked again and again.
    pub patience: Duration,
}

/// The keys are held as long as this is there.
#[derive(Debug)]
pub struct HeldKeys {
    /// What the broker may do with them.
    pub grants: Vec<SshGrant>,
    /// The agent of ours, where one was needed.
    _agent: Option<PrivateAgent>,
}

/// Sees to it that an agent holds each key.
///
/// # Errors
/// See [`HoldError`]; nothing is left behind then.
pub fn hold(
    entries: &[SshEntry],
    found: &[SshFound],
    request: &HoldRequest<'_>,
) -> Result<HeldKeys, HoldError> {
    // An agent that cannot be asked offers nothing.
    let offered: Vec<SshPublicKey> =
        request.user_agent.and_then(|socket| upstream::offered(socket).ok()).unwrap_or_default();
    let mut agent = None;
    let mut grants = Vec::new();
    for entry in entries {
        // An entry that was not looked up gets nothing.
        let Some(found) = found.iter().find(|found| found.host == entry.host) else { continue };
        let socket = match request.user_agent {
            Some(socket) if offered.contains(&found.public_key) => socket.to_owned(),
            Some(_) | None => {
                let path = entry.identity_file.as_path();
                let half = public_half(path)?;
                may_be_added(path, &half, request)?;
                let agent = match &mut agent {
                    Some(agent) => agent,
                    none => none.insert(PrivateAgent::start(request.folder, request.tools)?),
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

/// Keeps the agent for as long as its own input is open, which ends with belljar however belljar ends: no signal has to
/// arrive for that, and none of the terminal's does. The agent is killed, because it would keep the keys otherwise.
const KEEPER: &str = "ssh-agent -D -a \"$0\" & agent=$!\n\
                      exec >/dev/null; { while read -r line; do :; done; kill -9 $agent; } 2>/dev/null; wait $agent";

/// An agent that was started for the run. It ends, and its folder goes, with this value.
#[derive(Debug)]
struct PrivateAgent {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
}

impl PrivateAgent {
    fn start(folder: &Path, tools: &Tools) -> Result<Self, HoldError> {
        let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
        made.map_err(|cause| HoldError::Folder { path: folder.to_owned(), cause })?;
        let socket = folder.join("agent.sock");
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
                // Nothing is in it.
                std::fs::remove_dir(folder).ok();
                return Err(HoldError::Tool { program: "ssh-agent", cause });
            }
        };
        let mut agent = Self { child, folder: folder.to_owned(), socket };
        let complaint = agent.child.stderr.take().map(heard);
        // It says where it listens as soon as it does; the end of its output means that it ended.
        let mut line = String::new();
        if let Some(output) = agent.child.stdout.take() {
            BufReader::new(output).read_line(&mut line).ok();
        }
        if line.is_empty() {
            // It may live on with its output closed; then it has to end now.
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
        // At a terminal the user knows when it is enough.
        let within = match request.asking {
            Asking::Terminal => Duration::MAX,
            Asking::NoTerminal => request.patience,
        };
        let ended = ended_within(&mut command, within)
            .map_err(|cause| HoldError::Tool { program: "ssh-add", cause })?;
        if let Err(said) = ended {
            return Err(HoldError::Add { path: path.to_owned(), said });
        }
        let held = upstream::offered(&self.socket).map_err(|cause| HoldError::Agent(cause.to_string()))?;
        if held.contains(public_key) {
            Ok(())
        } else {
            Err(HoldError::OtherKey { path: path.display().to_string() })
        }
    }
}

impl Drop for PrivateAgent {
    fn drop(&mut self) {
        // The end of its input is the word to end. It may have ended by itself; what is left to do is the same.
        drop(self.child.stdin.take());
        self.child.wait().ok();
        std::fs::remove_file(&self.socket).ok();
        std::fs::remove_dir(&self.folder).ok();
    }
}

/// Runs a tool to its end, or ends it; what it complained of is the inner error. A terminal is asked by way of
/// /dev/tty, so that what it says here is about the key.
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

/// Listens to the end of an output, so that nobody is stopped by a full pipe; its beginning is kept.
fn heard(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // An error ends it as its end does, and nobody may be listening any more.
        output.by_ref().take(SAID_MAX as u64).read_to_end(&mut text).ok();
        io::copy(&mut output, &mut io::sink()).ok();
        send.send(text).ok();
    });
    receive
}

/// A tool's words, on one line and not endless.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..SAID_MAX).unwrap_or(bytes));
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.chars().all(|c| c == '@')).collect();
    words.join(" ").chars().filter(|c| !c.is_control()).collect()
}
