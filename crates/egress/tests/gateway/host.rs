//! A model's host that sends exactly the bytes of a test.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::DEADLINE;

#[derive(Debug, Clone)]
pub struct Seen {
    /// Method, path and headers, names in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What happens to a connection after a response.
pub enum Then {
    Keep,
    Close,
}

type Script = dyn Fn(&mut TcpStream, &Seen) -> Then + Send + Sync;

/// The host. Its threads end with their connections.
pub struct Host {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Host {
    pub fn start(script: impl Fn(&mut TcpStream, &Seen) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (keep, count) = (Arc::clone(&seen), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let (keep, script) = (Arc::clone(&keep), Arc::clone(&script));
                std::thread::spawn(move || serve(stream, &keep, &script));
            }
        });
        Self { port, seen, connections }
    }

    /// A host that answers every request with the same bytes and keeps the connection.
    pub fn always(answer: Vec<u8>) -> Self {
        Self::start(move |stream, _| {
            stream.write_all(&answer).ok();
            Then::Keep
        })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Drops the recorded requests.
    pub fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, keep: &Mutex<Vec<Seen>>, script: &Arc<Script>) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_nodelay(true).unwrap();
    while let Ok(Some(seen)) = read_request(&mut stream) {
        keep.lock().unwrap().push(seen.clone());
        match script(&mut stream, &seen) {
            Then::Keep => (),
            Then::Close => return,
        }
    }
}

fn read_request(stream: &mut TcpStream) -> io::Result<Option<Seen>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let (first, rest) = head.split_once("\r\n").unwrap();
            let head = format!("{first}\n{}", lower_names(rest));
            let mut seen = Seen { head, body: bytes[end + 4..].to_vec() };
            let length: usize = seen.header("content-length").unwrap().parse().unwrap();
            while seen.body.len() < length {
                match stream.read(&mut buffer)? {
                    0 => return Ok(None),
                    read => seen.body.extend_from_slice(&buffer[..read]),
                }
            }
            return Ok(Some(seen));
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn lower_names(headers: &str) -> String {
    let lines = headers.split("\r\n").map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        format!("{}: {value}\n", name.to_lowercase())
    });
    lines.collect()
}

/// A complete response with a content length.
pub fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A message in one document, with these input and output token counts.
pub fn message(input: u64, output: u64) -> Vec<u8> {
    let body = json!({
        "type": "message", "model": "claude-opus-4-8", "content": [{"type": "text", "text": "hi"}],
        "usage": {"input_tokens": input, "output_tokens": output},
    });
    answer("200 OK", "content-type: application/json\r\n", body.to_string().as_bytes())
}

/// The head of a stream.
pub const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A piece of a stream.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The end of a stream.
pub const STREAM_END: &[u8] = b"0\r\n\r\n";

pub fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// The events of a stream with this text and these input and output token counts.
pub fn events(text: &str, input: u64, output: u64) -> Vec<String> {
    [
        json!({"type": "message_start", "message": {"model": "claude-opus-4-8",
            "usage": {"input_tokens": input, "cache_read_input_tokens": 2, "output_tokens": 1}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}),
        json!({"type": "message_stop"}),
    ]
    .iter()
    .map(event)
    .collect()
}

/// A complete stream, one chunk for each event.
pub fn stream(text: &str, input: u64, output: u64) -> Vec<u8> {
    let mut bytes = STREAM_HEAD.to_vec();
    events(text, input, output).iter().for_each(|event| bytes.extend(chunk(event.as_bytes())));
    bytes.extend(STREAM_END);
    bytes
}
