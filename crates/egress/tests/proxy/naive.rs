//! A lenient proxy without rules, which every probe has to get through.
//!
//! It reads names as C does (up to a NUL), percent-decodes them, accepts numbers as addresses, ignores user names in URLs,
//! looks a name up repeatedly, trusts `Host`, and needs no token. An address outside of loopback is not dialled but
//! reported as a leak, because tests must not send anything anywhere else.

use crate::world::Names;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

pub fn start(names: Arc<Names>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let names = Arc::clone(&names);
            std::thread::spawn(move || serve(&stream.unwrap(), &names));
        }
    });
    address
}

fn serve(stream: &TcpStream, names: &Names) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    if reader.fill_buf().ok()?.first() == Some(&5) {
        return socks(reader, stream, names);
    }
    let (line, headers) = head(&mut reader)?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?.to_vec(), words.next()?.to_vec());
    if method == b"CONNECT" {
        let mut answer = stream;
        let upstream = dial(&target, names, answer)?;
        answer.write_all(b"HTTP/1.1 200 Fine\r\n\r\n").ok()?;
        return both_ways(reader, stream, upstream);
    }
    let lower: Vec<u8> = headers.to_ascii_lowercase();
    let host = line_of(&lower, b"host:").map(|value| value.trim_ascii().to_vec());
    let url = target.strip_prefix(b"http://").map(<[u8]>::to_vec);
    let (authority, path) = match url {
        Some(url) => {
            let end = url.iter().position(|byte| *byte == b'/').unwrap_or(url.len());
            (url[..end].to_vec(), url[end..].to_vec())
        }
        None => (host?, target),
    };
    let mut answer = stream;
    let mut upstream = dial(&authority, names, answer)?;
    upstream.write_all(&[&method[..], b" ", &path, b" HTTP/1.1\r\n", &headers, b"\r\n"].concat()).ok()?;
    answer.flush().ok()?;
    both_ways(reader, stream, upstream)
}

fn head(reader: &mut impl BufRead) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = Vec::new();
        reader.read_until(b'\n', &mut header).ok()?;
        if header.trim_ascii().is_empty() {
            return Some((line, headers));
        }
        headers.extend(header);
    }
}

fn line_of<'h>(headers: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    headers.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))
}

fn socks(mut reader: BufReader<TcpStream>, stream: &TcpStream, names: &Names) -> Option<()> {
    let mut answer = stream;
    let mut two = [0; 2];
    reader.read_exact(&mut two).ok()?;
    let mut ways = vec![0; usize::from(two[1])];
    reader.read_exact(&mut ways).ok()?;
    answer.write_all(&[5, 2]).ok()?;
    let mut one = [0; 1];
    reader.read_exact(&mut one).ok()?;
    for _ in ["user", "password"] {
        reader.read_exact(&mut one).ok()?;
        let mut text = vec![0; usize::from(one[0])];
        reader.read_exact(&mut text).ok()?;
    }
    answer.write_all(&[1, 0]).ok()?;
    let mut four = [0; 4];
    reader.read_exact(&mut four).ok()?;
    let mut host = match four[3] {
        1 => {
            let mut address = [0; 4];
            reader.read_exact(&mut address).ok()?;
            IpAddr::from(address).to_string().into_bytes()
        }
        _ => {
            let mut length = [0; 1];
            reader.read_exact(&mut length).ok()?;
            let mut name = vec![0; usize::from(length[0])];
            reader.read_exact(&mut name).ok()?;
            name
        }
    };
    let mut port = [0; 2];
    reader.read_exact(&mut port).ok()?;
    host.extend(format!(":{}", u16::from_be_bytes(port)).into_bytes());
    let upstream = dial(&host, names, std::io::sink())?;
    answer.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    both_ways(reader, stream, upstream)
}

/// Where a careless parser takes the bytes of an authority to lead.
fn dial(authority: &[u8], names: &Names, mut report: impl Write) -> Option<TcpStream> {
    let text = String::from_utf8_lossy(authority).replace("%2e", ".").replace("%00", "\0");
    let text = text.rsplit('@').next()?.to_ascii_lowercase();
    let (host, port) = text.rsplit_once(':').unwrap_or((&text, "80"));
    let port: u16 = port.parse().unwrap_or(80);
    let host = host.split('\0').next()?.trim_end_matches('.').trim_matches(['[', ']']);
    // Resolved once to check and once to dial.
    names.look_up(host);
    let address = match names.look_up(host) {
        Some(found) => *found.first()?,
        None => (host, port).to_socket_addrs().ok()?.next()?.ip(),
    };
    if address.is_loopback() || address.is_unspecified() {
        return TcpStream::connect((address, port)).ok();
    }
    report.write_all(format!("HTTP/1.1 200 OK\r\n\r\nLEAK to {address}:{port}").as_bytes()).ok()?;
    None
}

fn both_ways(mut reader: BufReader<TcpStream>, stream: &TcpStream, upstream: TcpStream) -> Option<()> {
    let mut up = upstream.try_clone().unwrap();
    std::thread::spawn(move || {
        std::io::copy(&mut reader, &mut up).ok();
        up.shutdown(std::net::Shutdown::Write).ok();
    });
    let (mut from, mut to) = (upstream, stream);
    std::io::copy(&mut from, &mut to).ok();
    stream.shutdown(std::net::Shutdown::Both).ok()
}
