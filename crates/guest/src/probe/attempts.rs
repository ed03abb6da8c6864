//! Attempts that a file lists: files, sockets, processes, scripts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use belljar_contract::{Attempt, AttemptRequest, ProcessFile};
use belljar_sys::process;

use super::{Outcome, PROBES, ProbeContext, Seen, answered, run_one, search, speak, unsupported, use_up};

/// More than any list of attempts, and than any file that is looked into.
const READ_LIMIT: u64 = 4 << 20;
/// Longer than any script of a probe takes.
const SCRIPT_TIME: Duration = Duration::from_secs(120);
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The most characters of a script's standard error that are shown.
const COMPLAINT: usize = 300;

pub(super) fn read(path: &str) -> io::Result<Vec<AttemptRequest>> {
    let mut text = String::new();
    File::open(path)?.take(READ_LIMIT).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

pub(super) fn attempt(attempt: &Attempt, context: &ProbeContext) -> Seen {
    match attempt {
        Attempt::Read { path, holds } => holding(bytes_of(path), holds),
        Attempt::ReadThroughLink { link, path, holds } => {
            let planted = std::os::unix::fs::symlink(path, link);
            holding(planted.and_then(|()| bytes_of(link)), holds)
        }
        Attempt::Write { path } => outcome_of(
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .and_then(|mut file| file.write_all(b"belljar was here\n")),
        ),
        Attempt::Link { at, to } => outcome_of(std::os::unix::fs::symlink(to, at)),
        Attempt::MakeDirectory { path } => outcome_of(fs::create_dir(path)),
        Attempt::OpenAny { paths } => any(paths, |path| File::open(path).map(drop)),
        Attempt::ConnectUnix { paths } => any(paths, |path| UnixStream::connect(path).map(drop)),
        Attempt::ConnectTcp { address } => outcome_of(
            parsed(address).and_then(|address| TcpStream::connect_timeout(&address, CONNECT_TIME)).map(drop),
        ),
        Attempt::SendUdp { address } => outcome_of(parsed(address).and_then(|to| send(to, b"belljar"))),
        Attempt::SendDatagram { address, say } => {
            outcome_of(parsed(address).and_then(|to| send(to, say.as_bytes())))
        }
        Attempt::LookUp { name } => speak::look_up(name),
        Attempt::Speak { to, say, holds } => speak::speak(to, say, holds),
        Attempt::SpeakToProxy { say, holds } => speak::to_proxy(say, holds),
        Attempt::Search { holds, below } => search::everywhere(holds, below),
        Attempt::Beside { variable, holds } => search::beside(variable, holds),
        Attempt::Environment { holds } => search::environment(holds),
        Attempt::Processes { file, holds } => processes(*file, holds),
        Attempt::Parent { file, holds } => holding(
            bytes_of(&format!("/proc/{}/{}", std::os::unix::process::parent_id(), file.name())),
            holds,
        ),
        Attempt::Hostname => {
            let name = rustix::system::uname().nodename().to_bytes().to_vec();
            answered(rustix::system::sethostname(&name), &[])
        }
        Attempt::Named { probe } => match PROBES.iter().find(|known| known.name == probe) {
            Some(known) => {
                let finding = run_one(known, context);
                (finding.outcome, finding.detail)
            }
            None => unsupported("this guest has no such probe"),
        },
        Attempt::Fill { places, bytes } => use_up::fill(places, *bytes),
        Attempt::Threads { count } => use_up::threads(*count),
        Attempt::Shell { script } => shell(script),
    }
}

pub(super) fn outcome_of(answer: io::Result<()>) -> Seen {
    match answer {
        Ok(()) => (Outcome::Open, "done".to_owned()),
        Err(error) => (Outcome::Closed { errno: error.raw_os_error() }, error.to_string()),
    }
}

pub(super) fn absent() -> Seen {
    (Outcome::Closed { errno: None }, "not there".to_owned())
}

pub(super) fn bytes_of(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    !wanted.is_empty() && bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn holding(read: io::Result<Vec<u8>>, holds: &str) -> Seen {
    match read {
        Ok(bytes) if contains(&bytes, holds.as_bytes()) => (Outcome::Open, "read".to_owned()),
        Ok(_) => absent(),
        Err(error) => (Outcome::Closed { errno: error.raw_os_error() }, error.to_string()),
    }
}

/// Open if one of the paths is; otherwise the outcome of the last.
fn any(paths: &[String], attempt: impl Fn(&str) -> io::Result<()>) -> Seen {
    let mut last = absent();
    for path in paths {
        last = outcome_of(attempt(path));
        if last.0 == Outcome::Open {
            return (Outcome::Open, path.clone());
        }
    }
    last
}

fn parsed(address: &str) -> io::Result<SocketAddr> {
    address.parse().map_err(io::Error::other)
}

fn send(to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(from)?.send_to(bytes, to).map(drop)
}

pub(super) fn processes(file: ProcessFile, holds: &str) -> Seen {
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => return outcome_of(Err(error)),
    };
    let own = std::process::id();
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut looked = 0;
    for number in numbers.filter(|number| *number != own) {
        // A process that has just ended, or belongs to another user, cannot be read.
        let Ok(bytes) = bytes_of(&format!("/proc/{number}/{}", file.name())) else { continue };
        looked += 1;
        if contains(&bytes, holds.as_bytes()) {
            return (Outcome::Open, format!("in process {number}"));
        }
    }
    (Outcome::Closed { errno: None }, format!("in none of {looked} processes"))
}

/// Runs a script. Processes that it leaves behind are not waited for.
fn shell(script: &str) -> Seen {
    let said = match rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(said) => File::from(said),
        Err(errno) => return unsupported(&errno.to_string()),
    };
    let mut said_again = match said.try_clone() {
        Ok(copy) => copy,
        Err(error) => return unsupported(&error.to_string()),
    };
    // outside: prove-attempt
    let child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(said))
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return unsupported(&error.to_string()),
    };
    let Some(status) = process::end_in_time(&mut child, SCRIPT_TIME) else {
        return unsupported("the script does not end");
    };
    if status.success() {
        return (Outcome::Open, "the script ended with 0".to_owned());
    }
    let mut message = String::new();
    let read = said_again.rewind().and_then(|()| said_again.take(READ_LIMIT).read_to_string(&mut message));
    let message = if read.is_ok() { message.trim() } else { "" };
    let last: Vec<char> = message.chars().rev().take(COMPLAINT).collect();
    let last: String = last.into_iter().rev().collect();
    (
        Outcome::Closed { errno: None },
        format!("the script ended with {status}: {}", last.replace('\n', " | ")),
    )
}
