//! The hosts of the made-up internet: they record what they receive, and answer.

use belljar_contract::HostName;
use belljar_egress::intercept::CertificateAuthority;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a silent client is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long recording may take.
const SETTLING: Duration = Duration::from_secs(10);
const HEAD_LIMIT: usize = 64 << 10;
/// The name that resolves to another host each time, and the hosts that it resolves to.
const FLIPPING: &str = "flip.allowed.test";
const FLIPS: [[u8; 4]; 2] = [[10, 99, 0, 2], [10, 99, 0, 3]];
/// A request for this path is answered with a redirect to the host that is not allowed.
const REDIRECTED: &str = "/redirected-";

/// The received bytes, with the name of the receiver.
type Received = Mutex<Vec<(String, Vec<u8>)>>;

/// Everything that was received, and by which host.
#[derive(Default)]
pub(super) struct Peers {
    heard: Arc<Received>,
    /// Connections that are not recorded yet.
    active: Arc<AtomicUsize>,
    sockets: Mutex<Vec<OwnedFd>>,
}

type Speaker = Option<(HostName, Arc<CertificateAuthority>)>;

impl Peers {
    pub fn listen(&self, name: &str, listener: TcpListener, speaker: Speaker) -> io::Result<()> {
        self.watch(listener.try_clone()?.into());
        let (heard, active, name) = (Arc::clone(&self.heard), Arc::clone(&self.active), name.to_owned());
        std::thread::spawn(move || {
            while wait(listener.as_fd(), None) {
                // Counted before it is accepted: at every moment it is either waiting or counted.
                active.fetch_add(1, Ordering::SeqCst);
                let Ok((stream, _)) = listener.accept() else { return };
                let (heard, active, name, speaker) =
                    (Arc::clone(&heard), Arc::clone(&active), name.clone(), speaker.clone());
                std::thread::spawn(move || {
                    // If the client closes early, the bytes so far count.
                    converse(&name, stream, speaker.as_ref(), &heard).ok();
                    active.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(())
    }

    pub fn take_datagrams(&self, name: &str, socket: UdpSocket) -> io::Result<()> {
        self.watch(socket.try_clone()?.into());
        let (heard, active, name) = (Arc::clone(&self.heard), Arc::clone(&self.active), name.to_owned());
        std::thread::spawn(move || {
            let (mut buffer, mut flips) = ([0; 1500], FLIPS.iter().cycle());
            while wait(socket.as_fd(), None) {
                active.fetch_add(1, Ordering::SeqCst);
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
                let said = buffer.get(..length).unwrap_or_default();
                let asked = question(said);
                note(&heard, &name, asked.as_deref().unwrap_or_default().as_bytes());
                note(&heard, &name, said);
                let answer = asked.and_then(|asked| resolve(said, &asked, &mut flips));
                // The client may not wait for the answer.
                answer.map(|answer| socket.send_to(&answer, from));
                active.fetch_sub(1, Ordering::SeqCst);
            }
        });
        Ok(())
    }

    /// Whether any host, or the named one, received the text.
    pub fn heard(&self, name: Option<&str>, text: &str) -> bool {
        self.settle();
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut theirs = heard.iter().filter(|(who, _)| name.is_none_or(|name| name == who));
        theirs.any(|(_, bytes)| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    }

    fn watch(&self, socket: OwnedFd) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    /// Waits until everything received is recorded.
    fn settle(&self) {
        let until = Instant::now() + SETTLING;
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = || sockets.iter().any(|socket| wait(socket.as_fd(), Some(Duration::ZERO)));
        while (waiting() || self.active.load(Ordering::SeqCst) > 0) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn note(heard: &Received, name: &str, bytes: &[u8]) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), bytes.to_vec()));
}

/// Whether a connection or packet arrives in time.
fn wait(socket: BorrowedFd<'_>, within: Option<Duration>) -> bool {
    let within = within.and_then(|within| Timespec::try_from(within).ok());
    loop {
        let mut polled = [PollFd::new(&socket, PollFlags::IN)];
        match rustix::event::poll(&mut polled, within.as_ref()) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn converse(
    name: &str,
    stream: TcpStream,
    speaker: Option<&(HostName, Arc<CertificateAuthority>)>,
    heard: &Received,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    match speaker {
        Some((host, authority)) => talk(name, &mut authority.answer_as(host, stream)?, heard),
        None => talk(name, &mut &stream, heard),
    }
}

/// Reads one request, or any other bytes, and answers with what was received.
fn talk(name: &str, stream: &mut (impl Read + Write), heard: &Received) -> io::Result<()> {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while !said.windows(4).any(|end| end == b"\r\n\r\n") && said.len() < HEAD_LIMIT {
        let Ok(count @ 1..) = stream.read(&mut part) else { break };
        said.extend_from_slice(part.get(..count).unwrap_or_default());
    }
    note(heard, name, &said);
    let text = String::from_utf8_lossy(&said);
    let path = text.split(' ').nth(1).unwrap_or_default();
    let mark = path.find(REDIRECTED).and_then(|at| path.get(at + REDIRECTED.len()..));
    let answer = match mark {
        Some(mark) => format!(
            "HTTP/1.1 302 Found\r\nLocation: http://evil.test/followed-{mark}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ),
        None => {
            let body = format!("{name}, a host of the proof\n{text}");
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        }
    };
    stream.write_all(answer.as_bytes())?;
    stream.flush()
}

/// The name in a DNS query.
fn question(packet: &[u8]) -> Option<String> {
    let mut name = String::new();
    let mut at = 12;
    loop {
        let length = usize::from(*packet.get(at)?);
        if length == 0 {
            return Some(name);
        }
        let label = std::str::from_utf8(packet.get(at + 1..at + 1 + length)?).ok()?;
        name = if name.is_empty() { label.to_owned() } else { format!("{name}.{label}") };
        at += 1 + length;
    }
}

/// Only the flipping name resolves.
fn resolve<'a>(query: &[u8], asked: &str, flips: &mut impl Iterator<Item = &'a [u8; 4]>) -> Option<Vec<u8>> {
    // The header, the name with its length bytes and the end, the type and the class.
    let end = 12 + asked.len() + 2 + 4;
    let kind = query.get(end - 3).copied()?;
    let known = asked.eq_ignore_ascii_case(FLIPPING);
    let mut answer = query.get(..end)?.to_vec();
    let counts = [0, 1, 0, u8::from(known && kind == 1), 0, 0, 0, 0];
    answer.get_mut(2..4)?.copy_from_slice(&[0x81, if known { 0x80 } else { 0x83 }]);
    answer.get_mut(4..12)?.copy_from_slice(&counts);
    if known && kind == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(flips.next()?);
    }
    Some(answer)
}
