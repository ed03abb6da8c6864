//! Servers on loopback. All of 127.0.0.0/8 is local, so that several hosts can have different addresses and the same port.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const ALLOWED: &str = "127.0.0.10";
pub const EVIL: &str = "127.0.0.66";

/// A server that handles each connection with a function of the test.
pub struct Peer {
    pub address: SocketAddr,
    connections: Arc<(Mutex<usize>, Condvar)>,
}

impl Peer {
    pub fn start(address: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind((address, 0)).unwrap(), serve)
    }

    pub fn on(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let connections: Arc<(Mutex<usize>, Condvar)> = Arc::default();
        let count = Arc::clone(&connections);
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                *count.0.lock().unwrap() += 1;
                count.1.notify_all();
                stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    pub fn count(&self) -> usize {
        *self.connections.0.lock().unwrap()
    }

    /// Waits until so many connections were accepted.
    pub fn wait_for(&self, wanted: usize) {
        let (count, changed) = &*self.connections;
        let limit = Duration::from_secs(30);
        let waited =
            changed.wait_timeout_while(count.lock().unwrap(), limit, |count| *count < wanted).unwrap();
        assert!(!waited.1.timed_out(), "{} of {wanted} connections", *waited.0);
    }
}

/// What an HTTP server got: the head as sent, and the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub head: String,
    pub body: Vec<u8>,
}

/// Servers with different responses at different addresses and the same port.
pub struct Hosts {
    pub port: u16,
    pub allowed: Peer,
    pub evil: Peer,
    pub got: Arc<Mutex<Vec<Got>>>,
}

impl Hosts {
    pub fn start() -> Self {
        loop {
            let allowed = TcpListener::bind((ALLOWED, 0)).unwrap();
            let port = allowed.local_addr().unwrap().port();
            // Another test may have taken this port at that address.
            let Ok(evil) = TcpListener::bind((EVIL, port)) else { continue };
            let got: Arc<Mutex<Vec<Got>>> = Arc::default();
            let sink = Arc::clone(&got);
            let allowed = Peer::on(allowed, move |stream| http(stream, "WELCOME", &sink));
            let evil = Peer::on(evil, |stream| http(stream, "LEAK", &Mutex::default()));
            return Self { port, allowed, evil, got };
        }
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

/// Speaks just enough HTTP to answer each request with one word.
pub fn http(stream: TcpStream, word: &str, got: &Mutex<Vec<Got>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = request(&mut reader) {
        let without_body = request.head.starts_with("HEAD");
        got.lock().unwrap().push(request);
        let body = if without_body { "" } else { word };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Secret-Hop: 1\r\nConnection: x-secret-hop\r\n\r\n{body}",
            word.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the next complete request.
pub fn request(reader: &mut impl BufRead) -> Option<Got> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some(length) = lower.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut body).ok()?;
    } else if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    Some(Got { head, body })
}
