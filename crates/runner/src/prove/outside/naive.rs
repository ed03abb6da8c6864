//! A proxy that tolerates everything and has no rules. It listens in the made-up internet alone, and shows that a probe
//! of the real proxy could succeed.
//!
//! It reads names as C does (up to a NUL), ignores user information, resolves a name twice, trusts `Host`, follows
//! redirects, and requires no token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the process ends.
pub(super) fn serve(at: SocketAddr) {
    let Ok(listener) = TcpListener::bind(at) else { return };
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || one(&stream));
    }
}

/// `None` if the client or the host closes the connection; it need not be reported.
fn one(stream: &TcpStream) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    if reader.fill_buf().ok()?.first() == Some(&5) {
        return socks(reader, stream);
    }
    let (line, headers) = head(&mut reader)?;
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target) = (parts.next()?, parts.next()?);
    let mut answer = stream;
    if method == b"CONNECT" {
        let upstream = dial(target)?;
        answer.write_all(b"HTTP/1.1 200 Fine\r\n\r\n").ok()?;
        return both_ways(reader, stream, upstream);
    }
    let (authority, path) = match target.strip_prefix(b"http://") {
        Some(url) => url.split_at(url.iter().position(|byte| *byte == b'/').unwrap_or(url.len())),
        None => (host_of(&headers)?, target),
    };
    let mut upstream = dial(authority)?;
    upstream.write_all(&[method, b" ", path, b" HTTP/1.1\r\n", &headers, b"\r\n"].concat()).ok()?;
    let mut all = Vec::new();
    upstream.read_to_end(&mut all).ok()?;
    follow(&all);
    answer.write_all(&all).ok()
}

fn follow(answer: &[u8]) -> Option<()> {
    let text = String::from_utf8_lossy(answer);
    let place = text.lines().find_map(|line| line.strip_prefix("Location: http://"))?;
    let (authority, path) = place.split_once('/')?;
    let mut upstream = dial(authority.as_bytes())?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    upstream.write_all(request.as_bytes()).ok()?;
    upstream.read_to_end(&mut Vec::new()).map(drop).ok()
}

fn head(reader: &mut impl BufRead) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = Vec::new();
        if reader.read_until(b'\n', &mut header).ok()? == 0 || header.trim_ascii().is_empty() {
            return Some((line, headers));
        }
        headers.extend(header);
    }
}

fn host_of(headers: &[u8]) -> Option<&[u8]> {
    headers.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Host:")).map(<[u8]>::trim_ascii)
}

fn socks(mut reader: BufReader<TcpStream>, stream: &TcpStream) -> Option<()> {
    let mut answer = stream;
    let bytes = |reader: &mut BufReader<TcpStream>, count: usize| {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let greeting = bytes(&mut reader, 2)?;
    bytes(&mut reader, usize::from(*greeting.get(1)?))?;
    answer.write_all(&[5, 2]).ok()?;
    bytes(&mut reader, 1)?;
    for _ in ["user", "password"] {
        let length = *bytes(&mut reader, 1)?.first()?;
        bytes(&mut reader, usize::from(length))?;
    }
    answer.write_all(&[1, 0]).ok()?;
    let kind = *bytes(&mut reader, 4)?.get(3)?;
    let mut host = if kind == 1 {
        let address: [u8; 4] = bytes(&mut reader, 4)?.try_into().ok()?;
        IpAddr::from(address).to_string().into_bytes()
    } else {
        let length = *bytes(&mut reader, 1)?.first()?;
        bytes(&mut reader, usize::from(length))?
    };
    let port: [u8; 2] = bytes(&mut reader, 2)?.try_into().ok()?;
    host.extend(format!(":{}", u16::from_be_bytes(port)).into_bytes());
    let upstream = dial(&host)?;
    answer.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    both_ways(reader, stream, upstream)
}

/// Connects to the address that a careless parser would read from these bytes.
fn dial(authority: &[u8]) -> Option<TcpStream> {
    let text = String::from_utf8_lossy(authority).replace("%2e", ".").to_ascii_lowercase();
    let text = text.rsplit('@').next()?;
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "80"));
    let port: u16 = port.parse().unwrap_or(80);
    let host = host.split('\0').next()?.trim_end_matches('.').trim_matches(['[', ']']);
    // Resolved once as if to check, and again to connect.
    (host, port).to_socket_addrs().ok()?;
    let found = (host, port).to_socket_addrs().ok()?;
    let stream = found.into_iter().find_map(|at| TcpStream::connect(at).ok())?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

fn both_ways(mut reader: BufReader<TcpStream>, stream: &TcpStream, upstream: TcpStream) -> Option<()> {
    let mut up = upstream.try_clone().ok()?;
    std::thread::spawn(move || {
        std::io::copy(&mut reader, &mut up).ok();
        up.shutdown(std::net::Shutdown::Write).ok();
    });
    let (mut from, mut to) = (upstream, stream);
    // Either side may close the connection.
    std::io::copy(&mut from, &mut to).ok();
    stream.shutdown(std::net::Shutdown::Both).ok()
}
