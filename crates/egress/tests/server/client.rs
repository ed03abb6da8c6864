//! A client that sees every byte: requests are written as text, responses are kept unchanged.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use belljar_egress::script::{Listen, Script, ScriptedModel};
use serde_json::{Value, json};

/// No read of these tests may take longer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Either kind of connection.
pub enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Lower-case names.
    pub headers: Vec<(String, String)>,
    /// Chunks of a chunked body, or the whole body as one.
    pub chunks: Vec<String>,
    pub end: End,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Complete,
    Closed,
    Reset,
}

/// A model on each kind of address, all with the same script.
pub fn on_both(script: &Script, check: impl Fn(&ScriptedModel)) {
    let directory = tempfile::tempdir().unwrap();
    for listen in [Listen::loopback(), Listen::unix(directory.path().join("model.sock"))] {
        check(&ScriptedModel::start(script.clone(), listen).unwrap());
    }
}

/// A model on TCP.
pub fn started(script: Script) -> ScriptedModel {
    ScriptedModel::start(script, Listen::loopback()).unwrap()
}

/// A request that offers a tool, so that it takes a turn.
pub fn asking(text: &str) -> Value {
    json!({
        "model": "asked-for",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
    })
}

/// The same, to be streamed.
pub fn asking_for_a_stream(text: &str) -> Value {
    let mut body = asking(text);
    body["stream"] = json!(true);
    body
}

/// The bytes of a POST.
pub fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Asks once, on a connection of its own.
pub fn ask(model: &ScriptedModel, body: &Value) -> Response {
    Client::connect(model).ask(body)
}

impl Client {
    pub fn connect(model: &ScriptedModel) -> Self {
        match (model.tcp_address(), model.socket_path()) {
            (Some(address), _) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                stream.set_write_timeout(Some(DEADLINE)).unwrap();
                Self::Tcp(stream)
            }
            (None, Some(path)) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                stream.set_write_timeout(Some(DEADLINE)).unwrap();
                Self::Unix(stream)
            }
            (None, None) => panic!("the model has no address"),
        }
    }

    pub fn ask(&mut self, body: &Value) -> Response {
        self.send(&post("/v1/messages?beta=true", "", body.to_string().as_bytes()));
        self.response()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    /// Everything until the connection ends, and how it ended.
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        loop {
            if let Some(end) = self.more(&mut bytes) {
                return (bytes, end);
            }
        }
    }

    /// Reads one response; the connection can be used again afterwards.
    pub fn response(&mut self) -> Response {
        self.response_to("POST")
    }

    /// Reads the response to a method; one to HEAD has no body.
    pub fn response_to(&mut self, method: &str) -> Response {
        let mut bytes = Vec::new();
        loop {
            if let Some(response) = Response::parse(&bytes, method, End::Complete) {
                return response;
            }
            if let Some(end) = self.more(&mut bytes) {
                return Response::parse(&bytes, method, end).unwrap();
            }
        }
    }

    fn more(&mut self, bytes: &mut Vec<u8>) -> Option<End> {
        let mut buffer = [0; 8192];
        match self.read(&mut buffer) {
            Ok(0) => return Some(End::Closed),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Some(End::Reset),
            Err(error) => panic!("no answer: {error}"),
        }
        None
    }
}

impl Response {
    /// A complete response, or whatever there is of one if the connection has ended.
    fn parse(bytes: &[u8], method: &str, end: End) -> Option<Self> {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, mut body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?[..3].parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut response = Self { status, headers, chunks: Vec::new(), end };
        if method == "HEAD" {
            return Some(response);
        }
        if let Some(length) = response.header("content-length") {
            let complete = body.len() == length.parse::<usize>().unwrap();
            response.chunks.push(body.to_owned());
            return (complete || end != End::Complete).then_some(response);
        }
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        while let Some((size, after)) = body.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap();
            let Some(chunk) = after.get(..size) else { break };
            let Some(rest) = after[size..].strip_prefix("\r\n") else { break };
            if size == 0 {
                assert_eq!(rest, "");
                return Some(response);
            }
            response.chunks.push(chunk.to_owned());
            body = rest;
        }
        (end != End::Complete).then_some(response)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.chunks.concat()).unwrap()
    }

    /// Text of the first block.
    pub fn text(&self) -> String {
        self.json()["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Names of the events of a stream.
    pub fn events(&self) -> Vec<&str> {
        let event = |chunk: &'_ String| chunk.strip_prefix("event: ").map(|rest| rest.find('\n').unwrap());
        self.chunks.iter().map(|chunk| &chunk[7..7 + event(chunk).unwrap()]).collect()
    }
}
